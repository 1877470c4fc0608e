"""Machines that lack something that an embedded Ray needs: one line names it, at once, and nothing is left."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from distxla.errors import ClusterError
from distxla.machine.shortages import PROCESSES
from distxla.runtime.ray import machine
from tests.conftest import require_ended, started_processes

DISTXLA = str(Path(sys.executable).with_name("distxla"))
MODULE = "HloModule m, replica_count=2\nENTRY e { x = f32[2] parameter(0)\n ROOT y = f32[2] add(x, x) }\n"

pytestmark = pytest.mark.cluster


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "private").mkdir()
    (tmp_path / "m.hlo").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "private"))
    return tmp_path


def in_shell(text: str) -> tuple[int, str, str]:
    before = started_processes()
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False, timeout=120)
    require_ended(before, Path("private"))
    return done.returncode, done.stdout, done.stderr


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("limit", [8, 16, 32, 48])
def test_too_few_descriptors(limit: int) -> None:
    status, printed, errors = in_shell(f"ulimit -n {limit}; {DISTXLA} run m.hlo")
    few = (
        r"error: cluster: the compile server cannot be started: a process may open no more files \(see `ulimit -n`\)\n"
    )
    known = rf"error: cluster: the embedded Ray needs 6\d open files a process for 2 devices; the limit is {limit} "
    assert (status, printed) == (1, "")
    assert re.fullmatch(few if limit == 8 else known + r"\(ulimit -n\)\n", errors)


@pytest.mark.exhaustive
def test_a_soft_limit_is_raised() -> None:
    status, _, errors = in_shell(f"ulimit -Sn 32; {DISTXLA} run m.hlo")
    assert (status, errors) == (0, "")


@pytest.mark.exhaustive
def test_what_starts_no_ray_needs_few_descriptors() -> None:
    status, printed, errors = in_shell(f"ulimit -n 12; {DISTXLA} check m.hlo && {DISTXLA} compile m.hlo")
    assert (status, errors) == (0, "")
    assert "ok\n" in printed


@pytest.mark.parametrize(
    ("kibibytes", "message"),
    [
        (0, r"(the embedded Ray has files of .*; the limit is 0 KiB \(ulimit -f\)|there can be no memory file of .*)"),
        (1000, r"the embedded Ray has files of 96 MiB; the limit is 1000 KiB \(ulimit -f\)"),
        (100000, r"there can be no memory file of \d+ KiB: a process may have no larger files \(see `ulimit -f`\)"),
    ],
)
def test_small_files(kibibytes: int, message: str) -> None:
    status, printed, errors = in_shell(f"ulimit -f {kibibytes}; {DISTXLA} run m.hlo")
    assert (status, printed) == (1, "")
    assert re.fullmatch(rf"error: cluster: {message}\n", errors), errors


def test_an_output_file_that_may_not_be_so_large() -> None:
    Path("large.hlo").write_text(MODULE.replace("[2]", "[9999]"))
    status, printed, errors = in_shell(
        f"ulimit -f 8; {DISTXLA} run large.hlo --backend reference --out out.npz --generate"
    )
    assert (status, printed) == (2, "")
    assert errors == "error: argument: cannot write out.npz: a process may have no larger files (see `ulimit -f`)\n"


def test_no_loopback_interface() -> None:
    """A network namespace of its own has one that is down."""
    unshare = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-r", "-n"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no network namespace")
    status, printed, errors = in_shell(f"{' '.join(unshare)} {DISTXLA} run m.hlo")
    assert (status, printed) == (1, "")
    assert errors == (
        "error: cluster: the embedded Ray needs the loopback interface, but 127.0.0.1 cannot be reached: "
        "Network is unreachable (ip link set lo up)\n"
    )


def test_a_full_disk() -> None:
    """A small file system in a mount namespace of its own."""
    unshare = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-r", "-m"]
    mount = "mount -t tmpfs -o size=64k tmpfs private"
    if subprocess.run([*unshare, "sh", "-c", mount], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no mount namespace")
    status, printed, errors = in_shell(f"{' '.join(unshare)} sh -c '{mount} && exec {DISTXLA} run m.hlo'")
    assert (status, printed) == (1, "")
    folder = Path("private").resolve()
    assert errors == (
        f"error: cluster: the embedded Ray writes to {folder}, where only 64 KiB are free; make room, or set TMPDIR\n"
    )


@pytest.mark.parametrize("limit", [1, 4, 9])
def test_too_few_processes(limit: int) -> None:
    """The limit binds users other than root: here one that may read what root may. Which process is the first that
    can't start depends on their speed."""
    user, may = 64320 + limit, "+dac_override,+dac_read_search"
    other = f"setpriv --reuid {user} --regid {user} --clear-groups --inh-caps {may} --ambient-caps {may}"
    if subprocess.run([*other.split(), "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no process of another user")
    status, printed, errors = in_shell(f"ulimit -u {limit}; HOME=$PWD/private {other} {DISTXLA} run m.hlo")
    assert (status, printed) == (1, "")
    compiler = "error: compile: the compile server ended with exit status 1: RuntimeError: can't start new thread"
    assert re.fullmatch(rf"error: cluster: .*: {re.escape(PROCESSES)}\n|{re.escape(compiler)}\n", errors), errors


def test_no_proc() -> None:
    """An empty file system in its place, in a mount namespace of its own."""
    unshare = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-r", "-m"]
    mount = "mount -t tmpfs tmpfs /proc"
    if subprocess.run([*unshare, "sh", "-c", mount], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no mount namespace")
    inside = f"{' '.join(unshare)} sh -c '{mount} && exec {DISTXLA} run m.hlo"
    status, printed, errors = in_shell(f"{inside}'")
    assert (status, printed) == (1, "")
    assert (
        errors
        == "error: cluster: a cluster needs the file system /proc, which is not there (mount -t proc proc /proc)\n"
    )
    status, _, errors = in_shell(f"{inside} --backend reference'")
    assert (status, errors) == (0, "")


def test_more_devices_need_more_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = {resource.RLIMIT_NOFILE: (1024, 1024), resource.RLIMIT_FSIZE: (resource.RLIM_INFINITY,) * 2}
    monkeypatch.setattr(machine.resource, "getrlimit", limit.__getitem__)
    monkeypatch.setattr(machine.resource, "setrlimit", lambda *_: pytest.fail("the limit would do"))
    machine.require_startable(200)
    with pytest.raises(ClusterError, match=r"needs \d+ open files a process for 400 devices; the limit is 1024"):
        machine.require_startable(400)


def test_the_look_is_quick() -> None:
    begin = time.process_time()
    for _ in range(20):
        machine.require_startable(8)
    assert (time.process_time() - begin) / 20 < 0.01
