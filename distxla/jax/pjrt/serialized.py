"""Executables as bytes, which JAX keeps in its compilation cache: what XLA's partitioner made, and for which devices.

A line with the format's name, a line of JSON, the HloModuleProto, the xla.CompileOptionsProto. The machine code is
not there: it is in the cache of compiled programs, or is made anew.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from distxla.errors import ArgumentError, UnsupportedOpError
from distxla.jax.partitioner.partitioned_bytes import fields_of, partitioned_of
from distxla.jax.partitioner.partitioning import Partitioned
from distxla.jax.pjrt.programs import Program, devices_of_options, loaded_program

if TYPE_CHECKING:
    from distxla.jax.pjrt.client import Client

_FORMAT: Final = b"distxla executable 2\n"


def serialized(program: Program) -> bytes:
    """The program as bytes. UnsupportedOpError where it calls functions of this process."""
    if program.executable.host_calls:
        name = program.executable.program.name
        raise UnsupportedOpError(f"{name} calls functions of this process, which cannot be serialised")
    proto = program.partitioned.proto
    header = {
        "partitioned": fields_of(program.partitioned),
        "ids": program.ids,
        "bytes": [len(proto), len(program.options)],
    }
    return _FORMAT + json.dumps(header).encode() + b"\n" + proto + program.options


def deserialized(client: Client, data: bytes, options: bytes) -> Program:
    """The program of these bytes, loaded; blocks.

    options: an xla.CompileOptionsProto in place of the one that was serialised, whose devices the program then has; may
    be empty. ArgumentError for other bytes, and for other counts of devices.
    """
    partitioned, ids, given = _read(data)
    if options:
        rows = devices_of_options(options)
        if [len(row) for row in rows] != [len(row) for row in ids]:
            raise ArgumentError(f"devices {rows}: the executable was compiled for {ids}")
        ids, given = rows, options
    return loaded_program(client, partitioned, ids, given)


def _read(data: bytes) -> tuple[Partitioned, list[list[int]], bytes]:
    header, _, rest = data.removeprefix(_FORMAT).partition(b"\n")
    try:
        found: Any = json.loads(header) if data.startswith(_FORMAT) else None
        proto, options = found["bytes"]
        if len(rest) != proto + options:
            raise ValueError("cut short")
        return partitioned_of(found["partitioned"], rest[:proto]), found["ids"], rest[proto:]
    except (KeyError, TypeError, ValueError) as error:
        raise ArgumentError("these bytes are no executable that this version of distxla has serialised") from error


__all__ = ["deserialized", "serialized"]
