"""Injected faults between hosts: messages that a proxy drops, repeats, damages or delays."""

from __future__ import annotations

import re

import numpy as np
import pytest

from distxla.collectives.transports.network_fault import FaultKind, NetworkFault
from distxla.collectives.transports.tcp.injected_faults import Leaving, PlannedFaults
from distxla.collectives.transports.tcp.subject import Subject
from distxla.program.abi import Status
from tests.collectives.transports.hosts_in_process import Hosts
from tests.collectives.transports.programs import (
    THREE_HOSTS,
    TWO_HOSTS,
    arguments,
    collectives,
    compiled,
    made,
    permuted,
    require_bits,
)
from tests.stopwatch import Stopwatch, eventually

READY = Subject("READY", "y", (0, 1), 1)


def planned(*faults: NetworkFault) -> tuple[PlannedFaults, list[str]]:
    told: list[str] = []
    return PlannedFaults(faults, lambda number, what: told.append(what)), told


def test_a_fault_hits_one_message_of_one_round():
    wanted = NetworkFault(FaultKind.DROP, source=0, target=1, instruction="y", round=2, message=3)
    faults, told = planned(wanted)

    def leaves(source: int, target: int, name: str, round_: int) -> bool:
        return faults.outgoing(Leaving(source, target, Subject("READY", name, (0, 1), round_))) is wanted

    assert not any(leaves(0, 1, "y", 8) for _ in range(5)), "the first round that matches"
    assert not any(leaves(*edge, 9) for edge in ((1, 0, "y"), (0, 2, "y"), (0, 1, "z")))
    assert [leaves(0, 1, "y", 9) for _ in range(5)] == [False, False, True, False, False]
    assert told == ["READY of round 9 in y of devices 0, 1, from host 0 to host 1, dropped"]


def test_a_delayed_message_arrives_and_results_are_right():
    program, args, expected = made(collectives(300_000)["all-reduce"])
    faults, told = planned(NetworkFault(FaultKind.DELAY, source=0, round=2, seconds=0.5))
    with Hosts(TWO_HOSTS, program, faults={0: faults}) as hosts:
        hosts.run(args)
        watch = Stopwatch()
        outs = hosts.run(args)
        assert watch.elapsed >= 0.5
        assert not hosts.failures
    require_bits(outs, expected)
    assert told == ["READY of round 2 in y of devices 0-3, from host 0 to host 1, delayed by 0.5 s"]


def test_a_host_that_is_cut_off_releases_all():
    program = compiled(collectives(20_000)["all-gather"])
    faults, told = planned(NetworkFault(FaultKind.CUT, source=1, target=0))
    with Hosts(THREE_HOSTS, program, faults={1: faults}) as hosts:
        statuses = hosts.statuses(range(4), seconds=0.5)
        assert set(statuses.values()) <= {None, Status.ABORTED}
        lost = {(1, 0), (1, 2), (0, 1), (2, 1)}
        assert eventually(lambda: lost <= {failure[:2] for failure in hosts.failures}), hosts.failures
    assert told == ["host 1 cut off before it sent READY of round 1 in y of devices 0-3 to host 0"]


@pytest.mark.parametrize("n", [8, 200_000])
def test_a_fault_selects_messages_of_permutes_by_their_instruction(n):
    faults, told = planned(NetworkFault(FaultKind.DELAY, instruction="y", seconds=0.1))
    with Hosts(TWO_HOSTS, compiled(permuted(n)), faults={1: faults}) as hosts:
        outs = hosts.run([[np.full(n, d, np.float32)] for d in range(4)])
        assert outs[0][0][0] == 2
    assert len(told) == 1
    assert "of round 1 in y of devices 0, 2, from host 1 to host 0, delayed by 0.1 s" in told[0]


PLACES = {"READY": (20_000, 1), "a piece": (600_000, 3)}  # elements, and which message it is


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (FaultKind.DROP, r"message \d+ of node 0 is missing before message \d+"),
        (FaultKind.DUPLICATE, r"message \d+ of node 0 came again after message \d+ \({name} of round 2"),
        (FaultKind.CORRUPT, r"message \d+ of node 0 failed its check"),
    ],
    ids=["drop", "duplicate", "corrupt"],
)
def test_what_does_not_arrive_as_it_was_sent_ends_all_waiting(name, kind, said):
    """In round 2. The host that sees it names message, round and instruction; no result comes of it."""
    n, message = PLACES[name]
    faults, told = planned(NetworkFault(kind, source=0, target=1, round=2, message=message, bit=8 * 70_000))
    program = compiled(collectives(n)["all-reduce"])
    args = arguments(program)
    with Hosts(TWO_HOSTS, program, faults={0: faults}) as hosts:
        hosts.run(args)
        statuses = hosts.statuses(range(4), seconds=1.5)
        assert Status.ABORTED in statuses.values()
        assert set(statuses.values()) <= {None, Status.ABORTED}
        here, other, reason = hosts.failures[0]
        assert (here, other) == (1, 0)
        assert re.search(said.format(name="READY" if name == "READY" else r"\w+"), reason)
    assert len(told) == 1
    assert " of round 2 in y of devices 0-3, from host 0 to host 1, " in told[0]


@pytest.mark.parametrize("n", [8, 200_000])
def test_damaged_messages_of_permutes_name_their_devices(n):
    """The bit is one of the payload: the header says what the message was about."""
    faults, _ = planned(NetworkFault(FaultKind.CORRUPT, bit=8 * 90))
    with Hosts(TWO_HOSTS, compiled(permuted(n)), faults={1: faults}) as hosts:
        hosts.statuses([0, 2], seconds=1)
        assert any(re.search(r"failed its check: .*of devices 0, 2\)", reason) for *_, reason in hosts.failures)
