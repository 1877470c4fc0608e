"""Programs for simulated clusters: small ones with every kind of communication, and how a call of each must end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from distxla.collectives.transports.shared_memory import work_items as work
from distxla.compiler.compile import compile_module
from distxla.errors import CollectiveMismatchError, DeadlockError, DistxlaError
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.oracle.lockstep import run_programs, run_reference
from distxla.program.artifact import CompiledProgram
from distxla.program.options import CompileOptions
from distxla.text.parser import parse_module
from tests import channel_programs, contradicting_programs, deadlock_programs
from tests.collectives import async_groups
from tests.simulation import native

Array = np.ndarray[Any, Any]
Leaves = list[Any]
SHARED_WORK_BYTES, WORK_PIECE_BYTES = 4096, 1024  # of group rounds here: small programs share work, too


@dataclass(frozen=True)
class Case:
    """A program, or several that run at once.

    parts: (devices, module).  arguments: leaves by device.  results: of a call that ends well, None where it can't;
    then it ends with one of `errors`.  items: what every device's infeed gets.  given: what its outfeed then gives.
    """

    name: str
    replicas: int
    parts: tuple[tuple[tuple[int, ...], Module], ...]
    arguments: tuple[Leaves, ...]
    results: tuple[Leaves, ...] | None
    errors: tuple[type[DistxlaError], ...] = ()
    items: tuple[Array, ...] = ()
    given: tuple[tuple[Array, ...], ...] = ()

    def wrong(self, device: int, leaves: Sequence[Any]) -> str:
        """What differs from the results of a device; "" if nothing does."""
        assert self.results is not None
        for k, (have, want) in enumerate(zip(leaves, self.results[device], strict=True)):
            if want is not None and np.asarray(have).tobytes() != np.asarray(want).tobytes():
                return f"{self.name}: leaf {k} on device {device} is {np.asarray(have)}, not {want}"
        return ""


@dataclass(frozen=True)
class Text:
    """A program of our own for any number of replicas: N stands for it, DEVICES for the list of them, NEXT for the
    pairs of a ring."""

    name: str
    text: str
    least: int = 2
    size: int = 4
    count: int = 1  # of parameters
    items: int = 0  # that every device takes and gives
    errors: tuple[type[DistxlaError], ...] = field(default=())


ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b) }\n"

SUMS = f"""{ADD}
ENTRY main {{
  x = f32[SIZE] parameter(0)
  r = f32[SIZE] all-reduce(x), replica_groups={{}}, to_apply=add
  n = f32[SIZE] negate(r)
  ROOT q = f32[SIZE] all-reduce(n), replica_groups={{}}, to_apply=add
}}"""

MOVES = """
ENTRY main {
  x = f32[SIZE] parameter(0)
  g = f32[GATHERED] all-gather(x), replica_groups={}, dimensions={0}
  a = f32[GATHERED] all-to-all(g), replica_groups={{DEVICES}}, dimensions={0}
  p = f32[GATHERED] collective-permute(a), source_target_pairs={NEXT}
  ROOT r = (f32[GATHERED], f32[GATHERED]) tuple(a, p)
}"""

LOOP = f"""{ADD}
body {{
  p = (s32[], s32[], f32[SIZE]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=1
  v = f32[SIZE] get-tuple-element(p), index=2
  w = f32[SIZE] collective-permute(v), source_target_pairs={{NEXT}}
  r = f32[SIZE] all-reduce(w), replica_groups={{}}, to_apply=add
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT q = (s32[], s32[], f32[SIZE]) tuple(j, n, r)
}}
more {{
  p = (s32[], s32[], f32[SIZE]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=1
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY main {{
  x = f32[SIZE] parameter(0)
  zero = s32[] constant(0)
  n = s32[] constant(6)
  p = (s32[], s32[], f32[SIZE]) tuple(zero, n, x)
  w = (s32[], s32[], f32[SIZE]) while(p), condition=more, body=body
  ROOT r = f32[SIZE] get-tuple-element(w), index=2
}}"""

# a running sum of the infeed's items, added up over all devices
FEEDS = f"""{ADD}
body {{
  p = (s32[], f32[SIZE]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  sum = f32[SIZE] get-tuple-element(p), index=1
  t = token[] after-all()
  f = (f32[SIZE], token[]) infeed(t)
  v = f32[SIZE] get-tuple-element(f), index=0
  u = token[] get-tuple-element(f), index=1
  s = f32[SIZE] add(sum, v)
  r = f32[SIZE] all-reduce(s), replica_groups={{}}, to_apply=add
  o = token[] outfeed(r, u), outfeed_shape=f32[SIZE]
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT q = (s32[], f32[SIZE]) tuple(j, s)
}}
more {{
  p = (s32[], f32[SIZE]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(ITEMS)
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY main {{
  x = f32[SIZE] parameter(0)
  zero = s32[] constant(0)
  p = (s32[], f32[SIZE]) tuple(zero, x)
  w = (s32[], f32[SIZE]) while(p), condition=more, body=body
  ROOT r = f32[SIZE] get-tuple-element(w), index=1
}}"""

# more async operations in flight than a group has areas
ASYNC = f"""{ADD}
ENTRY main {{
  x = f32[SIZE] parameter(0)
  a = f32[SIZE] all-reduce-start(x), replica_groups={{}}, to_apply=add
  y = f32[SIZE] negate(x)
  b = f32[SIZE] all-reduce-start(y), replica_groups={{}}, to_apply=add
  z = f32[SIZE] multiply(x, x)
  c = f32[SIZE] all-reduce-start(z), replica_groups={{}}, to_apply=add
  da = f32[SIZE] all-reduce-done(a)
  dc = f32[SIZE] all-reduce-done(c)
  db = f32[SIZE] all-reduce-done(b)
  ROOT r = (f32[SIZE], f32[SIZE], f32[SIZE]) tuple(da, db, dc)
}}"""

WRONG = (DeadlockError, CollectiveMismatchError)
OWN = [
    Text("sums", SUMS),
    Text("large sums", SUMS, size=6000),
    Text("moves", MOVES),
    Text("large moves", MOVES, size=3000),
    Text("loop", LOOP),
    Text("large loop", LOOP, size=9000),
    Text("feeds", FEEDS, items=5),
    Text("async rounds", ASYNC),
]
CHANNELS = ["pipelined_3_4_5", "travelling_3", "order_3", "producer_consumer_3_5_2", "pipelined_2_3_100000"]
GROUPS = [
    "more sends than may be in flight",
    "more rounds than may be in flight",
    "two rings of permutes that begin and end one after the other in the text",
]
HARMLESS = ["disjoint_groups_in_branches", "loops_that_correspond", "an_async_pair_that_encloses_another"]
DOOMED = [
    "ring_2",
    "ring_3",
    "two_channels_crossed",
    "all_reduces_in_different_orders",
    "a_collective_in_one_branch_only",
    "different_collectives_in_the_branches",
    "loops_by_device",
    "a_program_that_ends_early",
    "shapes_that_differ",
    "joined_channels",
]


def names(devices: int) -> list[str]:
    """Of the cases for that many devices."""
    return _NAMES[devices]


def feeds(name: str) -> bool:
    """Whether its programs take items of the host."""
    return any(own.name == name and own.items for own in OWN)


@cache
def case(name: str, devices: int) -> Case:
    """The case of that name."""
    for own in OWN:
        if own.name == name:
            return _own(own, devices)
    for channel in channel_programs.CASES:
        if channel.name == name:
            every = range(channel.devices)
            arguments, results = (tuple(f(d) for d in every) for f in (channel.arguments, channel.results))
            return Case(name, channel.replicas, tuple(channel.modules()), arguments, results)
    for group in async_groups.GROUPS:
        if group.name == name:
            module = parse_module(group.module_text(), "group.hlo")
            xs = group.arguments()
            results = tuple(group.expected(xs, d) for d in range(async_groups.DEVICES))
            everybody = tuple(range(async_groups.DEVICES))
            return Case(name, async_groups.DEVICES, ((everybody, module),), tuple([x] for x in xs), results)
    found = next(one for one in _waiting() if one.name == name)
    return _deadlock(found)


def _waiting() -> list[deadlock_programs.Case]:
    return [*deadlock_programs.CASES, *contradicting_programs.CASES]


def _deadlock(found: deadlock_programs.Case) -> Case:
    parts = tuple(found.modules())
    arguments = tuple([np.arange(4, dtype=np.float32) + d] for d in range(found.replicas))
    if found.deadlocks:
        return Case(found.name, found.replicas, parts, arguments, None, WRONG)
    modules = {device: module for devices, module in parts for device in devices}
    outs = run_programs(modules, dict(enumerate(arguments)), Counts(found.replicas, 1))
    results = tuple(outs[device] for device in range(found.replicas))
    return Case(found.name, found.replicas, parts, arguments, results)


def _own(own: Text, devices: int) -> Case:
    every = range(devices)
    ring = "{" + ",".join(f"{{{d},{(d + 1) % devices}}}" for d in every) + "}"
    text = f"HloModule {own.name.replace(' ', '_')}, replica_count={devices}\n{own.text}"
    size = own.size * devices if "GATHERED" in own.text else own.size  # divisible
    for word, value in (
        ("{NEXT}", ring),
        ("DEVICES", ",".join(map(str, every))),
        ("GATHERED", size * devices),
        ("SIZE", size),
        ("ITEMS", own.items),
    ):
        text = text.replace(word, str(value))
    module = parse_module(text, f"{own.name}.hlo")
    arguments = tuple([np.arange(size, dtype=np.float32) % 64 + 10 * d] for d in every)
    everybody = tuple(every)
    if not own.items:
        results = run_reference(module, arguments, Counts(devices, 1))
        return Case(own.name, devices, ((everybody, module),), arguments, tuple(results))
    items = tuple(np.full(size, k + 1, np.float32) for k in range(own.items))
    sums = [[arguments[d][0] + sum(items[: k + 1]) for k in range(own.items)] for d in every]
    given = tuple(sum(sums[d][k] for d in every) for k in range(own.items))
    results = tuple([sums[d][-1].astype(np.float32)] for d in every)
    whole = tuple(tuple(x.astype(np.float32) for x in given) for _ in every)
    return Case(own.name, devices, ((everybody, module),), arguments, results, items=items, given=whole)


_compiled: dict[tuple[str, int], tuple[CompiledProgram, ...]] = {}


def programs(name: str, devices: int) -> tuple[CompiledProgram, ...]:
    """The case's programs, compiled for simulated runs, once a process."""
    found = _compiled.get((name, devices))
    if found is None:
        found = _compiled[name, devices] = _compile(case(name, devices))
    return found


@contextmanager
def compiled_anew() -> Iterator[None]:
    """Programs within are compiled again, from another compiler perhaps."""
    kept = dict(_compiled)
    _compiled.clear()
    try:
        yield
    finally:
        _compiled.clear()
        _compiled.update(kept)


def _compile(found: Case) -> tuple[CompiledProgram, ...]:
    return tuple(
        compiled(module, found.replicas, apart=len(devices) < found.replicas) for devices, module in found.parts
    )


def compiled(module: Module, replicas: int, *, apart: bool = False) -> CompiledProgram:
    """For simulated runs; work is shared out in small pieces."""
    sizes = work.SHARED_WORK_BYTES, work.WORK_PIECE_BYTES
    work.SHARED_WORK_BYTES, work.WORK_PIECE_BYTES = SHARED_WORK_BYTES, WORK_PIECE_BYTES
    try:
        with native.compiling():
            return compile_module(module, Counts(replicas, 1), CompileOptions(apart=apart))
    finally:
        work.SHARED_WORK_BYTES, work.WORK_PIECE_BYTES = sizes


def _all() -> dict[int, list[str]]:
    found: dict[int, list[str]] = {2: [], 3: [], 4: []}
    for count, listed in found.items():
        listed += [own.name for own in OWN]
        listed += [c.name for c in channel_programs.CASES if c.name in CHANNELS and c.devices == count]
        if count == async_groups.DEVICES:
            listed += GROUPS
        listed += [c.name for c in _waiting() if c.name in HARMLESS + DOOMED and c.replicas == count]
    return found


_NAMES = _all()
