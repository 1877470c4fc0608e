"""What XLA's partitioner made, as JSON and bytes: for JAX's compilation cache, and for other processes."""

from __future__ import annotations

import dataclasses
import json
import struct
from typing import Any, Final

from distxla.errors import ArgumentError
from distxla.jax.partitioner.partitioning import Partitioned

_TUPLES: Final = ("parameter_shapes", "output_shapes", "parameter_shardings", "output_shardings", "warnings")
_LENGTH: Final = struct.Struct("<I")


def fields_of(partitioned: Partitioned) -> dict[str, Any]:
    """All but its proto, for JSON."""
    fields = dataclasses.asdict(partitioned)
    del fields["proto"]
    return fields


def partitioned_of(fields: dict[str, Any], proto: bytes) -> Partitioned:
    """Of what `fields_of` made, read from JSON. TypeError, KeyError or ValueError for anything else."""
    found = dict(fields)
    for name in _TUPLES:
        found[name] = tuple(found[name])
        if not all(isinstance(one, str) for one in found[name]):
            raise ValueError(name)
    if not isinstance(found["short_text"], str):
        raise ValueError("short_text")
    return Partitioned(**found, proto=proto)


def pack_partitioned(partitioned: Partitioned) -> bytes:
    """As bytes: the length of its JSON, u32, its JSON, its proto."""
    data = json.dumps(fields_of(partitioned)).encode()
    return _LENGTH.pack(len(data)) + data + partitioned.proto


def unpack_partitioned(data: bytes | bytearray | memoryview) -> Partitioned:
    """Of what `pack_partitioned` made. ArgumentError for other bytes."""
    view = memoryview(data)
    try:
        (length,) = _LENGTH.unpack_from(view)
        end = _LENGTH.size + length
        if end > len(view):
            raise ValueError("cut short")
        return partitioned_of(json.loads(bytes(view[_LENGTH.size : end])), bytes(view[end:]))
    except (KeyError, TypeError, ValueError, RecursionError, struct.error) as error:
        raise ArgumentError("these bytes are no partitioned module") from error


__all__ = ["fields_of", "pack_partitioned", "partitioned_of", "unpack_partitioned"]
