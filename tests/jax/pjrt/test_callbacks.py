"""JAX's callbacks run in this process, while the devices wait."""

from __future__ import annotations

import pytest

from tests.jax.pjrt.served import Served

pytest.importorskip("jax")

pytestmark = pytest.mark.cluster
SCRIPTS = {
    "callbacks": """
        from jax.experimental import io_callback
        scalar = jax.ShapeDtypeStruct((), np.float32)
        print(jax.jit(lambda x: jax.pure_callback(lambda v: v * 2, scalar, x))(1.0))
        seen = []
        def note(v):
            seen.append(float(v))
            return v + 1
        f = jax.jit(lambda x: io_callback(note, scalar, x, ordered=True))
        print(f(f(1.0)), seen)
        mesh = Mesh(np.array(jax.devices()), ("i",))
        def show(x):
            jax.debug.callback(lambda v: seen.append(v.tolist()), x)
            return x
        jax.jit(jax.shard_map(show, mesh=mesh, in_specs=P("i"), out_specs=P("i")))(np.arange(4.0, dtype=np.float32))
        jax.effects_barrier()
        print(sorted(seen[2:]))
    """,
    "buffers": """
        from jax.experimental.buffer_callback import buffer_callback
        def fill(context, result, value):
            np.asarray(result)[...] = np.asarray(value) + 1
        print(jax.jit(lambda x: buffer_callback(fill, jax.ShapeDtypeStruct((2,), np.float32))(x) * 2)(np.ones(2)))
        def fails(context, result, value):
            raise ValueError("mine")
        try:
            buffer_callback(fails, jax.ShapeDtypeStruct((), np.float32))(1.0).block_until_ready()
        except jax.errors.JaxRuntimeError as error:
            print("raised ValueError: mine" in str(error))
    """,
    "threads": """
        def run(factor):
            def scaled(x):
                return jax.pure_callback(lambda v: v * np.float32(factor), jax.ShapeDtypeStruct((), np.float32), x)
            found.append(float(jax.jit(scaled)(1.0)))
        found = []
        threads = [threading.Thread(target=run, args=(factor,)) for factor in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(sorted(found))
    """,
    "failures": """
        def fails(v):
            raise ValueError("mine")
        def waits(v):
            return np.asarray(jax.jit(lambda x: x + 1)(kept))
        kept = jax.device_put(np.float32(1), jax.devices()[0])
        for function in (fails, waits):
            f = jax.jit(lambda x: jax.pure_callback(function, jax.ShapeDtypeStruct((), np.float32), x))
            try:
                f(1.0).block_until_ready()
            except Exception as error:
                print("mine (<string>:" in str(error), "cannot run a program on a cluster itself" in str(error))
        print(float(jax.jit(lambda x: x + 1)(kept)))
        from jax._src import dispatch
        dispatch.runtime_tokens.clear()  # JAX would raise the errors again at its end
    """,
}


@pytest.fixture(scope="module")
def found(served: Served) -> dict[str, str]:
    return served.printed_by_each(SCRIPTS)


@pytest.mark.exhaustive
def test_callbacks(found: dict[str, str]) -> None:
    assert found["callbacks"] == "2.0\n3.0 [1.0, 2.0]\n[[0.0, 1.0], [2.0, 3.0]]\n"


def test_buffer_callbacks(found: dict[str, str]) -> None:
    pytest.importorskip("jax.experimental.buffer_callback")
    assert found["buffers"] == "[4. 4.]\nTrue\n"


def test_threads_that_compile_functions_of_one_name_keep_their_callbacks(found: dict[str, str]) -> None:
    assert found["threads"] == "[0.0, 1.0, 2.0, 3.0]\n"


def test_failures_of_callbacks(found: dict[str, str]) -> None:
    """They name the callback's line; one that waits for the calling program is an error, and no hang."""
    assert found["failures"] == "True False\nFalse True\n2.0\n"
