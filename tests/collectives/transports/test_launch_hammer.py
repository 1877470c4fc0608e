"""Members of a set that call at full speed, beside an owner that refuses: a call starts on all members or on none."""

from __future__ import annotations

import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from distxla.collectives.protocols.launch_board import CallState, Refusal
from distxla.machine.memory_files import memory_file
from tests.collectives.transports.launch_hammer import DIFFERED, REFUSED, STARTED, Hammered, memory_size

CALLS = 20_000


@pytest.mark.parametrize("members", [2, 3, 4])
def test_calls_that_agree_start_once_on_all_members(members: int) -> None:
    made = Hammered(members, CALLS)
    programs = bytes(1 + k % 200 for k in range(CALLS))
    with ThreadPoolExecutor(members) as threads:
        running = [threads.submit(made.run, k, programs, sleeps=True) for k in range(members)]
        for one in running:
            one.result()
    assert [made.found(k).count(STARTED) for k in range(members)] == [CALLS] * members
    assert made.commands() == [CALLS] * members
    assert made.view.apart() is None
    made.words.close()


def test_calls_of_processes_start_once_on_all() -> None:
    members, calls = 3, 5_000
    descriptor = memory_file("hammered", memory_size(members, calls))
    made = Hammered(members, calls, descriptor)
    command = [sys.executable, "-m", "tests.collectives.transports.launch_hammer", str(descriptor), str(members)]
    started = [subprocess.Popen([*command, str(k), str(calls)], pass_fds=[descriptor]) for k in range(members)]
    assert [one.wait() for one in started] == [0] * members
    assert [made.found(k).count(STARTED) for k in range(members)] == [calls] * members
    assert made.commands() == [calls] * members
    made.words.close()


@pytest.mark.parametrize("members", [2, 3])
@pytest.mark.parametrize("seed", range(2))
def test_calls_that_are_refused_never_start_and_the_others_do(members: int, seed: int) -> None:
    """Some calls differ in one member, and the owner refuses those, and others at random moments."""
    calls, draw = 1_000, random.Random(seed)
    made = Hammered(members, calls)
    programs = [bytearray(1 + k % 200 for k in range(calls)) for _ in range(members)]
    different = {k for k in range(calls) if draw.random() < 0.05}
    for k in different:
        programs[draw.randrange(members)][k] = 255
    outcomes: dict[int, Refusal] = {}
    with ThreadPoolExecutor(members) as threads:
        running = [threads.submit(made.run, k, bytes(programs[k]), sleeps=False) for k in range(members)]
        while not all(one.done() for one in running):
            issued = [call.ordinal for log in made.log_views if (call := log.issued()) is not None]
            for ordinal in sorted(set(issued)):
                at_random = draw.random() < 0.02
                if ordinal in different or at_random:
                    for wanted in range(ordinal, min(calls, ordinal + 1 + 2 * at_random)):
                        if outcomes.get(wanted, Refusal.EARLY) is Refusal.EARLY:
                            outcomes[wanted] = made.refuse(wanted)
        for one in running:
            one.result()
    found = [made.found(k) for k in range(members)]
    for ordinal in range(calls):
        became = {one[ordinal] for one in found}
        if outcomes.get(ordinal) is Refusal.REFUSED:
            assert became <= {REFUSED, DIFFERED}, ordinal
        else:
            assert became == {STARTED}, ordinal
            assert ordinal not in different
    ran = sum(outcomes.get(k) is not Refusal.REFUSED for k in range(calls))
    assert made.commands() == [ran] * members
    assert made.view.state(calls) is CallState.MISSING
    made.words.close()
