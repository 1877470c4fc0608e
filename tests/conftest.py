"""What all tests share: who runs which of them, and that those with clusters leave nothing behind."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

from tests import processor_times, samples, slow_marks

OUTPUT: dict[str, str] = {}  # of the collection, for the summary

if TYPE_CHECKING:
    from distxla.compiler.server_share import ServerShare
    from distxla.testing import ClusterPool

# An example's seconds are those of the machine, not of the code: what bounds time does so by tests/stopwatch.py.
settings.register_profile("distxla", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("distxla")
# So a red run of `make test` shows a change of the code, not luck; `make test-all` draws other examples.
settings.register_profile("the same in every run", settings.get_profile("distxla"), derandomize=True, database=None)

# Inherited by every process that this one starts, and by theirs: how the leak check finds them.
RUN_MARK = f"DISTXLA_TEST_RUN={uuid.uuid4().hex}"
os.environ.update([RUN_MARK.split("=", 1)])
# A read of memory that nothing has written shows in the result, in this process and in those that it starts.
os.environ.setdefault("DISTXLA_FILL_UNWRITTEN", "1")
# The verifier runs between the steps of the compiler.
os.environ.setdefault("DISTXLA_VERIFY_PASSES", "1")

TESTS = Path(__file__).parent
OWN_RAY = {"runtime/ray", "runtime/hosts"}  # folders in which every module has the mark `own_ray`
LEAK_GRACE_S = 15.0
PARTITIONER_FILE = "distxla-partition-messages"  # of the process below
FORKS = "tests/runtime/hosts/forks.py"  # of which some nodes' workers are copies
PARTITIONER = "distxla.jax.partitioner.partition_worker"  # waits for modules until the process ends that has started it
# the entry point of the first has this name, too: one is enough
pytest_plugins = ["distxla.testing.plugin", "tests.failed_tests"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--conformance", metavar="FOLDER", help="cases of others: see tests/test_conformance.py")
    parser.addoption("--share", metavar="K/N", help="only the K-th of N parts of the tests, about equally many each")
    parser.addoption("--more-cases", metavar="K", type=int, default=1, help="K times as many cases of a sample")
    parser.addoption("--slow-marks", action="store_true", help="list tests whose mark `slow` is wrong or missing")
    parser.addoption("--times", action="store_true", help="print processor times and starts of processes by folder")


def conformance_folder(config: pytest.Config) -> Path | None:
    """Where the conformance cases lie; None where nobody gave any."""
    given = config.getoption("--conformance") or os.environ.get("DISTXLA_CONFORMANCE")
    return Path(given) if given else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Cases that nobody gave are no tests, not skipped ones."""
    return True if collection_path.name == "test_conformance.py" and conformance_folder(config) is None else None


def pytest_configure(config: pytest.Config) -> None:
    """A shell that runs this in the background lets its jobs, and all that they start, ignore Ctrl-C."""
    processor_times.begin(config, RUN_MARK)
    samples.takes_all = "not exhaustive" not in config.option.markexpr
    if not samples.takes_all and config.getoption("--hypothesis-seed", None) is None:
        settings.load_profile("the same in every run")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """See tests/slow_marks.py."""
    with slow_marks.measured(item):
        return (yield)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """xdist's: each worker has collected all."""
    OUTPUT.update(sampled=getattr(node, "workeroutput", {}).get("sampled", OUTPUT.get("sampled", "")))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if not samples.takes_all and OUTPUT.get("sampled"):
        terminalreporter.write_line(OUTPUT["sampled"])
    if not config.getoption("--slow-marks"):
        return
    reports = [r for kind in ("passed", "failed") for r in terminalreporter.stats.get(kind, ()) if r.when == "call"]
    if found := slow_marks.lines(reports):
        terminalreporter.section("marks of slow tests")
        terminalreporter.write("\n".join([*found, ""]))


@pytest.fixture(scope="session", autouse=True)
def cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Compiled programs of earlier versions, or of the user, have no part in a test run."""
    os.environ["DISTXLA_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def no_gpu_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As on a machine where NVIDIA's driver isn't installed."""
    monkeypatch.delenv("DISTXLA_GPU_DRIVER", raising=False)
    monkeypatch.setattr("distxla.targets.nvptx.DEVICE_FILE", str(tmp_path / "nvidiactl"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Who runs what: see tests/shared_work.py."""
    if config.getvalue("dist") != "loadscope":
        return None
    from tests.shared_work import Sharing

    return Sharing(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Objects of the collection stay: a garbage collection would look at two million of them, in vain.

    After that collections are rarer than by default: they took a fifteenth of the tests' processor time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The part of the tests that was asked for; in xdist's workers in the order in which work is given out."""
    are_all = [config.rootpath / arg for arg in config.args] == [TESTS] and not config.getoption("lf", False)
    sampled = samples.mark_samples(items, times=config.getoption("--more-cases"), are_all=are_all)
    getattr(config, "workeroutput", OUTPUT)["sampled"] = sampled
    if share := config.getoption("--share"):
        part, parts = map(int, share.split("/"))
        items[:] = [item for item in items if crc32(item.nodeid.encode()) % parts == part - 1]
    if hasattr(config, "workerinput"):
        from tests.shared_work import turn

        items.sort(key=lambda item: turn(item.nodeid, slow=item.get_closest_marker("slow") is not None))


def started_processes() -> set[str]:
    """`pid command` of the living processes that this one started, directly or not."""
    found = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if RUN_MARK.encode() not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:120]
        except OSError:
            continue  # it ended meanwhile, or belongs to somebody else
        if state != "Z" and PARTITIONER not in command:
            found.add(f"{entry.name} {command}")
    return found


def require_ended(before: set[str], *folders: Path) -> None:
    """All processes since `before` end soon, and nothing stays in the folders."""
    end = time.monotonic() + 30
    while time.monotonic() < end and (started_processes() - before or any(map(os.listdir, folders))):
        time.sleep(0.02)
    assert started_processes() - before == set()
    assert [name for folder in folders for name in os.listdir(folder)] == []


def shared_memory_names() -> set[str]:
    """Names in /dev/shm, but for semaphores of other people's multiprocessing."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith("sem.mp-")}


def open_resources() -> set[str]:
    """Everything that a run might forget: processes, names in /dev/shm, anonymous memory files, threads."""
    shared = {f"/dev/shm/{name}" for name in shared_memory_names()}
    memory_files = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        if "memfd:" in target and PARTITIONER_FILE not in target:
            memory_files.add(f"descriptor {number} {target}")
    threads = {f"thread {t.name}" for t in threading.enumerate() if not t.daemon}
    return started_processes() | shared | memory_files | threads


@cache
def marks_of_files(session: pytest.Session) -> dict[Path, set[str]]:
    """The marks of any of a file's tests."""
    found: dict[Path, set[str]] = defaultdict(set)
    for item in session.items:
        found[item.path].update(mark.name for mark in item.iter_markers())
    return found


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Modules with cluster tests must end with the processes, segments and threads that they began with."""
    marks = marks_of_files(request.session)[request.path]
    if "cluster" not in marks:
        if (session := sys.modules.get("distxla.testing.session")) is not None:
            session.checks_of(request.config).pool.close_idle()  # a replica that waits takes 8 ms a second
        yield
        return
    from distxla.testing.session import checks_of  # and with it the runtime

    keep_compiling()
    shared = checks_of(request.config).pool
    folder = request.path.relative_to(TESTS).parent.as_posix()
    if folder in OWN_RAY or "own_ray" in marks:
        shared.close()
    else:
        shared.warm()
    before = open_resources()
    yield
    require_nothing_left(before, shared)


def require_nothing_left(before: set[str], pool: ClusterPool) -> None:
    """All that was opened since `before` goes soon, but for what the pool keeps from module to module."""
    deadline = time.monotonic() + LEAK_GRACE_S
    while (left := left_since(before) - warm(pool)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not left, f"left behind: {sorted(left)}"


@cache
def keep_compiling() -> ServerShare:
    """One process that compiles for the clusters of this one goes on as long as it runs."""
    from distxla.compiler.server_share import ServerShare

    return ServerShare()


def warm(pool: ClusterPool) -> set[str]:
    """What goes on from module to module: the first process that compiles; memory, replicas and Ray of the clusters of
    the plugin's pool. Replicas of other clusters are not among it."""
    others = ["memfd:distxla-"] if pool.clusters else []
    own = {str(pid) for cluster in pool.clusters for _, _, pid in cluster.replicas_info}
    server = keep_compiling().server
    own |= {str(server.process.pid)} if server.process is not None else set()
    files = tuple(f"descriptor {number} /memfd:distxla-compile-" for number in (server.progress, server.messages))
    found = set()
    for line in open_resources():
        name, _, command = line.partition(" ")
        can_be_of_ray = pool.is_warm and name.isdigit() and not command.startswith(("ray::Replica", "ray::Agent"))
        is_of_ray = can_be_of_ray and _is_under_ray(name)
        if name in own or is_of_ray or line.startswith(files) or any(each in command for each in others):
            found.add(line)
    return found


def _is_under_ray(pid: str) -> bool:
    """Whether the process is the supervisor of this process's embedded Ray, or was started by it."""
    try:
        while pid not in ("0", "1", str(os.getpid())):
            if b"distxla/runtime/ray/supervisor.py" in (Path("/proc") / pid / "cmdline").read_bytes():
                return True
            pid = (Path("/proc") / pid / "stat").read_text().rpartition(")")[2].split()[1]
    except OSError:
        return True  # it ended just now
    return False


def left_since(before: set[str]) -> set[str]:
    """What is open now and was not before, but for idle workers of Ray nodes that ran before and run on, as they do for
    several modules together: Ray starts and ends those as it likes."""
    running = {line.split()[0] for line in before if "raylet" in line or FORKS in line}
    return {line for line in open_resources() - before if not _is_idle_worker_of(line, running)}


def _is_idle_worker_of(line: str, parents: set[str]) -> bool:
    pid, _, command = line.partition(" ")
    if not command.startswith("ray::IDLE") and "default_worker.py" not in command and FORKS not in command:
        return False
    try:
        return (Path("/proc") / pid / "stat").read_text().rpartition(")")[2].split()[1] in parents
    except OSError:
        return True  # it ended just now
