"""JAX programs on a cluster as whole processes: with devices in JAX, interrupted, with a lost replica, left open."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster
ROOT = Path(__file__).parents[2]
BEGIN = """
import os, signal, sys, threading, time, jax, jax.numpy as jnp, numpy as np, distxla as dx, distxla.jax as dxj
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = dxj.make_mesh((2,), ("i",))
rows = NamedSharding(mesh, P("i"))
x = np.arange(8, dtype=np.float32)
cluster = dx.Cluster(partitions=2).start()
double = dxj.jit(lambda a: a * 2, cluster=cluster, in_shardings=rows)
endless = dxj.jit(lambda a: jax.lax.while_loop(lambda s: (s < 9).any(), lambda s: jnp.sin(s), a), cluster=cluster,
                  in_shardings=rows)

def interrupt_amid_a_wait():  # Ctrl-C, once the main thread waits for a call
    main = threading.main_thread().ident
    while sys._current_frames()[main].f_code.co_qualname != "PendingCall._block":
        time.sleep(0.01)
    time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGINT)
"""


def started(text: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BEGIN + text],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), **environment},
    )


def ended(process: subprocess.Popen[str], seconds: float) -> tuple[str, str]:
    """What it writes until it ends by itself; a process that takes longer is killed."""
    try:
        return process.communicate(timeout=seconds)
    finally:
        process.kill()


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_mesh_of_jaxs_own_devices() -> None:
    flags = "--xla_force_host_platform_device_count=4"
    run = subprocess.run(
        [sys.executable, "-m", "tests.jax.concrete_mesh"],
        cwd=ROOT,
        env=os.environ | {"XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert run.stdout.splitlines() == [
        "layer {'norm': True, 'y': True}",
        "moe True",
        "scatter (True, True)",
        "constrained (True, True)",
        "custom partitioning True",
    ], run.stderr


@pytest.mark.exhaustive
@pytest.mark.slow
def test_ctrl_c_ends_a_call_that_is_waited_for() -> None:
    process = started("""
double(x).block_until_ready()
y = double(endless(x))
threading.Thread(target=interrupt_amid_a_wait).start()
try:
    np.asarray(y)
except KeyboardInterrupt:
    print("interrupted", flush=True)
try:
    np.asarray(y)
except dx.ClusterError as error:
    print(error.message)
cluster.close()
""")
    out, err = ended(process, 60)
    assert out.splitlines() == ["interrupted", "the call was interrupted"], err
    assert process.returncode == 0, err


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_lost_replica_is_an_error_at_the_result() -> None:
    process = started("""
double(x).block_until_ready()
(_, _, pid), *_ = cluster.replicas_info
later = double(endless(x))
os.kill(pid, signal.SIGKILL)
try:
    np.asarray(later)
except dx.ReplicaLostError as error:
    print("lost", "takes a result of jit__lambda" in error.__notes__[-1])
try:
    np.asarray(double(x))
except dx.ReplicaLostError as error:
    print("still lost")
cluster.close()
""")
    out, err = ended(process, 100)
    assert out.splitlines() == ["lost True", "still lost"], err
    assert process.returncode == 0, err


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_process_that_ends_early_finishes_its_calls_and_tells_of_failures() -> None:
    process = started("""
stuck = jax.shard_map(
    lambda a: jax.lax.cond(jax.lax.axis_index("i") > 0, lambda b: jax.lax.psum(b, "i"), lambda b: b, a),
    mesh=mesh, in_specs=P("i"), out_specs=P("i"), check_vma=False)
y = double(x)
z = dxj.jit(stuck, cluster=cluster)(x)
""")
    out, err = ended(process, 100)
    assert "DeadlockError" in err, out
    assert process.returncode == 0, err


@pytest.mark.exhaustive
@pytest.mark.slow
def test_os_exit_amid_calls_leaves_nothing() -> None:
    process = started("""
z = double(endless(double(x)))
print("runs", flush=True)
os._exit(7)
""")
    out, err = ended(process, 100)
    assert (out, process.returncode) == ("runs\n", 7), err
