"""Cases of `distxla conformance` by executors that run side by side."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from distxla.cli.conformance_outcome import Outcome, judged, write_case
from distxla.cli.foreign_executor import CaseFiles, Executor
from distxla.conformance.case import Case


def files_of(case: Case, folder: Path) -> CaseFiles:
    """The case's folder is its name below the given one."""
    return CaseFiles(folder / case.name, case.replicas, case.partitions)


def run_all(cases: Sequence[Case], executors: Sequence[Executor], folder: Path) -> list[Outcome]:
    """The outcomes in the order of the cases; each executor takes the next case when it is free.

    Blocks. ArgumentError where a command cannot be started. When this ends, by an error or a signal, too, the
    executors' processes have ended.
    """
    rest = enumerate(cases)
    work = _Work(rest, folder)
    pool = ThreadPoolExecutor(len(executors), thread_name_prefix="conformance")
    try:
        running = [pool.submit(work.run, executor) for executor in executors]
        _wait(running)
    except BaseException:
        work.stop()
        for executor in executors:
            executor.stop()
        raise
    finally:
        pool.shutdown()
        for executor in executors:
            executor.close()
    return [work.outcomes[place] for place in range(len(cases))]


def _wait(running: Sequence[Future[None]]) -> None:
    for each in running:
        each.result()


class _Work:
    """What the executors' threads share. outcomes: by the case's place."""

    def __init__(self, rest: Iterator[tuple[int, Case]], folder: Path) -> None:
        self.outcomes: dict[int, Outcome] = {}
        self._rest, self._folder = rest, folder
        self._stopped = False
        self._next, self._reference = threading.Lock(), threading.Lock()

    def stop(self) -> None:
        """No further case is begun."""
        self._stopped = True

    def run(self, executor: Executor) -> None:
        """Case after case; one thread of those that share the work."""
        while not self._stopped:
            with self._next:
                taken = next(self._rest, None)
            if taken is None:
                return
            place, case = taken
            try:
                self.outcomes[place] = self._outcome(case, executor)
            except BaseException:
                self.stop()
                raise

    def _outcome(self, case: Case, executor: Executor) -> Outcome:
        files = files_of(case, self._folder)
        with self._reference:  # NumPy in one thread is no faster in two
            expected = case.expected()
            write_case(case, files, expected)
        return judged(case, files, expected, executor.run(files))


__all__ = ["files_of", "run_all"]
