"""Unchanged JAX scripts below `distxla launch`: what they print, what is told, the exit status, and what is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from distxla.machine.processes import process_ids, status_fields
from tests.cli.launch_cases import Launch, left, owner_of
from tests.jax.pjrt.scripts import ROOT
from tests.jax.processes.group import free_port

BEGIN = """
import numpy as np, jax
from jax.sharding import NamedSharding, PartitionSpec as P
jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("x",))
whole = np.arange(jax.device_count(), dtype=np.float32) + 1
x = jax.make_array_from_callback(whole.shape, NamedSharding(mesh, P("x")), lambda index: whole[index])
def total(x): return x.sum()
def largest(x): return x.max()
total, largest = jax.jit(total), jax.jit(largest)
print("total", int(total(x)))
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "train.py"


def test_processes_that_agree_say_nothing_else_and_leave_nothing(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="l", dir="/tmp") as folder:  # of a name that leaves room for sockets'
        monkeypatch.setenv("TMPDIR", folder)
        status, out, err = Launch(BEGIN, script=script).end()
        assert (status, sorted(out.splitlines()), err) == (0, ["[0] total 3", "[1] total 3"], "")
        assert os.listdir(folder) == []


def test_jax_listens_on_this_machine_alone(script: Path) -> None:
    code = """
        import jax
        jax.distributed.initialize()
        sockets = {os.path.basename(os.path.realpath(entry.path)) for entry in os.scandir("/proc/self/fd")}
        rows = [line.split() for name in ("tcp", "tcp6") for line in open(f"/proc/self/net/{name}")]
        listening = [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]
        print("listens at", *sorted({address.partition(":")[0][-8:] for address in listening}))  # IPv6 maps IPv4
    """
    status, out, err = Launch(code, script=script).end()
    assert status == 0, err
    assert sorted(out.splitlines()) == ["[0] listens at 0100007F", "[1] listens at"]


def test_a_process_that_raises_is_told_to_the_others_and_gives_the_status(script: Path) -> None:
    code = BEGIN + 'if p == 1:\n    raise ValueError("data loader")\nprint(total(x))\n'
    status, _, err = Launch(code, script=script).end()
    assert status == 1
    assert (
        "lost: process 1 ends with ValueError: data loader (train.py:15), after its call 1; "
        "process 0 calls total (train.py:16), which needs it" in err
    )
    assert "error: process 1 failed first: it raised an exception: ValueError: data loader (train.py:15)" in err


def test_processes_that_disagree_end_with_3_and_a_report(script: Path, tmp_path: Path) -> None:
    code = BEGIN + "f, g = (total, largest) if p == 0 else (largest, total)\nf(x).block_until_ready()\n"
    page = tmp_path / "report.html"
    status, out, err = Launch(code, "--json", "--report", str(page), script=script).end()
    found = json.loads(out)
    assert (status, found["exit_status"], found["error"]["code"]) == (3, 3, "mismatch")
    said = "processes disagree in call 2 of processes 0 and 1: process 0 calls total (train.py:15), process 1 calls"
    assert found["error"]["message"].startswith(said)
    assert len(found["diagnosis"]["processes"]) == 2
    assert err.count(said) == 1  # in what both say
    assert "[0-1]" in err
    assert said in page.read_text()


@pytest.mark.exhaustive
def test_a_late_process_is_told_by_its_line_and_waited_for(script: Path) -> None:
    code = BEGIN + "if p == 1:\n    time.sleep(3)\nprint(int(largest(x)))\n"
    status, out, err = Launch(code, script=script).end()
    assert (status, out.count("] 2\n")) == (0, 2)
    assert "[0] distxla: process 0 waits for process 1: it is at train.py:15: time.sleep(3) [1." in err


@pytest.mark.exhaustive
def test_a_late_process_beyond_the_limit_ends_all_with_5(script: Path) -> None:
    code = BEGIN + "if p == 1:\n    time.sleep(600)\nprint(int(largest(x)))\n"
    status, _, err = Launch(code, "--stall-limit", "1.5", script=script).end()
    assert status == 5
    assert "time-limit: process 0 calls largest (train.py:16) and has waited for process 1 for 1.5 s" in err
    assert "note: process" in err.splitlines()[-1]


@pytest.mark.exhaustive
def test_a_breakpoint_is_told_and_goes_on(script: Path) -> None:
    launch = Launch(BEGIN + "if p == 0:\n    breakpoint()\nprint(int(largest(x)))\n", "--stdin", "0", script=script)
    # stdin is empty: the debugger ends its process at once
    status, _, err = launch.end()
    assert status == 1
    assert "bdb.BdbQuit" in err


@pytest.mark.exhaustive
def test_a_stopped_process_is_told_and_goes_on(script: Path) -> None:
    code = (
        BEGIN + "if p == 1:\n    print(os.getpid())\n    os.kill(os.getpid(), signal.SIGSTOP)\nprint(int(largest(x)))\n"
    )
    launch = Launch(code, script=script)
    (pid,) = [line.split()[1] for line in launch.lines(3) if line.split()[1].isdecimal()]
    assert launch.process.stderr is not None
    said = launch.process.stderr.readline().decode()
    assert said.startswith("[0] distxla: process 0 waits for process 1: it is stopped, until SIGCONT [1.")
    os.kill(int(pid), signal.SIGCONT)
    status, out, _ = launch.end()
    assert (status, out.count("] 2\n")) == (0, 2)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("raise ValueError('x')", "it raised an exception: ValueError: x (train.py:6)"),
        ("sys.exit(3)", "it ended before it had used its devices, for which process 0 waits"),
    ],
)
def test_a_process_that_ends_before_it_has_used_its_devices_is_told(script: Path, end: str, said: str) -> None:
    code = f"""
import jax
jax.distributed.initialize()
if p == 1: {end}
print(jax.numpy.ones(3).sum())
"""
    status, out, err = Launch(code, script=script).end()
    assert (status, out) == (1, "")
    assert f"error: process 1 failed first: {said}" in err.splitlines()
    assert "distxla: process 0 waits for process 1, which has not used its devices yet" in err


@pytest.mark.exhaustive
def test_a_debugger_of_one_process_has_the_terminal(script: Path) -> None:
    code = BEGIN + "if p == 1:\n    breakpoint()\nprint(int(largest(x)))\n"
    terminal, end = os.openpty()
    try:
        launch = Launch(code, "--stdin", "1", script=script, terminal=end)
        shown = b""
        while b"(Pdb) " not in shown:
            shown += os.read(terminal, 1 << 16)
        assert b"[1] (Pdb) " in shown
        assert launch.process.stderr is not None
        said = launch.process.stderr.readline().decode()
        assert said.startswith("[0] distxla: process 0 waits for process 1: it is at a breakpoint at train.py:1")
        os.write(terminal, b"p 1000 + p\nc\n")
        status, _, _ = launch.end()
        shown += os.read(terminal, 1 << 16)
    finally:
        os.close(terminal)
        os.close(end)
    assert (status, b"1001" in shown, b"[0] 2\r\n" in shown) == (0, True, True)


LONG = """
def spin(x):
    return jax.lax.fori_loop(0, 20000, lambda k, v: jax.lax.psum(v, "x") / 2, x)
spin = jax.jit(jax.shard_map(spin, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False))
print("spins", os.getpid())
spin(x)
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("amid", [False, True])
def test_a_process_that_is_killed_is_told_by_its_signal(script: Path, amid: bool) -> None:
    code = BEGIN + (LONG if amid else "") + "if p == 1:\n    os.kill(os.getpid(), 9)\nprint(total(x))\n"
    status, _, err = Launch(code, script=script).end()
    assert status == 128 + 9, err
    assert "lost: process 1 was ended by SIGKILL after its call " in err
    assert "error: process 1 failed first: it was ended by SIGKILL" in err.splitlines()


@pytest.mark.exhaustive
def test_the_end_of_process_0_is_told_too(script: Path) -> None:
    """JAX's own client aborts the others then."""
    code = BEGIN + "if p == 0:\n    time.sleep(0.5)\n    os.kill(os.getpid(), 9)\nprint(total(x))\n"
    status, _, err = Launch(code, script=script).end()
    assert status == 128 + 9
    assert "lost: process 0 was ended by SIGKILL after its call 1 (total, train.py:13)" in err


@pytest.mark.exhaustive
@pytest.mark.parametrize("victim", ["owner", "replica"])
def test_the_end_of_the_owner_and_of_a_device_is_4(script: Path, victim: str) -> None:
    launch = Launch(
        BEGIN + "for k in range(10**6):\n    time.sleep(0.01)\n    total(x).block_until_ready()\n", script=script
    )
    launch.lines(2)
    owner = owner_of(launch)
    os.kill(owner if victim == "owner" else replicas_of(owner)[0], signal.SIGKILL)
    status, _, err = launch.end()
    assert status == 4
    assert ("the process that owns the devices" if victim == "owner" else "lost: ") in err
    assert "SIGKILL" in err


def replicas_of(owner: int) -> list[int]:
    """Processes of devices below it."""
    parents = {}
    for process in process_ids():
        try:
            parents[process] = int(status_fields(process)[1])
            name = Path(f"/proc/{process}/cmdline").read_bytes()
        except OSError:
            continue
        if b"Replica" not in name:
            parents[process] = -parents[process]
    found = []
    for process, parent in parents.items():
        above = process
        while above > 1 and above != owner:
            above = abs(parents.get(above, 1))
        if above == owner and parent > 0:
            found.append(process)
    assert found
    return found


def started(environments: list[dict[str, str]], code: str) -> list[tuple[int, str]]:
    """Processes without the launcher: status and output of each."""
    taken = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "OMPI_", "DISTXLA_"))}
    common = {**taken, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "distxla", "DISTXLA_DEVICES": "2"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env={**common, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for environment in environments
    ]
    outs = [process.communicate(timeout=120)[0] for process in processes]
    return [(process.returncode, out) for process, out in zip(processes, outs)]


@pytest.mark.exhaustive
def test_the_variables_of_slurm_are_enough() -> None:
    job = str(4096 * 7 + free_port() % 4000)
    common = {"SLURM_JOB_ID": job, "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2", "SLURM_STEP_NUM_NODES": "1"}
    given = [{**common, "SLURM_PROCID": str(p), "SLURM_LOCALID": str(p)} for p in range(2)]
    assert started(given, "p = 0\n" + BEGIN) == [(0, "total 10\n")] * 2


@pytest.mark.exhaustive
def test_the_variables_of_torchrun_are_enough_for_the_documented_call() -> None:
    port = str(free_port())
    given = [{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "RANK": str(p)} for p in range(2)]
    call = (
        "import os\njax.distributed.initialize(f\"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}\", "
        'int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"]))'
    )
    assert started(given, BEGIN.replace("jax.distributed.initialize()", call)) == [(0, "total 10\n")] * 2
    assert left() == []


def test_values_that_differ_between_processes_end_with_3(script: Path) -> None:
    code = """
        import numpy as np, jax
        from jax.sharding import NamedSharding, PartitionSpec as P
        jax.distributed.initialize()
        mesh = jax.make_mesh((jax.device_count(),), ("x",))
        x = jax.make_array_from_callback((3,), NamedSharding(mesh, P()), lambda index: np.full(3, p, np.float32))
        jax.jit(lambda v: v + 1)(x).block_until_ready()
    """
    status, _, err = Launch(code, "--check", "replication", script=script).end()
    assert status == 3
    assert "replication: arg0 is declared the same on devices 0, 1" in err
