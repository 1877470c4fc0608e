"""`--custom-call`: what it takes, what it refuses, and what a failing routine looks like. No cluster but where said."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.runtime.shared_library import build

DISTXLA = str(Path(sys.executable).with_name("distxla"))
MODULE = """HloModule call
ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  ROOT r = f32[4] custom-call(x, y), custom_call_target="f"
}
"""
ROUTINES = """
import numpy as np

def double(x, y):
    return 2 * x + y

def fail(x, y):
    raise LookupError("nothing here")

class Holder:
    inside = staticmethod(double)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "call.hlo").write_text(MODULE)
    (tmp_path / "routines_of_test.py").write_text(ROUTINES)
    arrays = {"arg0": np.arange(4, dtype=np.float32), "arg1": np.ones(4, np.float32)}
    np.savez(tmp_path / "args.npz", **arrays)
    np.savez(tmp_path / "expected.npz", out0=2 * arrays["arg0"] + 1)
    return tmp_path


def distxla(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([DISTXLA, *args], cwd=folder, capture_output=True, text=True, timeout=120, check=False)


RUN = ("run", "call.hlo", "--args", "args.npz", "--expected", "expected.npz")


def test_check_says_what_is_missing_and_takes_the_option(folder: Path) -> None:
    bare = distxla(folder, "check", "call.hlo")
    assert bare.returncode == 2
    assert 'r: nothing executes the custom-call target "f"; register it with' in bare.stdout
    told = distxla(folder, "check", "call.hlo", "--custom-call", "f=routines_of_test:double")
    assert told.stdout.endswith("  ok\n")


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("routine", ["routines_of_test:double", "routines_of_test:Holder.inside", "LIBRARY:saxpy"])
def test_the_reference_runs_them_too(folder: Path, routine: str) -> None:
    if routine.startswith("LIBRARY"):
        build(folder)
    option = "f=" + routine.replace("LIBRARY", "./libroutines.so")
    run = distxla(folder, *RUN, "--backend", "reference", "--custom-call", option)
    assert run.returncode == 0, run.stderr


@pytest.mark.cluster
def test_functions_of_the_current_folder_reach_the_replicas(folder: Path) -> None:
    run = distxla(
        folder, *RUN, "--replicas", "2", "--compare", "reference", "--custom-call", "f=routines_of_test:double"
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.exhaustive
@pytest.mark.cluster
def test_a_failing_function_is_one_message_with_its_traceback(folder: Path) -> None:
    run = distxla(folder, *RUN, "--custom-call", "f=routines_of_test:fail")
    assert run.returncode == 1
    lines = run.stderr.splitlines()
    assert lines[0] == 'call.hlo:5:8: error: execution: r on device 0: "f" raised LookupError: nothing here'
    assert any('routines_of_test.py", line 8, in fail' in line for line in lines)
    assert run.stderr.count("Traceback") == 1


@pytest.mark.cluster
def test_a_crash_is_one_message_and_status_4(folder: Path) -> None:
    build(folder)
    run = distxla(folder, *RUN, "--replicas", "2", "--custom-call", "f=./libroutines.so:crash")
    assert run.returncode == 4, run.stderr
    assert run.stderr.startswith("call.hlo:5:8: error: lost: the replica of device")
    assert "by SIGSEGV (at address 0x0) in r" in run.stderr
    assert "Traceback" not in run.stderr


def test_compile_takes_it(folder: Path) -> None:
    run = distxla(folder, "compile", "call.hlo", "--emit", "buffers", "--custom-call", "f=routines_of_test:double")
    assert run.returncode == 0, run.stderr
    assert "r (custom-call)" in run.stdout


@pytest.mark.sampled(one_in=8)
@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("f", "expected NAME=LIBRARY.so:SYMBOL or NAME=package.module:function"),
        ("f=libroutines.so", "expected NAME="),
        ("f=nowhere_at_all:f", "cannot import nowhere_at_all: ModuleNotFoundError"),
        ("f=routines_of_test:missing", "routines_of_test has no missing"),
        ("f=./nowhere.so:f", "cannot load "),
        ("f=libc.so.6:no_such_symbol", "libc.so.6 has no symbol 'no_such_symbol'"),
        ("TopK=routines_of_test:double", "comes with distxla"),
    ],
)
def test_what_cannot_be_had_is_told_before_anything_starts(folder: Path, option: str, message: str) -> None:
    run = distxla(folder, *RUN, "--custom-call", option)
    assert run.returncode == 2
    assert message in run.stderr
    assert run.stdout == ""
