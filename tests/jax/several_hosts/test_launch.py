"""`distxla launch --address`: processes on two hosts, their output and ends, and that nothing stays.

distxla/cli/remote_guard.py, distxla/cli/other_hosts.py, distxla/cli/guarded_processes.py,
distxla/cli/launch_environment.py, distxla/cli/launch_frames.py.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from distxla.cli.launch_outcome import Outcome
from distxla.cli.remote_guard import folder_of
from distxla.errors import ArgumentError
from distxla.machine.processes import command_line, process_ids
from tests.cli.launch_cases import Launch, await_end

pytestmark = pytest.mark.cluster

SUM = """
import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("x",))
whole = np.arange(jax.device_count(), dtype=np.float32)
x = jax.make_array_from_callback(whole.shape, NamedSharding(mesh, P("x")), lambda index: whole[index])


@jax.jit
def total(x):
    return x.sum()


print("total", float(total(x)), flush=True)
"""


def guards() -> list[int]:
    """The guards of other hosts than the launcher's."""
    found = []
    for process in process_ids():
        try:
            if b"distxla.cli.remote_guard" in command_line(process).split(b"\0"):
                found.append(process)
        except OSError:
            continue
    return found


def test_lines_environment_and_folder_of_both_hosts(address: str) -> None:
    launch = Launch(
        """
        import select
        print("of", os.environ["OMPI_COMM_WORLD_SIZE"], os.environ["OMPI_COMM_WORLD_LOCAL_RANK"], os.environ["MINE"])
        print("to stderr", file=sys.stderr)
        print(os.getcwd() == os.environ["PWD"], os.path.exists(os.environ["DISTXLA_OWNER"]), len(sys.stdin.read()))
        sys.exit(7 if p == 3 else 0)
        """,
        "--address",
        address,
        processes=4,
        stdin=b"in",
        MINE="yes",
        PWD=os.getcwd(),
    )
    status, out, err = launch.end()
    assert sorted(out.splitlines()) == sorted(
        line for p in range(4) for line in (f"[{p}] of 4 {p % 2} yes", f"[{p}] True True {2 * (p == 0)}")
    )
    assert status == 7
    assert sorted(line for line in err.splitlines() if "[" in line) == [f"[{p}] to stderr" for p in range(4)]
    assert "error: process 3 failed first: it exited with status 7" in err.splitlines()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_and_sigterm_end_all(address: str, number: signal.Signals, status: int) -> None:
    launch = Launch(
        """
        try:
            print("sleeps")
            time.sleep(600)
        except KeyboardInterrupt:
            print("stopped")
        """,
        "--address",
        address,
    )
    assert launch.lines(2) == ["[0] sleeps", "[1] sleeps"]
    launch.process.send_signal(number)
    found, out, _ = launch.end()
    assert found == status
    assert sorted(out.splitlines()) == (["[0] stopped", "[1] stopped"] if number is signal.SIGINT else [])


def test_nothing_stays_where_the_launcher_is_killed(address: str) -> None:
    launch = Launch("print('sleeps')\ntime.sleep(600)", "--address", address)
    launch.lines(2)
    launch.process.kill()
    launch.process.wait()
    await_end()


def test_a_lost_host_is_told_by_its_name(address: str) -> None:
    launch = Launch("print('sleeps')\ntime.sleep(600 if p else 0)", "--address", address)
    launch.lines(2)
    (guard,) = guards()
    os.kill(guard, signal.SIGKILL)
    status, _, err = launch.end()
    assert status == 4
    assert err.splitlines()[-1].startswith("error: lost: host 1 (")
    assert err.splitlines()[-1].endswith(") with process 1 can't be reached any more")


def test_jax_computes_on_both_hosts(address: str, tmp_path: Path) -> None:
    status, out, err = Launch(SUM, "--devices", "2", "--address", address, script=tmp_path / "sum.py").end()
    assert (status, sorted(out.splitlines())) == (0, ["[0] total 6.0", "[1] total 6.0"]), err


def test_a_killed_process_is_told_with_its_host(address: str, tmp_path: Path) -> None:
    code = SUM + "if p == 1:\n    os.kill(os.getpid(), signal.SIGKILL)\nprint(float(total(x)))"
    status, _, err = Launch(code, "--address", address, script=tmp_path / "kill.py").end()
    assert status == 128 + signal.SIGKILL
    assert "lost: process 1 was ended by SIGKILL on host 1 (" in err


def test_a_folder_of_a_job_is_found_on_another_node(tmp_path: Path) -> None:
    jobs = "runtime_resources/working_dir_files"
    (here := tmp_path / "here" / jobs / "package" / "inside").mkdir(parents=True)
    own = f"{tmp_path}/here/{jobs}/package"
    assert folder_of(str(tmp_path), own) == str(tmp_path)
    assert folder_of(f"/elsewhere/{jobs}/package/inside", own) == str(here)
    with pytest.raises(ArgumentError, match="there is no folder /elsewhere/x there"):
        folder_of("/elsewhere/x", own)


def test_the_outcome_of_a_lost_host() -> None:
    outcome = Outcome(3)
    outcome.has_ended(0, 0, 1.0)
    outcome.host_is_lost("host 1 (b)", [1, 2], 2.0)
    assert (outcome.running, outcome.status()) == ([], 4)
    assert outcome.lines(b"") == ["error: lost: host 1 (b) with processes 1 and 2 can't be reached any more"]
