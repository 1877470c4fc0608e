"""JAX's callbacks as JAX lowers them, on a cluster: values, order, and the functions of a lowered function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distxla as dx

jax = pytest.importorskip("jax")


@pytest.mark.cluster
def test_callbacks_of_a_lowered_function_run_on_the_driver(capfd: pytest.CaptureFixture[str]) -> None:
    from jax.experimental import io_callback

    from distxla.jax.partitioner.host_callbacks import host_calls_of

    seen: list[float] = []

    def note(value: object) -> np.float32:
        seen.append(float(np.asarray(value)))
        return np.float32(len(seen))

    def body(x: object) -> object:
        jax.debug.print("x is {x}", x=x)
        y = jax.pure_callback(lambda a: np.sin(np.asarray(a)), jax.ShapeDtypeStruct((3,), "float32"), x)
        first = io_callback(note, jax.ShapeDtypeStruct((), "float32"), y[0], ordered=True)
        second = io_callback(note, jax.ShapeDtypeStruct((), "float32"), y[1], ordered=True)
        return y + first - second

    x = np.float32([1, 2, 3])
    with jax.default_device(jax.devices("cpu")[0]):
        lowered = jax.jit(body).trace(x).lower(lowering_platforms=("cpu",))
        text = lowered.compile().as_text()
    calls = host_calls_of(lowered)
    assert sorted(calls) == [0, 1, 2, 3]
    with dx.Cluster() as cluster:
        step = cluster.compile(dx.parse(text), host_calls=calls)
        outs = step([[None, x]])[0]
        np.testing.assert_allclose(np.asarray(outs[-1]), np.sin(x) - 1, rtol=1e-6)
    np.testing.assert_array_equal(np.float32(seen), np.sin(x)[:2])
    assert "x is [1. 2. 3.]" in capfd.readouterr().out


@pytest.mark.cluster
def test_jitted_functions_call_back(capfd: pytest.CaptureFixture[str]) -> None:
    import distxla.jax as dxj

    P = jax.sharding.PartitionSpec
    mesh = dxj.make_mesh((2,), ("d",))

    def local(x: object) -> object:
        jax.debug.print("local {x}", x=x)
        shape = jax.ShapeDtypeStruct((2,), "float32")
        return jax.pure_callback(lambda a: np.sin(np.asarray(a)), shape, x)

    def fails(x: object) -> object:
        def callback(a: object) -> object:
            raise ValueError("of the user")

        return jax.pure_callback(callback, jax.ShapeDtypeStruct((4,), "float32"), x)

    x = np.arange(4, dtype=np.float32)
    with dx.Cluster(partitions=2) as cluster:
        step = dxj.jit(jax.shard_map(local, mesh=mesh, in_specs=P("d"), out_specs=P("d")), cluster=cluster)
        np.testing.assert_array_equal(np.asarray(step(x)), np.sin(x))
        with pytest.raises(dx.ExecutionError, match=r"raised ValueError: of the user .*test_host_callbacks"):
            np.asarray(dxj.jit(fails, cluster=cluster)(x))
    assert sorted(capfd.readouterr().out.splitlines()) == ["local [0. 1.]", "local [2. 3.]"]


@pytest.mark.cluster
def test_buffer_callbacks_fill_the_results() -> None:
    pytest.importorskip("jax.experimental.buffer_callback")
    from jax.experimental import buffer_callback as buffers

    import distxla.jax as dxj

    P = jax.sharding.PartitionSpec
    mesh = dxj.make_mesh((2,), ("d",))
    seen: list[Any] = []

    def double(context: Any, result: Any, value: Any) -> None:
        assert isinstance(context, buffers.ExecutionContext)
        assert isinstance(value, buffers.Buffer)
        seen.append((context.stage, value.shape, value.dtype, value.ndim, value.writeable, result.writeable))
        with pytest.raises(jax.errors.JaxRuntimeError, match="GPU context is not available"):
            _ = context.stream
        np.asarray(result)[...] = 2 * np.from_dlpack(value)

    def add_one(context: Any, results: Any, value: Any) -> None:
        np.asarray(results[0])[...] += 1  # the operand's memory
        np.asarray(results[1])[...] = np.asarray(value).sum()

    def body(x: Any) -> Any:
        doubled = buffers.buffer_callback(double, jax.ShapeDtypeStruct((2,), "float32"))(x)
        results = (jax.ShapeDtypeStruct((2,), "float32"), jax.ShapeDtypeStruct((), "int32"))
        more, total = buffers.buffer_callback(add_one, results, input_output_aliases={0: 0})(doubled)
        return more + total

    def returns(x: Any) -> Any:
        return buffers.buffer_callback(lambda *buffers: 3, jax.ShapeDtypeStruct((4,), "float32"))(x)

    x = np.arange(4, dtype=np.float32)
    with dx.Cluster(partitions=2) as cluster:
        sharded = jax.shard_map(body, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=False)
        np.testing.assert_array_equal(np.asarray(dxj.jit(sharded, cluster=cluster)(x)), [5, 7, 17, 19])
        with pytest.raises(dx.ExecutionError, match="must not return any values"):
            np.asarray(dxj.jit(returns, cluster=cluster)(x))
    assert seen == [(buffers.ExecutionStage.EXECUTE, (2,), np.float32, 1, False, True)] * 2


@pytest.mark.cluster
def test_callbacks_take_and_give_large_arrays() -> None:
    """Larger than what a stream keeps for later items."""
    import jax.numpy as jnp

    import distxla.jax as dxj
    from distxla.runtime.streams.stream_ends import KEPT_BYTES

    like = jax.ShapeDtypeStruct((KEPT_BYTES // 4 + 1001,), "int32")

    def f(first: object) -> object:
        x = first + jnp.arange(like.shape[0], dtype="int32")
        for _ in range(2):
            x = jax.pure_callback(lambda a: np.asarray(a)[::-1] * 2, like, x)
        return x[:3], x[-3:]

    with dx.Cluster() as cluster:
        begin, end = dxj.jit(f, cluster=cluster)(np.int32(5))
        assert np.asarray(begin).tolist() == [20, 24, 28]
        last = 4 * (5 + like.shape[0] - 1)
        assert np.asarray(end).tolist() == [last - 8, last - 4, last]


@pytest.mark.cluster
def test_results_that_do_not_fit_are_an_error_not_a_hang() -> None:
    import distxla.jax as dxj

    like = jax.ShapeDtypeStruct((10 << 20,), "float32")  # more than a stream's area has room for

    def f(x: object) -> object:
        return jax.pure_callback(lambda a: np.full(like.shape, a, np.float32), like, x)[:3]

    with dx.Cluster(device_memory="130MiB") as cluster:
        with pytest.raises(dx.OutOfMemoryError, match=r"on device 0: the results of host call 0 don't fit") as raised:
            np.asarray(dxj.jit(f, cluster=cluster)(np.float32(1)))
        assert raised.value.location is not None
        assert np.asarray(dxj.jit(lambda x: x + 1, cluster=cluster)(np.float32(1))) == 2
