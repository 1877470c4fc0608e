"""The grammar of `--inject`, and its errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from distxla.collectives.protocols import control_block as control_words
from distxla.errors import ArgumentError
from distxla.runtime.calls.fault_injection import Aftermath, Injection
from distxla.runtime.injection.faults import Fault, Kind, When
from distxla.runtime.injection.grammar import DRAWN, KEYS, KINDS, parse_faults
from distxla.runtime.values.host import Records

DEVICES = 4
GOOD = {
    "kill:device=3": Fault(Kind.KILL, "", device=3),
    "kill:device=3,at=all-reduce.7,round=2": Fault(Kind.KILL, "", device=3, at="all-reduce.7", round=2),
    "kill:at=%x,device=0": Fault(Kind.KILL, "", device=0, at="x"),
    "stop:device=1,ms=.5,when=waiting": Fault(Kind.STOP, "", device=1, ms=0.5, when=When.WAITING),
    "delay:device=1,at=r,ms=50,when=after": Fault(Kind.DELAY, "", device=1, at="r", ms=50, when=When.AFTER),
    "slow:device=1,ms=2": Fault(Kind.SLOW, "", device=1, ms=2),
    "host-lost:host=1,at=r": Fault(Kind.HOST_LOST, "", host=1, at="r"),
    "drop:from=0,to=1,at=r,round=2": Fault(Kind.DROP, "", source=0, target=1, at="r", round=2),
    "late:from=1,ms=5,message=3": Fault(Kind.LATE, "", source=1, ms=5, message=3),
    "cut:from=1": Fault(Kind.CUT, "", source=1),
    "random:seed=1,kinds=drop+kill": Fault(Kind.RANDOM, "", seed=1, kinds=(Kind.DROP, Kind.KILL), rounds=4),
    "feed-ends:device=0,after=3": Fault(Kind.FEED_ENDS, "", device=0, after=3),
    "random:seed=7,faults=3": Fault(Kind.RANDOM, "", seed=7, count=3, kinds=DRAWN, rounds=4),
    "random:seed=7,kinds=kill+stop": Fault(Kind.RANDOM, "", seed=7, kinds=(Kind.KILL, Kind.STOP), rounds=4),
}
BAD = {  # message, the text above the caret, hint
    "kil:device=1": ("no fault is called 'kil'", "kil", "did you mean kill?"),
    "": ("no fault is called ''", "", ""),
    "kill": ("kill needs device= (a device's number)", "", ""),
    "kill:": ("kill needs device= (a device's number)", "", ""),
    "kill:device": ("device needs a value", "device", ""),
    "kill:device=": ("device: expected a device's number", "", ""),
    "kill:device=x": ("device: expected a device's number, found 'x'", "x", ""),
    "kill:device=-1": ("device: expected a device's number, found '-1'", "-1", ""),
    "kill:device=4": ("device 4: the run has devices 0 to 3", "4", ""),
    "kill:device=1,": ("a key is missing", "", ""),
    "kill:device=1,device=2": ("device is given twice", "device", ""),
    "kill:devise=1": ("kill has no 'devise'", "devise", "did you mean device?"),
    "kill:device=1,round=0": ("round: expected a number from 1, found '0'", "0", ""),
    "kill:device=1,when=befor": ("when: expected before, waiting or after", "befor", "did you mean before?"),
    "kill:device=1,at=": ("at: expected the name of an instruction", "", ""),
    "kill:device=1,ms=5": ("kill has no 'ms'", "ms", ""),
    "delay:device=1": ("delay needs ms= (milliseconds", "", ""),
    "delay:device=1,ms=nan": ("ms: expected milliseconds", "nan", ""),
    "delay:device=1,ms=1e9": ("ms: expected milliseconds", "1e9", ""),
    "host-lost:host=0": ("host 0 is the driver's", "0", ""),
    "random:seed=1,kinds=kill+stopp": ("kinds: expected some of kill, stop", "kill+stopp", ""),
    "random:seed=1,kinds=random": ("kinds: expected some of kill, stop", "random", ""),
    "random:seed=1,faults=65": ("faults: expected a number from 1 to 64", "65", ""),
    "drop:to=1": ("drop needs from= (a host's number)", "", ""),
    "drop:from=0,when=after": ("drop has no 'when'", "when", ""),
    "feed-ends:device=1": ("feed-ends needs after= (a number of items)", "", ""),
}


@pytest.mark.parametrize("spec", GOOD)
def test_a_fault_is_read(spec: str) -> None:
    (found,) = parse_faults([spec], DEVICES)
    assert found.spec == spec
    assert found == replace(GOOD[spec], spec=spec)


@pytest.mark.parametrize("spec", BAD)
def test_a_bad_fault_is_refused_with_its_place(spec: str) -> None:
    message, marked, hint = BAD[spec]
    with pytest.raises(ArgumentError) as caught:
        parse_faults([spec], DEVICES, "--inject")
    error = caught.value
    assert message in error.message
    assert error.location is not None
    assert error.location.file == "--inject"
    assert error.location.text == spec
    begin, end = error.location.column - 1, error.location.end_column - 1
    assert spec[begin:end] == marked or (not marked and begin <= len(spec)), (begin, end)
    assert getattr(error, "__notes__", []) == ([f"hint: {hint}"] if hint else [])


def test_all_kinds_and_keys_are_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "guide" / "fault_injection.md").read_text()
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    for kind, (required, optional) in KINDS.items():
        assert kind in rows, kind
        assert all(f"`{key}`" in rows[kind] for key in (*required, *optional)), kind
    assert {key for required, optional in KINDS.values() for key in (*required, *optional)} == {*KEYS}


def test_more_faults_than_a_device_can_tell_of_are_refused() -> None:
    with pytest.raises(ArgumentError, match="device 1 has more than 64 faults"):
        parse_faults([f"delay:device=1,ms=1,round={n + 1}" for n in range(65)], DEVICES)


def test_drawn_faults_and_lost_hosts_count_as_well() -> None:
    lost = Injection([*(f"host-lost:host=1,round={n + 1}" for n in range(40)), *["delay:device=1,ms=1"] * 25], DEVICES)
    with pytest.raises(ArgumentError, match="device 1 has more than 64 faults, with those drawn"):
        lost.prepare([], [range(1), range(1, DEVICES)])


def test_equal_faults_are_two() -> None:
    twice = Injection(["delay:device=1,ms=1"] * 2, DEVICES)
    assert len(twice.prepare([], [range(DEVICES)])[1]) == 2
    row = bytearray(control_words.RECORD_BYTES)
    row[control_words.R_INJECTED] = 2
    twice.call_over(Aftermath(Records({1: bytes(row)}, DEVICES), frozenset(), frozenset(), {}))
    assert [told.happened for told in twice.found] == [False, True]
