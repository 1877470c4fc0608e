"""`--custom-call`: what it takes, what it refuses, and what a failing routine looks like. No cluster but where said."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import distxla as dx
from distxla.cli.main import main
from distxla.errors import ArgumentError
from distxla.ops.custom_calls.user import unregister_custom_call
from tests.cli.called import call
from tests.runtime.shared_library import build

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


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder. What a command registers and imports for its process is forgotten after the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "call.hlo").write_text(MODULE)
    (tmp_path / "routines_of_test.py").write_text(ROUTINES)
    arrays = {"arg0": np.arange(4, dtype=np.float32), "arg1": np.ones(4, np.float32)}
    np.savez(tmp_path / "args.npz", **arrays)
    np.savez(tmp_path / "expected.npz", out0=2 * arrays["arg0"] + 1)
    yield tmp_path
    with suppress(ArgumentError):
        unregister_custom_call("f")
    sys.modules.pop("routines_of_test", None)


RUN = ("run", "call.hlo", "--args", "args.npz", "--expected", "expected.npz")
DISTXLA = str(Path(sys.executable).with_name("distxla"))


def in_its_own_process(*options: str) -> subprocess.CompletedProcess[str]:
    """A run with a Ray that starts in the current folder, as its replicas do then."""
    return subprocess.run([DISTXLA, *RUN, *options], capture_output=True, text=True, timeout=120, check=False)


def test_check_says_what_is_missing_and_takes_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    status, printed, _ = call(capsys, "check", "call.hlo")
    assert status == 2
    assert 'r: nothing executes the custom-call target "f"; register it with' in printed
    assert call(capsys, "check", "call.hlo", "--custom-call", "f=routines_of_test:double")[1].endswith("  ok\n")


def test_check_has_one_line_for_each_target(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = [("b", "a, y", "g"), ("ROOT r", "b, a", "f")]
    lines = [f'  {name} = f32[4] custom-call({operands}), custom_call_target="{f}"\n' for name, operands, f in more]
    (folder / "again.hlo").write_text(MODULE.replace("ROOT r", "a").removesuffix("}\n") + "".join(lines) + "}\n")
    status, printed, _ = call(capsys, "check", "again.hlo")
    assert status == 2
    lines = [line for line in printed.splitlines() if "nothing executes" in line]
    assert [line.partition("; ")[0] for line in lines] == [
        '  a and 1 other: nothing executes the custom-call target "f"',
        '  b: nothing executes the custom-call target "g"',
    ]
    assert lines[0].endswith("(again.hlo:5:14)")
    found = json.loads(call(capsys, "check", "again.hlo", "--json")[1])
    assert [refused["instruction"] for refused in found["refused"]] == ["a", "b", "r"]


STUBBED = """HloModule stubbed, replica_count=2
ENTRY main {
  x = f32[3] parameter(0)
  c = (f32[3], s32[], (bf16[2], pred[])) custom-call(x), custom_call_target="f"
  y = f32[3] get-tuple-element(c), index=0
  n = s32[] get-tuple-element(c), index=1
  d = (bf16[2], pred[]) get-tuple-element(c), index=2
  h = bf16[2] get-tuple-element(d), index=0
  z = f32[3] add(x, y)
  ROOT r = (f32[3], s32[], bf16[2]) tuple(z, n, h)
}"""
STUB = ("stubbed.hlo", "--stub-custom-call", "f=zeros")


def test_a_stub_gives_zeros_and_the_summary_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "stubbed.hlo").write_text(STUBBED)
    assert call(capsys, "check", *STUB)[0] == 0
    np.savez(folder / "whole.npz", arg0=np.arange(3, dtype=np.float32))
    run = "run", *STUB, "--args", "whole.npz", "--backend", "reference", "--out", "o.npz"
    status, printed, errors = call(capsys, *run)
    assert (status, errors) == (0, "")
    assert "\n  stubs      zeros instead of what custom-calls of f compute\n" in printed
    found = np.load(folder / "o.npz")
    assert [found[f"out{k}@1"].tolist() for k in range(3)] == [[0, 1, 2], 0, [0, 0]]
    assert json.loads(call(capsys, *run, "--json")[1])["stubs"] == ["f"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--stub-custom-call", "f"], "--stub-custom-call f: expected NAME=zeros"),
        (["--stub-custom-call", "f=ones"], "--stub-custom-call f=ones: expected NAME=zeros"),
        (["--stub-custom-call", "Sharding=zeros"], 'custom-call target "Sharding" comes with distxla'),
        (
            ["--stub-custom-call", "f=zeros", "--custom-call", "f=routines_of_test:double"],
            '--custom-call names the target "f" twice',
        ),
    ],
)
def test_stubs_that_cannot_be_had(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, errors = call(capsys, "check", "call.hlo", *options)
    assert (status, errors) == (2, f"error: argument: {message}\n")


@pytest.mark.cluster
@pytest.mark.devices(replicas=2, partitions=1)
def test_compiled_stubs_give_zeros(cluster: dx.Cluster) -> None:
    dx.register_custom_call("f", stub="zeros")
    x = np.arange(3, dtype=np.float32)
    for row in cluster.compile(dx.parse(STUBBED))([[x], [x]]):
        assert [np.asarray(leaf).tolist() for leaf in row] == [[0, 1, 2], 0, [0, 0]]


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("routine", ["routines_of_test:double", "routines_of_test:Holder.inside", "LIBRARY:saxpy"])
def test_the_reference_runs_them_too(folder: Path, routine: str, capsys: pytest.CaptureFixture[str]) -> None:
    if routine.startswith("LIBRARY"):
        build(folder)
    option = "f=" + routine.replace("LIBRARY", "./libroutines.so")
    status, _, errors = call(capsys, *RUN, "--backend", "reference", "--custom-call", option)
    assert status == 0, errors


@pytest.mark.exhaustive  # test_cluster_runs.py interrupts a run with such a function
@pytest.mark.cluster
def test_functions_of_the_current_folder_reach_the_replicas() -> None:
    run = in_its_own_process("--replicas", "2", "--compare", "reference", "--custom-call", "f=routines_of_test:double")
    assert run.returncode == 0, run.stderr
    assert "agrees with the reference" in run.stdout


@pytest.mark.exhaustive
@pytest.mark.cluster
def test_a_failing_function_is_one_message_with_its_traceback() -> None:
    run = in_its_own_process("--custom-call", "f=routines_of_test:fail")
    assert run.returncode == 1
    lines = run.stderr.splitlines()
    assert lines[0] == 'call.hlo:5:8: error: execution: r on device 0: "f" raised LookupError: nothing here'
    assert any('routines_of_test.py", line 8, in fail' in line for line in lines)
    assert run.stderr.count("Traceback") == 1


@pytest.mark.cluster
def test_a_crash_is_one_message_and_status_4(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(folder)
    status, _, errors = call(capsys, *RUN, "--replicas", "2", "--custom-call", "f=./libroutines.so:crash")
    assert status == 4, errors
    assert errors.startswith("call.hlo:5:8: error: lost: the replica of device")
    assert "by SIGSEGV (at address 0x0) in r" in errors
    assert "Traceback" not in errors


def test_compile_takes_it(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["compile", "call.hlo", "--emit", "buffers", "--custom-call", "f=routines_of_test:double"])
    printed, errors = capsysbinary.readouterr()
    assert ended.value.code == 0, errors
    assert b"r (custom-call)" in printed


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
def test_what_cannot_be_had_is_told_before_anything_starts(
    option: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, printed, errors = call(capsys, *RUN, "--custom-call", option)
    assert status == 2
    assert message in errors
    assert printed == ""
