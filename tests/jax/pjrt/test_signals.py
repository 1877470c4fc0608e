"""What the handler of a signal raises amid the plugin arrives once, as itself, and changes nothing else."""

from __future__ import annotations

import itertools
import signal
import sys
import threading
from contextlib import suppress
from typing import Any

import pytest

from tests.interrupted import interrupted_everywhere
from tests.jax.pjrt.served import Served

pytest.importorskip("jax")

from distxla.jax.pjrt import events, late
from distxla.jax.pjrt.errors import Interrupted
from distxla.jax.pjrt.switch import SWITCH
from distxla.runtime.arrays import call_queue
from distxla.runtime.arrays.call_queue import CallQueue, PendingCall

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in Python 3.12"),
]

BEGIN = """
import gc, importlib
from distxla.jax.pjrt.switch import SWITCH
from tests.interrupted import Alarm, interrupted_everywhere
modules = [importlib.import_module("distxla." + name) for name in (
    "jax.pjrt.buffers", "jax.pjrt.calls", "jax.pjrt.client", "jax.pjrt.errors", "jax.pjrt.events",
    "jax.pjrt.executables", "jax.pjrt.handles", "jax.pjrt.plans", "jax.pjrt.plugin", "jax.pjrt.shape_constants",
    "machine.heap", "runtime.arrays.call_queue", "runtime.arrays.device_array", "runtime.arrays.result_blocks")]
f = jax.jit(lambda x: x + 1)
donating = jax.jit(lambda x: x * 2, donate_argnums=0)
x = jax.device_put(np.full(1000, 3, np.float32))
for _ in range(3):
    jax.block_until_ready((f(x), donating(f(x))))

def used():
    gc.collect()
    cluster().queue.drain()
    cluster().heap.reclaim()
    gc.collect()
    return cluster().heap.value_bytes

def everywhere(call, every=1, **how):
    before, places = used(), 0
    def ended(state):
        call(state)
        time.sleep(0)  # what was raised in a destructor arrives here,
        for _ in range(10_000):  # or when the thread that has Python raise it was given a processor
            if SWITCH.late:
                time.sleep(0.001)
    for place, state in interrupted_everywhere(modules, list, ended, every=every, **how):
        places += 1
        assert float(f(x)[7]) == 4, place
        assert all(value == 4 for value in state), (place, state)
    print(places > 20, used() - before)
"""
SCRIPTS = {
    "put": "everywhere(lambda state: state.append(float(np.asarray(jax.device_put(np.float32(4))))))",
    "call": """
        def call(state):
            y = f(x)
            state.append(float(np.asarray(y)[0]))
        everywhere(call, 3)
    """,
    "queue": """
        def call(state):
            ys = [f(x) for _ in range(3)]
            cluster().queue.take_direct()
            zs = [f(x) for _ in range(3)]
            state += [float(np.asarray(y)[0]) for y in ys + zs]
        everywhere(call, 3)
    """,
    "donated": """
        def call(state):
            y = donating(donating(jax.device_put(np.full(1000, 1, np.float32))))
            state.append(float(np.asarray(y)[0]))
        everywhere(call, 3)
    """,
    "destructors": """
        def call(state):
            ys = [jax.device_put(np.ones(100, np.float32)) for _ in range(3)]
            del ys
        everywhere(call, 3)
    """,
    "ctrl_c": """
        def call(state):
            y = f(x)
            cluster().queue.take_direct()
            state.append(float(np.asarray(y)[0]))
        everywhere(call, 3, error=KeyboardInterrupt, number=signal.SIGINT)
    """,
    "ignored": """
        import ctypes
        from distxla.jax.pjrt import late

        class Late(Exception):
            pass

        def amid(_):  # Python ignores what is raised here
            late.defer(Late())
            jax.device_put(np.float32(1))
            time.sleep(0)

        caught = 0
        for _ in range(5):
            try:
                ctypes.CFUNCTYPE(None, ctypes.c_int)(amid)(0)
                for _ in range(20_000):
                    time.sleep(0.001)
            except Late:
                caught += 1
        print(caught)
    """,
    "ignored_again": """
        import _thread, ctypes
        from distxla.jax.pjrt import late

        class Late(Exception):
            pass

        def amid(_):
            late.defer(Late())
            jax.device_put(np.float32(1))
            time.sleep(0)

        def at_once(function, args):  # as another thread that is given the processor just then
            times.append(1)
            if len(times) == 2:
                _thread.start_new_thread = start
            function(*args)
            time.sleep(0)

        caught, start = 0, _thread.start_new_thread
        for _ in range(3):
            times = []
            _thread.start_new_thread = at_once
            try:
                ctypes.CFUNCTYPE(None, ctypes.c_int)(amid)(0)
                for _ in range(20_000):
                    time.sleep(0.001)
            except Late:
                caught += len(times)
        _thread.start_new_thread = start
        print(caught)
    """,
    "real_signals": """
        class Late(Exception):
            pass
        def handle(number, frame):
            raise Late
        f(jax.device_put(np.zeros(100, np.float32)))  # JAX itself may not be interrupted while it traces
        y = _ = ends = None  # those of other scripts
        former = signal.signal(signal.SIGALRM, handle)
        before, caught, wrong = used(), 0, []
        for k in range(200):
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.00005 * (k % 20 + 1))
                    for _ in range(20):
                        y = jax.device_put(np.full(100, k, np.float32))
                        if float(np.asarray(f(y) if k % 2 else y)[0]) != k + k % 2:
                            wrong.append(k)
                        del y
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except Late:
                caught += 1
        signal.signal(signal.SIGALRM, former)
        y = None
        print(caught > 100, wrong, used() - before)
    """,
}


@pytest.fixture(scope="module")
def found(served: Served) -> dict[str, str]:
    return served.printed_by_each({"begin": BEGIN, **SCRIPTS})


@pytest.mark.parametrize("name", [name for name in SCRIPTS if name not in ("ignored", "ignored_again", "real_signals")])
def test_it_arrives_wherever_it_comes(found: dict[str, str], name: str) -> None:
    assert found[name] == "True 0\n"


def test_what_is_raised_where_python_ignores_it_is_raised_again(found: dict[str, str]) -> None:
    """As Ctrl-C amid a compilation was, in a callback of the garbage collector: it was lost."""
    assert found["ignored"] == "5\n"
    assert found["ignored_again"] == "6\n", "also where that is raised amid the hook that keeps it"


def test_an_alarm(found: dict[str, str]) -> None:
    """It ended the process, where it came in a destructor."""
    assert found["real_signals"] == "True [] 0\n"


class Wait:
    """A call that ends where it is interrupted."""

    def __init__(self) -> None:
        self.queue = CallQueue()
        self.stopped = threading.Event()
        self.call = PendingCall("runs", self.run)
        self.queue.submit(self.call)

    def run(self) -> None:
        while self.queue.stop_reason() is None and not self.stopped.wait(0.001):
            pass

    def wait(self) -> None:
        """As an entry point does."""
        try:
            events.wait_for(self.call)
        except Interrupted:
            pass
        except KeyboardInterrupt as error:  # in its first line
            late.defer(error)
            with suppress(Interrupted):
                events.wait_for(self.call)
        assert SWITCH.late
        SWITCH.late = 0
        raise KeyboardInterrupt


def test_ctrl_c_early_in_a_wait_ends_the_call() -> None:
    how: Any = {"error": KeyboardInterrupt, "number": signal.SIGINT}
    for place, found in itertools.islice(interrupted_everywhere([events, call_queue], Wait, Wait.wait, **how), 10):
        try:
            assert found.call.is_over, place
        finally:
            found.stopped.set()
            found.queue.close("the test is over")
