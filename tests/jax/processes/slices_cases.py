"""Calls on the devices of two JAX processes, two each, by their owner; without the processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import distxla as dx
from distxla.jax.processes.owned_cluster import OwnedCluster
from distxla.runtime.arrays.executable import Executable
from tests.deadlock_programs import by_device, reduce

MINE = [(0, 1), (2, 3)]  # the devices of each process
X = np.arange(4, dtype=np.float32)
WHOLE = "{{0,1}}"
SUM = by_device(reduce("ROOT c", "p", WHOLE), reduce("ROOT c", "p", WHOLE))
ALL = "{{0,1,2,3}}"
SUM_OF_ALL = by_device(*[reduce("ROOT c", "p", ALL)] * 4)


def gated(name: str) -> str:
    """A program that sums, waits on its device 0 for the gate, while device 1 waits for it in the next sum, and sums
    again: 4 times its argument."""
    first = reduce("v", "p", WHOLE)
    waits = f'w = f32[4] custom-call(v), custom_call_target="{name}"\n{reduce("ROOT c", "w", WHOLE)}'
    return by_device(f"{first}\n{waits}", f"{first}\n{reduce('ROOT c', 'v', WHOLE)}")


class Gate:
    """A routine of devices that does not return until it is opened. path: of a file that there is not yet.  begun: of
    one that is there once a device waits."""

    def __init__(self, name: str, path: Path) -> None:
        self.name, self._path, self.begun = name, path, path.with_suffix(".begun")
        begun, opened = str(self.begun), str(path)

        def wait(x: Any) -> Any:
            Path(begun).touch()
            while not Path(opened).exists():
                time.sleep(0.005)
            return x

        dx.register_custom_call(name, wait)

    @property
    def is_reached(self) -> bool:
        return self.begun.exists()

    def open(self) -> None:
        self._path.touch()


def compiled(cluster: OwnedCluster, text: str, devices: Sequence[int]) -> Executable:
    return cluster.compile(dx.parse(text), device_assignment=[[device] for device in devices])


def run_on(cluster: OwnedCluster, members: Sequence[int], executable: Executable) -> np.ndarray[Any, Any]:
    """Call it with X on each device; the results of all."""
    outs: list[Any] = []

    def place(found: list[Executable]) -> list[Any]:
        kept = found[0].place_arguments([[X]] * len(found[0].devices))
        outs.append(found[0].place_results())
        return [found, kept, outs]

    cluster.issue_on(members, [executable], place)
    return np.array([np.asarray(row[0]) for row in outs[0]])


class Running(threading.Thread):
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self.result: Any = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self._call()
        except BaseException as error:
            self.error = error

    def found(self) -> Any:
        self.join(60)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error
        return self.result


@contextmanager
def long_call(cluster: OwnedCluster, executable: Executable, gate: Gate, process: int = 1) -> Iterator[Running]:
    """A call on the devices of a process that waits at its gate, with one device in a collective, until the end of the
    with-body; its numbers are right then."""
    running = Running(lambda: run_on(cluster, [process], executable))
    while not gate.is_reached:
        assert running.is_alive()
        time.sleep(0.005)
    try:
        yield running
        assert running.is_alive()
    finally:
        gate.open()
    assert np.array_equal(running.found(), [4 * X, 4 * X])
