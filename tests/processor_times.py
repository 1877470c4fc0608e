"""Where a run's processor time goes, and what it starts: `pytest --times`. It fails nothing.

At the end of each file's tests a process that runs tests looks at the processor time of itself and of all processes
below it; what that has grown by is the file's, its fixtures included. Clusters that wait between tests are counted for
the tests that run meanwhile. tests/process_starts/ counts starts.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from tests.process_starts import sitecustomize
from tests.process_starts.sitecustomize import FILE, RECORD, record

MOST_FILES = 30
TICKS = os.sysconf("SC_CLK_TCK")  # of a second
COLLECTION, AFTERWARDS, CONTROLLER = BESIDE = "collection", "after the tests", "xdist's controller"  # no folders
KINDS = {  # words of a command
    "Ray": "distxla/runtime/ray/supervisor.py",
    "compiling": "distxla.compiler.worker",
    "partitioning": "distxla.jax.partitioner.partition_worker",
}
COUNTED = ("clusters", *KINDS, "Python")

Key = tuple[int, int]  # of a process: its id, and when it started


@dataclass(frozen=True)
class Spent:
    """Processor time of a process, in ticks.  waited: of its children that have ended and for which it has waited.
    parent: None of the process that runs the tests, and of one whose parent ended before."""

    own: int
    waited: int
    parent: Key | None


def grown(root: Key, before: dict[Key, Spent], after: dict[Key, Spent]) -> tuple[int, int]:
    """Ticks of `root` and of all others from one look at the processes to the next.

    When one has ended, what it had is among its parent's `waited` if that has waited for it, and lost otherwise: in
    both cases it has been counted.
    """
    counted: dict[Key, int] = defaultdict(int)
    for key, spent in before.items():
        if key in after:
            continue
        above = spent.parent
        while above is not None and above not in after:
            above = before[above].parent if above in before else None
        if above is not None:
            counted[above] += spent.own + spent.waited
    own = others = 0
    for key, spent in after.items():
        last = before.get(key, Spent(0, 0, None))
        if key == root:
            own = max(0, spent.own - last.own)
        else:
            others += max(0, spent.own - last.own)
        others += max(0, spent.waited - last.waited - counted[key])
    return own, others


class Processes:
    """The processes below this one, and those of this run that have lost their parent.  mark: see RUN_MARK."""

    def __init__(self, mark: str) -> None:
        self._mark = mark.encode()
        self._strangers: set[Key] = set()
        self.root = next(key for key, _, _ in _stats([str(os.getpid())]))

    def look(self) -> dict[Key, Spent]:
        """The processor time of each."""
        stats = {key[0]: (key, parent, times) for key, parent, times in _stats(os.listdir("/proc"))}
        below: dict[int, list[int]] = defaultdict(list)
        for pid, (_, parent, _) in stats.items():
            below[parent].append(pid)
        found: dict[Key, Spent] = {}

        def add(top: int) -> None:
            todo: list[tuple[int, Key | None]] = [(top, None)]
            for pid, above in todo:
                key, _, times = stats[pid]
                if key not in found:
                    found[key] = Spent(*times, above)
                    todo += [(child, key) for child in below[pid]]

        add(self.root[0])
        for key in sorted((key for key, _, _ in stats.values()), key=lambda key: key[1]):  # parents first
            if key not in found and key[1] >= self.root[1] and self._has_the_mark(key):
                add(key[0])
        return found

    def _has_the_mark(self, key: Key) -> bool:
        if key in self._strangers:
            return False
        try:
            if self._mark in Path(f"/proc/{key[0]}/environ").read_bytes().split(b"\0"):
                return True
        except OSError:
            pass  # it has ended, or belongs to somebody else
        self._strangers.add(key)
        return False


def _stats(pids: Iterable[str]) -> Iterator[tuple[Key, int, tuple[int, int]]]:
    """Of each process: key, parent's id, ticks of its own and of children that it waited for."""
    for pid in pids:
        if not pid.isdigit():
            continue
        try:
            with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
                words = file.read().rpartition(b")")[2].split()
        except OSError:
            continue  # it ended just now
        user, system, waited_user, waited_system = map(int, words[11:15])
        yield (int(pid), int(words[19])), int(words[1]), (user + system, waited_user + waited_system)


class Recorder:
    """Hooks of a process that runs tests: a line `spent FILE TESTS OWN OTHERS` at the end of a file's tests, where the
    last two are ticks."""

    def __init__(self, mark: str) -> None:
        self._processes = Processes(mark)
        self._last: dict[Key, Spent] = {}
        self._file = ""
        self._tests = 0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        """The borders of a file's tests."""
        if not self._file:
            self._end_of(COLLECTION)
        os.environ[FILE] = self._file = _file(item)
        try:
            return (yield)
        finally:
            self._tests += 1
            if nextitem is None or _file(nextitem) != self._file:
                self._end_of(self._file)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self) -> Iterator[None]:
        """Before xdist tells that this process has ended its work, and after clusters have been closed."""
        try:
            return (yield)
        finally:
            self._end_of(AFTERWARDS if self._file else COLLECTION)

    def _end_of(self, file: str) -> None:
        now = self._processes.look()
        record("spent", file, self._tests, *grown(self._processes.root, self._last, now))
        self._last, self._tests = now, 0


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


class Summary:
    """Hooks of the process that pytest was started as: it prints what all have recorded.  is_controller: of xdist."""

    def __init__(self, *, is_controller: bool) -> None:
        self._is_controller = is_controller
        descriptor, self._path = tempfile.mkstemp(prefix="distxla-test-times-")
        os.close(descriptor)
        self._former = {name: os.environ.get(name) for name in (RECORD, FILE, "PYTHONPATH")}
        os.environ[RECORD] = self._path
        os.environ.pop(FILE, None)
        os.environ |= sitecustomize.completed(os.environ)
        sitecustomize.watch()

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the tables."""
        if self._is_controller:
            record("spent", CONTROLLER, 0, round(time.process_time() * TICKS), 0)
        text = Path(self._path).read_text(encoding="utf-8")
        terminalreporter.section("processor time")
        terminalreporter.write("\n".join([*lines(rows(text)), ""]))

    def pytest_unconfigure(self) -> None:
        """Leave nothing behind."""
        os.unlink(self._path)
        for name, value in self._former.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def begin(config: pytest.Config, mark: str) -> None:
    """Called by a process of pytest as it is configured.  mark: see RUN_MARK."""
    if not config.getoption("--times"):
        return
    is_worker = hasattr(config, "workerinput")  # of xdist
    is_controller = not is_worker and bool(config.getoption("numprocesses", None))
    if not is_worker:
        config.pluginmanager.register(Summary(is_controller=is_controller), "processor times")
    if not is_controller:
        config.pluginmanager.register(Recorder(mark), "processor times of tests")


@dataclass
class Row:
    """Of a file, a folder or all.  own: seconds of the processes that run tests.  others: of those below them.
    starts: by the names in COUNTED."""

    tests: int = 0
    own: float = 0.0
    others: float = 0.0
    starts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0))

    @property
    def seconds(self) -> float:
        """Of all processes."""
        return self.own + self.others

    def add(self, other: Row) -> None:
        """Count the other row, too."""
        self.tests += other.tests
        self.own += other.own
        self.others += other.others
        for name, count in other.starts.items():
            self.starts[name] += count


def rows(record: str) -> dict[str, Row]:
    """The row of each file in what was recorded."""
    found: dict[str, Row] = defaultdict(Row)
    for line in record.splitlines():
        kind, file, *more = line.split("\t")
        row = found[file or COLLECTION]
        if kind == "spent":
            tests, own, others = map(int, more)
            row.add(Row(tests, own / TICKS, others / TICKS))
        elif kind == "cluster":
            row.starts["clusters"] += 1
        else:
            words = more[0].split()
            row.starts["Python"] += 1
            for name, word in KINDS.items():
                row.starts[name] += any(each.endswith(word) for each in words)
    return dict(found)


def lines(files: dict[str, Row]) -> list[str]:
    """The tables: of folders, and of the files that took most."""
    total = Row()
    folders: dict[str, Row] = defaultdict(Row)
    for file, row in files.items():
        total.add(row)
        folders[file if file in BESIDE else PurePosixPath(file).parent.as_posix()].add(row)
    most = sorted((each for each in files.items() if each[1].tests), key=lambda each: -each[1].seconds)[:MOST_FILES]
    width = max(map(len, [*files, *folders, "folder"]))
    titles = "   tests  seconds  share      own   others " + " ".join(f"{name:>6}" for name in COUNTED)

    def line(name: str, row: Row) -> str:
        share = row.seconds / total.seconds if total.seconds else 0.0
        times = f"{row.seconds:8.1f} {share:6.1%} {row.own:8.1f} {row.others:8.1f}"
        return f"{name:{width}} {row.tests:7} {times} " + " ".join(
            f"{row.starts[name]:{max(6, len(name))}}" for name in COUNTED
        )

    by_seconds = sorted(folders.items(), key=lambda each: -each[1].seconds)
    return [
        "Processor seconds of the processes that run tests (own) and of those below them (others); starts of clusters,",
        "of embedded Rays, of processes that compile or partition, and of Python altogether, these included.",
        *("", f"{'folder':{width}}{titles}", *(line(name, row) for name, row in by_seconds), line("all", total)),
        *("", f"{'file':{width}}{titles}", *(line(name, row) for name, row in most)),
    ]
