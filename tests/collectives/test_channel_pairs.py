"""Whose value each recv gets: ids, streams and programs, and what no run can make sense of."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import pytest

from distxla.collectives.channels import module_transfers
from distxla.collectives.joined_channels import notes
from distxla.errors import CollectiveMismatchError, DeadlockError, DistxlaError, VerificationError
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.text.parser import parse_module

NUMBERS = itertools.count()
PAIRS = "_xla_send_recv_source_target_pairs"


def attributes(pairs: str | None, **others: str) -> str:
    found = ({} if pairs is None else {PAIRS: pairs}) | {f"_xla_send_recv_{k}": v for k, v in others.items()}
    return "frontend_attributes={" + ",".join(f'{k}="{v}"' for k, v in found.items()) + "}" if found else ""


def end(kind: str, channel: int | None = 1, pairs: str | None = None, shape: str = "f32[2]", **others: str) -> str:
    """`send` or `recv` and its done."""
    rest = ", ".join(
        ([] if channel is None else [f"channel_id={channel}"]) + [a for a in [attributes(pairs, **others)] if a]
    )
    rest, done = f", {rest}" if rest else "", "" if channel is None else f", channel_id={channel}"
    number = next(NUMBERS)
    if kind == "send":
        return f"""
  x.{number} = {shape} constant(0)
  b.{number} = {shape} broadcast(x.{number}), dimensions={{}}
  s.{number} = ({shape}, u32[], token[]) send(b.{number}, t){rest}
  sd.{number} = token[] send-done(s.{number}){done}""".replace(
            f"x.{number} = {shape}", f"x.{number} = {shape.split('[')[0]}[]"
        )
    return f"""
  r.{number} = ({shape}, u32[], token[]) recv(t){rest}
  rd.{number} = ({shape}, token[]) recv-done(r.{number}){done}"""


def program(*ends: str) -> Module:
    return parse_module(
        f"ENTRY main {{\n  t = token[] after-all(){''.join(ends)}\n  ROOT z = f32[] constant(0)\n}}", "m.hlo"
    )


def found(replicas: int, partitions: int, *programs: tuple[Sequence[int], Module]) -> list[tuple[int, int, int, int]]:
    transfers = module_transfers(programs, Counts(replicas, partitions))
    return [(t.channel, t.stream, t.source, t.target) for t in transfers]


RING = "{{0,1},{1,0}}"


@pytest.mark.parametrize(
    ("replicas", "partitions", "channel", "want"),
    [
        (2, 1, None, [(0, 1), (1, 0)]),
        (2, 3, None, [(0, 3), (1, 4), (2, 5), (3, 0), (4, 1), (5, 2)]),
        (2, 3, 0, [(0, 3), (1, 4), (2, 5), (3, 0), (4, 1), (5, 2)]),
        (3, 2, 7, [(0, 1), (1, 0), (2, 3), (3, 2), (4, 5), (5, 4)]),
        (3, 1, 7, [(0, 1), (1, 0)]),
        (1, 3, None, [(0, 1), (1, 0)]),
    ],
)
def test_ids_of_one_program(replicas: int, partitions: int, channel: int | None, want: list[tuple[int, int]]) -> None:
    module = program(end("recv", channel, RING), end("send", channel, RING))
    devices = range(replicas * partitions)
    assert found(replicas, partitions, (devices, module)) == [(channel or 0, 0, *pair) for pair in want]


def test_streams_are_apart() -> None:
    module = program(end("recv", 0, "{{0,1}}"), end("send", 0, "{{0,1}}"),
                     end("recv", 0, "{{1,0}}", pipeline="1"), end("send", 0, "{{1,0}}", pipeline="1"))  # fmt: skip
    assert found(2, 1, (range(2), module)) == [(0, 0, 0, 1), (0, 1, 1, 0)]


def test_several_chains_share_a_channel() -> None:
    module = program(end("recv", 0, "{{0,1}}"), end("send", 0, "{{0,1}}"), end("recv", 0, RING), end("send", 0, RING))
    assert found(2, 1, (range(2), module)) == [(0, 0, 0, 1), (0, 0, 1, 0)]
    first, second = module_transfers([(range(2), module)], Counts(2, 1))
    assert len(first.sends) == len(first.recvs) == 2
    assert len(second.sends) == len(second.recvs) == 1


def test_two_programs_meet_in_the_order_of_their_devices() -> None:
    one, other = program(end("send", 3)), program(end("recv", 3))
    assert found(6, 1, ((5, 0, 1), one), ((2, 4, 3), other)) == [(3, 0, 0, 2), (3, 0, 1, 3), (3, 0, 5, 4)]


def test_pairs_between_programs_are_of_devices() -> None:
    one, other = program(end("send", 3, "{{0,5},{1,4}}")), program(end("recv", 3))
    assert found(2, 3, (range(3), one), (range(3, 6), other)) == [(3, 0, 0, 5), (3, 0, 1, 4)]


def test_bounds_go_with_their_pairs() -> None:
    bounds = {"validation": "{{0,3},{2,5}}"}
    transfers = module_transfers(
        [(range(2), program(end("recv", 0, RING, **bounds), end("send", 0, RING, **bounds)))], Counts(2, 1)
    )
    assert [t.sends[0].bounds for t in transfers] == [t.recvs[0].bounds for t in transfers] == [(0, 3), (2, 5)]
    never = program(end("recv", 0, RING, validation="invalid"), end("send", 0, RING, validation="invalid"))
    assert [t.sends[0].bounds for t in module_transfers([(range(2), never)], Counts(2, 1))] == [(1, 0), (1, 0)]


ONE, TURNED = "{{0,1},{1,2}}", "{{1,2},{0,1}}"


@pytest.mark.parametrize(
    ("ends", "want"),
    [  # (channel, stream, source, target) and the ids
        ([end("send", 1, ONE), end("recv", 2, ONE)], [(1, 0, 0, 1, (1, 2)), (1, 0, 1, 2, (1, 2))]),
        ([end("recv", 2, TURNED), end("send", 1, ONE)], [(1, 0, 0, 1, (1, 2)), (1, 0, 1, 2, (1, 2))]),
        ([end("send", None, "{{0,1}}"), end("recv", 7, "{{0,1}}")], [(0, 0, 0, 1, (0, 7))]),
        ([end("send", 9, "{{0,1}}"), end("recv", 0, "{{0,1}}")], [(9, 0, 0, 1, (0, 9))]),
        # several with the same pairs are one channel
        ([end("send", 3, "{{0,1}}"), end("send", 1, "{{0,1}}"), end("recv", 2, "{{0,1}}"), end("recv", 4, "{{0,1}}")],
         [(1, 0, 0, 1, (1, 2, 3, 4))]),
        # unless their shapes tell them apart
        ([end("send", 1, "{{0,1}}"), end("send", 3, "{{0,1}}", "s8[3]"), end("recv", 4, "{{0,1}}", "s8[3]"),
          end("recv", 2, "{{0,1}}")], [(1, 0, 0, 1, (1, 2)), (3, 0, 0, 1, (3, 4))]),
        # of a channel with both sides nothing is taken
        ([end("send", 1, "{{0,1}}"), end("recv", 1, "{{0,1}}"), end("send", 2, "{{0,1}}"), end("recv", 3, "{{0,1}}")],
         [(1, 0, 0, 1, (1,)), (2, 0, 0, 1, (2, 3))]),
        # one channel that is sent on for two that are received on
        ([end("send", 1, "{{0,1}}"), end("send", 1, "{{1,2}}"), end("recv", 2, "{{0,1}}"), end("recv", 3, "{{1,2}}")],
         [(1, 0, 0, 1, (1, 2, 3)), (1, 0, 1, 2, (1, 2, 3))]),
        # streams stay apart
        ([end("send", 1, "{{0,1}}"), end("send", 1, "{{0,1}}", pipeline="1"), end("recv", 2, "{{0,1}}", pipeline="1"),
          end("recv", 3, "{{0,1}}")], [(1, 0, 0, 1, (1, 3)), (1, 1, 0, 1, (1, 2))]),
    ],
)  # fmt: skip
def test_other_ids_with_the_same_pairs_are_one_channel(ends: list[str], want: list[tuple[object, ...]]) -> None:
    transfers = module_transfers([(range(3), program(*ends))], Counts(1, 3))
    assert [(t.channel, t.stream, t.source, t.target, t.channels) for t in transfers] == want


def test_what_was_joined_is_noted() -> None:
    module = program(end("send", 1, "{{0,1}}"), *(end("recv", k, "{{0,1}}") for k in (2, 3, 4)))
    names = [i.name for i in module.entry_computation if i.opcode in ("send", "recv")]
    lines = {i.name: i.span.line for i in module.entry_computation if i.span is not None}
    s, r, q = (f"{name} (m.hlo:{lines[name]}:3)" for name in names[:3])
    assert list(notes(module_transfers([(range(2), module)], Counts(1, 2)))) == [
        f"{s} on channel 1 and {r} on channel 2, {q} on channel 3 and 1 more are paired by their source-target pairs, "
        "in the order in which they are executed, as by XLA on GPUs: neither channel has another side"
    ]
    assert not list(
        notes(module_transfers([(range(2), program(end("recv", 1, RING), end("send", 1, RING)))], Counts(1, 2)))
    )


@pytest.mark.parametrize(
    ("replicas", "ends", "near"),
    [
        (2, [end("send", 1, "{{0,1}}"), end("recv", 2, "{{1,0}}")],
         r"recv r.* on channel 2 lacks its send, too, but it has the pairs \{\{1,0\}\}, s\.\d+ has \{\{0,1\}\}"),
        (2, [end("recv", 2, "{{0,1}}"), end("send", 3)],
         r"send s.* on channel 3 lacks its recv, too, but s\.\d+ names no pairs, without which ids have to agree"),
        (2, [end("send", 0, "{{0,1}}"), end("recv", 2, "{{0,1}}")],
         r"its pairs are the same, but on channel 0 ids are replicas, on others partitions"),
        # who has a send already is no candidate
        (1, [end("send", 1, "{{0,1}}"), end("recv", 2, "{{0,1}}"), end("send", 2, "{{0,1}}")], None),
        (1, [end("send", 1, "{{0,1}}"), end("recv", 2, "{{0,1}}", pipeline="1")], None),
    ],
)  # fmt: skip
def test_what_comes_near_to_a_counterpart_is_told(replicas: int, ends: list[str], near: str | None) -> None:
    with pytest.raises(DeadlockError, match="no program of the run has a") as caught:
        module_transfers([(range(2 * replicas), program(*ends))], Counts(replicas, 2))
    said = getattr(caught.value, "__notes__", [])
    assert (re.search(near, "\n".join(said)) is not None) if near else not said


@pytest.mark.parametrize(
    ("replicas", "alone", "place"),
    [
        (1, end("send", 1), "the recv belongs in another program"),
        (1, end("send", 1, "{{0,1}}"), "the recv belongs on device 1"),
        (1, end("recv", 1, "{{0,1},{1,0}}"), "the send belongs on devices 0, 1"),
        (1, end("recv", 1, "{}"), "the send belongs on the sources of its pairs"),
        (2, end("send", 1, "{{0,1}}"), "the recv belongs on the targets of its pairs"),
    ],
)
def test_an_end_without_a_counterpart_names_the_place_of_the_other_end(replicas: int, alone: str, place: str) -> None:
    with pytest.raises(DeadlockError, match=f"on channel 1 for .*: the transfer never ends; {place}\n"):
        module_transfers([(range(2 * replicas), program(alone))], Counts(replicas, 2))


@pytest.mark.parametrize(
    ("ends", "error", "message"),
    [
        ([end("send", 1, "{{0,1}}"), end("recv", 2, "{{0,1}}", "f32[3]")], CollectiveMismatchError,
         r"s.* is of f32\[2\], r.* of f32\[3\]"),
        ([end("send", 1, "{{0,1}}", validation="{{0,1}}"), end("recv", 2, "{{0,1}}")], VerificationError,
         r"channel.bounds: s.* and r.* disagree"),
    ],
)  # fmt: skip
def test_what_joined_channels_disagree_in(ends: list[str], error: type[DistxlaError], message: str) -> None:
    with pytest.raises(error, match=message):
        module_transfers([(range(2), program(*ends))], Counts(1, 2))


def kind_of(message: str) -> type[DistxlaError]:
    """What says nothing is invalid; what waits for ever, or gets another shape, is a deadlock."""
    if " is of " in message:
        return CollectiveMismatchError
    return DeadlockError if re.search("no program|has no (send|recv)", message) else VerificationError


@pytest.mark.parametrize(
    ("programs", "message"),
    [
        ([[end("send")], [end("send")]], r"deadlock: no program of the run has a recv on channel 1 for s.\d"),
        ([[end("recv")], []], r"deadlock: no program of the run has a send on channel 1 for r"),
        ([[end("send"), end("send")], [end("recv")]], r"channel.sends: s.* and s.* on channel 1: without .* one send"),
        ([[end("send")], [end("recv"), end("recv")]], r"channel.recvs: r.* and r.* on channel 1: .* it has one recv"),
        ([[end("send"), end("recv")], []], r"channel.pairs: device 0 would receive in r.* what it sends in s"),
        ([[end("send")], [end("recv", shape="f32[3]")]], r"mismatch: s.* is of f32\[2\], r.* of f32\[3\], on"),
        ([[end("send")], [end("recv", shape="s32[2]")]], r"mismatch: s.* is of f32\[2\], r.* of s32\[2\]"),
        ([[end("send", 1, "{{0,1}}")], [end("recv", 1, "{{1,0}}")]],
         r"deadlock: s.* transfers from device 0 to device 1 on channel 1, but device 1 has no recv for it"),
        ([[end("send", 1, "{{0,1}}", validation="{{0,1}}")], [end("recv", 1, "{{0,1}}", validation="{{0,2}}")]],
         r"channel.bounds: .* disagree in _xla_send_recv_validation for devices 0 and 1"),
        ([[end("send", 1, "{{0,1},{1,0}}", validation="{{0,1}}")], []], r"channel.bounds: s.* 2 pairs and 1 bounds"),
        ([[end("send", 1, None, validation="{{0,1}}")], []], r"channel.bounds: .* without _xla"),
        ([[end("send", 1, "{{0,1},{0,1}}")], [end("recv")]], r"0 is the source of two pairs of s"),
        ([[end("send", 1, "{{0,1},{2,1}}")], [end("recv")]], r"pair \{2,1\} of s.* names 2, the ids are 0 to 1"),
        ([[end("send", 1, "{{1,1}}")], [end("recv")]], r"pair \{1,1\} of s.*: a device sends to another one"),
        ([[end("send", 1, "{0,1}")], [end("recv")]], r"channel.pairs: _xla.* must be like .* it is '\{0,1\}'"),
    ],
)  # fmt: skip
def test_what_cannot_be_paired_is_located(programs: list[list[str]], message: str) -> None:
    with pytest.raises(kind_of(message), match=message) as caught:
        found(2, 1, *(([device], program(*ends)) for device, ends in enumerate(programs)))
    assert caught.value.location is not None
    assert caught.value.location.file == "m.hlo"


def test_what_cannot_be_paired_in_one_program() -> None:
    for ends, message in (
        ([end("send"), end("recv")], r"channel.pairs: s.* and r.* are in one program, where they need _xla"),
        ([end("send", 0, "{{0,1}}"), end("recv", 0, "{{1,0}}")], r"deadlock: s.* device 1 has no recv for it"),
        ([end("send", 0, "{{0,1},{2,1}}"), end("recv", 0, RING)], r"channel.pairs: 1 is the target of two pairs"),
    ):
        with pytest.raises(kind_of(message), match=message):
            found(3, 1, (range(3), program(*ends)))
    with pytest.raises(DeadlockError, match=r"deadlock: r.* but device 0 runs no program"):
        found(2, 1, ([1], program(end("send", 0, "{{0,1}}"), end("recv", 0, "{{0,1}}"))))
    with pytest.raises(VerificationError, match=r"channel.devices: 1 devices run s.* and 2 run r.*, which needs"):
        found(3, 1, ([0], program(end("send"))), ([1, 2], program(end("recv"))))
