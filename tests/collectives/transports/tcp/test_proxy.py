"""What only proxies do: whom they refuse, how a run that goes wrong ends, what they keep."""

from __future__ import annotations

import re
import threading
import time
from typing import Any

import numpy as np
import pytest

from distxla.collectives.protocols import control_block
from distxla.collectives.protocols import group as group_words
from distxla.collectives.transports.tcp.early_ready import EarlyRounds
from distxla.collectives.transports.tcp.frames import (
    Ask,
    Large,
    Message,
    Part,
    Partial,
    Ready,
    Received,
    Receiving,
    Region,
    Result,
    Taken,
    Value,
    ValuePart,
)
from distxla.collectives.transports.tcp.loaded_programs import LoadedPrograms
from distxla.collectives.transports.tcp.proxy import LONG_S, Proxy
from distxla.errors import ClusterError
from distxla.program.abi import Status
from distxla.runtime.replica.serve import support_program
from distxla.wire.frame import Frame
from distxla.wire.frame import frame as declared
from tests.collectives.transports.hosts_in_process import Hosts
from tests.collectives.transports.programs import TWO_HOSTS, arguments, collectives, compiled, made, require_bits
from tests.stopwatch import Stopwatch, eventually


def test_a_lost_host_ends_the_waits_of_the_others():
    program = compiled(collectives(16)["all-reduce"])
    with Hosts(TWO_HOSTS, program) as hosts:
        found: dict[int, int | None] = {}
        thread = threading.Thread(target=lambda: found.update(hosts.statuses([0, 1], seconds=10)))
        thread.start()
        time.sleep(0.2)
        watch = Stopwatch()
        hosts.hosts[1].proxy.close()
        assert eventually(lambda: bool(hosts.failures))
        assert hosts.failures[0][:2] == (0, 1)
        hosts.release()
        thread.join()
        assert watch.seconds < 5
        assert set(found.values()) == {Status.ABORTED}


def test_what_a_proxy_was_about_to_say_of_a_failed_call_is_not_said_in_the_next_one(monkeypatch):
    program, args, expected = made(collectives(20_000)["all-reduce"])
    plan = LoadedPrograms.plan

    def slow(loaded: LoadedPrograms, area: Any, signature: int, site: int, device: int) -> Any:
        first = hosts.hosts[0].proxy.epoch == 0  # host 1, one of whose devices is missing, plans nothing
        found = plan(loaded, area, signature, site, device)
        time.sleep(1.0 if first else 0)
        return found

    monkeypatch.setattr(LoadedPrograms, "plan", slow)
    with Hosts(TWO_HOSTS, program) as hosts:
        hosts.statuses([0, 1, 2], seconds=0.1)
        hosts.begin_anew(1)
        time.sleep(1.0)
        outs = hosts.run(args)
        require_bits(outs, expected)
        assert not hosts.failures


@declared(9)
class Unknown(Frame):
    """Of a kind that no proxy knows."""


def test_proxies_without_the_secret_are_refused():
    program = compiled(collectives(16)["all-reduce"])
    with Hosts(TWO_HOSTS, program) as hosts:
        assert not hosts.failures
    host = hosts.hosts[0]
    one = Proxy(0, host.control, host.memories, TWO_HOSTS, bytes(32), support_program())
    other = Proxy(1, host.control, host.memories, TWO_HOSTS, bytes(31) + b"x", support_program())
    try:
        addresses = [("127.0.0.1", proxy.listen("127.0.0.1")) for proxy in (one, other)]
        with pytest.raises(ClusterError, match="cannot talk"):
            other.connect(addresses)
    finally:
        one.close()
        other.close()


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(
    ("frame", "size"),
    [
        (Ready(0, 64, 0), 1 << 20),
        (Ready(0, control_block.fixed_bytes(4), 0), 16),  # the group has two members there
        (Unknown(), 16),
        (Region(0, 64, 0, 0, 0), 16),
        (Partial(0, 64, 0, 1, 0, 0), 16),
        (Result(0, 64, 0, 0, 0), 16),
        *((kind(0, 64, 1), 16) for kind in (Message, Large, Taken, Receiving, Received)),
        (Ask(0, 64, 1, 7), 0),
        (Part(0, 64, 1, 2**32 - 1, 2**64 - 1), 16),
        *((ValuePart(0, pair, 1, 0, 0), 16) for pair in (64, 65, 2**32 - 64)),
        (ValuePart(0, 64, 1, 255, 2**64 - 1), 16),
        (Value(0, 64, 0, 1), 16),
        (Value(0, 64, 1, 1), 16),
    ],
    ids=lambda value: getattr(value, "NAME", value),
)
def test_frames_that_no_proxy_sends_end_the_connection(frame, size):
    """A host that sends nonsense is reported, and nothing is written anywhere."""
    program = compiled(collectives(16)["all-reduce"])
    with Hosts(TWO_HOSTS, program) as hosts:
        control = hosts.hosts[0].control.segment.bytes
        at = control_block.fixed_bytes(4)
        before = control[at : at + (1 << 16)].copy()
        hosts.hosts[1].proxy.post(0, frame, [bytes(size)])
        assert eventually(lambda: (0, 1) in [failure[:2] for failure in hosts.failures])
        np.testing.assert_array_equal(control[at : at + (1 << 16)], before)


def say_ready(hosts: Hosts, number: int) -> None:
    """As host 1 tells host 0 that it is ready for a round of the group of all devices, with two members there."""
    frame = Ready(0, hosts.hosts[0].areas[0][0], number)
    hosts.hosts[1].proxy.post(0, frame, [bytes(32)])


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        (
            [group_words.ROUNDS + 3, 3, 2 * group_words.ROUNDS + 3],
            "is ready for round 20 of a group, which may begin after round 12",
        ),
        ([3, 3], "ready twice"),
        ([(1 << 40) + 3], "may begin after round"),
    ],
)
def test_a_host_further_ahead_than_may_be_is_refused(numbers, reason):
    program = compiled(collectives(16)["all-reduce"])
    with Hosts(TWO_HOSTS, program) as hosts:
        for number in numbers:
            say_ready(hosts, number)
        assert eventually(lambda: any(f[:2] == (0, 1) and reason in f[2] for f in hosts.failures)), hosts.failures


def test_rounds_that_are_over_and_groups_without_this_host_are_bounded():
    early = EarlyRounds({})
    for number in range(group_words.ROUNDS):
        early.keep(1, (64, number), memoryview(b""))
        early.keep(2, (64, number), memoryview(b""))
    with pytest.raises(ClusterError, match="more than 8 rounds of a group without this host"):
        early.keep(1, (64, group_words.ROUNDS), memoryview(b""))
    early.keep(1, (128, 77), memoryview(b"x"))
    assert early.take((128, 77)) == {1: b"x"}
    program = compiled(collectives(16)["all-reduce"])
    with Hosts(TWO_HOSTS, program) as hosts:
        hosts.run(arguments(program), repeat=2 * group_words.ROUNDS)
        say_ready(hosts, group_words.ROUNDS)
        assert eventually(lambda: bool(hosts.failures))
        assert any("round 9 of a group, which is over" in failure[2] for failure in hosts.failures), hosts.failures


def test_a_proxy_tells_for_which_host_it_waits():
    program = compiled(collectives(16)["all-reduce"])
    with Hosts(TWO_HOSTS, program) as hosts:
        thread = threading.Thread(target=hosts.statuses, args=([0, 1, 2], 1, 20.0))
        thread.start()
        assert eventually(lambda: bool(hosts.hosts[0].proxy.waits()))
        lines = hosts.hosts[0].proxy.waits()
        assert not hosts.hosts[1].proxy.waits(), "device 3 is on that host itself"
        hosts.release()
        thread.join()
    what = "to be ready for round 1 in y of devices 0-3"
    (line,) = lines
    found = re.fullmatch(rf"host 0 has waited (\d+\.\d) s for host 1 \(last heard of \d+\.\d s ago\) {what}", line)
    assert found is not None, line
    assert float(found[1]) >= LONG_S
