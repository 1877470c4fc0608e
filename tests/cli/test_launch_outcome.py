"""distxla/cli/launch_outcome.py."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from distxla.cli.in_process import sitecustomize
from distxla.cli.launch_outcome import GRACE_S, RELATED_S, Outcome
from distxla.diagnosis.facts.blocked import Doing
from distxla.diagnosis.facts.processes import ProcessState
from distxla.diagnosis.report.diagnosis import Diagnosis
from distxla.errors import (
    CollectiveMismatchError,
    DeadlockError,
    DistxlaError,
    ExecutionError,
    ReplicaLostError,
    ReplicationError,
    TimeLimitError,
)
from distxla.jax.processes import attached
from distxla.jax.processes.told_errors import pack_error

SIGKILL, SIGABRT = int(signal.SIGKILL), int(signal.SIGABRT)


def exited(status: int) -> int:
    return status << 8


def verdict(error: DistxlaError, *, of_processes: bool = True) -> dict[str, object]:
    if of_processes:
        state = ProcessState(1, Doing.ENDED, "f", "t.py:1", 1, "", (), ())
        error.diagnosis = Diagnosis(error.code, error.message, processes=(state,))
    return {"verdict": json.loads(json.dumps(pack_error(error)))}


def script(how: str = "end", error: str = "", *, attaches: bool = False) -> dict[str, Any]:
    """What process 1 says at the end of its script."""
    return {"process": 1, "how": how, "error": error, "site": "t.py:4" if error else "", "attaches": attaches}


def ended(process: int, how: str = "raised", error: str = "ValueError: x", site: str = "") -> dict[str, object]:
    return {"ended": {"process": process, "how": how, "error": error, "site": site, "signal": ""}}


def of_all(outcome: Outcome, *statuses: int, now: float = 1.0) -> int:
    """The launcher's status once the processes have ended with these."""
    for process, status in enumerate(statuses):
        outcome.has_ended(process, status, now)
    return outcome.status()


def test_all_end_well() -> None:
    outcome = Outcome(2)
    assert of_all(outcome, 0, 0) == 0
    assert outcome.lines(b"") == []
    assert outcome.ends_at is None
    assert outcome.as_json(0)["first_failure"] is None


def test_the_first_failure_gives_the_status() -> None:
    outcome = Outcome(3)
    outcome.has_ended(2, exited(7), 1)
    assert outcome.ends_at == 1 + GRACE_S
    assert of_all(outcome, exited(1), SIGABRT, now=2) == 7
    assert outcome.lines(b"") == ["error: process 2 failed first: it exited with status 7"]


def test_a_signal_is_told_as_a_shell_does() -> None:
    outcome = Outcome(2)
    assert of_all(outcome, 0, SIGKILL) == 128 + SIGKILL
    assert outcome.lines(b"") == ["error: process 1 failed first: it was ended by SIGKILL"]


def test_one_that_has_raised_is_first_even_where_it_ends_later() -> None:
    """JAX's end waits for all processes."""
    outcome = Outcome(2)
    outcome.tell(ended(1, error="ValueError: data loader", site="train.py:47 in load"), 0)
    outcome.has_ended(0, exited(1), 1)
    outcome.ended.add(1)
    outcome.has_ended(1, SIGKILL, 5)
    assert outcome.status() == 1
    assert outcome.lines(b"") == [
        "error: process 1 failed first: it raised an exception: ValueError: data loader (train.py:47 in load)",
        "note: process 1 was ended, 5 s after the first failure",
    ]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (CollectiveMismatchError("processes disagree in call 4"), 3),
        (DeadlockError("each waits for the next"), 3),
        (TimeLimitError("process 1 keeps the others"), 5),
        (ReplicaLostError("process 1 was ended by SIGKILL"), 1),
        (ExecutionError("a callback has raised"), 1),
    ],
)
def test_an_answer_gives_the_status(error: DistxlaError, status: int) -> None:
    outcome = Outcome(2)
    outcome.tell(verdict(error), 0)
    outcome.tell(ended(0, error=f"JaxRuntimeError: distxla: {error.code}: {error.message}"), 1)
    assert of_all(outcome, exited(1), exited(1)) == status


@pytest.mark.parametrize(
    ("devices", "differing", "status"),
    [((0, 1, 2, 3), (2, 3), 3), ((2, 3), (3,), 1), ((0, 1, 2, 3), (1,), 1), ((1, 2), (2,), 3), ((), (), 1)],
)
def test_values_that_differ_between_processes_are_a_disagreement(
    devices: tuple[int, ...], differing: tuple[int, ...], status: int
) -> None:
    error = ReplicationError("arg0 is declared the same on devices 0-3")
    error.devices, error.differing = devices, differing
    outcome = Outcome(2, 2)
    outcome.tell(verdict(error, of_processes=False), 0)
    outcome.tell(ended(0, error="JaxRuntimeError: distxla: replication: arg0 is declared the same on devices 0-3"), 1)
    assert of_all(outcome, exited(1), exited(1)) == status


def test_the_loss_of_a_device_is_4() -> None:
    outcome = Outcome(2)
    outcome.tell(verdict(ReplicaLostError("device 3 was ended by SIGKILL"), of_processes=False), 0)
    assert of_all(outcome, exited(1), exited(1)) == 4


def test_the_loss_of_the_owner_is_4() -> None:
    outcome = Outcome(2)
    outcome.owner_has_ended(-SIGKILL, 0)
    assert of_all(outcome, exited(1), exited(1)) == 4
    assert outcome.lines(b"") == ["error: lost: the process that owns the devices was ended by SIGKILL"]


def test_the_loss_of_the_owner_is_4_where_a_process_that_raises_it_is_told_of_before() -> None:
    lost = "JaxRuntimeError: UNAVAILABLE: distxla: lost: the process that owns the devices (pid 7) was ended by SIGKILL"
    for error, status in ((lost, 4), ("ValueError: x", 1)):
        outcome = Outcome(2)
        outcome.script_has_ended(script("raised", error), 0)
        outcome.owner_has_ended(-SIGKILL, 0.1)
        assert of_all(outcome, exited(1), exited(1)) == status


def test_what_follows_from_a_disagreement_does_not_hide_it() -> None:
    outcome = Outcome(2)
    outcome.tell(verdict(CollectiveMismatchError("processes disagree in call 4")), 0)
    outcome.tell(ended(1), 1)
    outcome.tell(verdict(ReplicaLostError("process 1 ends with ValueError")), 1)
    assert of_all(outcome, exited(1), exited(1)) == 3


def test_a_disagreement_that_all_have_caught_is_not_the_reason_of_a_later_failure() -> None:
    outcome = Outcome(2)
    outcome.tell(verdict(CollectiveMismatchError("processes disagree in call 4")), 0)
    assert of_all(outcome, 0, exited(9), now=RELATED_S + 1) == 9
    outcome = Outcome(2)
    outcome.tell(verdict(CollectiveMismatchError("processes disagree in call 4")), 0)
    assert of_all(outcome, 0, 0) == 0


def test_an_answer_that_nobody_has_shown_is_told_at_the_end() -> None:
    outcome = Outcome(2)
    outcome.tell(verdict(CollectiveMismatchError("processes disagree in call 4")), 0)
    of_all(outcome, SIGABRT, SIGABRT)
    assert outcome.lines(b"")[0] == "error: mismatch: processes disagree in call 4"
    assert outcome.lines(b"[0] JaxRuntimeError: distxla: mismatch: processes disagree in call 4\n") == [
        "error: mismatch: as told above; process 0 failed first"
    ]


def test_the_json_has_all_processes_and_the_answer() -> None:
    outcome = Outcome(2)
    outcome.tell(verdict(CollectiveMismatchError("processes disagree in call 4")), 0)
    outcome.tell(ended(0, error="E: distxla: mismatch"), 1)
    found = outcome.as_json(of_all(outcome, exited(1), SIGKILL))
    assert found["exit_status"] == 3
    assert found["first_failure"] == {"process": 0, "how": "raised an exception", "error": "E: distxla: mismatch"}
    assert [(one["status"], one["error"]) for one in found["processes"]] == [
        (1, "E: distxla: mismatch"),
        (-SIGKILL, None),
    ]
    assert found["error"]["code"] == "mismatch"
    assert found["diagnosis"]["processes"][0]["process"] == 1


def test_one_that_ends_before_it_has_used_its_devices_keeps_others_waiting() -> None:
    """They wait in the start of theirs, and it in JAX's end."""
    outcome = Outcome(2)
    outcome.script_has_ended(script(), 0)
    outcome.look(0)
    assert outcome.ends_at is None
    outcome.tell({"came": 0}, 1)
    outcome.look(1)
    assert outcome.ends_at == 1 + GRACE_S
    assert of_all(outcome, SIGKILL, 0) == 1
    said = "error: process 1 failed first: it ended before it had used its devices, for which process 0 waits"
    assert outcome.lines(b"") == [said]


def test_one_that_reaches_for_its_devices_as_its_script_ends_will_come() -> None:
    """A script that only asks for the number of devices, on a loaded machine."""
    outcome = Outcome(2)
    outcome.tell({"came": 0}, 0)
    outcome.script_has_ended(script(attaches=True), 0)
    outcome.look(0)
    assert outcome.ends_at is None
    outcome.has_ended(1, 0, 1)
    outcome.look(1)
    assert outcome.ends_at == 1 + GRACE_S, "it has ended without"


def test_the_thread_that_a_process_attaches_in_is_known() -> None:
    assert sitecustomize.ATTACHING == attached.ATTACHING


def test_one_that_ends_after_all_have_come_does_not() -> None:
    outcome = Outcome(2)
    for news in ({"came": 1}, {"came": 0}, {"attached": 2}):
        outcome.tell(news, 0)
    outcome.script_has_ended(script(), 0)
    outcome.has_ended(1, 0, 1)
    outcome.look(1)
    assert outcome.ends_at is None
    assert of_all(outcome, 0) == 0


def test_the_order_in_which_an_end_and_the_starts_are_told_does_not_matter() -> None:
    """They come by two pipes."""
    outcome = Outcome(2)
    outcome.script_has_ended(script(), 0)
    for news in ({"came": 0}, {"came": 1}):
        outcome.tell(news, 1)
    outcome.look(1)
    assert outcome.ends_at is None


def test_a_script_says_what_it_has_raised_before_jax_waits_for_the_others() -> None:
    outcome = Outcome(2)
    outcome.script_has_ended(script("raised", "ValueError: x"), 2)
    outcome.tell(ended(1), 3)
    outcome.ended |= {0, 1}
    assert of_all(outcome, SIGKILL, SIGKILL) == 1
    assert outcome.ends_at == 2 + GRACE_S
    assert outcome.lines(b"")[0] == "error: process 1 failed first: it raised an exception: ValueError: x (t.py:4)"


def test_an_error_of_distxlas_is_told_by_its_code() -> None:
    outcome = Outcome(1)
    outcome.tell(
        ended(0, error="jax.errors.JaxRuntimeError: INTERNAL: distxla: cluster: Ray has ended", site="t.py:4"), 0
    )
    assert of_all(outcome, exited(1)) == 1
    assert outcome.lines(b"") == ["error: process 0 failed first: it raised an exception: cluster, as told above"]
