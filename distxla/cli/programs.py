"""The modules that a command line names: `MODULE[@DEVICES]`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from distxla import clock
from distxla.cli.generated_values import with_generated_constants
from distxla.collectives.protocols.control_block import MOST_DEVICES
from distxla.errors import ArgumentError
from distxla.jax.partitioner.loading import load_module
from distxla.ops.support.registry import op_classes
from distxla.time_limit import phase
from distxla.without_cluster.programs import DeviceProgram, GivenProgram, RunPrograms, programs_of_run

DEVICE_LIST = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")


def read_world(
    names: Sequence[str], replicas: int | None, partitions: int | None, constants_seed: int | None = None
) -> RunPrograms:
    """Parse every `MODULE[@DEVICES]` and settle the counts; ArgumentError where they contradict each other.

    constants_seed: where it is given, constants that a text leaves out get values from this seed.
    """
    if not names:
        raise ArgumentError("no module was named")
    split = [split_devices(name) for name in names]
    if len(split) > 1 and (bare := next((path for path, devices in split if devices is None), None)):
        raise ArgumentError(f"with several programs each needs its devices, as in {bare}@0-3")
    op_classes()  # loads every opcode's class, which is no part of reading a module
    begin = clock.now()
    with phase("reading the modules"):
        modules = [load_module(path) for path, _ in split]
    parse_s = clock.now() - begin
    given = []
    for (path, devices), module in zip(split, modules, strict=True):
        generated: tuple[str, ...] = ()
        if constants_seed is not None:
            module, generated = with_generated_constants(module, constants_seed)
        given.append(GivenProgram(path, module, devices, generated))
    return programs_of_run(given, replicas, partitions, parse_s=parse_s)


def split_devices(name: str) -> tuple[str, tuple[int, ...] | None]:
    """`a.hlo@0-3,6` -> ("a.hlo", (0, 1, 2, 3, 6)); None for a module without `@`. A file may have `@` in its name."""
    path, at, text = name.rpartition("@")
    if not at or Path(name).exists():
        return name, None
    if not DEVICE_LIST.fullmatch(text):
        raise ArgumentError(f"{name}: after @ stand device numbers and ranges as in 0-3,6; found {text!r}")
    devices: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if high < low:
            raise ArgumentError(f"{name}: the range {part} is empty")
        if high >= MOST_DEVICES:
            raise ArgumentError(f"{name}: device {high} is beyond the {MOST_DEVICES} that a run may have")
        devices += range(low, high + 1)
    if len(set(devices)) != len(devices):
        raise ArgumentError(f"{name}: a device is named twice")
    return path, tuple(sorted(devices))


__all__ = ["DeviceProgram", "RunPrograms", "read_world", "split_devices"]
