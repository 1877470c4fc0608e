"""What two looks at the words of several hosts prove, and what they don't. No processes: the words are made up."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from distxla.collectives.protocols import channel as channel_words
from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols import group as group_words
from distxla.collectives.protocols import permute as permute_words
from distxla.collectives.protocols.layout import Word
from distxla.diagnosis.graph import Deadlock
from distxla.program.artifact import CommunicatorSpec
from distxla.runtime.failures.deadlocks import Deadlocks
from distxla.runtime.failures.record_views import There

GROUP = (0, 1, 2)
PAIR, OTHER_PAIR, ROUNDS = 1 << 20, 2 << 20, 3 << 20  # offsets of states
PERMUTE = 4 << 20
CHANNEL = CommunicatorSpec(channel_words.DIRECTORY_KEY, (GROUP,), (8,))
EVERYBODY = CommunicatorSpec("everybody", (GROUP,), (1 << 16,))
PERMUTES = CommunicatorSpec("permute", (GROUP,), (1 << 16,), pairs=((0, 1), (1, 0)))
SPECS = (CHANNEL, EVERYBODY, PERMUTES)
PROGRAM: Any = SimpleNamespace(sites=[SimpleNamespace(communicator=k) for k in range(3)], communicators=SPECS)
WAITS_FOR_GROUP = (1 << 32) + control_words.WAITS_FOR_GROUP


class Words:
    """A host's words, each of any width; `change` is called before the n-th time that somebody's state is read."""

    def __init__(self, device: int) -> None:
        self.words: dict[int, int] = {}
        self.ended: set[int] = set()
        self.change: Callable[[int], None] = lambda reads: None
        self._state = control_words.record_offset(device) + control_words.R_STATE
        self._reads = 0

    def load(self, word: Word, at: int = 0) -> int:
        return self.load_at(at + word)

    def load_at(self, place: int) -> int:
        if place == self._state:
            self._reads += 1
            self.change(self._reads)
        return self.words.get(place, 0)

    def fence(self) -> None:
        pass

    def has_ended(self, device: int) -> bool:
        return device in self.ended

    def waits(self, device: int, word: int, value: int, waits_for: int, site: int = 0, round_: int = 1) -> None:
        record = control_words.record_offset(device)
        self.words |= {
            record + control_words.R_STATE: control_words.ReplicaState.WAITING,
            record + control_words.R_SITE: site,
            record + control_words.R_ROUND: round_,
            record + control_words.R_WAIT_WORD: word,
            record + control_words.R_WAIT_VALUE: value,
            record + control_words.R_WAITS_FOR: waits_for,
            word: value,
        }


class Places:
    """Where states lie."""

    def find(self, spec: CommunicatorSpec, device: int) -> int:
        return {CHANNEL.key: 0, EVERYBODY.key: ROUNDS, PERMUTES.key: PERMUTE}[spec.key]


def looks(hosts: dict[int, Words]) -> Deadlocks:
    """A look at devices by the words of their hosts."""
    block: Any = SimpleNamespace(devices=len(GROUP), load=None, load_at=None, fence=None)
    places: Any = Places()
    found = Deadlocks(block, (), places)
    found._here = dict(hosts)  # type: ignore[arg-type]
    return found


def verdict(hosts: dict[int, Words]) -> Deadlock | None:
    found = looks(hosts).look(GROUP, {0: PROGRAM})
    return None if found is None else found.deadlock


def cycle() -> Words:
    """Devices 0 and 1 wait for each other on one host, device 2 computes."""
    host = Words(0)
    host.waits(0, PAIR, 0, 1)
    host.waits(1, OTHER_PAIR, 0, 0)
    return host


def test_two_that_wait_for_each_other() -> None:
    assert verdict(dict.fromkeys(GROUP, cycle())) == Deadlock((0, 1), ((0, 1),), (), ())


def another_round(host: Words) -> None:
    host.words[control_words.record_offset(0) + control_words.R_ROUND] = 2


def another_run(host: Words) -> None:
    host.words[control_words.record_offset(0) + control_words.R_RUN] = 1


def awake(host: Words) -> None:
    host.words[control_words.record_offset(0) + control_words.R_STATE] = control_words.ReplicaState.RUNNING


def released(host: Words) -> None:
    host.words[PAIR] = 1


@pytest.mark.parametrize("change", [another_round, another_run, awake, released])
def test_a_wait_that_is_another_one_in_the_second_look_proves_nothing(change: Callable[[Words], None]) -> None:
    host = cycle()
    host.change = lambda reads: change(host) if reads == 2 else None
    assert verdict(dict.fromkeys(GROUP, host)) is None


def test_a_wait_that_is_read_while_it_becomes_another_one_proves_nothing() -> None:
    """Between the reading of its word and of for whom it waits, device 0 goes on to wait for device 2, then for 1."""
    host = cycle()
    record = control_words.record_offset(0)

    class Torn(Words):
        def load_at(self, place: int) -> int:
            found = host.load_at(place)
            if place == record + control_words.R_WAITS_FOR and host.words[record + control_words.R_WAIT_WORD] == PAIR:
                host.words[record + control_words.R_WAIT_WORD] = PAIR + 64
                host.change = lambda reads: host.words.update({record + control_words.R_WAIT_WORD: PAIR})
            return found

    assert verdict(dict.fromkeys(GROUP, Torn(0))) is None


def test_an_aborted_device_that_has_not_noticed_does_not_wait() -> None:
    host = cycle()
    host.words[PAIR] = 1
    assert verdict(dict.fromkeys(GROUP, host)) is None


def group_round(begun: tuple[int, int, int]) -> Words:
    """Device 0 waits in round 5 of the group; how many rounds each has begun."""
    host = Words(0)
    host.waits(0, ROUNDS + 4096, 0, WAITS_FOR_GROUP, site=1, round_=5)
    for position, count in enumerate(begun):
        host.words[ROUNDS + group_words.begun_of(position)] = count
    return host


def test_members_that_ended_before_their_round() -> None:
    host = group_round((5, 5, 4))
    host.ended = {1, 2}
    assert verdict(dict.fromkeys(GROUP, host)) == Deadlock((0,), (), ((0, 2),), ())


def test_a_round_to_which_everybody_has_come_ends_some_day() -> None:
    host = group_round((5, 5, 5))
    host.ended = {1, 2}
    assert verdict(dict.fromkeys(GROUP, host)) is None


def test_a_missing_member_that_computes_may_come() -> None:
    assert verdict(dict.fromkeys(GROUP, group_round((5, 4, 4)))) is None


def test_what_the_host_feeds_may_come() -> None:
    host = Words(0)
    host.waits(0, PAIR, 0, 1)
    host.waits(1, OTHER_PAIR, 0, (1 << 32) + control_words.WAITS_FOR_HOST)
    assert verdict(dict.fromkeys(GROUP, host)) is None


def two_hosts(*, done: bool) -> dict[int, Words]:
    """Device 0 waits on its host for device 1 of another one, which has ended. done: it has done its part there."""
    here, there = Words(0), Words(1)
    here.waits(0, PAIR, 0, 1)
    there.words[PAIR] = int(done)
    there.ended = {1}
    return {0: here, 1: there, 2: here}


@pytest.mark.parametrize("done", [False, True])
def test_what_a_proxy_may_carry_counts_as_coming(done: bool) -> None:
    found = verdict(two_hosts(done=done))
    assert found == (None if done else Deadlock((0,), (), ((0, 1),), ()))


@pytest.mark.parametrize(
    ("round_", "value", "begun", "certain"),
    [(1, 0, 0, True), (1, 0, 1, False), (5, 1, 4, True), (5, 1, 5, False), (5, 0, 0, True), (5, 0, 1, False)],
)
def test_a_large_message_whose_target_has_begun_may_be_in_flight(
    round_: int, value: int, begun: int, certain: bool
) -> None:
    """The source waits until its message is taken: that of its round, or while `value` is lower the one before it in
    the same place of the ring."""
    here, there = Words(0), Words(1)
    place = PERMUTE + permute_words.message_of(1, (round_ - 1) % permute_words.RING)
    here.waits(0, place + permute_words.M_TAKEN, value, 1, site=2, round_=round_)
    here.words[place + permute_words.M_LEAVES] = 1
    there.words |= {
        place + permute_words.M_TAKEN: value,
        PERMUTE + permute_words.PAIR_BYTES + permute_words.P_READY: begun,
    }
    there.ended = {1}
    found = verdict({0: here, 1: there, 2: here})
    assert (found is not None) is certain
    here.words[place + permute_words.M_LEAVES] = 0  # a small one is taken by its target only
    assert verdict({0: here, 1: there, 2: here}) is not None


def test_pages_of_another_host_are_asked_for_once_a_look() -> None:
    asked: list[tuple[int, int]] = []
    first = control_words.record_offset(2)

    def control_read(offset: int, size: int, seconds: float | None = None) -> bytes:
        asked.append((offset, size))
        return b"".join((offset + 4 * k).to_bytes(4, "little") for k in range(size // 4))

    remote: Any = SimpleNamespace(devices=range(2, 4), control_read=control_read)
    view = There(remote)
    for _ in range(2):
        asked.clear()
        view.refresh()
        for position in range(64):
            place = ROUNDS + group_words.begun_of(position)
            assert view.load_at(place) == place
        assert view.load(control_words.R_STATE, first) == first + control_words.R_STATE
        assert asked == [(first, 2 * control_words.RECORD_BYTES), (ROUNDS, 4096), (ROUNDS + 4096, 4096)]
