"""Calls that native code issues: without Python, with results as any, and with the ends that the queue's calls have."""

from __future__ import annotations

import pytest

from tests.jax.pjrt.served import Served

pytest.importorskip("jax")

pytestmark = pytest.mark.cluster

BEGIN = """
import gc
from distxla.jax.pjrt import executables
mesh = Mesh(np.array(jax.devices()), ("i",))
spread = NamedSharding(mesh, P("i"))
entered = []  # a call that Python has a part in
issue = executables.Loaded.issue
executables.Loaded.issue = lambda *given: entered.append(0) or issue(*given)

def prepared(function, *args, **how):
    found = jax.jit(function, **how)
    for _ in range(3):
        jax.block_until_ready(found(*args))
    entered.clear()
    return found

def spin(n):
    return jax.lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, 1.0))
"""
SCRIPTS = {
    "trimmed_by_two": """
        import queue, threading
        from distxla.machine.heap import Block
        f = prepared(lambda x: x + 1, np.zeros(1000, np.float32))
        issuer, direct = cluster().queue.direct, cluster().direct
        plan = list(issuer._plans.values())[-1]
        while len(plan._blocks) < 8:  # calls do not see to it: those that the queue has take memory of the heap
            plan.grow(cluster())
        kept = [f(np.zeros(1000, np.float32)) for _ in range(8)]
        del kept
        cluster().queue.drain()
        blocks = [block for _, block in plan._blocks.values()]
        real, news, given = direct.keep, queue.SimpleQueue(), []

        class Seen:  # tells of those who wait
            lock = issuer._trimming

            def locked(self):
                return self.lock.locked()

            def __enter__(self):
                if not self.lock.acquire(blocking=False):
                    news.put("waits")
                    self.lock.acquire()

            def __exit__(self, *error):
                self.lock.release()

        def other():
            try:
                issuer.trim()
            finally:
                news.put("done")

        def keep(things):
            if isinstance(things[0], Block):  # not an argument of the last call, which any thread may let go
                given.extend(things)
                if len(given) == 1:  # amid a block
                    thread.start()
                    print(news.get())
            real(things)

        thread, direct.keep, issuer._trimming = threading.Thread(target=other), keep, Seen()
        try:
            print(issuer.trim())
            thread.join()
        finally:
            direct.keep, issuer._trimming = real, Seen.lock
        ids = [id(each) for each in given]
        print(news.get(), set(map(id, blocks)) <= set(ids), len(ids) == len(set(ids)))
        print(float(f(np.zeros(1000, np.float32))[0]))
    """,
    "memory": """
        def used():
            gc.collect()
            cluster().queue.drain()  # amid a call no memory comes back
            cluster().heap.reclaim()
            return cluster().heap.value_bytes
        f = prepared(lambda x: x + 1, np.zeros(10_000, np.float32))
        before = used()
        kept = [f(np.zeros(10_000, np.float32)) for _ in range(50)]
        print(used() - before >= 50 * 40_000)
        del kept
        print(used() - before)
    """,
    "collected_amid_a_let_go": """
        issuer, direct = cluster().queue.direct, cluster().direct
        real, kept = direct.keep, []
        def circle():  # whose collection gives an array up
            found = [jax.device_put(np.zeros(1000, np.float32))]
            found.append(found)
        def keep(things):
            kept.extend(things)
            if len(kept) == 1:
                circle()
                gc.collect()
            real(things)
        direct.keep = keep
        try:
            issuer._held.extend([(0, "first"), (0, "second")])  # as arguments of calls that are over
            issuer.trim()
        finally:
            direct.keep = real
        print(sorted({thing for thing in kept if isinstance(thing, str)}), len(issuer._held))
    """,
    "without_python": """
        total = lambda s, x: (s + 1, jax.lax.psum(x, "i"))
        f = jax.jit(jax.shard_map(total, mesh=mesh, in_specs=(P(), P("i")), out_specs=P()), donate_argnums=0)
        x = jax.device_put(np.arange(4, dtype=np.float32), spread)
        s = jax.device_put(np.float32(0), NamedSharding(mesh, P()))
        for _ in range(5):
            s, y = jax.block_until_ready(f(s, x))
        calls = 5
        for _ in range(10):  # where other processes take the time, the queue may have calls
            entered.clear()
            for _ in range(100):
                before, (s, y) = s, f(s, x)
            calls += 100
            if len(entered) < 30:
                break
        print(len(entered) < 30, float(s) == calls, np.asarray(y).tolist(), before.is_deleted(), y.is_deleted())
    """,
    "donated_twice": """
        for donated in (0, (0, 1)):
            f = jax.jit(lambda x, y: (x + 1, y + 2), donate_argnums=donated)
            ones = jax.jit(lambda: (jnp.ones(2), jnp.ones(2)))
            for _ in range(6):  # their calls are native then, and so are ones
                x, y = ones()
                jax.block_until_ready(f(x, y))
            for again in (x for _ in range(2) for x in ones()):
                try:
                    f(again, again)
                except Exception as error:  # a ValueError where JAX calls without Python
                    print(str(error).partition("argument: ")[2], not again.is_deleted())
            x, y = ones()
            print([np.asarray(found).tolist() for found in f(x, y)])
    """,
    "results_that_are_kept": """
        f = prepared(lambda x: (x * 2, x.sum()), np.float32(1))
        kept = [f(np.float32(k)) for k in range(300)]
        print(all(float(a) == 2 * k and float(b) == k for k, (a, b) in enumerate(kept)))
        del kept
        views = [np.asarray(f(np.float32(k))[0]) for k in range(50)]
        gc.collect()
        for k in range(300):
            f(np.float32(1000 + k))
        print(all(view == 2 * k for k, view in enumerate(views)))
    """,
    "arguments_that_are_deleted_amid_a_call": """
        f = prepared(lambda n, x: (spin(n)[0], x + 1), 10, np.zeros(1000, np.float32))
        for k in range(5):
            x = jax.device_put(np.full(1000, k, np.float32))
            _, y = f(30_000, x)
            x.delete()
            others = [jax.device_put(np.full(1000, -1, np.float32)) for _ in range(20)]
            assert (np.asarray(y) == k + 1).all()
        print("right")
    """,
    "arguments_that_are_deleted_when_the_call_is_the_queues": """
        found = cluster()
        f = prepared(lambda x: x + 1, np.zeros(1000, np.float32))
        for made in (lambda: jax.device_put(np.full(1000, 7, np.float32)), lambda: f(np.full(1000, 6, np.float32))):
            x = jax.block_until_ready(made())
            stop(replicas()[0])
            y = f(x)
            found.queue.take_direct()
            calls = len(found.queue._calls)
            x.delete()
            found.heap.reclaim()
            others = [jax.device_put(np.full(1000, -1, np.float32)) for _ in range(20)]
            os.kill(replicas()[0], signal.SIGCONT)
            print(calls, (np.asarray(y) == 8).all())
    """,
    "long_calls": """
        f = prepared(spin, 10)
        a, b = f(3_000_000), f(5)
        events = []
        threads = [threading.Thread(target=lambda: events.append(int(a[0].block_until_ready()))) for _ in range(2)]
        for thread in threads:
            thread.start()
        print(int(b[0]), int(a[0]))
        for thread in threads:
            thread.join()
        c = f(2_000_000)
        time.sleep(0.5)
        print(events, int(c[0]), int(f(6)[0]))
        entered.clear()
        for k in range(20):
            assert int(f(k)[0]) == k
        print(len(entered) < 10)  # not 0: who looks for calls that last long closes the gate for a moment
    """,
    "several_threads": """
        functions = [prepared(lambda x, k=k: x * k + 1, np.float32(1)) for k in range(4)]
        wrong = []
        def many(k):
            for n in range(200):
                found = float(functions[k](np.float32(n)))
                if found != n * k + 1:
                    wrong.append((k, n, found))
        threads = [threading.Thread(target=many, args=[k]) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(wrong)
    """,
    "ctrl_c": """
        f = prepared(spin, 10)
        def amid_the_call(timer):
            timer.start()
            jax.block_until_ready(f(300_000_000))
        def while_its_result_is_waited_for(timer):
            global y
            y = f(300_000_000)
            timer.start()
            jax.block_until_ready(y)
        for after, wait in ((0.005, amid_the_call), (0.3, while_its_result_is_waited_for)):
            timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
            begin = time.perf_counter()
            try:
                wait(timer)
                time.sleep(5)
                print("not interrupted")
            except KeyboardInterrupt:
                print("interrupted", time.perf_counter() - begin < 20)
            print(int(f(7)[0]))
        try:
            print(y[0] + 1)
        except Exception as error:
            print("interrupted" in str(error), type(error).__name__)
        entered.clear()
        print(int(f(8)[0]), int(f(9)[0]))
    """,
    "a_lost_replica": """
        f = prepared(jax.shard_map(lambda x: jax.lax.psum(x, "i"), mesh=mesh, in_specs=P("i"), out_specs=P()),
                     jax.device_put(np.ones(2, np.float32), spread))
        x = jax.device_put(np.ones(2, np.float32), spread)
        stop(replicas()[1])
        y = f(x)
        print(len(entered))
        os.kill(replicas()[1], signal.SIGKILL)
        for _ in range(2):
            try:
                jax.block_until_ready(y)
            except Exception as error:
                print("UNAVAILABLE" in str(error), "device 1" in str(error), "SIGKILL" in str(error))
        try:
            jax.block_until_ready(f(x))
        except Exception as error:
            print("UNAVAILABLE" in str(error))
    """,
}
END = """
executables.Loaded.issue = issue
replace_devices()
"""


@pytest.fixture(scope="module")
def found(served: Served) -> dict[str, str]:
    return served.printed_by_each({"begin": BEGIN, **SCRIPTS, "end": END})


@pytest.mark.exhaustive
def test_ordinary_calls_need_no_python(found: dict[str, str]) -> None:
    assert found["without_python"] == "True True [2.0, 4.0] True False\n"


def test_donated_twice(found: dict[str, str]) -> None:
    message = (
        "arguments 0 and 1 are the same buffer on device 0, and argument 0 is donated: expected a buffer of its own"
    )
    assert found["donated_twice"] == (f"{message} True\n" * 4 + "[[2.0, 2.0], [3.0, 3.0]]\n") * 2


def test_results_that_are_kept_keep_their_memory(found: dict[str, str]) -> None:
    assert found["results_that_are_kept"] == "True\nTrue\n"


def test_arguments_are_there_until_the_call_is_over(found: dict[str, str]) -> None:
    assert found["arguments_that_are_deleted_amid_a_call"] == "right\n"


def test_arguments_are_there_until_a_call_is_over_that_the_queue_has_taken(found: dict[str, str]) -> None:
    assert found["arguments_that_are_deleted_when_the_call_is_the_queues"] == "1 True\n1 True\n"


def test_the_memory_of_results_comes_back(found: dict[str, str]) -> None:
    assert found["memory"] == "True\n0\n"


def test_one_thread_trims_at_a_time(found: dict[str, str]) -> None:
    """Another one would give the block that the first is about to keep."""
    assert found["trimmed_by_two"] == "waits\nTrue\ndone True True\n1.0\n"


def test_a_collection_amid_giving_memory_up_may_give_up_more(found: dict[str, str]) -> None:
    assert found["collected_amid_a_let_go"] == "['first', 'second'] 0\n"


def test_the_queue_takes_over_calls_that_last_long(found: dict[str, str]) -> None:
    assert found["long_calls"] == "5 3000000\n[3000000, 3000000] 2000000 6\nTrue\n"


def test_threads_may_call_at_once(found: dict[str, str]) -> None:
    assert found["several_threads"] == "[]\n"


def test_ctrl_c(found: dict[str, str]) -> None:
    assert found["ctrl_c"] == "interrupted True\n7\ninterrupted True\n7\nTrue JaxRuntimeError\n8 9\n"


def test_a_lost_replica(found: dict[str, str]) -> None:
    assert found["a_lost_replica"] == "0\nTrue True True\nTrue True True\nTrue\n"
