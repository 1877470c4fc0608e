"""Which versions of Ray serve, and how: the table, a version that is in no table, and the installed one.

`make rays` runs this file with every version of the table (each_version.py).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from importlib.metadata import requires
from pathlib import Path

import psutil
import pytest

from distxla.runtime.ray import access, versions
from distxla.runtime.ray.embedded import EmbeddedRay
from distxla.runtime.ray.plain import PlainRay
from distxla.runtime.ray.versions import TESTED, Start, start_of, what_is_lost

PAGE = Path(__file__).parents[3] / "docs" / "ray_versions.md"
SERVES = """
import json, os, subprocess, sys
import numpy as np
import psutil
import distxla as dx
from pathlib import Path
from distxla.runtime.ray import access, versions
from distxla.runtime.ray.embedded import EmbeddedRay
if FAKED:
    versions.installed = lambda: FAKED
TEXT = '''HloModule m, replica_count=2
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }
ENTRY e { x = f32[4] parameter(0)
 ROOT r = f32[4] all-reduce(x), replica_groups={{0,1}}, to_apply=add }'''
STRANGER = "import sys; from distxla.runtime.ray import access; access._require_token(sys.argv[1])"
with dx.Cluster(replicas=2) as cluster:
    (first,), (second,) = cluster.compile(dx.parse(TEXT))([[np.ones(4, np.float32)], [np.full(4, 2, np.float32)]])
    running = access.running.ray
    if isinstance(running, EmbeddedRay):
        address = Path(running.place.introduced).read_text().split()[0]
    else:
        import ray
        address = ray.get_runtime_context().gcs_address
    listening = set()
    processes = psutil.Process().children(recursive=True)
    for process in processes:
        listening |= {c.laddr.ip for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN}

    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    command = [sys.executable, "-c", STRANGER, address]
    stranger = subprocess.run(command, env=environment, capture_output=True, text=True)
    sums = [np.asarray(first).tolist(), np.asarray(second).tolist()]
left = psutil.wait_procs(processes, timeout=20)[1]
print(json.dumps({"sums": sums, "listening": sorted(listening), "stranger": stranger.stderr, "left": len(left)}))
"""


def _assert_serves(faked: str | None) -> str:
    """A small program runs, on loopback, closed to strangers where there are tokens. Returns stderr."""
    script = SERVES.replace("FAKED", repr(faked))
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=280)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found["sums"] == [[3.0] * 4] * 2
    assert set(found["listening"]) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    assert found["left"] == 0
    if _minor(versions.installed()) >= (2, 52):
        assert "admits only clients with its token" in found["stranger"]
    return ended.stderr


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


@pytest.mark.parametrize("minor", TESTED)
def test_patch_releases_are_started_as_their_minor_version(minor: str) -> None:
    assert {start_of(f"{minor}.{patch}") for patch in ("0", "1", "9", "0rc1", "1.dev0")} == {TESTED[minor]}


@pytest.mark.parametrize("unknown", ["1.13.0", "2.5.0", "2.49.2", "2.61.0", "2.600.0", "3.0.0", "nightly"])
def test_others_are_started_by_ray(unknown: str) -> None:
    assert start_of(unknown) is Start.INIT


@pytest.mark.parametrize(("version", "kind"), [("2.60.0", EmbeddedRay), ("2.50.1", PlainRay), ("7.0.0", PlainRay)])
def test_the_version_decides(version: str, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "installed", lambda: version)
    made = access.new_ray()
    made.close()
    assert type(made) is kind


def test_a_line_says_what_is_lost() -> None:
    text = what_is_lost("2.61.0", tokens=True)
    assert text.startswith("Ray 2.61.0 is started by ray.init, which takes longer and more memory a replica")
    assert "2.55 to 2.60" in text
    assert "run code as you" not in text
    assert "other users of this machine can use it and run code as you" in what_is_lost("2.50.1", tokens=False)


def test_the_page_has_the_table() -> None:
    rows = re.findall(r"^\| (2\.\d+)\S* \| `(distxla|ray\.init)` ", PAGE.read_text(), re.MULTILINE)
    assert dict(rows) == {minor: start.value for minor, start in TESTED.items()}


def test_the_package_takes_every_tested_version() -> None:
    (bound,) = [line for line in requires("distxla") or [] if re.match(r"ray\b", line)]
    assert bound.partition(";")[0].replace(" ", "") == f"ray>={next(iter(TESTED))}"


@pytest.mark.exhaustive
@pytest.mark.cluster
def test_the_installed_version_serves() -> None:
    said = _assert_serves(None)
    assert (start_of(versions.installed()) is Start.INIT) == ("is started by ray.init" in said)


@pytest.mark.exhaustive
@pytest.mark.cluster
@pytest.mark.slow
def test_a_version_of_tomorrow_serves() -> None:
    said = _assert_serves("9.9.0")
    assert said.count("is started by ray.init") == 1


KILLED = """
import os, tempfile, sys
tempfile.tempdir = sys.argv[1]
from distxla.runtime.ray import access, versions
versions.installed = lambda: "9.9.0"
import distxla as dx
with dx.Cluster(replicas=1) as cluster:
    cluster.wait_started()
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.mark.exhaustive
@pytest.mark.cluster
@pytest.mark.slow
def test_nothing_is_left_of_a_version_of_tomorrow_when_its_driver_is_killed() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="d-") as folder:
        command = [sys.executable, "-c", KILLED, folder]
        driver = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        with driver:
            assert driver.stdout is not None
            assert driver.stdout.readline() == "ready\n"
            below = psutil.Process(driver.pid).children(recursive=True)
            driver.kill()
        assert psutil.wait_procs(below, timeout=30)[1] == []
        assert os.listdir(folder) == []
