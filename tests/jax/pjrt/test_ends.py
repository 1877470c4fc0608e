"""No failure in or around the plugin aborts or hangs the interpreter, and nothing outlives the process."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.jax.pjrt.scripts import run
from tests.jax.pjrt.served import Served

pytest.importorskip("jax")

pytestmark = pytest.mark.cluster

LOOP = "jax.jit(lambda n: jax.lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, 1.0)))"
SCRIPTS = {
    "an_exception_in_the_plugin": """
        from distxla.jax.pjrt import buffers
        x = jnp.ones(3)
        whole, buffers.put = buffers.put, None
        try:
            jax.device_put(np.ones(3))
        except Exception as error:
            print(type(error).__name__, "not callable" in str(error), "in from_host" in str(error))
        buffers.put = whole
        print(float((jax.device_put(np.ones(3)) + x).sum()))
    """,
    "ctrl_c": f"""
        f = {LOOP}
        print(int(f(5)[0]))
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        begin = time.perf_counter()
        try:
            jax.block_until_ready(f(2_000_000_000))
            print("not interrupted")
        except KeyboardInterrupt:
            print("interrupted", time.perf_counter() - begin < 20)
        print(int(f(7)[0]))
    """,
    "a_fork": """
        import warnings
        warnings.simplefilter("ignore")
        f = jax.jit(lambda x: x + 1)
        x = f(1)
        child = os.fork()
        if not child:
            try:
                f(x)
            except Exception as error:
                print("child:", "belong to process" in str(error), flush=True)
            sys.exit(7)
        begin = time.time()
        while not (end := os.waitpid(child, os.WNOHANG))[0] and time.time() < begin + 30:
            time.sleep(0.05)
        if not end[0]:
            os.kill(child, signal.SIGKILL)
        print("child's status:", os.waitstatus_to_exitcode(end[1]) if end[0] else None)
        print(int(f(x)))
    """,
    "a_lost_replica": """
        mesh = Mesh(np.array(jax.devices()), ("i",))
        f = jax.jit(jax.shard_map(lambda x: jax.lax.psum(x, "i"), mesh=mesh, in_specs=P("i"), out_specs=P()))
        x = jax.device_put(np.ones(2, np.float32), NamedSharding(mesh, P("i")))
        print(float(f(x)[0]))
        os.kill(replicas()[1], signal.SIGKILL)
        try:
            jax.block_until_ready(f(x))
        except Exception as error:
            print("UNAVAILABLE" in str(error), "device 1" in str(error), "SIGKILL" in str(error))
        replace_devices()
    """,
}


@pytest.fixture(scope="module")
def found(served: Served) -> dict[str, str]:
    return served.printed_by_each(SCRIPTS)


def test_an_exception_in_the_plugin(found: dict[str, str]) -> None:
    assert found["an_exception_in_the_plugin"] == "JaxRuntimeError True True\n6.0\n"


def test_a_lost_replica(found: dict[str, str]) -> None:
    assert found["a_lost_replica"] == "2.0\nTrue True True\n"


def test_ctrl_c(found: dict[str, str]) -> None:
    """KeyboardInterrupt comes while a call runs, and the devices can be used again."""
    assert found["ctrl_c"] == "5\ninterrupted True\n7\n"


def test_a_fork(found: dict[str, str]) -> None:
    """A forked child gets errors in place of devices, and ends by itself; its parent goes on."""
    assert found["a_fork"] == "child: True\nchild's status: 7\n3\n"


def test_one_process_of_jax_distributed() -> None:
    """jaxlib tells the client of the other processes, now and then until the interpreter has ended. The number of
    devices is JAX's setting."""
    body = """
        distxla.jax.install()
        jax.config.update("jax_num_cpu_devices", 1)
        import socket
        with socket.create_server(("localhost", 0)) as server:
            address = "localhost:%d" % server.getsockname()[1]
        jax.distributed.initialize(address, 1, 0)
        print(jax.process_count(), len(jax.devices()), int((jnp.arange(4) + 1).sum()))
    """
    done = run(body, devices=None, DISTXLA_DEVICES="")
    assert (done.returncode, done.stdout) == (0, "1 1 10\n"), done.stderr


@pytest.mark.exhaustive
@pytest.mark.parametrize("end", ["os._exit(5)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_an_end_without_cleaning_up(end: str) -> None:
    """The replicas end with the process, also amid a call."""
    done = run(f"""
        f = {LOOP}
        print(int(f(5)[0]), *replicas(), flush=True)
        threading.Thread(target=lambda: f(2_000_000_000), daemon=True).start()
        time.sleep(0.3)
        {end}
    """)
    assert done.returncode in (5, -9), done.stderr
    five, *pids = map(int, done.stdout.split())
    assert (five, len(pids)) == (5, 2)
    until = time.monotonic() + 15
    while (alive := [pid for pid in pids if Path(f"/proc/{pid}").exists()]) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive


@pytest.mark.exhaustive
def test_the_end_while_a_call_runs_in_a_thread() -> None:
    """The interpreter ends although arrays and calls of its devices exist."""
    done = run(f"""
        f = {LOOP}
        kept = [f(k) for k in range(3)]
        sys.kept = kept
        print("end")
    """)
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr
