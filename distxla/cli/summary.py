"""The output of `distxla run`: where it ran, its results, how long it took; as text or as one JSON object."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from distxla.cli.arguments import Arguments
from distxla.cli.comparison import Difference
from distxla.cli.execution import Execution
from distxla.cli.feeds import Feeds
from distxla.cli.layout_note import ignored_tiles
from distxla.cli.programs import DeviceProgram, RunPrograms
from distxla.diagnosis.report.json import injected_json
from distxla.ir.shape import Shape
from distxla.ops.custom_calls.user import ZerosTarget, user_targets
from distxla.wording import counted, named, ranges

Array = np.ndarray[Any, Any]
HANG = 13  # column of the values beside their labels
MOST_VALUES = 4
MOST_STEPS = 8
MOST_DIFFERENT = 3  # values of one leaf that are shown, each with the devices that have it
MOST_PIDS = 8
MOST_NAMES = 8  # of generated constants


def result_leaves(program: DeviceProgram) -> list[Shape]:
    return list(program.module.entry_computation.root_instruction.shape.leaves())


def stubs(program: DeviceProgram) -> list[str]:
    """The targets of custom-calls that give zeros, as the user has asked for."""
    return [target.name for target in user_targets(program.module) if isinstance(target, ZerosTarget)]


def text(
    world: RunPrograms, backend: str, arguments: Arguments, execution: Execution, seed: int, feeds: Feeds
) -> Iterator[str]:
    """The summary's lines, without the comparison."""
    for program in world.programs:
        devices = "" if len(world.programs) == 1 else f" on devices {ranges(program.devices)}"
        yield f"{program.module.name} ({program.path}){devices}"
    yield f"  ran on     {_devices(world)}, {backend} backend"
    for host, pids in _hosts(execution).items():
        shown = ", ".join(map(str, pids[:MOST_PIDS])) + (", …" if len(pids) > MOST_PIDS else "")
        yield f"             {counted(len(pids), 'process')} on {host}: {shown}"
    if arguments.generated:
        names = ", ".join(arguments.generated_names())
        yield f"  arguments  {names} generated from seed {seed}"
    for program in world.programs:
        if program.generated:
            names = ", ".join(program.generated[:MOST_NAMES]) + (", …" if len(program.generated) > MOST_NAMES else "")
            yield f"  constants  {names} generated from seed {seed}"
    for program in world.programs:
        if (note := ignored_tiles(program.module)) is not None:
            yield f"  layouts    {note}"
        if stubbed := ", ".join(stubs(program)):
            yield f"  stubs      zeros instead of what custom-calls of {stubbed} compute"
        yield from _moved(world, program)
        yield from _results(program, execution, alone=len(world.programs) == 1)
    for note in world.channel_notes():
        yield f"  channels   {note}"
    yield from _feeds(feeds)
    for number, fault in enumerate(execution.injected):
        yield f"  {'injected' if number == 0 else '        '}   {fault}"
    source = "from the cache" if execution.cached else f"{duration(execution.compile_wall_s)} with LLVM's start"
    compiling = f"compile {duration(execution.compile_s)} ({source}), " if execution.compile_wall_s else ""
    starting = f", start {duration(execution.start_s)}, load {duration(execution.load_s)}" if execution.start_s else ""
    yield f"  times      {compiling}parse {duration(world.parse_s)}{starting}"
    yield f"             {_steps(execution.steps_s)}"


def as_json(
    world: RunPrograms,
    backend: str,
    arguments: Arguments,
    execution: Execution,
    comparisons: Sequence[tuple[str, Sequence[Difference]]],
    feeds: Feeds,
    *,
    values: bool = False,
) -> dict[str, Any]:
    """The output of --json. Times in seconds. values: with those of the results."""
    return {
        "modules": [{"name": p.module.name, "path": p.path, "devices": list(p.devices)} for p in world.programs],
        "replicas": world.counts.replicas,
        "partitions": world.counts.partitions,
        "devices": len(world.program_of),
        "backend": backend,
        "moves": world.moves(),
        "notes": world.channel_notes(),
        "processes": [{"device": d, "host": host, "pid": pid} for d, host, pid in execution.places],
        "parse_s": world.parse_s,
        "compile_s": execution.compile_s,
        "compile_wall_s": execution.compile_wall_s,
        "start_s": execution.start_s,
        "load_s": execution.load_s,
        "steps_s": execution.steps_s,
        "cached": execution.cached,
        "stubs": sorted({name for program in world.programs for name in stubs(program)}),
        "generated": arguments.generated_names(),
        "generated_constants": [list(program.generated) for program in world.programs],
        "arguments": sum(len(leaves) for leaves in arguments.by_device.values()),
        "results": [
            {"leaf": k, "shape": str(shape), "devices": list(program.devices)}
            | ({"values": _json_values(program, execution, k, shape)} if values else {})
            for program in world.programs
            for k, shape in enumerate(result_leaves(program))
        ],
        "infeeds": [
            {"device": device, "items": len(items), "left": feeds.left.get(device, 0)}
            for device, items in sorted(feeds.given.items())
        ],
        "outfeeds": [{"device": device, "items": count} for device, count in sorted(feeds.counts.items())],
        "injected": [injected_json(fault) for fault in execution.injected],
        "comparisons": [
            {
                "with": name,
                "fits": all(d.fits for d in differences),
                "largest": _finite(max((d.largest for d in differences), default=0.0)),
                "relative": _finite(max((d.relative for d in differences), default=0.0)),
                "differing": [
                    {"leaf": d.leaf, "device": d.device} | ({} if d.item is None else {"item": d.item})
                    for d in differences
                    if not d.fits
                ],
            }
            for name, differences in comparisons
        ],
    }


def duration(seconds: float) -> str:
    """`12.3 ms`, `4.56 s`."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _devices(world: RunPrograms) -> str:
    """`8 devices (1 replica x 8 partitions)`, `4 of 8 devices (…)`."""
    used, whole = len(world.program_of), counted(world.device_count, "device")
    return f"{whole if used == world.device_count else f'{used} of {whole}'} ({world.counts_text})"


def _hosts(execution: Execution) -> dict[str, list[int]]:
    hosts: dict[str, list[int]] = {}
    for _, host, pid in execution.places:
        pids = hosts.setdefault(host, [])
        if pid not in pids:
            pids.append(pid)
    return hosts


def _results(program: DeviceProgram, execution: Execution, *, alone: bool) -> Iterator[str]:
    """Of each leaf name, shape, first values and a checksum over all devices of the program; where devices have other
    values, those of the first few."""
    shapes = result_leaves(program)
    width = max((len(str(s)) for s in shapes), default=0)
    for k, shape in enumerate(shapes):
        label = f"{'  results' if k == 0 else '':{HANG}}out{k:<3} {shape!s:{width}}"
        arrays = [(d, array) for d in program.devices if (array := execution.outs[d][k]) is not None]
        if len(arrays) < len(program.devices):
            yield label
            continue
        checksum, by_value = _compared(arrays)
        several = "all devices" if alone else named(program.devices)
        for number, (array, devices) in enumerate(by_value[:MOST_DIFFERENT]):
            who = named(devices) if len(by_value) > 1 or len(devices) == 1 else f"the same on {several}"
            text = f"{_values(array)} ({who})"
            yield f"{label}  {text}, crc32 {checksum:08x}" if number == 0 else f"{'':{len(label)}}  {text}"
        if rest := [device for _, devices in by_value[MOST_DIFFERENT:] for device in devices]:
            what = counted(len(by_value) - MOST_DIFFERENT, "other value")
            yield f"{'':{len(label)}}  … and {what} on {named(rest)}"


def _compared(arrays: Sequence[tuple[int, Array]]) -> tuple[int, list[tuple[Array, list[int]]]]:
    """A checksum over the arrays of all devices, and the different ones among them, each with its devices."""
    checksum = 0
    by_value: dict[tuple[tuple[int, ...], bytes], tuple[Array, list[int]]] = {}
    for device, array in arrays:
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        checksum = zlib.crc32(content, checksum)
        digest = hashlib.blake2b(content, digest_size=16).digest()
        by_value.setdefault((array.shape, digest), (array, []))[1].append(device)
    return checksum, list(by_value.values())


def _json_values(program: DeviceProgram, execution: Execution, k: int, shape: Shape) -> list[dict[str, Any]]:
    """The different values of a leaf, each with the devices that have it; of a token none."""
    arrays = [(d, array) for d in program.devices if (array := execution.outs[d][k]) is not None]
    return [{"devices": devices, "value": plain(array, shape)} for array, devices in _compared(arrays)[1]]


def plain(array: Array, shape: Shape) -> Any:
    """Nested lists of numbers that JSON has: complex ones as [real, imaginary], not finite ones as "nan" or "inf"."""
    if shape.dtype.is_complex:
        array = np.stack([array.real, array.imag], axis=-1)
    elif not shape.dtype.is_float:  # narrow integers are types that NumPy lacks
        return (array if array.dtype.kind in "biu" else array.astype(np.int64)).tolist()
    array = array.astype(np.float64)
    return array.tolist() if np.isfinite(array).all() else _spelt(array.tolist())


def _spelt(value: Any) -> Any:
    return [_spelt(each) for each in value] if isinstance(value, list) else _finite(value)


def _moved(world: RunPrograms, program: DeviceProgram) -> Iterator[str]:
    """A line if not all is executed in the order of the text."""
    moves = world.order.moves if world.order is not None else ()
    mine = [move for move in moves if world.programs[move.program] is program]
    if not mine:
        return
    first = mine[0]
    where, before = (f" ({at})" if at else "" for at in (first.location, first.first_location))
    others = f", and {len(mine) - 1} more" if len(mine) > 1 else ""
    text = f"{first.instruction.name}{where} before {first.first_of.name}{before}{others}"
    yield f"  schedule   executed earlier than in the text: {text}"


def _feeds(feeds: Feeds) -> Iterator[str]:
    """How many items went in and came out, and how many no program took."""
    if feeds.given:
        left = sorted((device, count) for device, count in feeds.left.items() if count)
        rest = "".join(f"; {count} left over on device {device}" for device, count in left[:MOST_VALUES])
        more = ", …" if len(left) > MOST_VALUES else ""
        items, devices = counted(sum(map(len, feeds.given.values())), "item"), counted(len(feeds.given), "device")
        yield f"  infeed     {items} for {devices}{rest}{more}"
    if feeds.counts:
        items, devices = counted(sum(feeds.counts.values()), "item"), counted(len(feeds.counts), "device")
        yield f"  outfeed    {items} from {devices}"


def _values(array: Array) -> str:
    if not array.size:
        return "no elements"
    flat = array.reshape(-1)
    shown = " ".join(f"{v:.6g}" if array.dtype.kind == "f" else str(v) for v in flat[:MOST_VALUES])
    return f"{shown} …" if flat.size > MOST_VALUES else shown


def _steps(steps: Sequence[float]) -> str:
    if len(steps) == 1:
        return f"step {duration(steps[0])}"
    shown = ", ".join(duration(s) for s in steps[:MOST_STEPS]) + (", …" if len(steps) > MOST_STEPS else "")
    later = float(np.median(steps[1:]))
    return f"{len(steps)} steps: {shown}; median after the first {duration(later)}, fastest {duration(min(steps))}"


def _finite(value: float) -> float | str:
    return value if np.isfinite(value) else str(value)
