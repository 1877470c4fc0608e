"""HLO text of loops around one collective, from which a latency can be read."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

SIZES = {"4 B": 4, "4 KiB": 4 << 10, "64 KiB": 64 << 10, "1 MiB": 1 << 20, "16 MiB": 16 << 20, "64 MiB": 64 << 20}
READ_ELEMENTS = 1024


@dataclass(frozen=True)
class Loop:
    """`(f32[..] x, s32[] trips) -> f32[..]`: runs a collective `trips` times, each on what the last one led to.

    size_bytes: of the larger of operand and result on a device.  dims: of x on every device.
    """

    collective: str
    members: int
    size: str
    size_bytes: int
    dims: tuple[int, ...]
    text: str
    trips: int


def loops(members: int, sizes: dict[str, int] = SIZES, *, after_kernels: bool = False) -> list[Loop]:
    """Every collective at every size. after_kernels: of an array that a kernel makes in each trip, without which the
    arrays of a loop on a GPU may stay with the host.

    Where a member's part of a size would be less than one element, it is an element for each member.
    """
    return [
        build(name, members, size, count, after_kernels=after_kernels)
        for name in BODIES
        for size, count in sizes.items()
    ]


def build(collective: str, members: int, size: str, size_bytes: int, *, after_kernels: bool = False) -> Loop:
    count = max(size_bytes // 4, members) if collective in DIVIDED else size_bytes // 4
    dims: tuple[int, ...] = (count,)
    if collective == "all-gather":
        dims = (count // members,)
    elif collective == "all-to-all":
        dims = (members, count // members)
    shape = f"f32[{','.join(map(str, dims))}]"
    text = FRAME.format(
        name=re.sub(r"\W+", "_", f"{collective} {count}"),
        devices=members,
        x=shape,
        body=f"  made = {shape} negate(x)\n" * after_kernels
        + BODIES[collective](members, count, shape, "made" if after_kernels else "x"),
    )
    trips = max(4, min(400, (64 << 20) // max(size_bytes, 1)))
    return Loop(collective, members, size, 4 * count, dims, text, trips)


FRAME = """HloModule {name}, num_partitions={devices}

sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}}

body {{
  state = ({x}, s32[], s32[]) parameter(0)
  x = {x} get-tuple-element(state), index=0
  i = s32[] get-tuple-element(state), index=1
  trips = s32[] get-tuple-element(state), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
{body}
  ROOT result = ({x}, s32[], s32[]) tuple(y, next, trips)
}}

condition {{
  state = ({x}, s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(state), index=1
  trips = s32[] get-tuple-element(state), index=2
  ROOT more = pred[] compare(i, trips), direction=LT
}}

ENTRY main {{
  x = {x} parameter(0)
  trips = s32[] parameter(1)
  zero = s32[] constant(0)
  state = ({x}, s32[], s32[]) tuple(x, zero, trips)
  loop = ({x}, s32[], s32[]) while(state), condition=condition, body=body
  ROOT y = {x} get-tuple-element(loop), index=0
}}
"""


def _everybody(members: int) -> str:
    return "replica_groups={{" + ",".join(map(str, range(members))) + "}}"


def _read_some(shape: str, result: int, elements: int) -> str:
    """y = x, with a few elements that were read from `all`, an array of `result` elements."""
    count = min(READ_ELEMENTS, elements)
    return (
        f"  some = f32[{count}] slice(all), slice={{[{result - count}:{result}]}}\n"
        "  at = s32[] constant(0)\n"
        f"  y = {shape} dynamic-update-slice(x, some, at)"
    )


def _all_reduce(members: int, count: int, shape: str, given: str) -> str:
    groups = f"{_everybody(members)}, use_global_device_ids=true"
    return f"  y = {shape} all-reduce({given}), channel_id=1, {groups}, to_apply=sum"


def _all_reduce_read(members: int, count: int, shape: str, given: str) -> str:
    groups = f"{_everybody(members)}, use_global_device_ids=true"
    reduced = f"  all = {shape} all-reduce({given}), channel_id=1, {groups}, to_apply=sum\n"
    return reduced + _read_some(shape, count, count)


def _all_gather(members: int, count: int, shape: str, given: str) -> str:
    gathered = (
        f"  all = f32[{count}] all-gather({given}), channel_id=1, {_everybody(members)}, dimensions={{0}}, "
        "use_global_device_ids=true\n"
    )
    return gathered + _read_some(shape, count, count // members)


def _broadcast(members: int, count: int, shape: str, given: str) -> str:
    sent = f"  all = {shape} collective-broadcast({given}), channel_id=1, {_everybody(members)}\n"
    return sent + _read_some(shape, count, count)


def _reduce_scatter(members: int, count: int, shape: str, given: str) -> str:
    part = f"f32[{count // members}]"
    return (
        f"  part = {part} reduce-scatter({given}), channel_id=1, {_everybody(members)}, dimensions={{0}}, "
        "use_global_device_ids=true, to_apply=sum\n"
        "  at = s32[] constant(0)\n"
        f"  y = {shape} dynamic-update-slice(x, part, at)"
    )


def _all_to_all(members: int, count: int, shape: str, given: str) -> str:
    return f"  y = {shape} all-to-all({given}), channel_id=1, {_everybody(members)}, dimensions={{0}}"


def _permute(members: int, count: int, shape: str, given: str) -> str:
    ring = ",".join(f"{{{d},{(d + 1) % members}}}" for d in range(members))
    return f"  y = {shape} collective-permute({given}), channel_id=1, source_target_pairs={{{ring}}}"


BODIES: dict[str, Callable[[int, int, str, str], str]] = {
    "all-reduce": _all_reduce,
    "all-reduce, only read": _all_reduce_read,
    "all-gather": _all_gather,
    "collective-broadcast": _broadcast,
    "reduce-scatter": _reduce_scatter,
    "all-to-all": _all_to_all,
    "collective-permute": _permute,
}
DIVIDED = ("all-gather", "reduce-scatter", "all-to-all")
