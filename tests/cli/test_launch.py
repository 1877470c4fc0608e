"""`distxla launch` with commands that need no JAX.

Their output, its exit status, and that nothing stays: distxla/cli/launch.py, distxla/cli/launched.py,
distxla/cli/launch_guard.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.launch_cases import LIMIT_S, MARK, Launch, await_end, left, owner_of
from tests.jax.pjrt.scripts import ROOT


def test_lines_have_the_process_and_all_end_well() -> None:
    launch = Launch(
        """
        print("of", os.environ["OMPI_COMM_WORLD_SIZE"], os.environ["OMPI_COMM_WORLD_RANK"])
        print("to stderr", file=sys.stderr)
        names = ("JAX_PLATFORMS", "DISTXLA_DEVICES")
        print(*(os.environ[name] for name in names), "JAX_COORDINATOR_ADDRESS" in os.environ)
        """
    )
    status, out, err = launch.end()
    assert status == 0, err
    assert sorted(out.splitlines()) == ["[0] distxla 1 True", "[0] of 2 0", "[1] distxla 1 True", "[1] of 2 1"]
    assert sorted(err.splitlines()) == ["[0] to stderr", "[1] to stderr"]


def test_the_first_failure_gives_the_status_and_ends_the_others() -> None:
    launch = Launch(
        """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if p == 1:
            sys.exit(7)
        time.sleep(600)
        """
    )
    status, out, err = launch.end()
    assert (status, out) == (7, "")
    assert err.splitlines() == [
        "error: process 1 failed first: it exited with status 7",
        "note: process 0 was ended, 5 s after the first failure",
    ]


def test_a_signal_and_an_error_of_all() -> None:
    code = "def f():\n    raise ValueError('x')\nif p == 2:\n    time.sleep(0.5)\n    os.kill(os.getpid(), 9)\n"
    status, _, err = Launch(code + "os.write(2, b'Traceback (most recent call last):\\n  File \"t\"\\nE: x\\n')").end()
    assert status == 0
    assert err.splitlines() == ["[0-1] Traceback (most recent call last):", '[0-1]   File "t"', "[0-1] E: x"]
    status, _, err = Launch(code, processes=3).end()
    assert status == 128 + 9
    assert err.splitlines() == ["error: process 2 failed first: it was ended by SIGKILL"]


def test_json_is_the_only_output_on_stdout() -> None:
    status, out, err = Launch("print('hello'); sys.exit(3 * p)", "--json").end()
    found = json.loads(out)
    assert (status, found["exit_status"], [one["status"] for one in found["processes"]]) == (3, 3, [0, 3])
    assert {"[0] hello", "[1] hello"} <= set(err.splitlines())


def test_one_process_reads_stdin() -> None:
    code = "print(repr(sys.stdin.read()))"
    assert sorted(Launch(code, stdin=b"in\n").end()[1].splitlines()) == ["[0] 'in\\n'", "[1] ''"]
    assert sorted(Launch(code, "--stdin", "1", stdin=b"in\n").end()[1].splitlines()) == ["[0] ''", "[1] 'in\\n'"]


@pytest.mark.parametrize(
    ("number", "status", "said"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_ctrl_c_and_sigterm_end_all(number: signal.Signals, status: int, said: str) -> None:
    launch = Launch(
        """
        try:
            print("sleeps")
            time.sleep(600)
        except KeyboardInterrupt:
            print("stopped")
        """
    )
    assert launch.lines(2) == ["[0] sleeps", "[1] sleeps"]
    launch.process.send_signal(number)
    found, out, err = launch.end()
    assert (found, err.splitlines()[-1]) == (status, said)
    assert sorted(out.splitlines()) == (["[0] stopped", "[1] stopped"] if number is signal.SIGINT else [])


def test_pythons_start_is_the_users(tmp_path: Path) -> None:
    """distxla/cli/in_process/sitecustomize.py: what it was needed for is gone when the script begins."""
    (tmp_path / "sitecustomize.py").write_text("print('of the user')\n")
    code = """
        import sitecustomize
        print(sitecustomize.__file__)
        names = ("DISTXLA_LAUNCHER", "DISTXLA_PYTHONPATH")
        print(os.environ["PYTHONPATH"], [name for name in names if name in os.environ])
        print([path for path in sys.path if "in_process" in path])
    """
    launch = Launch(code, processes=1, script=tmp_path / "script.py", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    status, out, err = launch.end()
    assert status == 0, err
    assert [line for line in out.splitlines() if line.startswith("[0]")] == [
        "[0] of the user",
        f"[0] {tmp_path / 'sitecustomize.py'}",
        f"[0] {tmp_path}{os.pathsep}{ROOT} []",
        "[0] []",
    ]


def test_a_script_that_raises_says_so_before_its_process_has_ended(tmp_path: Path) -> None:
    code = """
        import atexit
        atexit.register(time.sleep, 600 * p)
        if p == 1:
            raise ValueError("data loader")
    """
    status, _, err = Launch(code, script=tmp_path / "script.py").end()
    assert status == 1
    assert err.splitlines()[-2:] == [
        "error: process 1 failed first: it raised an exception: ValueError: data loader (script.py:7)",
        "note: process 1 was ended, 5 s after the first failure",
    ]


SLEEPS = """
# one that is nobody's child any more, and one of another session
subprocess.Popen([sys.executable, "-c", "import os, time; os.fork() or (os.setsid(), time.sleep(600))"]).wait()
print("sleeps", os.getppid())
time.sleep(600 if p < 2 else 0)
"""


def test_what_processes_have_left_is_ended_with_them() -> None:
    status, out, _ = Launch("p = 2" + SLEEPS).end()
    assert (status, len(out.splitlines())) == (0, 2)


@pytest.mark.parametrize("victim", ["launcher", "guard", "owner"])
def test_nothing_stays_whoever_is_killed(victim: str) -> None:
    launch = Launch(SLEEPS)
    guard = {int(line.split()[-1]) for line in launch.lines(2)}
    assert len(guard) == 1
    if victim == "launcher":
        launch.process.kill()
    elif victim == "guard":
        os.kill(guard.pop(), signal.SIGKILL)
    else:
        os.kill(owner_of(launch), signal.SIGKILL)
    _, err = launch.process.communicate(timeout=LIMIT_S)
    await_end()
    expected = {"launcher": -9, "guard": 137, "owner": 4}[victim]
    assert launch.process.returncode == expected, err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            ["-n", "2", "--", "no-such-program"],
            "error: argument: cannot start no-such-program: No such file or directory",
        ),
        (
            ["-n", "2", "--processes-per-host", "1,2", "true"],
            "--processes-per-host: expected counts of 2 processes, as 2,2, found '1,2'",
        ),
        (["-n", "2", "--processes-per-host", "1,1", "true"], "there is one host without --address"),
        (["-n", "2", "--stdin", "2", "true"], "--stdin: expected a process, 0 to 1, or none, found '2'"),
        (["-n", "2", "--report", "/no/such/folder/r.html", "true"], "cannot write /no/such/folder/r.html"),
        (["-n", "2", "--check", "nans", "true"], "expected nan or replication, found 'nans'"),
        (["-n", "2"], "COMMAND"),
    ],
)
def test_what_cannot_be_launched_is_refused(args: list[str], said: str) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "distxla", "launch", *args],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MARK": MARK},
        check=False,
    )
    assert found.returncode == 2
    assert said in found.stderr
    assert left() == []
