"""The diagnosis of each program that deadlocks, in one file a program: what `check`, the reference and the cluster say.

`python -m tests.diagnosis.golden` writes the files anew, from the reference; read the difference before you commit it.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distxla.diagnosis.report.diagnosis import Diagnosis
from distxla.errors import DeadlockError
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_programs
from distxla.oracle.streams import Streams
from distxla.scheduler.deadlocks import examine
from distxla.scheduler.verdict import Verdict
from tests.contradicting_programs import CASES as CONTRADICTING
from tests.deadlock_programs import CASES as DEADLOCKS
from tests.deadlock_programs import Case

FOLDER = Path(__file__).parent.parent / "diagnoses"
CASES = [*DEADLOCKS, *CONTRADICTING]
NAMED = {case.name: case for case in CASES}
STUCK = [case.name for case in CASES if case.deadlocks]
X = np.arange(4, dtype=np.float32)
# the run begins a collective of one device, too, which check does not follow: the histories are longer by that
LONGER_HISTORIES = {"an_async_pair_around_a_collective_that_the_other_side_runs_later"}
# in lines about devices that have reached one round with different instructions: it is chance who came first
BY_CHANCE = (" has reached ", " for the rest of its round: ")


@cache
def golden(name: str) -> dict[str, Any]:
    """diagnosis: the part that check and runs share.  text: the lines of a run.  undecided, notes: what check adds."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return found


def evaluated(case: Case) -> dict[int, Any]:
    """What the reference gives."""
    streams = Streams()
    for device, items in case.items.items():
        streams.infeed(device).put_all(items)
    programs = {device: module for devices, module in case.modules() for device in devices}
    arguments = {device: [X] for device in programs}
    return run_programs(programs, arguments, Counts(case.replicas, 1), streams=streams, time_limit=60)


def diagnosis_of(case: Case) -> Diagnosis:
    """What the reference says of a program that deadlocks."""
    with pytest.raises(DeadlockError) as caught:
        evaluated(case)
    assert caught.value.diagnosis is not None
    return caught.value.diagnosis


def verdict_on(case: Case) -> Verdict:
    """What check says."""
    return examine(case.modules(), Counts(case.replicas, 1))


def check_shared(name: str, diagnosis: Diagnosis) -> None:
    """All fields that the file holds, word for word."""
    wanted, found = golden(name)["diagnosis"], json.loads(json.dumps(diagnosis.as_json()))
    for field, value in wanted.items():
        assert found[field] == value, field


def check_run(name: str, diagnosis: Diagnosis, *, by_chance: bool = False) -> None:
    """All of a diagnosis of a run. by_chance: whether it is chance who comes first to a round."""
    check_shared(name, diagnosis)
    wanted, found = golden(name)["text"], str(diagnosis).splitlines()
    if by_chance and diagnosis.pair is not None:
        wanted, found = ([line for line in lines if not any(w in line for w in BY_CHANCE)] for lines in (wanted, found))
    assert found == wanted


def check_check(name: str, verdict: Verdict) -> None:
    """All of a verdict before the run."""
    assert verdict.diagnosis is not None
    kept, lines = golden(name), verdict.text.splitlines()
    if kept["undecided"]:
        assert lines == kept["undecided"]
        return
    check_shared(name, verdict.diagnosis)
    assert list(verdict.diagnosis.notes) == kept["notes"]
    if name not in LONGER_HISTORIES:
        assert [line for line in lines if not line.startswith("  note: ")] == kept["text"]


def write(case: Case) -> None:
    live, before = diagnosis_of(case), verdict_on(case)
    assert before.diagnosis is not None
    undecided = before.diagnosis.undecided
    shared = before.diagnosis.as_json().keys() & live.as_json().keys()
    found = {
        "diagnosis": {key: value for key, value in live.as_json().items() if key in shared},
        "text": str(live).splitlines(),
        "undecided": before.text.splitlines() if undecided else [],
        "notes": list(before.diagnosis.notes),
    }
    (FOLDER / f"{case.name}.json").write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each in STUCK:
        write(NAMED[each])
