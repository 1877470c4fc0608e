"""Faults planted into the runtime and the emission: a line of a function is another one while a test lasts."""

from __future__ import annotations
import __future__

import importlib
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.simulation import cases, runs
from tests.simulation.scenarios import Plan, drawn_for


@dataclass(frozen=True)
class Planted:
    """A fault. where: module and function, `package.module:Class.method`.  old: part of its text, once in it.  new:
    what stands there instead, lines indented from 0 on.  cases: programs that can show it.  hosts: devices of each.
    faults: what goes wrong beside it.  emitted: whether it is in emitted code.  seeds: within how many it is found."""

    name: str
    where: str
    old: str
    new: str
    cases: tuple[str, ...]
    hosts: tuple[int, ...] = (2,)
    faults: tuple[str, ...] = ("none",)
    emitted: bool = False
    seeds: int = 500

    def plan(self, seed: int) -> Plan:
        """The plan of a seed in the search for this fault."""
        return drawn_for(seed, self.cases, self.hosts, self.faults)


@contextmanager
def planted(fault: Planted, *, compiles: bool = True) -> Iterator[None]:
    """The fault is there within. compiles: programs are compiled anew for a fault of emitted code."""
    module_name, _, path = fault.where.partition(":")
    module = importlib.import_module(module_name)
    owner, name = _owner(module, path)
    kept = vars(owner)[name]
    setattr(owner, name, _changed(module, owner, kept, fault))
    try:
        if fault.emitted and compiles:
            with cases.compiled_anew(), runs.compiled_anew():
                yield
        else:
            yield
    finally:
        setattr(owner, name, kept)


def _owner(module: Any, path: str) -> tuple[Any, str]:
    *classes, name = path.split(".")
    owner = module
    for part in classes:
        owner = getattr(owner, part)
    return owner, name


def _changed(module: Any, owner: Any, function: Any, fault: Planted) -> Any:
    """The function, or property, with another text."""
    is_static = isinstance(function, staticmethod)
    plain = function.__func__ if is_static else getattr(function, "fget", None) or function
    text = textwrap.dedent(inspect.getsource(plain))
    line = next((line for line in text.splitlines() if fault.old.splitlines()[0] in line), "")
    assert text.count(fault.old) == 1, f"{fault.where} has {text.count(fault.old)} times: {fault.old!r}"
    indented = textwrap.indent(fault.new, " " * (len(line) - len(line.lstrip())))
    text = text.replace(fault.old, indented.lstrip())
    found: dict[str, Any] = {}
    exec(
        compile(text, f"<{fault.name}>", "exec", flags=__future__.annotations.compiler_flag, dont_inherit=True),
        vars(module),
        found,
    )
    return found[plain.__name__]


PLANTED = [
    Planted(
        "one of many is woken at the end of a round",
        "distxla.collectives.transports.shared_memory.group_round:_Round._lead",
        "self._wake(i32(ALL_SLEEPERS))",
        "self._wake(i32(1))",
        ("sums", "loop"),
        (4,),
        emitted=True,
    ),
    Planted(
        "a sleeper is not counted, so nobody wakes it",
        "distxla.collectives.transports.shared_memory.wait_and_wake:_sleep",
        "atomics.fetch_add(1, sleepers)",
        "atomics.fetch_add(0, sleepers)",
        ("sums", "loop"),
        emitted=True,
    ),
    Planted(
        "a waiter does not look at the abort flag before it sleeps",
        "distxla.collectives.transports.shared_memory.wait_and_wake:_sleep",
        'atomics.leave_if(builder.icmp_unsigned("!=", aborted, i32(0)), awake)',
        "pass",
        ("ring_2", "loops_by_device"),
        emitted=True,
    ),
    Planted(
        "a channel's slot is written before it was taken",
        "distxla.collectives.transports.shared_memory.channel_site:_Send.emit",
        "builder.sub(mark, i32(channel_words.RING))",
        "builder.sub(mark, i32(channel_words.RING + 2))",
        ("more sends than may be in flight",),
        (4,),
        emitted=True,
    ),
    Planted(
        "a group begins more rounds than it has areas",
        "distxla.collectives.transports.shared_memory.group_round:_Round._begin",
        "self._end_oldest(number)",
        "pass",
        ("more rounds than may be in flight",),
        (4,),
        emitted=True,
    ),
    Planted(
        "shared work ends with the last item begun, not done",
        "distxla.collectives.transports.shared_memory.group_round:_Round._help",
        "number = builder.zext(item, I64)",
        """number = builder.zext(item, I64)
with atomics.when(builder.icmp_unsigned("==", builder.add(item, i32(1)), items)):
    atomics.release(self.over, self.area, group_words.E_PHASE)
    self._wake(i32(ALL_SLEEPERS))""",
        ("large sums",),
        (3,),
        emitted=True,
    ),
    Planted(
        "a stream's count of taken items is not advanced",
        "distxla.collectives.transports.shared_memory.stream_site:emit_taken",
        "atomics.release(builder.add(taken, i32(2)), state, streams.T_TAKEN)",
        """atomics.store(i32(0), _slot(atomics, state, memory, taken), streams.L_TAKEN)""",
        ("feeds",),
        emitted=True,
    ),
    Planted(
        "an item is announced before its bytes are there",
        "distxla.runtime.streams.stream_ends:HostToDevice._put_now",
        "for leaf, begin in zip(item.leaves, item.begins, strict=True):",
        """self.posted += 1
self._announce()
self.posted -= 1
for leaf, begin in zip(item.leaves, item.begins, strict=True):""",
        ("feeds",),
    ),
    Planted(
        "one look at a deadlock is enough",
        "distxla.runtime.failures.deadlocks:Deadlocks._look",
        "again = self._snapshot(running, programs)",
        "again = blocked",
        ("loop", "pipelined_3_4_5"),
        (3,),
    ),
    Planted(
        "an end of a process is not told",
        "distxla.runtime.hosts.process_watch:Watch._run",
        "self._on_loss(device, pid)",
        "pass",
        ("sums", "loop"),
        faults=("kill a replica",),
    ),
    Planted(
        "state is not zeroed after a failure",
        "distxla.collectives.transports.shared_memory.transport:SharedMemory.reset",
        "self._block.segment.bytes[offset : offset + size] = 0",
        "pass",
        ("a_collective_in_one_branch_only", "sums"),
        (3,),
    ),
    Planted(
        "the next call begins before all have counted themselves",
        "distxla.runtime.hosts.slice:Slice.end",
        "(lost or self._all_have_counted())",
        "True",
        ("loops_by_device", "loop"),
        seeds=1000,
    ),
    Planted(
        "frames of a call that failed are taken in the next one",
        "distxla.collectives.transports.tcp.proxy:Proxy._on_frame",
        "current = frame.epoch == self._takes",
        "current = True",
        ("large moves",),
        (1, 1),
        ("time limit", "interrupt"),
    ),
    Planted(
        "what the kernel has taken of a frame is sent again",
        "distxla.collectives.transports.tcp.link:Link._send_waiting",
        "self._begun = (rest, done)",
        "self._begun = (parts, done)",
        ("large loop", "large moves"),
        (1, 1),
    ),
    Planted(
        "operands are read after the round may have ended",
        "distxla.collectives.transports.tcp.round_across_hosts:ProxyRound.eager",
        "ctypes.string_at(address, rows.bytes)",
        "view(address, rows.bytes)",
        ("loop", "sums"),
        (1, 1),
    ),
    Planted(
        "hosts are not waited for that were told of channels",
        "distxla.runtime.groups.communicators:Communicators.await_others",
        "self._remotes[index].control_read(0, 8)",
        "pass",
        ("pipelined_3_4_5",),
        (1, 1, 1),
    ),
    Planted(
        "a round between hosts ends before all bytes have come",
        "distxla.collectives.transports.tcp.round_across_hosts:ProxyRound.__init__",
        "self._left += sum(region.taken.bytes",
        "self._left += sum(region.taken.bytes // 2",
        ("large moves",),
        (1, 1),
    ),
    Planted(
        "a message's checksum does not count",
        "distxla.wire.checksums:Gmac.open",
        "return False",
        "return True",
        ("large moves", "sums"),
        (1, 1),
        ("damage a byte",),
    ),
    Planted(
        "the driver's host goes on when another one has failed",
        "distxla.runtime.hosts.slice:Slice.alarm",
        "self.abort()",
        "pass",
        ("sums", "loop"),
        (2, 2),
        ("kill a replica",),
    ),
]
