"""`Fields`: a message of a GPU `backend_config`, as the JSON form of XLA's protocol buffers has it."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from distxla.ops.custom_calls.ffi.config import ConfigError, read_config
from distxla.ops.custom_calls.target import Call
from distxla.ops.support.dot_dimensions import DotDimensions

_BARE_KEY = re.compile(r"([{,]\s*)([A-Za-z_]\w*)\s*:")
_CAPITAL = re.compile(r"(?<=[a-z0-9])[A-Z]")
_BESIDES = {  # of the whole backend_config: when and where a device runs the call
    "operation_queue_id",
    "wait_on_operation_queues",
    "force_earliest_schedule",
    "reification_cost",
    "device_type",
}


class Fields:
    """The fields of one message. A field that is missing has the default that protocol buffers give it, where the
    caller names none; integers of 64 bits may be strings.

    Raises ConfigError where a field is of another type. path: the message's name, for errors.
    """

    def __init__(self, path: str, entries: Mapping[str, Any]) -> None:
        self.path, self.entries = path, entries

    def __contains__(self, key: str) -> bool:
        return key in self.entries

    def name(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def only(self, known: Collection[str]) -> None:
        """Refuse fields that this version doesn't know, since they may change the result."""
        for key in self.entries:
            if key not in known:
                raise ConfigError(f"this version does not know the field {self.name(key)} of backend_config")

    def integer(self, key: str, default: int = 0) -> int:
        value = self.entries.get(key, default)
        try:
            if type(value) is str:
                value = int(value)
        except ValueError:
            pass
        if type(value) is not int:
            raise self.wrong(key, "an integer")
        return value

    def integers(self, key: str) -> tuple[int, ...]:
        values = self.entries.get(key, [])
        if type(values) is not list:
            raise self.wrong(key, "a list of integers")
        return tuple(Fields(self.name(key), {"": value}).integer("") for value in values)

    def number(self, key: str, default: float = 0.0) -> float:
        value = self.entries.get(key, default)
        if type(value) is str and value in ("NaN", "Infinity", "-Infinity"):
            return float(value)
        if type(value) not in (int, float):
            raise self.wrong(key, "a number")
        try:
            return float(value)
        except OverflowError:
            raise self.wrong(key, "a number of 64 bits") from None

    def flag(self, key: str) -> bool:
        value = self.entries.get(key, False)
        if type(value) is not bool:
            raise self.wrong(key, "true or false")
        return value

    def text(self, key: str) -> str:
        value = self.entries.get(key, "")
        if type(value) is not str:
            raise self.wrong(key, "a string")
        return value

    def choice(self, key: str, names: Sequence[str]) -> str:
        """One of the names, which may be written as its position; the first one where the field is missing."""
        value = self.entries.get(key, names[0])
        if type(value) is str and value.isdecimal():
            value = int(value)
        if type(value) is int and 0 <= value < len(names):
            return names[value]
        if value not in names:
            raise self.wrong(key, f"one of {', '.join(names)}")
        return str(value)

    def message(self, key: str) -> Fields:
        value = self.entries.get(key, {})
        if type(value) is not dict:
            raise self.wrong(key, "a message")
        return Fields(self.name(key), value)

    def dot_dimensions(self, key: str) -> DotDimensions:
        """A field of XLA's DotDimensionNumbers."""
        numbers = self.message(key)
        sides = ("lhs_batch", "lhs_contracting", "rhs_batch", "rhs_contracting")
        numbers.only([f"{side}_dimensions" for side in sides])
        return DotDimensions(*(numbers.integers(f"{side}_dimensions") for side in sides))

    def require(self, condition: object, key: str, wanted: str) -> None:
        """Refuse a value that this version doesn't execute. wanted: one that it does, `only dropout_rate=0`."""
        if not condition:
            raise ConfigError(f"{self.name(key)}={self.entries.get(key)!r}: this version executes {wanted}")

    def wrong(self, key: str, wanted: str) -> ConfigError:
        return ConfigError(f"backend_config has {self.name(key)}={self.entries.get(key)!r}, which is not {wanted}")


def gpu_fields(call: Call, message: str) -> Fields:
    """The message of that name in the call's GpuBackendConfig, or the whole text where it is not wrapped in one."""
    entries = _message(call.instruction.backend_config or "{}")
    whole = Fields("", entries)
    if message in entries:
        whole.only({message, *_BESIDES})
        return whole.message(message)
    if any(key.endswith("_backend_config") for key in entries):
        raise ConfigError(f"backend_config has no {message!r}")
    return Fields("", {key: value for key, value in entries.items() if key not in _BESIDES})


def _message(text: str) -> dict[str, Any]:
    """The JSON form of a message; keys may be without quotes, and in camel case."""
    try:
        found = json.loads(text)
    except ValueError:
        try:
            found = json.loads(_BARE_KEY.sub(r'\1"\2":', text))
        except ValueError:
            found = None
    if type(found) is not dict:
        raise ConfigError(f"backend_config is no dictionary: {text[:40]!r}")
    return _in_snake_case(found)


def _in_snake_case(entries: dict[str, Any]) -> dict[str, Any]:
    return {
        _CAPITAL.sub(lambda letter: f"_{letter[0].lower()}", key): _in_snake_case(value)
        if type(value) is dict
        else value
        for key, value in entries.items()
    }


def ffi_fields(call: Call) -> Fields:
    """The attributes of a call through XLA's foreign function interface, however they are wrapped."""
    config = call.config
    wrapped = config.entries.get("custom_call_backend_config")
    if type(wrapped) is dict:
        Fields("", config.entries).only({"custom_call_backend_config", *_BESIDES})
        config = read_config(Fields("custom_call_backend_config", wrapped).text("attributes"))
    if config.text and not config.text.lstrip().startswith("{"):
        raise ConfigError(f"backend_config is no dictionary: {config.text[:40]!r}")
    entries = config.entries
    return Fields("", {key: value for key, value in entries.items() if key not in _BESIDES})
