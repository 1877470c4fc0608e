"""The attributes of a typed custom-call, from its backend_config with the types that MLIR prints."""

from __future__ import annotations

import ctypes
import re
from typing import Any, Final

import numpy as np

from distxla.ir.element_type import element_type
from distxla.lazy_dataclass import dataclass
from distxla.ops.custom_calls.ffi.config import ConfigError, DictionaryReader
from distxla.ops.custom_calls.ffi.layout import TYPES, Array, AttributeKind, Attributes, ByteSpan, Scalar, size_until

_INTEGERS: Final = re.compile(r"(s|u|)i(\d+)\Z")
_TENSOR: Final = re.compile(r"tensor<(?:\d+x)*([a-z0-9]+)>\Z")
_NUMBER: Final = re.compile(r"true|false|[+-]?[0-9][0-9.eE+-]*")


@dataclass(frozen=True)
class Typed:
    """Numbers of a type, by its HLO name. is_array: or a single one."""

    dtype: str
    values: list[Any]
    is_array: bool = False


Value = Typed | str | dict[str, Any]


def read_attributes(text: str | None) -> dict[str, Value]:
    """The attributes by name; ConfigError for a text that is no dictionary, or for a value that no attribute holds."""
    if not text or not text.strip():
        return {}
    if not text.lstrip().startswith("{"):
        raise ConfigError("backend_config is no dictionary of attributes")
    return _Reader(text).dictionary_alone()


class _Reader(DictionaryReader):
    """Keeps the types."""

    def dictionary(self) -> dict[str, Any]:
        found = super().dictionary()
        return {key: _number("pred", value) if value is True else value for key, value in found.items()}

    def typed(self) -> Value:
        value: Any = self.value()
        name = self.type_text() if self.accept(":") else ""
        if isinstance(value, Typed | dict):
            return value
        if isinstance(value, str) and value.startswith("dense<"):
            return _dense(value, name)
        if isinstance(value, str):
            return value
        if isinstance(value, list):
            raise ConfigError("backend_config has a list; attributes are scalars, strings, dictionaries and array<…>")
        return _number(_hlo_type(name) if name else _default(value), value)

    def array(self) -> Any:
        """`array<i64: 1, 2>`."""
        self.expect("<")
        dtype = _hlo_type(self.type_text())
        found: list[Any] = []
        while not self.accept(">"):
            self.expect("," if found else ":")
            found.append(self.value())
        return Typed(dtype, found, is_array=True)


def _number(dtype: str, value: Any) -> Typed:
    return Typed(dtype, [value])


def _default(value: Any) -> str:
    return "pred" if isinstance(value, bool) else "s64" if isinstance(value, int) else "f64"


def _hlo_type(name: str) -> str:
    """`ui8` as `u8`."""
    match = _INTEGERS.match(name)
    found = name
    if match is not None:
        found = "pred" if match[2] == "1" else ("u" if match[1] == "u" else "s") + match[2]
    elif name == "index":
        found = "s64"
    if found not in TYPES:
        raise ConfigError(f"backend_config has a value of type {name}")
    return found


def _dense(text: str, name: str) -> Typed:
    """`dense<[1, 2]> : tensor<2xi64>`, `dense<0> : tensor<3xf32>`."""
    match = _TENSOR.match(name)
    if match is None or '"' in text:
        raise ConfigError(f"backend_config has {text[:40]} of type {name or 'none'}")
    sizes = [int(size) for size in re.findall(r"(\d+)x", name)]
    count = int(np.prod(sizes)) if sizes else 1
    values = [_parsed(number) for number in _NUMBER.findall(text.removeprefix("dense"))]
    if len(values) == 1:
        values *= count
    if len(values) != count:
        raise ConfigError(f"backend_config has {len(values)} values for {name}")
    return Typed(_hlo_type(match[1]), values, is_array=True)


def _parsed(number: str) -> Any:
    if number in ("true", "false"):
        return number == "true"
    try:
        return int(number)
    except ValueError:
        return float(number)


def attributes_of(values: dict[str, Value], keep: list[Any]) -> Attributes:
    """The structure, sorted by name. keep: gets what has to live as long."""
    names, kinds, places = [], [], []
    for name, value in sorted(values.items(), key=lambda item: item[0].encode()):
        kind, structure = _attribute(value, keep)
        names.append(_span(name, keep))
        kinds.append(int(kind))
        keep.append(structure)
        places.append(ctypes.addressof(structure))
    count = len(names)
    all_names = (ctypes.c_void_p * max(1, count))(*map(ctypes.addressof, names))
    all_kinds = (ctypes.c_int * max(1, count))(*kinds)
    all_places = (ctypes.c_void_p * max(1, count))(*places)
    keep += [names, all_names, all_kinds, all_places]
    tables = (ctypes.addressof(table) for table in (all_kinds, all_names, all_places))
    return Attributes(size_until(Attributes, "values"), None, count, *tables)


def _attribute(value: Value, keep: list[Any]) -> tuple[AttributeKind, Any]:
    if isinstance(value, str):
        return AttributeKind.STRING, _span(value, keep)
    if isinstance(value, dict):
        return AttributeKind.DICTIONARY, attributes_of(value, keep)
    data = np.array(value.values, element_type(value.dtype).dtype)
    keep.append(data)
    place = int(data.ctypes.data)
    if value.is_array:
        return AttributeKind.ARRAY, Array(TYPES[value.dtype], len(value.values), place)
    return AttributeKind.SCALAR, Scalar(TYPES[value.dtype], place)


def _span(text: str, keep: list[Any]) -> ByteSpan:
    data = ctypes.create_string_buffer(text.encode())
    keep.append(data)
    return ByteSpan(ctypes.addressof(data), len(data) - 1)


__all__ = ["Typed", "attributes_of", "read_attributes"]
