"""The accesses of each emitted routine to shared words, by the models: its first round, transfer, item or call.

The documentation draws them, and a test compares them with the emitted code.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.collectives.protocols.models import call, channel, group, launch, permute, stream, wait
from tests.collectives.protocols.models.channel import Value
from tests.collectives.protocols.models.machine import Process

MEMBERS = 2
EAGER, LARGE, POSTED, ZERO_COPY = Value(eager=True), Value(), Value(posted=True), Value(zero_copy=True)
_ENDS = permute.Ends(0, 1, 1)
Write = Callable[[Process], None]


def _permute(part: Callable[..., None], *, small: bool) -> Write:
    return lambda p: part(p, _ENDS, 0, small=small)


def _channel(op: Callable[[Process, int, Value], None], value: Value) -> Write:
    return lambda p: op(p, 0, value)


_ROUTINES: dict[str, Write] = {
    "wait": partial(wait.waiting, device=0, word=wait.A_WORD, seen="seen", sleepers=wait.A_SLEEPERS),
    "wake": partial(wait.waking, word=wait.A_WORD, sleepers=wait.A_SLEEPERS),
    "group round": partial(group.group_round, me=0, members=MEMBERS, r=0),
    "group begin": partial(group.group_begin, me=0, members=MEMBERS, r=0),
    "group end": partial(group.group_end, me=0, members=MEMBERS, r=0),
    "small permute round": _permute(permute.permute_round, small=True),
    "small permute begin": _permute(permute.permute_begin, small=True),
    "small permute end": _permute(permute.permute_end, small=True),
    "large permute round": _permute(permute.permute_round, small=False),
    "large permute begin": _permute(permute.permute_begin, small=False),
    "large permute end": _permute(permute.permute_end, small=False),
    "eager send": _channel(channel.send, EAGER),
    "eager send-done": _channel(channel.send_done, EAGER),
    "eager recv-done": _channel(channel.recv_done, EAGER),
    "large send": _channel(channel.send, LARGE),
    "large zero-copy send": _channel(channel.send, ZERO_COPY),
    "large send-done": _channel(channel.send_done, LARGE),
    "recv": _channel(channel.recv, LARGE),
    "recv with a receive buffer": _channel(channel.recv, POSTED),
    "large recv-done": _channel(channel.recv_done, LARGE),
    "stream await": partial(stream.device_await, r=0),
    "stream taken": partial(stream.device_taken, r=0),
    "stream room": partial(stream.device_room, r=0),
    "stream posted": partial(stream.device_posted, r=0),
    "serve": partial(call.serve, device=0),
    "call": partial(call.call, sequence=1, target=1),
    "launch log": partial(launch.log, me=0, turn=0),
    "launch issue": partial(launch.issue, me=0, number=1),
    "launch arrive": partial(launch.arrive, me=0, members=2, ordinal=0),
    "launch note site": partial(launch.note_site, me=0, ordinal=0),
    "launch write apart": partial(launch.write_apart, me=0, other=1, ordinal=0),
}
NAMES = tuple(_ROUTINES)


def routine(name: str) -> Process:
    """The program of a routine."""
    p = Process(name)
    _ROUTINES[name](p)
    p.end()
    return p
