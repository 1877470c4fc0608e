"""HLO text of loops around one collective over 8 partitions, from which a latency can be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

DEVICES = 8
SIZES = {"4 B": 4, "4 KiB": 4 << 10, "1 MiB": 1 << 20, "16 MiB": 16 << 20}
GROUP = "{" + ",".join(map(str, range(DEVICES))) + "}"
RING = "{" + ",".join(f"{{{d},{(d + 1) % DEVICES}}}" for d in range(DEVICES)) + "}"


@dataclass(frozen=True)
class Loop:
    """`(f32[..] x, s32[] trips) -> f32[..]`: runs a collective `trips` times, each on the last one's result.

    dims: of x on every device.
    """

    collective: str
    size: str
    dims: tuple[int, ...]
    text: str
    trips: int


def loops(sizes: dict[str, int] = SIZES) -> list[Loop]:
    """Every collective at every size.

    A size is the bytes of the larger of operand and result on a device; where an eighth of it would be less than one
    element, it is an element for each device.
    """
    return [build(name, size, count) for name in BODIES for size, count in sizes.items()]


def build(collective: str, size: str, size_bytes: int) -> Loop:
    count = size_bytes // 4
    if collective in ("all-gather", "reduce-scatter", "all-to-all"):
        count = max(count, DEVICES)
    dims = (DEVICES, count // DEVICES) if collective == "all-to-all" else (count,)
    shape = f"f32[{','.join(map(str, dims))}]"
    text = FRAME.format(
        name=f"{collective}_{count}".replace("-", "_"),
        devices=DEVICES,
        x=shape,
        body=BODIES[collective](count, shape),
    )
    trips = max(4, min(400, (64 << 20) // max(size_bytes, 1)))
    return Loop(collective, size, dims, text, trips)


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


def _all_reduce(count: int, shape: str) -> str:
    groups = f"replica_groups={{{GROUP}}}, use_global_device_ids=true"
    return f"  y = {shape} all-reduce(x), channel_id=1, {groups}, to_apply=sum"


def _all_gather(count: int, shape: str) -> str:
    part = f"f32[{count // DEVICES}]"
    return (
        f"  part = {part} slice(x), slice={{[0:{count // DEVICES}]}}\n"
        f"  y = {shape} all-gather(part), channel_id=1, replica_groups={{{GROUP}}}, dimensions={{0}}, "
        "use_global_device_ids=true"
    )


def _reduce_scatter(count: int, shape: str) -> str:
    part = f"f32[{count // DEVICES}]"
    return (
        f"  part = {part} reduce-scatter(x), channel_id=1, replica_groups={{{GROUP}}}, dimensions={{0}}, "
        "use_global_device_ids=true, to_apply=sum\n"
        "  at = s32[] constant(0)\n"
        f"  y = {shape} dynamic-update-slice(x, part, at)"
    )


def _all_to_all(count: int, shape: str) -> str:
    return f"  y = {shape} all-to-all(x), channel_id=1, replica_groups={{{GROUP}}}, dimensions={{0}}"


def _permute(count: int, shape: str) -> str:
    return f"  y = {shape} collective-permute(x), channel_id=1, source_target_pairs={RING}"


BODIES: dict[str, Callable[[int, str], str]] = {
    "all-reduce": _all_reduce,
    "all-gather": _all_gather,
    "reduce-scatter": _reduce_scatter,
    "all-to-all": _all_to_all,
    "collective-permute": _permute,
}
