"""Workers of the embedded Ray are copies of one process where that lives, and start without it where it doesn't."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import distxla as dx
from distxla.errors import ClusterError
from distxla.runtime.ray import commands, embedded, zygote
from distxla.runtime.ray.zygote import Requests
from tests.runtime import hand_made
from tests.stopwatch import Stopwatch

FORKED_S = 0.25  # of processor time, a replica; a start of an interpreter of its own takes 0.6
FORKED_BYTES = 35 << 20  # PSS of a replica: 24 MB with 3 replicas; one of its own has 50


def test_requests_are_found_however_the_bytes_arrive() -> None:
    wanted = [("ff", ["python", "--a=é", ""]), ("01", []), ("ffffffff", ["x"] * 12)]
    text = b"".join(os.fsencode(f"{len(words)}\0{job}\0" + "".join(f"{w}\0" for w in words)) for job, words in wanted)
    for first in range(len(text) + 1):
        for second in range(first, len(text) + 1):
            requests, found = Requests(), []
            for piece in (text[:first], text[first:second], text[second:]):
                found += requests.feed(piece)
            assert found == wanted


@pytest.mark.parametrize(("folder", "is_forked"), [("/tmp/d", True), ("/" + 500 * "é", False)])
def test_a_command_that_does_not_fit_one_write_does_without(folder: str, is_forked: bool) -> None:
    place = commands.RayFiles(Path("/ray"), folder, "n")
    command = commands.worker_command(place, "127.0.0.1:1", "c")
    assert ("worker.sh" in " ".join(command)) == is_forked
    assert len("\0".join(command).encode()) < 3500 or not is_forked


def below_us(name: str) -> list[psutil.Process]:
    """Processes of the embedded Ray whose command contains `name`."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if name in " ".join(process.cmdline()):
                found.append(process)
    return found


def kill(name: str) -> None:
    end = time.monotonic() + 20
    while not (found := below_us(name)) and time.monotonic() < end:
        time.sleep(0.005)  # the supervisor, a process of its own, has yet to start it
    process = found[0]  # of the zygote a short-lived copy may be there, too, after it
    process.kill()
    process.wait()


def parents(cluster: dx.Cluster) -> set[str]:
    found = {psutil.Process(pid).parent() for _, _, pid in cluster.replicas_info}
    return {" ".join(parent.cmdline()) for parent in found if parent is not None}


def processor_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, Callable[[], None]], None]]:
    """Do something when the start has reached a method of EmbeddedRay, before that."""

    def before(name: str, action: Callable[[], None]) -> None:
        method = getattr(embedded.EmbeddedRay, name)

        def acting(self: embedded.EmbeddedRay, *arguments: object, **named: object) -> object:
            action()
            return method(self, *arguments, **named)

        monkeypatch.setattr(embedded.EmbeddedRay, name, acting)

    return before


@pytest.fixture(scope="class")
def copies() -> Iterator[tuple[dx.Cluster, list[float]]]:
    """Three replicas, and the processor seconds of each at its start. The driver's environment has DISTXLA_TEST."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DISTXLA_TEST", "seen")
        with dx.Cluster(3) as cluster:
            yield cluster, [processor_s(pid) for _, _, pid in cluster.replicas_info]


@pytest.fixture(scope="class")
def imported() -> list[str]:
    """What the fork server imports; and a name of a module that Ray asks for where it needs it."""
    look = (
        "import sys; from distxla.runtime.ray import zygote; zygote._imported(lambda: None); print(*sys.modules);"
        "import ray._private.accelerators.tpu as tpu; print(tpu.requests.get.__name__)"
    )
    ended = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=60, check=True)
    return ended.stdout.splitlines()


@pytest.mark.cluster
class TestCopies:
    """Of one cluster."""

    def test_replicas_are_copies(self, copies: tuple[dx.Cluster, list[float]]) -> None:
        cluster, seconds = copies
        (parent,) = parents(cluster)
        assert "zygote.py" in parent
        assert max(seconds) < FORKED_S
        assert max(psutil.Process(pid).memory_full_info().pss for _, _, pid in cluster.replicas_info) < FORKED_BYTES
        for _, _, pid in cluster.replicas_info:
            assert os.getpgid(pid) == pid
            assert Path(f"/proc/{pid}/oom_score_adj").read_text().strip() == "1000"
        assert below_us("zygote.py")[0].num_threads() == 1

    def test_what_ray_needs_for_clouds_is_not_imported(self, imported: list[str]) -> None:
        modules, later = imported
        assert "ray" in modules.split()
        assert not set(zygote.UNUSED) & set(modules.split())
        assert later == "get"

    def test_a_copy_imports_nothing(self, copies: tuple[dx.Cluster, list[float]], imported: list[str]) -> None:
        """Every replica would do so by itself."""
        cluster, _ = copies
        hand_made.adopted(cluster, hand_made.add_one(3))([np.zeros(4, np.float32)])
        (there,) = cluster.hosts.ask([cluster.hosts.replicas[0].imported.remote()], 60)
        assert set(there) - set(imported[0].split()) == set()

    def test_a_copy_has_the_drivers_environment_and_its_own_random_numbers(
        self, copies: tuple[dx.Cluster, list[float]]
    ) -> None:
        threads = os.environ.get("OPENBLAS_NUM_THREADS")

        def look() -> Any:
            import random

            is_the_drivers = (os.environ.get("DISTXLA_TEST"), os.environ.get("OPENBLAS_NUM_THREADS")) == (
                "seen",
                threads,
            )
            return np.array([is_the_drivers, np.random.randint(1 << 30), random.getrandbits(30)], np.int32)

        dx.register_custom_call("look", look)
        cluster, _ = copies
        look_there = 'ENTRY e { ROOT r = s32[3] custom-call(), custom_call_target="look" }'
        rows = cluster.compile(dx.parse(f"HloModule m, replica_count=3\n{look_there}"))([])
        (first, one, a), (second, other, b), _ = (np.asarray(row[0]).tolist() for row in rows)
        assert (first, second) == (1, 1)
        assert one != other
        assert a != b

    def test_the_zygote_ends_with_the_raylet(self, copies: tuple[dx.Cluster, list[float]]) -> None:
        """The last test of the cluster, which ends with it, too."""
        assert copies
        process = below_us("zygote.py")[0]
        kill("/raylet/raylet")
        process.wait(10)


@pytest.mark.cluster
@pytest.mark.parametrize("step", ["_introduced", "_raylet_socket"])
def test_a_start_whose_zygote_is_killed_fails_at_once(step: str, at: Callable[..., None]) -> None:
    at(step, lambda: kill("zygote.py"))
    watch = Stopwatch()
    with pytest.raises(ClusterError, match="the zygote of the embedded Ray has ended"), dx.Cluster(2) as cluster:
        cluster.wait_started()
    assert watch.seconds < 20
    assert below_us("ray") == []


@pytest.mark.exhaustive
@pytest.mark.cluster
def test_later_workers_start_without_a_zygote() -> None:
    with dx.Cluster(1) as cluster:
        cluster.wait_started()
        kill("zygote.py")
        with dx.Cluster(2) as other:
            (parent,) = parents(other)
            assert "/raylet" in parent
            (_, _, forked), *_ = cluster.replicas_info
            assert min(processor_s(pid) for _, _, pid in other.replicas_info) > 2 * processor_s(forked)
        assert parents(cluster) == {" ".join(below_us("supervisor.py")[0].cmdline())}  # it lives on


@pytest.mark.cluster
def test_a_shell_that_fails_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "STALL_LIMIT_S", 2.0)
    monkeypatch.setattr(commands, "worker_command", lambda *_: ["/bin/sh", "-c", "exit 1"])
    with (
        pytest.raises(
            ClusterError, match=r"for 2 s Ray has asked for no more workers than 0; load [\d.e+]+ on \d+ processor"
        ),
        dx.Cluster(2) as cluster,
    ):
        cluster.wait_started()
