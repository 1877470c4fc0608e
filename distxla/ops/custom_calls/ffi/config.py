"""The `backend_config` of a custom-call: a dictionary as MLIR prints it, a JSON object, or any other string."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, TypeVar, overload

from distxla.lazy_dataclass import dataclass, field

T = TypeVar("T")

_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[{}\[\]<>,=:]|[^\s{}\[\]<>,=:"]+)')
_INTEGER = re.compile(r"[+-]?(?:0x[0-9a-fA-F]+|[0-9]+)\Z")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z")
_CLOSING = {"{": "}", "[": "]", "<": ">"}


class ConfigError(ValueError):
    """The text is no dictionary, or an entry is missing or of another type; the message says which."""


@dataclass(frozen=True)
class BackendConfig:
    """text: as in the module, "" where there is none.  entries: of a dictionary; empty for other texts.

    Values are bool, int, float, str, lists and dictionaries of them. A value of a kind that none of these holds (a
    dense tensor, say) is its text.
    """

    text: str
    entries: Mapping[str, Any] = field(default_factory=dict)

    @overload
    def get(self, key: str, kind: type[T]) -> T: ...
    @overload
    def get(self, key: str, kind: type[T], default: T) -> T: ...
    def get(self, key: str, kind: type[Any], default: Any = ...) -> Any:
        """The entry as a `kind` (bool, int, float, str, list, dict); ConfigError where it is missing or another one.

        An integer is taken for a float, and 0 or 1 for a bool.
        """
        if key not in self.entries:
            if default is ...:
                raise ConfigError(f"backend_config has no {key!r}")
            return default
        value = self.entries[key]
        if kind is float and type(value) is int:
            return float(value)
        if kind is bool and type(value) is int and value in (0, 1):
            return bool(value)
        if type(value) is not kind:
            raise ConfigError(f"backend_config has {key} = {value!r} where a {kind.__name__} is due")
        return value

    def letter(self, key: str, default: str | None = None) -> str:
        """An entry that holds a character as LAPACK has it, written as its code (76 : ui8) or as a string ("L")."""
        if key not in self.entries and default is not None:
            return default
        value = self.entries.get(key)
        if type(value) is int and 0 < value < 128:
            return chr(value)
        if type(value) is str and len(value) == 1:
            return value
        raise ConfigError(f"backend_config has no character {key!r}")


def read_config(text: str | None) -> BackendConfig:
    """Parse a backend_config; ConfigError where it begins like a dictionary and is none."""
    if not text:
        return BackendConfig("")
    if not text.lstrip().startswith("{"):
        return BackendConfig(text)
    try:
        entries = json.loads(text)
    except ValueError:
        entries = DictionaryReader(text).dictionary_alone()
    return BackendConfig(text, entries)


class DictionaryReader:
    """`{a = 1 : i64, b = "s", c = [1, 2], d = array<i64: 1, 2>, e, f = {g = true}}`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[str] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                raise ConfigError(f"backend_config: {text[at : at + 20]!r} is no part of a dictionary")
            self.tokens.append(match[1])
            at = match.end()
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def accept(self, token: str) -> bool:
        if self.peek() != token:
            return False
        self.at += 1
        return True

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise ConfigError(f"backend_config: expected {token!r}, found {self.peek() or 'its end'!r}")

    def dictionary_alone(self) -> dict[str, Any]:
        found = self.dictionary()
        if self.peek():
            raise ConfigError(f"backend_config: {self.peek()!r} follows its end")
        return found

    def dictionary(self) -> dict[str, Any]:
        self.expect("{")
        found: dict[str, Any] = {}
        while not self.accept("}"):
            if found:
                self.expect(",")
            name = self.take()
            if not name or name in "{}[]<>,=:":
                raise ConfigError(f"backend_config: expected a name, found {name or 'its end'!r}")
            key = json.loads(name) if name.startswith('"') else name
            is_unit = not self.accept("=") and not self.accept(":")  # a name alone
            found[key] = True if is_unit else self.typed()
        return found

    def typed(self) -> Any:
        """A value, with its type after a colon, which says nothing that the value doesn't."""
        value = self.value()
        if self.accept(":"):
            value = self.with_type(value, self.type_text())
        return value

    def with_type(self, value: Any, name: str) -> Any:
        if name == "i1" and type(value) is int:
            return bool(value)
        return float(value) if name.startswith(("f", "bf")) and type(value) is int else value

    def type_text(self) -> str:
        """A type: a word, with the text in angle brackets behind it."""
        name = self.take()
        if self.peek() == "<":
            name += self.balanced()
        return name

    def balanced(self) -> str:
        """The text from an opening bracket to its closing one."""
        parts = [self.take()]
        depth = [_CLOSING[parts[0]]]
        while depth:
            token = self.take()
            if not token:
                raise ConfigError(f"backend_config: {depth[-1]!r} is missing at its end")
            parts.append(token)
            if token in _CLOSING:
                depth.append(_CLOSING[token])
            elif token == depth[-1]:
                depth.pop()
        return "".join(parts)

    def value(self) -> Any:
        token = self.peek()
        if token == "{":
            return self.dictionary()
        if token == "[":
            return self.items("[", "]")
        self.take()
        if token.startswith('"'):
            return json.loads(token)
        if token in ("true", "false"):
            return token == "true"
        if _INTEGER.match(token):
            return int(token, 0)
        if _FLOAT.match(token):
            return float(token)
        if token == "array" and self.peek() == "<":
            return self.array()
        if not token or token in "{}[]<>,=:":
            raise ConfigError(f"backend_config: expected a value, found {token or 'its end'!r}")
        return token + (self.balanced() if self.peek() == "<" else "")

    def items(self, opening: str, closing: str) -> list[Any]:
        self.expect(opening)
        found: list[Any] = []
        while not self.accept(closing):
            if found:
                self.expect(",")
            found.append(self.typed())
        return found

    def array(self) -> list[Any]:
        """`array<i64: 1, 2>`."""
        self.expect("<")
        name = self.type_text()
        found: list[Any] = []
        while not self.accept(">"):
            self.expect("," if found else ":")
            found.append(self.with_type(self.value(), name))
        return found
