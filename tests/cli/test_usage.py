"""Mistakes in the command line: what was meant is proposed; with --json one object tells of every failure."""

from __future__ import annotations

import io
import json
import os
import re
import signal
from pathlib import Path

import click
import numpy as np
import pytest

from distxla.cli import run
from distxla.cli.main import COMMANDS, main
from distxla.errors import ArgumentError
from distxla.runtime.cluster import Cluster

REPOSITORY = Path(__file__).resolve().parents[2]
MODULE = "ENTRY main {\n  x = f32[2] parameter(0)\n  ROOT y = f32[2] add(x, x)\n}\n"


def call(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    """Exit status, stdout, stderr."""
    with pytest.raises(SystemExit) as exit_:
        main(list(args))
    captured = capsys.readouterr()
    return int(exit_.value.code or 0), captured.out, captured.err


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("step.hlo").write_text(MODULE)
    np.savez("args.npz", arg0=np.zeros(2, np.float32))
    Path("far").mkdir()


TYPOS = [
    (["rum", "step.hlo"], "no such command: rum", "run"),
    (["chekc", "step.hlo"], "no such command: chekc", "check"),
    (["step.hlo"], "no such command: step.hlo", "distxla run step.hlo"),
    (["step.hlo@0-3"], "no such command: step.hlo@0-3", "distxla run step.hlo@0-3"),
    (["run", "step.hlo", "--replica", "2"], "no such option: --replica", "--replicas"),
    (["run", "step.hlo", "--argss", "args.npz"], "no such option: --argss", "--args"),
    (["check", "step.hlo", "--strickt"], "no such option: --strickt", "--strict"),
    (["compile", "step.hlo", "--emmit", "llvm"], "no such option: --emmit", "--emit"),
    (["run", "step.hlo", "--backend", "referense"], "'referense' is not one of", "reference"),
    (["run", "step.hlo", "--reduction-order", "rnk"], "'rnk' is not one of", "rank"),
    (["compile", "step.hlo", "--emit", "lvm"], "'lvm' is not one of", "llvm"),
    (["check", "stepp.hlo"], "cannot read stepp.hlo: No such file or directory", "step.hlo"),
    (["run", "setp.hlo@0"], "cannot read setp.hlo: No such file or directory", "step.hlo"),
    (["run", "step.hlo", "--args", "arg.npz"], "cannot read arg.npz: No such file or directory", "args.npz"),
    (["run", "step.hlo", "--expected", "./argz.npz"], "cannot read ./argz.npz: No such file", "args.npz"),
    (["ops", "transposed"], "HLO has no opcode 'transposed'", "transpose"),
]


@pytest.mark.parametrize(("args", "said", "near"), TYPOS, ids=[" ".join(args) for args, _, _ in TYPOS])
def test_what_was_meant_is_proposed(args: list[str], said: str, near: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, printed, errors = call(capsys, *args)
    assert (status, printed) == (2, "")
    assert said in errors.splitlines()[0]
    assert f"  hint: did you mean {near}?" in errors.splitlines()


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    _, printed, _ = call(capsys, "--help")
    assert call(capsys) == (2, "", printed)


def test_types_of_values_have_plain_names(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, errors = call(capsys, "run", "step.hlo", "--repeat", "x")
    assert errors.splitlines()[0] == "error: usage: invalid value for '--repeat': 'x' is not an integer"
    _, _, errors = call(capsys, "run", "step.hlo", "--time-limit", "soon")
    assert errors.splitlines()[0] == "error: usage: invalid value for '--time-limit': 'soon' is not a number"


@pytest.mark.parametrize(
    "args",
    [
        ["walk"],
        ["run", "step.hlo", "--frobnicate"],
        ["check", "far/x.hlo"],
        ["check", "nowhere/step.hlo"],
        ["ops", "zz"],
    ],
    ids=" ".join,
)
def test_nothing_is_proposed_where_nothing_is_near(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status, _, errors = call(capsys, *args)
    assert status == 2
    assert "did you mean" not in errors


FAILURES = [
    (["walk", "--json"], "usage", 2),
    (["run", "--json"], "usage", 2),
    (["run", "step.hlo", "--json", "--frobnicate"], "usage", 2),
    (["check", "--json", "--replicas", "none", "step.hlo"], "usage", 2),
    (["run", "step.hlo", "--repeat", "0", "--json"], "usage", 2),
    (["run", "step.hlo", "--devices-per-host", "x", "--json"], "usage", 2),
    (["compile", "step.hlo", "--json"], "usage", 2),
    (["run", "step.hlo", "--backend", "gpu", "--json"], "argument", 2),
    (["run", "setp.hlo", "--json"], "argument", 2),
    (["run", "step.hlo", "--out", "/nowhere/out.npz", "--json"], "argument", 2),
]


@pytest.mark.parametrize(("args", "code", "status"), FAILURES, ids=[" ".join(args) for args, _, _ in FAILURES])
def test_json_of_a_failure_is_one_object(
    args: list[str], code: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found, printed, errors = call(capsys, *args)
    error = json.loads(printed)["error"]
    assert (found, error["exit_status"], error["code"]) == (status, status, code)
    assert error["message"] in errors


def test_proposals_stand_in_the_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    error = json.loads(call(capsys, "run", "step.hlo", "--jsonn", "--json")[1])["error"]
    assert error["message"] == "no such option: --jsonn"
    assert error["notes"][0] == "hint: did you mean --json?"


class Unread(io.StringIO):
    """A pipe without a reader."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def fails_as(failure, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    """From here on reading a module fails in this way."""

    def fail(*_: object) -> None:
        value = failure()
        if value is not None:
            next(value)

    monkeypatch.setattr("distxla.cli.programs.read_world", fail)


@pytest.mark.parametrize(
    ("failure", "code", "status"),
    [
        (lambda: 1 / 0, "internal", 1),
        (lambda: (_ for _ in ()).throw(MemoryError()), "memory", 2),
        (lambda: os.kill(os.getpid(), signal.SIGINT), "interrupted", 130),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), "interrupted", 143),
    ],
    ids=["bug", "memory", "SIGINT", "SIGTERM"],
)
def test_json_of_what_no_error_of_a_module_is(  # type: ignore[no-untyped-def]
    failure, code: str, status: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fails_as(failure, monkeypatch)
    found, printed, _ = call(capsys, "run", "step.hlo", "--json")
    error = json.loads(printed)["error"]
    assert (found, error["exit_status"], error["code"]) == (status, status, code)


@pytest.mark.parametrize(
    ("failure", "status", "said"),
    [
        (lambda: (_ for _ in ()).throw(MemoryError()), 2, "error: memory: "),
        (lambda: os.kill(os.getpid(), signal.SIGINT), 130, "interrupted"),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), 143, "terminated"),
    ],
    ids=["memory", "SIGINT", "SIGTERM"],
)
def test_a_failure_is_told_on_stderr_if_nobody_reads_stdout(  # type: ignore[no-untyped-def]
    failure, status: int, said: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fails_as(failure, monkeypatch)
    monkeypatch.setattr("distxla.cli.terminal.lose_output", lambda error: None)
    monkeypatch.setattr("sys.stdout", Unread())
    found, _, errors = call(capfd, "run", "step.hlo", "--json")
    assert (found, said in errors) == (status, True)


@pytest.mark.parametrize(
    ("shell", "said"), [("bash", "complete -o"), ("zsh", "#compdef distxla"), ("fish", "complete")]
)
def test_scripts_for_completion(
    shell: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_DISTXLA_COMPLETE", f"{shell}_source")
    status, printed, _ = call(capsys)
    assert status == 0
    assert said in printed
    assert f"_DISTXLA_COMPLETE={shell}_complete" in printed


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (
            "distxla ",
            {f"plain,{name}" for name in COMMANDS},
        ),
        ("distxla run --rep", {"plain,--replicas", "plain,--repeat", "plain,--report"}),
        ("distxla run --backend ", {"plain,cpu", "plain,gpu", "plain,interpreted", "plain,reference"}),
        ("distxla run st", {"file,st"}),
        ("distxla run step.hlo --args a", {"file,a"}),
        ("distxla ops all-to", {"plain,all-to-all"}),
    ],
)
def test_what_is_completed(
    words: str, found: set[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_DISTXLA_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    assert set(call(capsys)[1].split()) == found


def test_the_lines_for_completion_are_those_of_the_documentation() -> None:
    root = Path(__file__).parent.parent.parent
    text = (root / "docs" / "command_line.md").read_text()
    assert set(re.findall(r"_DISTXLA_COMPLETE=(\w+)_source distxla", text)) == {"bash", "zsh", "fish"}


def test_the_options_of_run_stand_in_sections(capsys: pytest.CaptureFixture[str]) -> None:
    _, printed, _ = call(capsys, "run", "--help")
    sections = re.findall(r"^(\w+):$", printed, re.MULTILINE)
    assert sections == ["Programs", "Arguments", "Execution", "Hosts", "Results", "Comparison", "Other"]
    shown = re.findall(r"^  (?:-\w, )?(--[\w-]+)", printed, re.MULTILINE)
    options = [one for one in run.command.params if isinstance(one, click.Option)]
    assert sorted(shown) == sorted([*(option.opts[-1] for option in options), "--help"])
    assert re.findall(r"--\w+", printed.partition("\nOther:\n")[2]) == ["--help"]


def test_the_reference_is_no_backend_of_a_cluster() -> None:
    with pytest.raises(ArgumentError, match=r"it runs in this process, by `distxla\.reference\(module, args\)` or"):
        Cluster(backend="reference")
