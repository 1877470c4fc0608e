"""Faults between hosts on purpose: what a relay does to messages, and what devices and reports make of it."""

from __future__ import annotations

import time

import numpy as np
import pytest

from distxla.codegen.abi import Status
from distxla.runtime.relay.faults import FaultKind, Leaving, NetworkFault, PlannedFaults
from distxla.runtime.relay.subject import Subject
from tests.runtime.relayed import Hosts
from tests.runtime.test_relay import THREE_HOSTS, TWO, arguments, collectives, compiled, on_one_host, permuted

READY = Subject("READY", "y", (0, 1), 1)


def planned(*faults: NetworkFault) -> tuple[PlannedFaults, list[str]]:
    told: list[str] = []
    return PlannedFaults(faults, lambda number, what: told.append(what)), told


def test_a_fault_meets_one_message_of_one_round():
    wanted = NetworkFault(FaultKind.DROP, source=0, target=1, instruction="y", round=2, message=3)
    faults, told = planned(wanted)

    def leaves(source: int, target: int, name: str, round_: int) -> bool:
        return faults.outgoing(Leaving(source, target, Subject("READY", name, (0, 1), round_))) is wanted

    assert not any(leaves(0, 1, "y", 8) for _ in range(5)), "the first round that matches"
    assert not any(leaves(*way, 9) for way in ((1, 0, "y"), (0, 2, "y"), (0, 1, "z")))
    assert [leaves(0, 1, "y", 9) for _ in range(5)] == [False, False, True, False, False]
    assert told == ["READY of round 9 in y of devices 0, 1, from host 0 to host 1, dropped"]


def test_a_delayed_message_arrives_and_results_are_right():
    program = compiled(collectives(300_000)["all-reduce"])
    args = arguments(program)
    want = on_one_host(program, args)
    faults, told = planned(NetworkFault(FaultKind.DELAY, source=0, round=2, seconds=0.5))
    with Hosts(TWO, program, faults={0: faults}) as hosts:
        begin = time.monotonic()
        hosts.run(args)
        first = time.monotonic() - begin
        outs = hosts.run(args)
        assert time.monotonic() - begin - first >= 0.5
        assert not hosts.failures
    assert [row[0].tobytes() for row in outs] == [row[0].tobytes() for row in want]
    assert told == ["READY of round 2 in y of devices 0-3, from host 0 to host 1, delayed by 0.5 s"]


def test_a_host_that_is_cut_off_releases_all():
    program = compiled(collectives(20_000)["all-gather"])
    faults, told = planned(NetworkFault(FaultKind.CUT, source=1, target=0))
    with Hosts(THREE_HOSTS, program, faults={1: faults}) as hosts:
        statuses = hosts.statuses(range(4), seconds=0.5)
        assert set(statuses.values()) <= {None, Status.RELEASED}
        assert {(1, 0), (1, 2), (0, 1), (2, 1)} <= {failure[:2] for failure in hosts.failures}
    assert told == ["host 1 cut off before it sent READY of round 1 in y of devices 0-3 to host 0"]


@pytest.mark.parametrize("n", [8, 200_000])
def test_messages_of_permutes_are_met_by_their_instruction(n):
    faults, told = planned(NetworkFault(FaultKind.DELAY, instruction="y", seconds=0.1))
    with Hosts(TWO, compiled(permuted(n)), faults={1: faults}) as hosts:
        outs = hosts.run([[np.full(n, d, np.float32)] for d in range(4)])
        assert outs[0][0][0] == 2
    assert len(told) == 1
    assert "of round 1 in y of devices 0, 2, from host 1 to host 0, delayed by 0.1 s" in told[0]
