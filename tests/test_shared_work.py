"""What becomes of a lost worker's tests (tests/shared_work.py)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.shared_work import Sharing, scope


class Worker:
    """What the scheduler sees of a worker of xdist. given: the tests that it was told to run, a list each time."""

    def __init__(self) -> None:
        self.given: list[list[int]] = []
        self.shutting_down = False
        self.gateway = SimpleNamespace(id="worker")

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given.append(indices)

    def shutdown(self) -> None:
        self.shutting_down = True


def test_others_get_what_a_lost_worker_had_not_run(pytestconfig: pytest.Config) -> None:
    """And nobody gets nothing: such a worker would wait for ever."""
    tests = [f"tests/test_shared_work.py::test_{k}" for k in range(12)]
    option = SimpleNamespace(maxschedchunk=None, loadscopereorder=False, tx=["popen"] * 2)
    config: Any = SimpleNamespace(option=option, getvalue=lambda _: ["popen"] * 2, hook=pytestconfig.hook)
    sharing = Sharing(config)
    workers: list[Any] = [Worker(), Worker()]
    for worker in workers:
        sharing.add_node(worker)
        sharing.add_node_collection(worker, tests)
    sharing.schedule()
    lost, left = workers
    while sharing.workqueue:  # the worker that will be lost does them all, but for its last ones
        for index in lost.given.pop(0):
            sharing.mark_test_complete(lost, index)
    assert sharing.remove_node(lost) == tests[lost.given[0][0]]
    assert all(left.given), "a worker was told to run no test"
    for given in left.given:
        for index in given:
            sharing.mark_test_complete(left, index)
    assert not sharing.has_pending


def test_what_a_module_makes_is_made_by_one_worker() -> None:
    """A cluster, or dumps by a process with JAX."""
    for module in ("tests/documentation/test_scripts.py", "tests/test_jax_dumps.py"):
        assert {scope(f"{module}::test_{k}") for k in range(20)} == {module}
    assert len({scope(f"tests/test_samples.py::test_{k}") for k in range(20)}) > 1
