"""A position in HLO text, and the small readers that everything else of the grammar is made of.

There is no list of tokens: each reader matches one compiled expression at the current position, so that a long module
costs a few matches an instruction.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from distxla.errors import HloSyntaxError, VerificationError
from distxla.ir.instruction import Span
from distxla.ir.module import Source
from distxla.lazy_dataclass import dataclass
from distxla.location import Location

MAX_DEPTH: Final = 64  # of nested shapes, operands, inline computations and shardings
MAX_DIGITS: Final = 20  # of an integer: 64 bits and a sign need no more

# Blanks and comments. A comment that never ends stays unread and is reported as found text. Possessive are single
# characters' repetitions only: of groups, Python before 3.11.5 matches them wrongly.
BLANK: Final = r"(?:[ \t\r\n\f\v]++|//[^\n]*+|/\*[^*]*+\*++(?:[^/*][^*]*+\*++)*/)*"
NAME: Final = r"[A-Za-z0-9_.\-]+"
WORD: Final = r"[A-Za-z_][A-Za-z0-9_.\-]*"

_BLANK = re.compile(BLANK)
_BLANKS_BEGIN: Final = " \t\r\n\f\v/"
_NAME = re.compile(rf"{BLANK}(?:%({NAME})|({WORD}))")
_WORD = re.compile(rf"{BLANK}({WORD})")
_INTEGER = re.compile(rf"{BLANK}(-?[0-9]+)")
_NUMBER = re.compile(rf"{BLANK}(-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|-?inf|-?nan)(?![\w.])")
_STRING = re.compile(rf'{BLANK}"([^"\\]*+(?:\\.[^"\\]*+)*)"', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_SIMPLE_ESCAPES = dict(zip("nrtabfv\"'\\?", "\n\r\t\a\b\f\v\"'\\?", strict=True))
_FLAT_BRACES = re.compile(r"\{[^{}()\[\]\"]*+\}")
_NESTING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*"|[{}()\[\]"]', re.DOTALL)
_BRACES = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*"|[{}"]', re.DOTALL)
_FOUND = re.compile(rf'%?{NAME}|"(?:[^"\\\n]|\\.)*"?|->|<=|\.\.\.|/\*|.', re.DOTALL)
_CLOSING = {"{": "}", "(": ")", "[": "]"}


def as_name(name: str) -> str:
    """A name as the text has it: behind % where it would read as something else, as a number does."""
    return name if re.fullmatch(WORD, name) else f"%{name}"


@dataclass(frozen=True, slots=True)
class LineIndex:
    """Offsets at which the lines of a text start."""

    starts: tuple[int, ...]

    @staticmethod
    def of(text: str) -> LineIndex:
        return LineIndex((0, *(m.end() for m in re.finditer("\n", text))))

    def span(self, start: int, end: int) -> Span:
        """The span of text[start:end], cut at the end of its first line."""
        line = bisect_right(self.starts, start)
        column = start - self.starts[line - 1] + 1
        if line < len(self.starts):
            end = min(end, self.starts[line] - 1)
        return Span(line, column, max(column + end - start, column + 1))


class Spans(Mapping[str, Span]):
    """Spans by key, made on request: a module has ten times more of them than are ever read."""

    __slots__ = ("_lines", "offsets")

    def __init__(self, lines: LineIndex, offsets: dict[str, tuple[int, int]]) -> None:
        self._lines, self.offsets = lines, offsets

    def __getitem__(self, key: str) -> Span:
        return self._lines.span(*self.offsets[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets)


class Lexer:
    """The text, the position `pos` in it, and readers that advance `pos` or raise HloSyntaxError.

    frame_of: gives the user's own source line for a line of HLO text that carries metadata (set by the parser).
    """

    def __init__(self, text: str, file: str = "<string>") -> None:
        self.text = text
        self.file = file
        self.pos = 0
        self.lines = LineIndex.of(text)
        self.source = Source(file, tuple(text.split("\n")))
        self.frame_of: Callable[[str], str | None] | None = None

    # --- errors -------------------------------------------------------------------------------------------------

    def location(self, start: int, end: int) -> Location:
        return self.locate(self.lines.span(start, end))

    def locate(self, span: Span) -> Location:
        """The location of a span of this text, with the user's own frame where its line has metadata."""
        line = self.source.lines[span.line - 1]
        return self.source.location(span, self.frame_of(line) if self.frame_of else None)

    def found(self) -> tuple[str, int, int]:
        """The token at the current position: its description, start and end."""
        self.skip()
        match = _FOUND.match(self.text, self.pos)
        if match is None:
            return "the end of the text", self.pos, self.pos
        token = match.group()
        if token == "/*":
            return "a comment without end", *match.span()
        if token[0] == '"' and match.end() == len(self.text.rstrip()) and (len(token) == 1 or token[-1] != '"'):
            return "a string that the end of the text cuts off", *match.span()
        return repr(token if len(token) <= 40 else token[:37] + "..."), *match.span()

    def expected(self, what: str) -> HloSyntaxError:
        """`expected WHAT, found ...` at the current position."""
        found, start, end = self.found()
        return self.error(f"expected {what}, found {found}", start, end)

    def error(self, message: str, start: int, end: int | None = None) -> HloSyntaxError:
        return HloSyntaxError(message, self.location(start, self.pos if end is None else end))

    def violation(self, message: str, start: int, end: int | None = None) -> VerificationError:
        return VerificationError(message, self.location(start, self.pos if end is None else end))

    # --- symbols and words --------------------------------------------------------------------------------------

    def skip(self) -> int:
        """Pass blanks and comments; returns the position."""
        if self.text[self.pos : self.pos + 1] not in _BLANKS_BEGIN:  # as most often; takes a third of a match's time
            return self.pos
        match = _BLANK.match(self.text, self.pos)
        if match is not None:
            self.pos = match.end()
        return self.pos

    def at(self, symbol: str) -> bool:
        self.skip()
        return self.text.startswith(symbol, self.pos)

    def accept(self, symbol: str) -> bool:
        """Pass `symbol` (punctuation) if it is next."""
        if self.text[self.pos : self.pos + 1] in _BLANKS_BEGIN:
            self.skip()
        if self.text.startswith(symbol, self.pos):
            self.pos += len(symbol)
            return True
        return False

    def expect(self, symbol: str, what: str | None = None) -> None:
        if not self.accept(symbol):
            raise self.expected(what or repr(symbol))

    def accept_word(self, word: str) -> bool:
        """Pass `word` if exactly this word is next."""
        match = _WORD.match(self.text, self.pos)
        if match is None or match.group(1) != word:
            return False
        self.pos = match.end()
        return True

    def word(self, what: str) -> str:
        match = _WORD.match(self.text, self.pos)
        if match is None:
            raise self.expected(what)
        self.pos = match.end()
        return match.group(1)

    def name(self, what: str) -> str:
        """A name with or without `%`; returned without."""
        match = _NAME.match(self.text, self.pos)
        if match is None:
            raise self.expected(what)
        self.pos = match.end()
        return match.group(1) or match.group(2)

    def at_end(self) -> bool:
        return self.skip() >= len(self.text)

    # --- values -------------------------------------------------------------------------------------------------

    def integer(self, what: str = "an integer", low: int = -(2**63), high: int = 2**63 - 1) -> int:
        match = _INTEGER.match(self.text, self.pos)
        if match is None:
            raise self.expected(what)
        digits = match.group(1)
        value = int(digits) if len(digits) <= MAX_DIGITS else high + 1
        if not low <= value <= high:
            raise self.error(f"expected {what} from {low} to {high}", match.start(1), match.end(1))
        self.pos = match.end()
        return value

    def number(self, what: str = "a number") -> float:
        match = _NUMBER.match(self.text, self.pos)
        if match is None:
            raise self.expected(what)
        self.pos = match.end()
        return float(match.group(1))

    def boolean(self) -> bool:
        match = _WORD.match(self.text, self.pos)
        if match is None or match.group(1) not in ("true", "false"):
            raise self.expected("'true' or 'false'")
        self.pos = match.end()
        return match.group(1) == "true"

    def string(self, what: str = "a string in double quotes") -> str:
        """A quoted string with C escapes; returned without quotes and escapes."""
        match = _STRING.match(self.text, self.pos)
        if match is None:
            raise self.expected(what)
        self.pos = match.end()
        raw = match.group(1)
        if "\\" in raw:
            return self._unescape(raw, match.start(1))
        return raw if raw.isascii() else decode(encode(raw))

    def _unescape(self, raw: str, start: int) -> str:
        pieces: list[bytes] = []
        last = 0
        for match in _ESCAPE.finditer(raw):
            pieces.append(encode(raw[last : match.start()]))
            last = match.end()
            octal, hexadecimal, code_point, letter = match.groups()
            if letter is not None:
                if letter not in _SIMPLE_ESCAPES:
                    at = start + match.start()
                    raise self.error(f"expected a C escape, found {match.group()!r}", at, at + 2)
                pieces.append(_SIMPLE_ESCAPES[letter].encode())
            elif code_point is not None:
                pieces.append(encode(chr(int(code_point, 16))))
            else:
                pieces.append(bytes([(int(octal, 8) if octal else int(hexadecimal, 16)) & 0xFF]))
        pieces.append(encode(raw[last:]))
        return decode(b"".join(pieces))

    def balanced(self, opening: str = "{") -> str:
        """The text from `{` (or `(`) to the matching end, unchanged; quotes and other brackets must match, too."""
        self.skip()
        start = self.pos
        match = _FLAT_BRACES.match(self.text, start)
        if match is not None and opening == "{":
            self.pos = match.end()
            return match.group()
        if not self.text.startswith(opening, start):
            raise self.expected(repr(opening))
        closing: list[str] = []
        for match in _NESTING.finditer(self.text, start):
            symbol = match.group()
            if symbol in _CLOSING:
                closing.append(_CLOSING[symbol])
            elif symbol == '"':
                break
            elif not symbol.startswith('"'):
                if symbol != closing.pop():
                    raise self.error(f"{symbol!r} closes nothing", match.start(), match.end())
                if not closing:
                    self.pos = match.end()
                    return self.text[start : self.pos]
        raise self.error(f"expected a matching {_CLOSING[opening]!r}, found none", start, start + 1)

    def json_dict(self) -> str:
        """The text of a JSON dictionary, unchanged: from `{` to its `}`, braces inside strings not counted."""
        self.skip()
        end = json_dict_end(self.text, self.pos)
        if end is None:
            if not self.at("{"):
                raise self.expected("'{'")
            raise self.error("expected a matching '}', found none", self.pos, self.pos + 1)
        raw = self.text[self.pos : end]
        self.pos = end
        return raw

    def separated(self, opening: str, closing: str, what: str) -> Iterator[int]:
        """Iterate over `opening item, item closing`; the loop's body reads one item; yields its number."""
        self.expect(opening)
        count = 0
        if self.accept(closing):
            return
        while True:
            yield count
            count += 1
            if self.accept(closing):
                return
            if not self.accept(","):
                raise self.expected(f"',' or {closing!r} after {what}")


def json_dict_end(text: str, start: int) -> int | None:
    """The position after the dictionary that starts at `start`, None if none starts there or it has no end."""
    if not text.startswith("{", start):
        return None
    depth = 0
    for match in _BRACES.finditer(text, start):
        symbol = match.group()
        if symbol == "{":
            depth += 1
        elif symbol == "}":
            depth -= 1
            if depth == 0:
                return match.end()
        elif symbol == '"':
            return None
    return None


def encode(text: str) -> bytes:
    """UTF-8; bytes that were escaped in the text (kept as surrogates) become themselves again."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def decode(data: bytes) -> str:
    """The inverse of `encode`."""
    return data.decode("utf-8", "surrogateescape")


def quoted(text: str) -> str:
    """A string literal that reads back as `text`; everything outside printable ASCII is escaped."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    escapes = {b: f"\\{c}" for c, b in (("n", 10), ("r", 13), ("t", 9), ('"', 34), ("\\", 92))}
    out = [escapes.get(b) or (chr(b) if 32 <= b < 127 else f"\\{b:03o}") for b in encode(text)]
    return '"' + "".join(out) + '"'


def string_or_dict(text: str) -> str:
    """How a value is written that may be a string or a JSON dictionary: as a dictionary if it is one."""
    return text if json_dict_end(text, 0) == len(text) else quoted(text)
