"""One device of four ends what the others wait for, in every way in which that can happen."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import numpy as np

import distxla as dx
from distxla.errors import (
    CollectiveMismatchError,
    DeadlockError,
    DistxlaError,
    ExecutionError,
    ReplicaLostError,
    StreamEndError,
)
from tests.deadlock_programs import by_device, reduce
from tests.stopwatch import Stopwatch

DEVICES = 4
X = np.arange(4, dtype=np.float32)
SECONDS = 1.0 + 0.5  # from the last event to the error; half of it for a machine that has other things to do
LATE = 0.2  # seconds from a call to the end of its infeed, or to its failure


def broken(x: Any) -> Any:
    """A custom-call that fails when the others wait: else there is nothing to report of them."""
    time.sleep(LATE)
    raise ValueError("broken")


def deadly(x: Any) -> Any:
    """A custom-call that ends its process."""
    os.kill(os.getpid(), signal.SIGKILL)
    return x


CAUSES: dict[str, tuple[str, type[DistxlaError]]] = {
    "its program ends": ("ROOT c = f32[4] negate(p)", DeadlockError),
    "it enters with something else": (
        "ROOT c = f32[4] all-to-all(p), replica_groups={}, dimensions={0}",
        CollectiveMismatchError,
    ),
    "its infeed is exhausted": (
        """t = token[] after-all()
        f = (f32[4], token[]) infeed(t)
        v = f32[4] get-tuple-element(f), index=0
        """
        + reduce("ROOT c", "v"),
        StreamEndError,
    ),
    "it returns an error": (
        f'v = f32[4] custom-call(p), custom_call_target="broken"\n{reduce("ROOT c", "v")}',
        ExecutionError,
    ),
}
DIES = f'v = f32[4] custom-call(p), custom_call_target="deadly"\n{reduce("ROOT c", "v")}', ReplicaLostError
WAITS = {
    "in a collective": reduce("ROOT c", "p"),
    "in the middle of an asynchronous pair": """s = f32[4] all-reduce-start(p), replica_groups={}, to_apply=sum
        n = f32[4] negate(p)
        d = f32[4] all-reduce-done(s), control-predecessors={n}
        ROOT c = f32[4] add(d, n)""",
}


def module(culprit: int, cause: str, wait: str) -> dx.Module:
    """What one device runs and what the others do."""
    return dx.parse(by_device(*(cause if device == culprit else wait for device in range(DEVICES))), "ends.hlo")


def failure(cluster: dx.Cluster, step: Any, repeat: int) -> tuple[DistxlaError, float]:
    """The error of a call, and the seconds that it took."""
    watch = Stopwatch()
    try:
        step([[X]] * cluster.devices, repeat=repeat, time_limit=20)
    except DistxlaError as error:
        return error, watch.seconds
    raise AssertionError("it ended well")


def check(cluster: dx.Cluster, culprit: int, cause: str, wait: str) -> None:
    """All devices get the right error at once, again and again, and can be used again; no process is killed."""
    body, kind = CAUSES[cause]
    step, fine = cluster.compile(module(culprit, body, WAITS[wait])), cluster.compile(module(-1, "", WAITS[wait]))
    processes = [pid for _, _, pid in cluster.replicas_info]
    feed = cluster.infeed(culprit)
    good = fine([[X]] * DEVICES)
    for repeat in (1, 3):
        if "infeed" in cause:
            feed.put_all([X] * (repeat - 1))  # in the last run there is none
            closing = threading.Timer(LATE, feed.close)  # when the others wait, as in `broken`
            closing.start()
        error, seconds = failure(cluster, step, repeat)
        assert type(error) is kind, error
        assert seconds < LATE + SECONDS, error
        assert error.diagnosis is not None
        assert {device.device for device in error.diagnosis.devices} == set(range(DEVICES))
        assert f"device {culprit}" in str(error), error
        again = fine([[X]] * DEVICES, time_limit=20)
        for row, expected in zip(again, good, strict=True):
            assert np.array_equal(np.asarray(row[0]), np.asarray(expected[0]))
    assert [pid for _, _, pid in cluster.replicas_info] == processes
    if "infeed" in cause:
        feed.put(X)  # open again
        step([[X]] * DEVICES, time_limit=20)
        assert feed.pending == 0
