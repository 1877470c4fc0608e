"""How much of the flight recorders is read for a report, and from whom."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from distxla.collectives import recorder
from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols import event as event_words
from distxla.collectives.protocols.control_block import CommandKind
from distxla.diagnosis.facts.blocked import DeviceState, Doing
from distxla.errors import ClusterError
from distxla.program.abi import Status
from distxla.runtime.failures.reports import EVENTS, PostMortemSnapshot
from distxla.runtime.hosts.process_watch import current_step
from distxla.runtime.hosts.recorder_rings import read_rings
from distxla.runtime.hosts.remote import RemoteHost
from distxla.runtime.values.host import Records

KEPT = event_words.EVENTS


def steps_between(number: int) -> tuple[int | None, int]:
    return (1 if number % 16 == 0 else None), 2


@pytest.mark.parametrize(
    ("site_and_run", "count"),
    [
        pytest.param(lambda number: (1, 2), EVENTS, id="those of a long call"),
        pytest.param(lambda number: (1, 1 if number < KEPT - 3 else 2), EVENTS, id="of a short one behind another"),
        pytest.param(steps_between, KEPT, id="with steps, which a report does not show"),
    ],
)
def test_no_more_events_are_read_than_a_report_shows(
    site_and_run: Callable[[int], tuple[int | None, int]], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of 1,000 devices would take seconds, while all of them wait to be released."""
    read: list[int] = []

    def decode(data: bytes, row: bytes, device: int) -> Iterator[Any]:
        read.append(len(data) // event_words.EVENT_BYTES)
        for number in range(KEPT - read[-1], KEPT):
            site, run = site_and_run(number)
            yield SimpleNamespace(number=number, site=site, run=run)

    monkeypatch.setattr(recorder, "decode", decode)
    records: Any = SimpleNamespace(row=lambda device: b"row", ring=lambda device: bytes(KEPT * event_words.EVENT_BYTES))
    found = PostMortemSnapshot(records, (), {}, {}, lambda *_: (), {}, 0, {}).recorded(0, 1)
    assert [event.number for event in found] == list(range(KEPT - count, KEPT))
    assert sum(read) <= EVENTS + (KEPT if count > EVENTS else 0)


@pytest.mark.parametrize(("status", "kind"), [(Status.OK, CommandKind.RUN), (Status.ABORTED, CommandKind.NONE)])
def test_a_device_that_has_not_begun_is_not_told_of_with_what_it_did_before(status: int, kind: int) -> None:
    row = bytearray(control_words.RECORD_BYTES)
    said = {
        control_words.R_COMMAND_KIND: kind,
        control_words.R_COMMAND_PROGRAM: 2,
        control_words.R_COMMAND_SEQUENCE: 8,
        control_words.R_SERVED: 7,
        control_words.R_PROGRAM: 1,
        control_words.R_STATUS: status,
    }
    for offset, value in said.items():
        row[offset : offset + 4] = value.to_bytes(4, "little")
    origin = SimpleNamespace(instruction="s", computation="main", origin="s")
    before: Any = SimpleNamespace(name="before", steps=[origin], sites=[])
    now: Any = SimpleNamespace(name="now", steps=[], sites=[])
    records = Records({0: bytes(row)}, 1, {})
    assert current_step(records, 0, {1: before, 2: now}, {}) is None
    found = PostMortemSnapshot(records, (0,), {1: before, 2: now}, {}, lambda *_: (), {}, 0, {}).devices()
    assert found == {0: DeviceState(0, Doing.NOT_BEGUN, "now")}


class Silent(RemoteHost):
    """A host that answers nothing."""

    def __init__(self) -> None:
        self.devices = range(1)
        self.limits: list[float | None] = []

    def control_read(self, offset: int, size: int, seconds: float | None = None) -> bytes:
        self.limits.append(seconds)
        raise ClusterError("did not answer")


def test_a_host_that_does_not_answer_is_left_out() -> None:
    row = bytearray(control_words.RECORD_BYTES)
    row[control_words.R_EVENTS] = 1
    silent = Silent()
    assert read_rings([silent], {0: bytes(row)}) == {}
    assert silent.limits
    assert all(seconds is not None and 0 < seconds < 10 for seconds in silent.limits)
