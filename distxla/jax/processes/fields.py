"""Dataclasses from JSON that another process has sent: every field of its type, and no other."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from distxla.errors import ClusterError

_T = TypeVar("_T")
_MOST_NUMBER = 1 << 64


def from_json(made: type[_T], found: Any) -> _T:
    """The dataclass of these fields. ClusterError for missing, unknown and ill-typed ones."""
    if not isinstance(found, dict):
        raise ClusterError(f"{made.__name__}: expected an object, found {type(found).__name__}")
    fields = dataclasses.fields(made)  # type: ignore[arg-type]
    names = {one.name for one in fields}
    if unknown := sorted(map(str, set(found) - names)):
        raise ClusterError(f"{made.__name__}: no field {unknown[0][:40]!r}")
    kinds = get_type_hints(made)
    values = {}
    for one in fields:
        if one.name in found:
            values[one.name] = _typed(kinds[one.name], found[one.name], f"{made.__name__}.{one.name}")
        elif one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING:
            raise ClusterError(f"{made.__name__}: the field {one.name} is missing")
    return made(**values)


def _typed(kind: Any, value: Any, where: str) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any or kind is value or kind is type(None) is type(value):
        return value
    if kind is float and type(value) in (int, float):
        return float(value)
    if kind in (bool, str) and type(value) is kind:
        return value
    if isinstance(kind, type) and issubclass(kind, Enum) and type(value) is str:
        found = next((one for one in kind if one.value == value), None)
        if found is not None:
            return found
    if kind is int and type(value) is int and 0 <= value < _MOST_NUMBER:
        return value
    if origin is tuple and isinstance(value, list):
        if inner[-1] is Ellipsis:
            return tuple(_typed(inner[0], one, where) for one in value)
        if len(inner) == len(value):
            return tuple(_typed(part, one, where) for part, one in zip(inner, value))
    if origin is not None and _is_mapping(origin) and isinstance(value, dict):
        return {key: _typed(inner[1], one, where) for key, one in value.items()}
    if origin is not None and _is_union(kind):
        for part in inner:
            try:
                return _typed(part, value, where)
            except ClusterError:
                continue
    raise ClusterError(f"{where}: expected {getattr(kind, '__name__', kind)}, found {str(value)[:40]!r}")


def _is_mapping(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType)


__all__ = ["from_json"]
