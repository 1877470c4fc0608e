"""Whom of a round's members a mismatch names: not who happened to come last, but the first of each side."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from distxla.collectives.protocols import control_block as control_words
from distxla.diagnosis.facts.blocked import DeviceState, Doing
from distxla.program.abi import Status
from distxla.runtime.failures.mismatch import mismatch
from distxla.runtime.values.host import Records

GROUP = (0, 1, 2, 3)


def site(index: int, name: str) -> Any:
    where = {"index": index, "location": None, "communicator": 0}
    return SimpleNamespace(**where, instruction=name, opcode="all-reduce", facets=(("to_apply", name),))


def row(**fields: int) -> bytes:
    made = bytearray(control_words.RECORD_BYTES)
    for name, value in fields.items():
        at = getattr(control_words, name)
        made[at : at + 4] = value.to_bytes(4, "little")
    return bytes(made)


def waits(device: int, name: str, round_: int = 1) -> DeviceState:
    return DeviceState(device, Doing.WAITS, "m", name, "all-reduce", round=round_, group=GROUP)


@pytest.mark.parametrize(
    ("first", "named"),
    [
        (waits(0, "add"), "device 0 enters with add, device 1 with maximum; they differ in to_apply: add and maximum"),
        (waits(0, "add", 2), "device 1 enters with maximum, device 2 with add"),
        (DeviceState(0, Doing.COMPUTES, "m", "add"), "device 1 enters with maximum, device 2 with add"),
        (DeviceState(0, Doing.NOT_BEGUN, "m"), "device 1 enters with maximum, device 2 with add"),
    ],
)
def test_the_first_of_each_side_are_named(first: DeviceState, named: str) -> None:
    """Device 3 has found out that device 2 came with something else."""
    spec: Any = SimpleNamespace(stream=None, channel=None, key=5, groups=(GROUP,))
    program: Any = SimpleNamespace(name="m", sites=[site(0, "add"), site(1, "maximum")], communicators=[spec])
    said = [
        row(R_SITE=0, R_ROUND=1),
        row(R_SITE=1, R_ROUND=1),
        row(R_SITE=0, R_ROUND=1),
        row(R_SITE=1, R_ROUND=1, R_STATUS=Status.MISMATCH, R_MISMATCH_DEVICE=2, R_MISMATCH_SITE=0),
    ]
    came = DeviceState(3, Doing.ARRIVED, "m", "maximum", "all-reduce", round=1, group=GROUP)
    found = {0: first, 1: waits(1, "maximum"), 2: waits(2, "add"), 3: came}
    error = mismatch(Records(dict(enumerate(said)), 4, {}), GROUP, {0: program}, {}, found)
    assert named in error.message
    assert error.pair is not None
    assert all(f"device {device} " in named for device in error.pair)
