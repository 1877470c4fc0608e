"""What `distxla run` prints: where it ran, what it computed, how long it took; as text or as one JSON object."""

from __future__ import annotations

import statistics
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from distxla.cli.arguments import Arguments
from distxla.cli.comparison import Difference
from distxla.cli.execution import Execution
from distxla.cli.feeds import Feeds
from distxla.cli.programs import Program, World, ranges
from distxla.ir.shape import Shape
from distxla.passes.resolve_layouts import ignored_tiles

Array = np.ndarray[Any, Any]
HANG = 13  # column of the values beside their labels
MOST_VALUES = 4
MOST_STEPS = 8
MOST_PIDS = 8


def result_leaves(program: Program) -> list[Shape]:
    return list(program.module.entry_computation.root_instruction.shape.leaves())


def text(
    world: World, backend: str, arguments: Arguments, execution: Execution, seed: int, feeds: Feeds
) -> Iterator[str]:
    """The summary's lines, without the comparison."""
    for program in world.programs:
        devices = "" if len(world.programs) == 1 else f" on devices {ranges(program.devices)}"
        yield f"{program.module.name} ({program.path}){devices}"
    count = len(world.program_of)
    yield f"  ran on     {count} of {world.replicas} replica(s) x {world.partitions} partition(s), {backend} backend"
    for host, pids in _hosts(execution).items():
        shown = ", ".join(map(str, pids[:MOST_PIDS])) + (", …" if len(pids) > MOST_PIDS else "")
        yield f"             {len(pids)} process(es) on {host}: {shown}"
    if arguments.generated:
        names = ", ".join(arguments.generated_names())
        yield f"  arguments  {names} generated from seed {seed}"
    for program in world.programs:
        if (note := ignored_tiles(program.module)) is not None:
            yield f"  layouts    {note}"
        yield from _moved(world, program)
        yield from _results(program, execution, alone=len(world.programs) == 1)
    for note in world.channel_notes():
        yield f"  channels   {note}"
    yield from _feeds(feeds)
    source = "from the cache" if execution.cached else f"{duration(execution.compile_wall_s)} with LLVM's start"
    compiling = f"compile {duration(execution.compile_s)} ({source}), " if execution.compile_wall_s else ""
    starting = f", start {duration(execution.start_s)}, load {duration(execution.load_s)}" if execution.start_s else ""
    yield f"  times      {compiling}parse {duration(world.parse_s)}{starting}"
    yield f"             {_steps(execution.steps_s)}"


def as_json(
    world: World,
    backend: str,
    arguments: Arguments,
    execution: Execution,
    comparisons: Sequence[tuple[str, Sequence[Difference]]],
    feeds: Feeds,
) -> dict[str, Any]:
    """What --json prints. Times in seconds."""
    return {
        "modules": [{"name": p.module.name, "path": p.path, "devices": list(p.devices)} for p in world.programs],
        "replicas": world.replicas,
        "partitions": world.partitions,
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
        "generated": arguments.generated_names(),
        "arguments": sum(len(leaves) for leaves in arguments.by_device.values()),
        "results": [
            {"leaf": k, "shape": str(shape), "devices": list(program.devices)}
            for program in world.programs
            for k, shape in enumerate(result_leaves(program))
        ],
        "infeeds": [
            {"device": device, "items": len(items), "left": feeds.left.get(device, 0)}
            for device, items in sorted(feeds.given.items())
        ],
        "outfeeds": [{"device": device, "items": count} for device, count in sorted(feeds.counts.items())],
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


def _hosts(execution: Execution) -> dict[str, list[int]]:
    hosts: dict[str, list[int]] = {}
    for _, host, pid in execution.places:
        pids = hosts.setdefault(host, [])
        if pid not in pids:
            pids.append(pid)
    return hosts


def _results(program: Program, execution: Execution, *, alone: bool) -> Iterator[str]:
    """One line a leaf: name, shape, first values on the first device, a checksum over all devices of the program."""
    shapes = result_leaves(program)
    width = max((len(str(s)) for s in shapes), default=0)
    for k, shape in enumerate(shapes):
        label = "  results   " if k == 0 else "            "
        arrays = [execution.outs[d][k] for d in program.devices]
        if any(a is None for a in arrays):
            yield f"{label} out{k:<3} {shape!s:{width}}"
            continue
        known = [a for a in arrays if a is not None]
        contents = [array.tobytes() for array in known]
        checksum = 0
        for content in contents:
            checksum = zlib.crc32(content, checksum)
        equal = len(contents) > 1 and all(content == contents[0] for content in contents)
        everybody = "all devices" if alone else f"devices {ranges(program.devices)}"
        spread = f"the same on {everybody}" if equal else f"device {program.devices[0]}"
        yield f"{label} out{k:<3} {shape!s:{width}}  {_values(known[0])} ({spread}), crc32 {checksum:08x}"


def _moved(world: World, program: Program) -> Iterator[str]:
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
        yield f"  infeed     {sum(map(len, feeds.given.values()))} item(s) for {len(feeds.given)} device(s){rest}{more}"
    if feeds.counts:
        yield f"  outfeed    {sum(feeds.counts.values())} item(s) from {len(feeds.counts)} device(s)"


def _values(array: Array) -> str:
    flat = array.reshape(-1)
    shown = " ".join(f"{v:.6g}" if array.dtype.kind == "f" else str(v) for v in flat[:MOST_VALUES])
    return f"{shown} …" if flat.size > MOST_VALUES else shown


def _steps(steps: Sequence[float]) -> str:
    if len(steps) == 1:
        return f"step {duration(steps[0])}"
    shown = ", ".join(duration(s) for s in steps[:MOST_STEPS]) + (", …" if len(steps) > MOST_STEPS else "")
    later = statistics.median(steps[1:])
    return f"{len(steps)} steps: {shown}; median after the first {duration(later)}, fastest {duration(min(steps))}"


def _finite(value: float) -> float | str:
    return value if np.isfinite(value) else str(value)
