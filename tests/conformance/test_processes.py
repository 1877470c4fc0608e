"""`distxla conformance` with commands that are real processes: a shell that copies what is expected, or does not."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from distxla.conformance.suite import all_cases
from tests.cli.called import call

# sh -c SCRIPT sh MODULE ARGS OUT
COPIES = 'cp "$(dirname "$1")/expected.npz" "$3"'
COPIES_BATCH = 'cp "$(dirname "$m")/expected.npz" "$o"; echo ok'
PAIRS = "all-reduce/pairs"  # a few cases


def shell(script: str) -> list[str]:
    return ["--", "sh", "-c", script, "sh"]


def batch(script: str) -> list[str]:
    """A script that is run for each line, with $m, $a and $o."""
    return ["--batch", "--", "sh", "-c", f"while IFS='\t' read -r m a o; do {script}; done"]


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    status, printed, errors = call(capsys, "conformance", *args)
    return status, errors + printed


COUNT = len([case for case in all_cases() if case.name.startswith(f"{PAIRS}/")])


@pytest.mark.parametrize("words", [shell(COPIES), batch(COPIES_BATCH)], ids=["each", "batch"])
@pytest.mark.parametrize("jobs", ["1", "3"])
def test_all_the_same(words: list[str], jobs: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--only", PAIRS, "--jobs", jobs, *words) == (0, f"{COUNT} cases: {COUNT} the same\n")


def test_words_with_placeholders(capsys: pytest.CaptureFixture[str]) -> None:
    script = 'test "$2 $3" = "2 3" && cp "$(dirname {module})/expected.npz" {out} && test -f {args}'
    words = ["--", "sh", "-c", script, "sh", "x", "{replicas}", "{partitions}"]
    assert run(capsys, "--only", "ids/both/u32/gathered", *words) == (0, "1 case: 1 the same\n")


def test_the_executor_works_in_the_callers_folder_and_files_are_gone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "--only", "ids/replicas", *shell(f'{COPIES}; pwd > where; echo "$1" >> where'))[0] == 0
    where, module = (tmp_path / "where").read_text().split()
    assert where == str(tmp_path)
    assert not Path(module).parent.exists()


ONE = ["--only", "ids/replicas/u32/replica-and-partition"]
NAME = ONE[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (shell("echo Error: no such thing >&2; echo trace >&2; exit 3"), "refused: Error: no such thing"),
        (shell("echo; echo at last; exit 3"), "refused: at last"),
        (shell("exit 3"), "refused: exit status 3, without a word"),
        (shell("echo begun; kill -9 $$"), "crashed: it was ended by SIGKILL: begun"),
        (shell("kill -SEGV $$"), "crashed: it was ended by SIGSEGV"),
        (shell(":"), "no results: it has written no out.npz"),
        (shell('cp "$2" "$3"'), "no results: it has written no out0@0"),
        (shell('echo > "$3"'), "no results: out.npz is not an .npz file, or it is cut short"),
        (["--time-limit", "0.3", *shell("echo busy; sleep 100")], "time limit: it has not ended after 0.3 s: busy"),
        (batch('echo "error:  no $(basename $m)"'), "refused: no module.hlo"),
        (batch("echo about this >&2; kill -9 $$"), "crashed: it was ended by SIGKILL: about this"),
        (batch("exit 3"), "refused: exit status 3, without a word"),
        (batch("exit 0"), "crashed: it has closed its stdout without an answer"),
        (batch("echo ok"), "no results: it has written no out.npz"),
        (["--time-limit", "0.3", *batch("sleep 100")], "time limit: it has not ended after 0.3 s"),
        (["--time-limit", "0.3", *batch("yes")], "time limit: it has not ended after 0.3 s"),
        (["--batch", "--", "true"], "crashed: it has closed its stdout without an answer"),
    ],
    ids=lambda value: shlex.join(value) if isinstance(value, list) else "",
)
def test_what_an_executor_does_not_run(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    kind = said.partition(":")[0]
    status, printed = run(capsys, *ONE, *words)
    assert status == 1
    assert printed == f"{NAME}  {said}\n1 case: 1 {kind}\n"


def test_lines_that_are_no_answers(capsys: pytest.CaptureFixture[str]) -> None:
    """And several in one write."""
    status, printed = run(capsys, *ONE, *batch(f"echo okay; printf 'compiling\\n\\n'; {COPIES_BATCH}"))
    assert (status, printed) == (0, "1 case: 1 the same\n")


def test_after_a_crash_the_others_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The process is started again, and the words of an earlier case aren't this one's."""
    script = f'case "$m" in */f16/add-rounded/*) echo f16 >&2; kill -9 $$;; */f64/*) exit 4;; esac; {COPIES_BATCH}'
    status, printed = run(capsys, "--only", PAIRS, "--keep", str(tmp_path), *batch(script))
    lines = printed.splitlines()
    assert status == 1
    assert lines[0] == "all-reduce/pairs/f16/add-rounded  crashed: it was ended by SIGKILL: f16"
    assert lines[1].endswith("refused: exit status 4, without a word")
    assert lines[2] == f"{COUNT} cases: {COUNT - 2} the same, 1 refused, 1 crashed"
    assert (tmp_path / "all-reduce/pairs/f16/add-rounded/log.txt").read_text() == "f16\n"
    assert (tmp_path / "all-reduce/pairs/f64/add-rounded/log.txt").read_text() == ""


ADDS_ONE = """
import numpy as np, sys
found = dict(np.load(sys.argv[1].replace("module.hlo", "expected.npz")))
found["out0@2"] = found["out0@2"] + np.float32(1)
np.savez(sys.argv[3], **found)
"""


def test_the_table_of_differences(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--only", "all-reduce/all/f32/rank-0", "--", sys.executable, "-c", ADDS_ONE]
    status, printed = run(capsys, *words)
    head, row, last = printed.splitlines()
    assert status == 1
    assert head.split() == ["case", "first", "expected", "found", "elements"]
    name, first, expected, found, elements = row.split()
    assert (name, first, elements) == ("all-reduce/all/f32/rank-0", "out0@2", "1/1")
    assert float(found) == float(expected) + 1
    assert last == "1 case: 1 differs"


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--only", "ids", "--json", *shell(COPIES))[0] == 0
    status, printed, _ = call(capsys, "conformance", "--only", "ids", "--json", *shell("echo Error: no; exit 1"))
    data = json.loads(printed)
    assert status == 1
    assert (data["format"], data["same"], data["cases"], data["counts"]["refused"]) == (1, False, 6, 6)
    assert data["others"][0] == {
        "case": NAME, "kind": "refused", "message": "Error: no", "leaf": None, "device": None, "index": None,
        "expected": None, "found": None, "differing": 0, "size": 0,
    }  # fmt: skip


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    status, printed = run(capsys, "--list", "--only", "ids/replicas", "--only", "call")
    assert (status, printed) == (0, f"{NAME}\ncall/all-reduce/all/f32/max\n")
    status, printed = run(capsys, "--list", "--json", "--only", "call")
    assert json.loads(printed) == {"format": 1, "cases": ["call/all-reduce/all/f32/max"]}


def test_cases_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Such that `distxla run` gives what is expected."""
    status, printed = run(capsys, "--only", "send-recv/chain/s4", "--only", "ids/both", "--keep", str(tmp_path / "all"))
    assert status == 0
    assert printed.endswith(": 3 cases, each a folder with module.hlo, args.npz, expected.npz\n")
    folder = tmp_path / "all/send-recv/chain/s4/rank-2"
    assert sorted(os.listdir(folder)) == ["args.npz", "expected.npz", "module.hlo"]
    files = {name: str(folder / name) for name in os.listdir(folder)}
    given = ["--args", files["args.npz"], "--expected", files["expected.npz"], "--backend", "reference"]
    assert call(capsys, "run", files["module.hlo"], *given)[0] == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "usage: expected a command behind --, or --keep FOLDER, or --list"),
        (["--only", "nothing", "--", "true"], "argument: --only: no case is nothing or below it"),
        (["--skip", "*/nothing/*", "--", "true"], "argument: --skip: no case is */nothing/* or below it"),
        (["--only", "ids", "--skip", "ids", "--", "true"], "argument: no case is left"),
        ([*ONE, "--", "/no/such/command"], "argument: cannot start /no/such/command: No such file or directory"),
        ([*ONE, "--batch", "--", "/no/such/command"], "argument: cannot start /no/such/command: No such file"),
        (
            [*ONE, "--", "run", "{module}"],
            "usage: the command lacks {args}: it takes {module}, {args} and {out}, or none",
        ),
        ([*ONE, "--batch", "--", "run", "{out}"], "usage: --batch: the paths come on stdin, so {out} in the command"),
        ([*ONE, "--keep", "/dev/null/x", "--", "true"], "argument: cannot write /dev/null/x: Not a directory"),
        (["--jobs", "0", "--", "true"], "usage: invalid value for '--jobs'"),
    ],
    ids=lambda value: shlex.join(value) if isinstance(value, list) else "",
)
def test_bad_usage(args: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, printed = run(capsys, *args)
    assert status == 2
    assert printed.startswith(f"error: {said}"), printed


@pytest.mark.parametrize("form", ["each", "batch"])
def test_ctrl_c_ends_the_executor(form: str, tmp_path: Path) -> None:
    """And all that it has started."""
    script = f"echo $$ >> {tmp_path}/pids; sleep 1000 & echo $! >> {tmp_path}/pids; wait"
    words = shell(script) if form == "each" else batch(script)
    command = [sys.executable, "-m", "distxla", "conformance", *ONE, *words]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    pids = tmp_path / "pids"
    while not pids.exists() or len(pids.read_text().splitlines()) < 2:
        assert running.poll() is None, running.communicate()
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    printed, errors = running.communicate(timeout=60)
    assert (running.returncode, printed, errors.strip()) == (130, "", "interrupted")
    end = time.monotonic() + 20
    while (left := [pid for pid in pids.read_text().split() if is_alive(pid)]) and time.monotonic() < end:
        time.sleep(0.02)
    assert left == []


@pytest.mark.parametrize("form", ["each", "batch"])
def test_what_an_executor_leaves_behind_ends(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left = f"sleep 1000 & echo $! >> {tmp_path}/pids"
    words = shell(f"{left}; {COPIES}") if form == "each" else batch(f"{left}; {COPIES_BATCH}")
    assert run(capsys, "--only", "ids/replicas", "--only", "call", *words) == (0, "2 cases: 2 the same\n")
    pids = (tmp_path / "pids").read_text().split()
    end = time.monotonic() + 20
    while any(map(is_alive, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    assert [pid for pid in pids if is_alive(pid)] == []


def is_alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
