"""Channels: the send that each recv gets its value from, over all programs of a run.

A send and a recv are a pair if they name the same channel (an absent id counts as 0) and the same of its two streams,
and agree on source and target:

* With source-target pairs (frontend attribute `_xla_send_recv_source_target_pairs`) the ids are replicas, for each
  partition; on a channel above 0 they are partitions, for each replica. Where the run has only one of these, and where
  sends and recvs are in different programs, they are flattened device ids. A device that is no source sends nothing,
  one that is no target receives zeros. Several sends and recvs may share a channel: between two devices, values
  arrive in the order in which they are sent.
* Without pairs one program has the channel's only send, another one its only recv; the i-th device of the one sends to
  the i-th of the other, in ascending order.
* Where no recv has a send's channel, recvs of other channels that lack a send belong to it if they name the same pairs:
  see joined_channels.py.

`_xla_send_recv_pipeline="1"` names the second stream. `_xla_send_recv_validation` says which executions of the
instruction transfer anything, counted from 0 in each run of the program: inclusive bounds a pair, or `invalid` for
none; the others do nothing, and their recv yields zeros.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from operator import itemgetter

from distxla.collectives.joined_channels import Ends, Key, joined, near_misses, one_sided
from distxla.collectives.transfer import Route, Transfer
from distxla.errors import CollectiveMismatchError, DeadlockError, DistxlaError, VerificationError
from distxla.ir.counts import Counts
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass, replace
from distxla.location import Location
from distxla.ops.channel import Recv, Send, ZeroCopyRecv, ZeroCopySend
from distxla.program.channel_end import End, Pairs
from distxla.wording import named

PAIRS, PIPELINE, VALIDATION = (
    "_xla_send_recv_source_target_pairs",
    "_xla_send_recv_pipeline",
    "_xla_send_recv_validation",
)
NEVER = (1, 0)  # bounds that exclude every execution
MOST_NEAR = 2  # ends that an error names as possible partners of one that has no counterpart
# The program is fine, but it waits for a transfer that no program of this run makes, or gets a value of a wrong type.
ERRORS: Mapping[str, type[DeadlockError]] = {
    "channel.send": DeadlockError,
    "channel.recv": DeadlockError,
    "channel.shape": CollectiveMismatchError,
}

Bounds = tuple[int, int] | None
_Said = list[tuple[int, Bounds]]

_PAIR = r"\{\s*-?\d+\s*,\s*-?\d+\s*\}"
_PAIR_LIST = re.compile(rf"\s*\{{\s*(?:{_PAIR}\s*(?:,\s*{_PAIR}\s*)*)?\}}\s*")


@dataclass(frozen=True)
class ProgramTransfers:
    """The sends and recvs of one program. devices: flattened ids."""

    devices: tuple[int, ...]
    ends: tuple[End, ...]


def is_end(instruction: Instruction) -> bool:
    """Whether the instruction begins a transfer between devices."""
    return instruction.op.transfer.starts and instruction.op.is_device_transfer


def read_end(instruction: Instruction, module: Module | None = None) -> End:
    """The transfer attributes of a send or recv; VerificationError where they can't be read.

    module: tells locations.
    """
    op = instruction.op
    assert isinstance(op, Send | Recv)
    attributes = None if module is None else module.locate(instruction, "frontend_attributes")
    texts = [instruction.frontend_attribute(name) for name in (PAIRS, VALIDATION)]
    pairs, bounds = (None, None)
    if texts[0] is not None:
        pairs = _read_pairs(instruction, "channel.pairs", PAIRS, texts[0], attributes)
    if texts[1] is not None:
        if pairs is None:
            raise VerificationError(f"channel.bounds: {instruction.name} has {VALIDATION} without {PAIRS}", attributes)
        if texts[1].strip() == "invalid":
            bounds = (NEVER,) * len(pairs)
        else:
            bounds = _read_pairs(instruction, "channel.bounds", VALIDATION, texts[1], attributes)
            if len(bounds) != len(pairs):
                message = f"{instruction.name} has {len(pairs)} pairs and {len(bounds)} bounds"
                raise VerificationError(f"channel.bounds: {message}", attributes)
    return End(
        instruction.name,
        op.transfer.sends,
        op.channel_id or 0,
        int(instruction.frontend_attribute(PIPELINE) == "1"),
        payload_of(instruction).without_layout(),
        pairs,
        bounds,
        isinstance(op, ZeroCopySend | ZeroCopyRecv),
        None if module is None else module.locate(instruction),
        attributes,
    )


def instruction_ends(module: Module) -> Iterator[tuple[Instruction, End]]:
    """The sends and recvs between devices that the entry can reach, in the order of the text."""
    for computation in module.reached():
        for instruction in filter(is_end, computation):
            yield instruction, read_end(instruction, module)


def read_ends(module: Module) -> tuple[End, ...]:
    """The ends that `instruction_ends` finds."""
    return tuple(end for _, end in instruction_ends(module))


def module_transfers(
    programs: Iterable[tuple[Iterable[int], Module]],
    counts: Counts,
    assignment: Sequence[int] | None = None,
) -> tuple[Transfer, ...]:
    """`pair_up` for modules, each with the flattened ids of the devices that run it."""
    found = [ProgramTransfers(tuple(devices), read_ends(module)) for devices, module in programs]
    return pair_up(found, counts, assignment=assignment)


def payload_of(instruction: Instruction) -> Shape:
    """The value that a send or recv transfers: the first part of its context."""
    assert instruction.shape.elements is not None
    return instruction.shape.elements[0]


def pair_up(
    programs: Sequence[ProgramTransfers],
    counts: Counts,
    *,
    compiled: bool = False,
    assignment: Sequence[int] | None = None,
) -> tuple[Transfer, ...]:
    """The transfers in a run of these programs on disjoint devices of a world of that size.

    compiled: the programs' computations are expanded where they are called, so that a send or recv of the text may
    occur in several places.  assignment: the device that has each flattened id, where these are not the devices
    themselves: of programs that are bound to a part of a cluster. Devices in `programs` and in the result are those.

    Errors are located at one of the instructions concerned: DeadlockError where a send or a recv has no counterpart,
    CollectiveMismatchError where their shapes differ, and VerificationError where one has several counterparts, where
    pairs are impossible, or where both sides disagree in bounds.
    """
    apart = _tells_apart(counts)
    found = joined(_by_key(programs), apart=apart)
    lonely = [end for ends in one_sided(found).values() for _, end in ends]
    if lonely:
        raise _without_counterpart(lonely, apart, assignment)
    world = _World(tuple(programs), counts, compiled, assignment)
    return tuple(transfer for key, ends in sorted(found.items()) for transfer in world.transfers(key, ends))


def joined_keys(programs: Sequence[ProgramTransfers], counts: Counts) -> dict[Key, Key]:
    """By an end's key that of the channel to which its own was joined; nothing for those that were not."""
    found = joined(_by_key(programs), apart=_tells_apart(counts))
    return {end.key: key for key, ends in found.items() for _, end in ends if end.key != key}


def _tells_apart(counts: Counts) -> bool:
    """Whether ids in pairs may be replicas or partitions."""
    return counts.replicas > 1 and counts.partitions > 1


def _by_key(programs: Sequence[ProgramTransfers]) -> dict[Key, Ends]:
    channels: dict[Key, Ends] = defaultdict(list)
    for number, program in enumerate(programs):
        for end in program.ends:
            channels[end.key].append((number, end))
    return channels


def channels_called(channels: Sequence[int]) -> str:
    """`channel 1`, or of joined ones `channels 1, 2`."""
    return f"channel{'s' * (len(channels) > 1)} {', '.join(map(str, channels))}"


def _without_counterpart(lonely: Sequence[End], apart: bool, assignment: Sequence[int] | None) -> DistxlaError:
    """The error of the first end that has no counterpart; its notes name the most similar ends."""
    some = min(lonely, key=lambda end: end.key)
    missing = "recv" if some.sends else "send"
    message = f"no program of the run has a {missing} on {_channel(some)} for {some}: the transfer never ends"
    message += f"; the {missing} belongs {_other_side(some, apart, assignment)}"
    error = _error(f"channel.{missing}", some, message)
    if isinstance(error, DeadlockError):
        error.near_misses = tuple(islice(near_misses(some, lonely, apart=apart), MOST_NEAR))
        for note in error.near_misses:
            error.add_note(note)
    return error


def _other_side(end: End, apart: bool, assignment: Sequence[int] | None) -> str:
    """Where the counterpart of an end should be. apart: ids in pairs may be replicas or partitions."""
    if end.pairs is None:
        return "in another program"
    if apart or not end.pairs:
        return f"on the {'targets' if end.sends else 'sources'} of its pairs"
    ids = [pair[1 if end.sends else 0] for pair in end.pairs]
    if assignment is not None:
        ids = [assignment[id_] for id_ in ids if 0 <= id_ < len(assignment)]
    return f"on {named(ids)}"


@dataclass(frozen=True)
class _World:
    programs: tuple[ProgramTransfers, ...]
    counts: Counts
    compiled: bool
    assignment: Sequence[int] | None = None

    def transfers(self, key: Key, ends: Ends) -> Iterator[Transfer]:
        """Those of one stream of a channel, of which there are sends and recvs."""
        if any(end.pairs is not None for _, end in ends):
            yield from self._by_pairs(key, ends)
        else:
            yield from self._by_position(ends)

    def _by_position(self, ends: Ends) -> Iterator[Transfer]:
        """The devices of the program that sends with those of the one that receives, in their order."""
        sends, recvs = (self._only_one(ends, kind) for kind in ("send", "recv"))
        (source, send), (target, recv) = sends[0], recvs[0]
        sources, targets = (sorted(self.programs[number].devices) for number in (source, target))
        if source == target and len(sources) == 1:
            raise _error("channel.pairs", send, f"device {sources[0]} would receive in {recv} what it sends in {send}")
        if source == target:
            raise _error("channel.pairs", send, f"{send} and {recv} are in one program, where they need {PAIRS}")
        if len(sources) != len(targets):
            message = f"{len(sources)} devices run {send} and {len(targets)} run {recv}, which needs {PAIRS}"
            raise _error("channel.devices", send, message)
        _check_agreement([end for _, end in sends], [end for _, end in recvs])
        given, taken = (tuple(Route(number, end, None) for number, end in side) for side in (sends, recvs))
        for a, b in zip(sources, targets, strict=True):
            yield Transfer(*send.key, a, b, given, taken, (send.channel,))

    def _only_one(self, ends: Ends, kind: str) -> Ends:
        """The channel's send or recv: one of the text, in one program."""
        first, *others = found = [end for end in ends if _kind(end[1]) == kind]
        if any(not self.compiled or other[0] != first[0] for other in others):
            message = f"{first[1]} and {others[0][1]} on {_channel(first[1])}: without {PAIRS} it has one {kind}"
            raise _error(f"channel.{kind}s", others[0][1], message)
        return found

    def _by_pairs(self, key: Key, ends: Ends) -> Iterator[Transfer]:
        senders, receivers = ({number for number, end in ends if end.sends is sends} for sends in (True, False))
        across = not senders & receivers
        running = {device: number for number, program in enumerate(self.programs) for device in program.devices}
        # Programs name the same pairs many times: equal ends are followed once, by the number of the first of them.
        # For each pair and side there is a list of (number, bounds).
        by_kind: dict[tuple[Hashable, ...], list[tuple[int, Route]]] = {}
        ids: dict[int, None] = {}
        for place, (number, end) in enumerate(ends):
            ids[end.channel] = None
            same = (number, end.sends, end.pairs, end.bounds)
            by_kind.setdefault(same, []).append((place, Route(number, end, None)))
        channels = tuple(sorted(ids))
        said: dict[tuple[int, int], tuple[_Said, _Said]] = defaultdict(lambda: ([], []))
        for kind, routes in enumerate(by_kind.values()):
            number, end = routes[0][1].program, routes[0][1].end
            side = 0 if end.sends else 1
            for (source, target), bounds in self._device_pairs(end, ends, across=across):
                device_pair = self._device(source), self._device(target)
                if running.get(device_pair[side]) == number:
                    said[device_pair][side].append((kind, bounds))
        kinds = list(by_kind.values())
        found: dict[tuple[tuple[tuple[int, Bounds], ...], ...], tuple[tuple[Route, ...], tuple[Route, ...]]] = {}
        for (source, target), sides in sorted(said.items()):
            both = tuple(map(tuple, sides))
            if both not in found:
                sends, recvs = (
                    [
                        route if bounds is None else replace(route, bounds=bounds)
                        for _, route, bounds in sorted(
                            ((place, route, bounds) for kind, bounds in side for place, route in kinds[kind]),
                            key=itemgetter(0),
                        )
                    ]
                    for side in both
                )
                self._check_both_sides(source, target, sends, recvs, running)
                found[both] = (tuple(sends), tuple(recvs))
            yield Transfer(*key, source, target, *found[both], channels)

    def _device_pairs(
        self, end: End, ends: Ends, *, across: bool
    ) -> Iterator[tuple[tuple[int, int], tuple[int, int] | None]]:
        """(source, target) as flattened ids, and bounds. An end without pairs has those of the other side."""
        if end.pairs is None:
            others = (o for _, o in ends if o.pairs is not None and o.sends is not end.sends)
            for other in {(o.pairs, o.bounds): o for o in others}.values():
                yield from self._device_pairs(other, [], across=across)
            return
        flattened = across or (self.counts.partitions == 1 if end.channel else self.counts.replicas == 1)
        count = self.counts.devices if flattened else self.counts.partitions if end.channel else self.counts.replicas
        check_pairs(end, count)
        bounds: Iterable[tuple[int, int] | None] = end.bounds or (None,) * len(end.pairs)
        for (source, target), within in zip(end.pairs, bounds, strict=True):
            if flattened:
                yield (source, target), within
            elif end.channel:
                for r in range(self.counts.replicas):
                    yield (r * self.counts.partitions + source, r * self.counts.partitions + target), within
            else:
                for p in range(self.counts.partitions):
                    yield (source * self.counts.partitions + p, target * self.counts.partitions + p), within

    def _device(self, flattened: int) -> int:
        return flattened if self.assignment is None else self.assignment[flattened]

    def _check_both_sides(
        self, source: int, target: int, sends: list[Route], recvs: list[Route], running: Mapping[int, int]
    ) -> None:
        for have, lacking, other in ((sends, recvs, target), (recvs, sends, source)):
            if lacking:
                continue
            end, what = have[0].end, "recv" if have is sends else "send"
            reason = f"has no {what} for it" if other in running else "runs no program"
            way = f"from device {source} to device {target} on {_channel(end)}"
            raise _error(
                f"channel.{what}", end, f"{end} transfers {way}, but device {other} {reason}: the transfer never ends"
            )
        _check_agreement([route.end for route in sends], [route.end for route in recvs])
        if {route.bounds for route in sends} != {route.bounds for route in recvs}:
            message = f"{sends[0].end} and {recvs[0].end} disagree in {VALIDATION} for devices {source} and {target}"
            raise _error("channel.bounds", recvs[0].end, message)


def check_pairs(end: End, count: int) -> None:
    """VerificationError where the pairs of an end are impossible among ids 0 to count - 1."""
    assert end.pairs is not None
    for source, target in end.pairs:
        pair = f"pair {{{source},{target}}} of {end.instruction}"
        for device in (source, target):
            if not 0 <= device < count:
                raise _error("channel.pairs", end, f"{pair} names {device}, the ids are 0 to {count - 1}")
        if source == target:
            raise _error("channel.pairs", end, f"{pair}: a device sends to another one")
    for side, name in ((0, "source"), (1, "target")):
        ids = [pair[side] for pair in end.pairs]
        if len(set(ids)) < len(ids):
            twice = next(i for i in ids if ids.count(i) > 1)
            raise _error("channel.pairs", end, f"{twice} is the {name} of two pairs of {end.instruction}")


def _check_agreement(sends: Sequence[End], recvs: Sequence[End]) -> None:
    """Each side has a counterpart of its shape. Which of several sends each recv gets, only the run can tell."""
    for mine, theirs in ((sends, recvs), (recvs, sends)):
        for end in mine:
            if not any(end.payload.compatible(other.payload) for other in theirs):
                other = theirs[0]
                message = f"{end} is of {end.payload}, {other} of {other.payload}, on {_channel(end)}"
                raise _error("channel.shape", end, message)


def _read_pairs(
    instruction: Instruction, rule: str, name: str, text: str, location: Location | None
) -> tuple[tuple[int, int], ...]:
    pairs = _pairs_of(text)
    if pairs is None:
        raise VerificationError(
            f"{rule}: {name} of {instruction.name} must be like {{{{0,1}},{{1,2}}}}, it is {text[:200]!r}", location
        )
    return pairs


@lru_cache(maxsize=64)
def _pairs_of(text: str) -> Pairs | None:
    """None where it is no list of pairs; equal texts, which large programs have by the hundred, give one object."""
    if not _PAIR_LIST.fullmatch(text):
        return None
    numbers = [int(number) for number in re.findall(r"-?\d+", text)]
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


def _kind(end: End) -> str:
    return "send" if end.sends else "recv"


def _channel(end: End) -> str:
    return f"channel {end.channel}" + (", the second stream" if end.stream else "")


def _error(rule: str, end: End, message: str) -> DistxlaError:
    location = end.attributes if rule in ("channel.pairs", "channel.bounds") and end.attributes else end.location
    kind = ERRORS.get(rule)
    if kind is None:
        return VerificationError(f"{rule}: {message}", location)
    error = kind(message, location)
    error.channel = end.channel
    return error


__all__ = [
    "NEVER",
    "ProgramTransfers",
    "Route",
    "Transfer",
    "channels_called",
    "instruction_ends",
    "is_end",
    "joined_keys",
    "module_transfers",
    "pair_up",
    "payload_of",
    "read_end",
    "read_ends",
]
