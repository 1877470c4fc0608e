"""A module, or several with their devices, as functions of Python take them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any, TypeAlias

from distxla.collectives.protocols.control_block import MOST_DEVICES
from distxla.errors import ArgumentError
from distxla.ir.module import Module
from distxla.without_cluster.programs import GivenProgram, RunPrograms, programs_of_run

ModuleOrPrograms: TypeAlias = "Module | Sequence[tuple[Iterable[int], Module]]"


def given_programs(module: ModuleOrPrograms, replicas: int | None, partitions: int | None) -> RunPrograms:
    """The programs of a run. Raises ArgumentError for anything else, the errors of `programs_of_run`."""
    for count, name in ((replicas, "replicas"), (partitions, "partitions")):
        if count is not None and not (isinstance(count, Integral) and count > 0):
            raise ArgumentError(f"{name}: expected a positive number, found {count!r}")
    if isinstance(module, Module):
        given = [GivenProgram(_name(module), module)]
    elif isinstance(module, Sequence) and not isinstance(module, str | bytes) and module:
        given = [_given(entry) for entry in module]
    else:
        raise ArgumentError(f"module: expected a Module or a list of (devices, module), found {_shown(module)}")
    return programs_of_run(given, replicas, partitions, on_command_line=False)


def _given(entry: Any) -> GivenProgram:
    if not isinstance(entry, Sequence) or len(entry) != 2 or not isinstance(entry[1], Module):
        raise ArgumentError(f"module: expected (devices, module) for each program, found {_shown(entry)}")
    devices, module = entry
    ids = (devices,) if isinstance(devices, Integral) else devices
    if not isinstance(ids, Iterable) or isinstance(ids, str | bytes):
        raise ArgumentError(f"devices of {_name(module)}: expected flattened ids, found {_shown(devices)}")
    ids = list(ids)
    if wrong := [i for i in ids if not isinstance(i, Integral) or not 0 <= int(i) < MOST_DEVICES]:
        raise ArgumentError(f"devices of {_name(module)}: expected ids below {MOST_DEVICES}, found {wrong[0]!r}")
    found = sorted(map(int, ids))
    if len(set(found)) != len(found):
        raise ArgumentError(f"devices of {_name(module)}: a device is named twice")
    if not found:
        raise ArgumentError(f"devices of {_name(module)}: expected at least one")
    return GivenProgram(_name(module), module, tuple(found))


def _name(module: Module) -> str:
    return module.name if module.source is None else module.source.file


def _shown(value: object) -> str:
    return "an empty list" if isinstance(value, list) and not value else f"{type(value).__name__} {value!r:.60}"
