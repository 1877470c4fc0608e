"""The arguments of a run: from a file, generated from a seed where there is no file, or where that is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from distxla.cli.array_files import Chosen, read_leaves
from distxla.cli.generated_values import generate
from distxla.cli.programs import DeviceProgram, RunPrograms
from distxla.compiler.passes.whole_arguments import given_whole, leaf_names
from distxla.errors import ArgumentError
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass
from distxla.wording import named, ranges

Array = np.ndarray[Any, Any]
_LISTED = 3  # missing arguments that an error names


@dataclass(frozen=True)
class Arguments:
    """by_device[d][k]: leaf k on device d.  generated[k]: the devices, ascending, that had no given value for it."""

    by_device: dict[int, list[Array]]
    generated: dict[int, tuple[int, ...]]

    def generated_names(self) -> list[str]:
        """`arg0`, and `arg1@4-7` where other devices that take such an argument were given theirs."""
        names = []
        for k, devices in sorted(self.generated.items()):
            all_devices = tuple(device for device, leaves in self.by_device.items() if len(leaves) > k)
            names.append(f"arg{k}" if devices == all_devices else f"arg{k}@{ranges(devices)}")
        return names


def read_arguments(
    world: RunPrograms,
    path: str | None,
    seed: int,
    generate_missing: bool = False,
    chosen: Chosen = lambda keys: keys,
) -> Arguments:
    """The arguments of every device that runs a program; ArgumentError where file and programs don't fit.

    Without a file all of them are generated; those that a file lacks only where `generate_missing` asks for it.
    chosen: the keys that are read, of all that the file holds.
    """
    shapes = {device: parameter_leaves(program.module) for device, program in world.program_of.items()}
    for device, leaves in shapes.items():
        for k, shape in enumerate(leaves):
            if not shape.is_array:
                raise ArgumentError(f"argument {k} of device {device} is {shape}, which no file can hold")
    given = read_leaves(path, "arg", shapes, partial(_part, world, path), chosen) if path is not None else {}
    if path is not None and not generate_missing:
        _require_all(world, path, given)
    generated: dict[int, tuple[int, ...]] = {}
    by_device: dict[int, list[Array]] = {}
    for device, leaves in shapes.items():
        program = world.program_of[device]
        same = replicated_leaves(program.module)
        by_device[device] = []
        for k, shape in enumerate(leaves):
            if (k, device) not in given:
                generated[k] = (*generated.get(k, ()), device)
                if program.whole is not None:
                    array = generate(program.whole.parameters[k].shape, seed, k, 0)
                    # not ascontiguousarray, which makes a scalar an array of rank 1
                    by_device[device].append(np.asarray(world.shard("arg", k, device, array), order="C"))
                    continue
                by_device[device].append(generate(shape, seed, k, 0 if k in same else device))
            else:
                by_device[device].append(given[k, device])
    return Arguments(by_device, generated)


def _part(world: RunPrograms, path: str, k: int, device: int, array: Array) -> Array:
    """The device's part of an array in the file; ArgumentError where it fits neither as the whole nor as a part."""
    program = world.program_of[device]
    shape = parameter_leaves(program.module)[k]
    found = world.shard("arg", k, device, array)
    if shape.holds(found.shape):
        return found
    sizes, name = list(array.shape), leaf_names(program.module)[k]
    if program.whole is not None and not program.whole.parameters[k].shards.is_whole:
        whole = program.whole.parameters[k].shape
        raise ArgumentError(
            f"{path}: arg{k} has sizes {sizes}; {name} is {whole} as a whole, or {shape} as the part arg{k}@{device}"
        )
    hint = given_whole(program.module, world.counts.partitions, k, array.shape, lambda d: f"arg{k}@{d}")
    if hint is None:
        return found
    error = ArgumentError(f"{path}: arg{k} has sizes {sizes}, a device's part {name} has {list(shape.dims)} ({shape})")
    error.add_note(f"hint: {hint}")
    raise error


def _require_all(world: RunPrograms, path: str, given: Mapping[tuple[int, int], Array]) -> None:
    """ArgumentError that names a value missing in the file: key, parameter, shape, and devices."""
    missing = [
        (k, program, devices)
        for program in world.programs
        for k in range(len(parameter_leaves(program.module)))
        if (devices := [device for device in program.devices if (k, device) not in given])
    ]
    if not missing:
        return
    lacks = []
    for k, program, devices in missing[:_LISTED]:
        key = f"arg{k}" if len(devices) == len(world.program_of) else f"arg{k}@{ranges(devices)}"
        where = f" on {named(devices)}" if len(world.program_of) > 1 else ""
        lacks.append(f"{key}, the argument {leaf_names(program.module)[k]} of {_taken(program, k)}{where}")
    more = f", and {len(missing) - _LISTED} more" if len(missing) > _LISTED else ""
    error = ArgumentError(f"{path} lacks {'; '.join(lacks)}{more}")
    error.add_note("hint: --generate makes random values for what --args lacks")
    raise error


def _taken(program: DeviceProgram, k: int) -> str:
    """The shape of an argument: of a global module the whole."""
    return str(program.whole.parameters[k].shape if program.whole else parameter_leaves(program.module)[k])


def parameter_leaves(module: Module) -> list[Shape]:
    return [leaf for p in module.entry_computation.parameters for leaf in p.shape.leaves()]


def replicated_leaves(module: Module) -> set[int]:
    """Leaves of parameters whose sharding says that every device holds the same value."""
    same: set[int] = set()
    leaf = 0
    for parameter in module.entry_computation.parameters:
        count = len(list(parameter.shape.leaves()))
        if parameter.sharding is not None and parameter.sharding.kind == "replicated":
            same |= set(range(leaf, leaf + count))
        leaf += count
    return same
