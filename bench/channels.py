"""The table of channels: values that go back and forth between two programs, and round a ring, inside a loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from rich.table import Table

from bench.format import seconds
from distxla import Cluster, parse

SIZES = {"4 B": 1, "4 KiB": 1 << 10, "1 MiB": 1 << 18, "16 MiB": 1 << 22}  # elements of f32
TRIPS = {"4 B": 2000, "4 KiB": 2000, "1 MiB": 100, "16 MiB": 6}

LOOP = """
HloModule NAME
more {
  p = (s32[], s32[], SHAPE) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=1
  ROOT c = pred[] compare(i, n), direction=LT
}
body {
  p = (s32[], s32[], SHAPE) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=1
  v = SHAPE get-tuple-element(p), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  t = token[] after-all()
  BODY
  w = SHAPE get-tuple-element(rd), index=0
  ROOT q = (s32[], s32[], SHAPE) tuple(j, n, w)
}
ENTRY main {
  x = SHAPE parameter(0)
  n = s32[] parameter(1)
  zero = s32[] constant(0)
  p = (s32[], s32[], SHAPE) tuple(zero, n, x)
  w = (s32[], s32[], SHAPE) while(p), condition=more, body=body
  ROOT r = SHAPE get-tuple-element(w), index=2
}"""
PING = """s = (SHAPE, u32[], token[]) send(v, t), channel_id=1
  sd = token[] send-done(s), channel_id=1
  r = (SHAPE, u32[], token[]) recv(sd), channel_id=2
  rd = (SHAPE, token[]) recv-done(r), channel_id=2"""
PONG = """r = (SHAPE, u32[], token[]) recv(t), channel_id=1
  rd = (SHAPE, token[]) recv-done(r), channel_id=1
  got = SHAPE get-tuple-element(rd), index=0
  s = (SHAPE, u32[], token[]) send(got, t), channel_id=2
  sd = token[] send-done(s), channel_id=2"""
AROUND = """r = (SHAPE, u32[], token[]) recv(t), channel_id=1, PAIRS
  s = (SHAPE, u32[], token[]) send(v, t), channel_id=1, PAIRS
  rd = (SHAPE, token[]) recv-done(r), channel_id=1
  sd = token[] send-done(s), channel_id=1"""


def loop_text(name: str, body: str, elements: int, devices: int) -> str:
    """A loop of n trips (argument 1) over a value of f32 (argument 0)."""
    ring = ",".join(f"{{{d},{(d + 1) % devices}}}" for d in range(devices))
    pairs = f"frontend_attributes={{_xla_send_recv_source_target_pairs={{{ring}}}}}"
    text = LOOP.replace("NAME", name).replace("BODY", body)
    return text.replace("PAIRS", pairs).replace("SHAPE", f"f32[{elements}]")


@dataclass
class MeasuredChannel:
    """Seconds of one way by turns: of a value between two programs, or of a step round a ring."""

    channel: str
    devices: int
    size: str
    way_s: list[float] = field(default_factory=list)
    copy_s: list[float] = field(default_factory=list)

    def least(self) -> float:
        """Others' work on the machine only ever adds to it."""
        return min(self.way_s)


def measure_channels(match: str, rounds: int, members: tuple[int, ...]) -> Iterator[MeasuredChannel]:
    """Those whose "KIND, N devices, SIZE" has `match` in it."""
    for devices in members:
        kinds = [
            kind for kind in ("ping-pong", "ring") for size in SIZES if match in f"{kind}, {devices} devices, {size}"
        ]
        if not kinds:
            continue
        with Cluster(replicas=devices) as cluster:
            for kind in dict.fromkeys(kinds):
                for size, elements in SIZES.items():
                    if match in f"{kind}, {devices} devices, {size}":
                        run = _ping_pong(cluster, elements) if kind == "ping-pong" else _ring(cluster, elements)
                        yield _measure(MeasuredChannel(kind, devices, size), run, rounds)


Run = Callable[[int], float]


def _ping_pong(cluster: Cluster, elements: int) -> Run:
    """Half of the devices send to the other half and wait for the answer."""
    half = cluster.devices // 2
    sides = (tuple(range(half)), tuple(range(half, cluster.devices)))
    programs = {
        devices: cluster.compile(parse(loop_text(name, body, elements, cluster.devices)), devices)
        for devices, name, body in zip(sides, ("ping", "pong"), (PING, PONG), strict=True)
    }
    value = np.zeros(elements, np.float32)

    def run(trips: int) -> float:
        arguments = {device: [value, np.array(trips, np.int32)] for device in range(cluster.devices)}
        cluster.run(programs, arguments, time_limit=300)
        return programs[sides[0]].run_s / 2

    return run


def _ring(cluster: Cluster, elements: int) -> Run:
    """Each device sends to the next one and receives from the one before."""
    step = cluster.compile(parse(loop_text("ring", AROUND, elements, cluster.devices)))
    value = np.zeros(elements, np.float32)

    def run(trips: int) -> float:
        step([[value, np.array(trips, np.int32)]] * cluster.devices)
        return step.run_s

    return run


def _measure(measured: MeasuredChannel, run: Run, rounds: int) -> MeasuredChannel:
    trips = TRIPS[measured.size]
    source = np.zeros(SIZES[measured.size], np.float32)
    target = np.ones_like(source)
    run(2)
    for _ in range(rounds):
        measured.way_s.append(run(trips) / trips)
        begin = time.perf_counter()
        for _ in range(trips):
            np.copyto(target, source)
        measured.copy_s.append((time.perf_counter() - begin) / trips)
    return measured


def channel_table(found: list[MeasuredChannel]) -> Table:
    table = Table(title="channels inside a loop: one way, and a copy of the same size in memory")
    for column in ("channel", "devices", "size"):
        table.add_column(column)
    for column in ("one way", "copy", "ratio"):
        table.add_column(column, justify="right")
    for row in found:
        copy = min(row.copy_s)
        table.add_row(
            row.channel, str(row.devices), row.size, seconds(row.least()), seconds(copy), f"{row.least() / copy:.1f}"
        )
    return table
