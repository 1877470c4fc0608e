"""Functions on a cluster by `distxla.jax`, beside JAX on a single device."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.experimental import io_callback
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import distxla as dx
import distxla.jax as dxj
from distxla.scheduler.verdict import Outcome
from tests.runtime.busy_queue import busy_queue

pytestmark = pytest.mark.cluster
P = PartitionSpec
MESH = dxj.make_mesh((2, 2), ("dp", "tp"))
ROW = dxj.make_mesh((4,), ("i",))


def over(*spec: Any, mesh: Any = MESH) -> NamedSharding:
    return NamedSharding(mesh, P(*spec))


@pytest.fixture(scope="module")
def cluster() -> Iterator[dx.Cluster]:
    with dx.Cluster(partitions=4) as found:
        yield found


def numbers(*shape: int) -> Any:
    return ((np.arange(int(np.prod(shape))) * 7 % 13 - 6) / 13).astype(np.float32).reshape(shape)


def loss(params: Any, batch: Any) -> Any:
    hidden = jnp.tanh(batch["x"] @ params["first"] + params["bias"])
    return jnp.mean((hidden @ params["second"] - batch["y"]) ** 2)


def train(params: Any, batch: Any) -> Any:
    value, slope = jax.value_and_grad(loss)(params, batch)
    return jax.tree.map(lambda p, g: p - 0.5 * g, params, slope), value


def train_by_hand(params: Any, batch: Any) -> Any:
    """The same with manual sharding of the batch."""
    value, slope = jax.value_and_grad(loss)(params, batch)
    slope, value = jax.lax.pmean((slope, value), "i")
    return jax.tree.map(lambda p, g: p - 0.5 * g, params, slope), value


def weights() -> Any:
    return {"first": numbers(8, 16), "bias": numbers(16), "second": numbers(16, 4)}


BATCH = {"x": numbers(16, 8), "y": numbers(16, 4) + 1}


def expected_steps(count: int) -> tuple[Any, list[float]]:
    params, values = weights(), []
    step = jax.jit(train)
    for _ in range(count):
        params, value = step(params, BATCH)
        values.append(float(value))
    return params, values


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("way", ["shardings", "shard_map"])
def test_a_training_step_gives_the_losses_of_jax_and_uses_memory_again(cluster: dx.Cluster, way: str) -> None:
    if way == "shardings":
        cut = {"first": over(None, "tp"), "bias": over("tp"), "second": over("tp")}
        step = dxj.jit(
            train, cluster=cluster, in_shardings=(cut, over("dp")), out_shardings=(cut, over()), donate_argnums=0
        )
    else:
        by_hand = jax.shard_map(train_by_hand, mesh=ROW, in_specs=(P(), P("i")), out_specs=(P(), P()), check_vma=False)
        step = dxj.jit(by_hand, cluster=cluster, donate_argnums=0)
    params: Any = weights()
    values, used = [], []
    for _ in range(6):
        params, value = step(params, BATCH)
        values.append(value)  # held: a small result keeps no large one
        params["first"].block_until_ready()
        used.append(cluster.heap.used)
    wanted, wanted_values = expected_steps(6)
    np.testing.assert_allclose([float(value) for value in values], wanted_values, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), params, wanted)
    assert max(used[2:]) - min(used[2:]) <= 4 * 1024, "donated parameters were not used again"
    if way == "shardings":
        assert params["first"].sharding.spec == P(None, "tp")
        assert [shard.data.shape for shard in params["first"].shards] == [(8, 8)] * 4
        assert params["first"].shards[1].index == (slice(0, 8), slice(8, 16))


def test_a_function_is_named_in_its_text(cluster: dx.Cluster) -> None:
    assert repr(dxj.jit(train, cluster=cluster)).startswith("<distxla.jax.jit of <function train at 0x")


def test_calls_under_way_take_results_and_donate_them(cluster: dx.Cluster) -> None:
    step = dxj.jit(lambda x, n: (x * 2, n + 1), cluster=cluster, in_shardings=over("dp"), donate_argnums=0)
    step(numbers(4), np.zeros(4, np.int32))  # compiled before the queue is kept busy
    with busy_queue(cluster):
        x, n = step(numbers(4), np.zeros(4, np.int32))
        first = x
        for _ in range(5):
            x, n = step(x, n)
        assert not x.is_ready()
        assert "pending" in repr(x)
        assert first.is_deleted()
    np.testing.assert_array_equal(x, numbers(4) * 64)
    np.testing.assert_array_equal(n, [6, 6, 6, 6])
    with pytest.raises(dx.ArgumentError, match="deleted, or donated"):
        np.asarray(first)
    with pytest.raises(dx.ArgumentError, match=r"args\[0\]: the array was deleted, or donated"):
        step(first, n)


def test_pytrees_unused_static_and_closed_over_arguments(cluster: dx.Cluster) -> None:
    table = jnp.asarray(numbers(4))

    def f(x: Any, unused: Any, *, kind: str, power: int = 2, scale: Any = 1.0) -> Any:
        del unused
        return {kind: (x**power * scale + table, None)}, 3.0, jnp.int32(7)

    step = dxj.jit(f, cluster=cluster, in_shardings=None, static_argnames=("kind", "power"))
    for kwargs in ({"kind": "a"}, {"kind": "b", "power": 3, "scale": np.float32(2)}):
        got, three, seven = step(numbers(4), [np.zeros((2, 2))], **kwargs)
        want, _, _ = jax.jit(f, static_argnames=("kind", "power"))(numbers(4), [np.zeros((2, 2))], **kwargs)
        np.testing.assert_allclose(got[kwargs["kind"]][0], want[kwargs["kind"]][0], rtol=1e-6)
    assert three.weak_type
    assert (float(three), int(seven), seven.dtype, seven.weak_type) == (3.0, 7, np.int32, False)
    assert (three * numbers(4)).dtype == np.float32
    with pytest.raises(dx.ArgumentError, match="hashable"):
        step(numbers(4), [], kind=[])


def test_weak_types_and_64_bits_as_in_jax(cluster: dx.Cluster) -> None:
    step = dxj.jit(lambda x, n: (x * n, n + 1), cluster=cluster)
    half = step(np.asarray([1, 2], ml_dtypes.bfloat16), 3.0)
    assert [a.dtype.name for a in half] == ["bfloat16", "float32"]
    assert half[1].weak_type
    again = step(half[0], half[1])  # still weak: the type of the first decides
    assert again[0].dtype.name == "bfloat16"
    assert step(np.ones(2), 2)[0].dtype == np.float32
    with jax.enable_x64(True):
        wide = step(np.full(2, 1 / 3), 2)[0]
        assert wide.dtype == np.float64
        np.testing.assert_array_equal(wide, np.full(2, 2 / 3))
    assert wide.to_jax().dtype == np.float64


def test_static_arguments_that_are_equal_but_of_other_types_are_others(cluster: dx.Cluster) -> None:
    by_number = dxj.jit(lambda x, n: x * n, cluster=cluster, static_argnums=1)
    by_name = dxj.jit(lambda x, n: x * n, cluster=cluster, static_argnames="n")
    for step in (by_number, by_name):
        found = [step(np.int32(3), n=n) if step is by_name else step(np.int32(3), n) for n in (1, 1.0, True)]
        assert [a.dtype.name for a in found] == ["int32", "float32", "int32"]


def test_negative_zeros_of_the_program_stay_negative(cluster: dx.Cluster) -> None:
    """XLA prints them as -0, which is an integer in HLO text."""
    row, point = np.asarray([[-0.0, 1.0], [0.0, -0.0]], np.float32), np.complex64(complex(-0.0, -0.0))

    def signs(x: Any) -> Any:
        small = jnp.asarray(row.reshape(-1), jnp.bfloat16) * x.astype(jnp.bfloat16)
        return jnp.signbit(x * -0.0), jnp.signbit(row * x), jnp.signbit(small), jnp.signbit((point + 0 * x * 1j).imag)

    got, want = dxj.jit(signs, cluster=cluster)(np.float32(1)), jax.jit(signs)(np.float32(1))
    assert [np.asarray(a).tolist() for a in got] == [np.asarray(a).tolist() for a in want]
    assert np.asarray(got[1]).tolist() == [[True, False], [False, True]]


def test_results_come_in_as_they_are_cut_and_others_are_cut_again(cluster: dx.Cluster) -> None:
    x = numbers(8, 4)
    rows = dxj.jit(lambda a: a + 1, cluster=cluster, in_shardings=over("dp"), out_shardings=over(("dp", "tp")))(x)
    twice = dxj.jit(lambda a: a * 2, cluster=cluster)
    y = twice(rows)  # compiled for the sharding of its argument
    assert y.sharding.spec == P(("dp", "tp"))
    columns = dxj.jit(lambda a: a.sum(0), cluster=cluster, in_shardings=over(None, "tp"))
    np.testing.assert_allclose(columns(y), ((x + 1) * 2).sum(0), rtol=1e-5)


def test_results_over_explicit_axes_come_in_beside_arrays_that_were_put(cluster: dx.Cluster) -> None:
    mesh = dxj.make_mesh((2, 2), ("dp", "tp"), axis_types=(AxisType.Explicit, AxisType.Auto))
    rows = dxj.device_put(numbers(8, 4), over("dp", mesh=mesh), cluster=cluster)
    double = dxj.jit(lambda a: jnp.sin(a) * 2, cluster=cluster, in_shardings=over("dp", mesh=mesh))(numbers(8, 4))
    assert double.sharding == rows.sharding
    assert double.sharding.mesh == mesh
    both = dxj.jit(lambda a, b: a + b, cluster=cluster)(double, rows)
    assert both.sharding.mesh == mesh
    np.testing.assert_allclose(both, np.sin(numbers(8, 4)) * 2 + numbers(8, 4), rtol=1e-6)


def test_arrays_are_put_and_then_taken_as_they_are(cluster: dx.Cluster) -> None:
    put = dxj.device_put({"a": numbers(8, 4), "b": np.arange(8)}, over(("tp", "dp")), cluster=cluster)
    assert put["a"].sharding.spec == P(("tp", "dp"))
    np.testing.assert_array_equal(put["a"].shards[1].data, numbers(8, 4)[4:6])
    np.testing.assert_array_equal(put["a"], numbers(8, 4))
    assert put["b"].dtype == np.int32
    step = dxj.jit(lambda x: x["a"] * 2, cluster=cluster)
    assert step(put).sharding == put["a"].sharding
    with pytest.raises(dx.ArgumentError, match=r"\[6\] cannot be cut evenly by .* over"):
        dxj.device_put(np.ones(6), over(("dp", "tp")), cluster=cluster)
    with pytest.raises(dx.ArgumentError, match="expected a NamedSharding, found str"):
        dxj.device_put(np.ones(6), "dp", cluster=cluster)


def test_arrays_are_put_by_pytrees_of_shardings(cluster: dx.Cluster) -> None:
    """One that is a prefix of the values'."""
    values = {"a": np.arange(4), "none": None, "b": [numbers(8, 4), (numbers(2),)]}
    put = dxj.device_put(values, {"a": over("tp"), "none": over(), "b": [over("dp", "tp"), over()]}, cluster=cluster)
    assert jax.tree.map(lambda array: array.sharding.spec, put) == {
        "a": P("tp"),
        "none": None,
        "b": [P("dp", "tp"), (P(),)],
    }
    jax.tree.map(np.testing.assert_array_equal, put, values)
    with pytest.raises(dx.ArgumentError, match="expected shardings of the values' structure, or of its prefix"):
        dxj.device_put(values, {"a": over(), "b": over()}, cluster=cluster)
    with pytest.raises(dx.ArgumentError, match="expected a NamedSharding, found NoneType"):
        dxj.device_put(values, {"a": None, "none": None, "b": over()}, cluster=cluster)


def test_empty_arrays_are_cut_as_asked(cluster: dx.Cluster) -> None:
    """Also by jaxlib 0.10, whose partitioner does not see what computes them."""
    both = over(("dp", "tp"))
    add = dxj.jit(lambda x: (x + 1, x.sum()), cluster=cluster, in_shardings=both, out_shardings=(both, over()))
    for _ in range(2):
        made, total = add(np.zeros((8, 0), np.float32))
        assert (made.shape, made.sharding.spec, float(total)) == ((8, 0), P(("dp", "tp")), 0)
        assert [shard.data.shape for shard in made.shards] == [(2, 0)] * 4
    assert add(made)[0].sharding.spec == P(("dp", "tp"))


def test_a_function_is_lowered_as_it_would_be_for_a_call(cluster: dx.Cluster) -> None:
    scaled = dxj.jit(lambda x, by: x["rows"] * by, cluster=cluster, in_shardings=over("dp"), static_argnums=1)
    rows = dxj.device_put({"rows": numbers(4, 2)}, over("tp"), cluster=cluster)
    lowered = scaled.lower(rows, 3)
    assert isinstance(lowered, jax.stages.Lowered)
    assert "stablehlo.multiply" in lowered.as_text()
    np.testing.assert_array_equal(dxj.compile(lowered, cluster=cluster)(rows), numbers(4, 2) * 3)


def test_keys_of_random_numbers(cluster: dx.Cluster) -> None:
    def f(key: Any) -> Any:
        first, second = jax.random.split(key)
        return first, jax.random.uniform(second, (8,))

    step = dxj.jit(f, cluster=cluster, out_shardings=(over(), over("dp")))
    key, want_key = jax.random.key(3), jax.random.key(3)
    for _ in range(2):
        key, values = step(key)
        want_key, want = jax.jit(f)(want_key)
        np.testing.assert_array_equal(values, want)
    np.testing.assert_array_equal(jax.random.key_data(key.to_jax()), jax.random.key_data(want_key))
    with pytest.raises(TypeError, match="key_data"):
        np.asarray(key)


def test_keys_are_put_and_values_that_are_no_arrays_refused(cluster: dx.Cluster) -> None:
    keys = jax.random.split(jax.random.key(3), 4)
    put = dxj.device_put(keys, over("i", mesh=ROW), cluster=cluster)
    assert (put.dtype, put.shape, put.sharding, put.shards[1].index) == (
        keys.dtype,
        (4,),
        over("i", mesh=ROW),
        (slice(1, 2), slice(0, 2)),
    )
    draw = dxj.jit(jax.vmap(jax.random.normal), cluster=cluster, in_shardings=over("i", mesh=ROW))
    np.testing.assert_allclose(draw(put), jax.vmap(jax.random.normal)(keys), rtol=1e-6)
    again = dxj.device_put(put, over(mesh=ROW), cluster=cluster)
    np.testing.assert_array_equal(jax.random.key_data(again.to_jax()), jax.random.key_data(keys))
    with pytest.raises(dx.ArgumentError, match="expected arrays, found 'text'"):
        dxj.device_put({"a": "text"}, over("i", mesh=ROW), cluster=cluster)


def test_a_mesh_smaller_than_the_cluster_and_none_at_all(cluster: dx.Cluster) -> None:
    pair = dxj.make_mesh((2,), ("i",))
    total = jax.shard_map(lambda a: jax.lax.psum(a, "i"), mesh=pair, in_specs=P("i"), out_specs=P())
    found = dxj.jit(total, cluster=cluster)(numbers(4))
    np.testing.assert_allclose(found, numbers(4)[:2] + numbers(4)[2:], rtol=1e-6)
    assert [shard.device for shard in found.shards] == [0, 1]
    alone = dxj.jit(lambda a: a + 1, cluster=cluster)
    assert [shard.device for shard in alone(found).shards] == [0, 1]
    assert [shard.device for shard in alone(np.asarray(found)).shards] == [0]
    np.testing.assert_allclose(alone(np.asarray(found)), found + 1)
    wide = dxj.make_mesh((8,), ("i",))
    with pytest.raises(dx.ArgumentError, match="is for 8 devices, the cluster has 4"):
        dxj.jit(lambda a: a, cluster=cluster, in_shardings=over("i", mesh=wide))(numbers(8))


def test_devices_in_any_order(cluster: dx.Cluster) -> None:
    pair = NamedSharding(dxj.make_mesh((2,), ("i",)), P("i"))
    x = dxj.device_put(numbers(4), pair, cluster=cluster, devices=[3, 1])
    step = dxj.jit(lambda a: a * 2, cluster=cluster, in_shardings=pair, out_shardings=pair, devices=[3, 1])
    y = step(x)
    assert [shard.device for shard in y.shards] == [3, 1]
    np.testing.assert_array_equal(y, numbers(4) * 2)
    np.testing.assert_array_equal(y.shards[0].data, numbers(4)[:2] * 2)
    elsewhere = dxj.jit(lambda a: a + 1, cluster=cluster, in_shardings=pair)
    np.testing.assert_array_equal(elsewhere(y), numbers(4) * 2 + 1)  # fetched, and copied to devices 0 and 1
    with pytest.raises(dx.ArgumentError, match="the sharding is for 2 devices, devices names 1"):
        dxj.device_put(numbers(4), pair, cluster=cluster, devices=[3])
    with pytest.raises(dx.ArgumentError, match="device 7: the cluster has devices 0 to 3"):
        dxj.device_put(numbers(4), pair, cluster=cluster, devices=[3, 7])


def test_compiled_says_what_it_is_and_refuses_what_does_not_fit(cluster: dx.Cluster) -> None:
    abstract = jax.ShapeDtypeStruct((8, 4), np.float32)
    lowered = jax.jit(lambda p, k: p["w"] @ p["w"].T + k, in_shardings=(over("dp"), None)).trace({"w": abstract}, 1.0)
    compiled = dxj.compile(lowered.lower(lowering_platforms=("cpu",)), cluster=cluster)
    assert compiled.as_text().startswith("HloModule")
    assert compiled.input_shardings[0][0]["w"].spec == P("dp")
    assert compiled.out_tree == jax.tree.structure(0)
    assert compiled.check().outcome is Outcome.SAFE
    w = numbers(8, 4)
    for got in (compiled({"w": w}, 2.0), compiled.reference({"w": w}, 2.0)):
        np.testing.assert_allclose(got, w @ w.T + 2, rtol=1e-5)
    with pytest.raises(dx.ArgumentError, match=r"args\[0\]\['w'\]: expected float32\[8,4\], found float32\[4,8\]"):
        compiled({"w": w.T}, 1.0)
    with pytest.raises(dx.ArgumentError, match="expected arguments of structure"):
        compiled(w, 1.0)
    with pytest.raises(dx.ArgumentError, match=r"takes a jax\.stages\.Lowered"):
        dxj.compile(lambda x: x, cluster=cluster)  # type: ignore[arg-type]


def test_what_communicates_and_that_an_axis_of_size_1_is_no_mistake(cluster: dx.Cluster) -> None:
    """psum over the axis `one` has groups of one device each, which is meant: tests take a warning for an error."""
    mesh = dxj.make_mesh((4, 1), ("i", "one"))

    def added(x: Any) -> Any:
        total = jax.lax.psum(jax.lax.ppermute(x, "one", [(0, 0)]), "one")
        return jax.lax.fori_loop(0, 5, lambda _, a: jax.lax.psum(a, "i") / 4, total)

    manual = jax.shard_map(added, mesh=mesh, in_specs=P("i", "one"), out_specs=P("i", "one"), check_vma=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = dxj.jit(manual, cluster=cluster).compile(numbers(8, 4))
    found = {(row["kind"], row["trips"], row["bytes"], row["bytes_in_all"]) for row in compiled.communication}
    assert found == {("all-reduce", 5, 32, 640), ("all-reduce", 1, 32, 0), ("collective-permute", 1, 32, 0)}
    (looped,) = [row for row in compiled.communication if row["trips"] == 5]
    assert looped["groups"] in ("{0-3}", "'i' of mesh['i'=4,'one'=1]")
    assert "test_jit.py:" in looped["source"]


def crossed(x: Any) -> Any:
    """Devices enter two rounds in different orders, which nothing in the program demands."""
    maximum = partial(jax.lax.pmax, axis_name="i")
    total = partial(jax.lax.psum, axis_name="i")
    both = jax.lax.axis_index("i") % 2 == 0
    return jax.lax.cond(both, lambda a: total(a) + maximum(a), lambda a: total(maximum(a)), x)


def test_check_and_the_reference_take_the_order_of_a_call(cluster: dx.Cluster) -> None:
    manual = jax.shard_map(crossed, mesh=ROW, in_specs=P("i"), out_specs=P("i"), check_vma=False)
    compiled = dxj.jit(manual, cluster=cluster).compile(numbers(4))
    assert compiled.check().outcome is Outcome.SAFE
    np.testing.assert_array_equal(np.asarray(compiled(numbers(4))), compiled.reference(numbers(4)))


def stuck(x: Any) -> Any:
    return jax.lax.cond(jax.lax.axis_index("i") > 0, lambda a: jax.lax.psum(a, "i"), lambda a: a, x)


def test_a_deadlock_is_found_before_the_run_and_in_it_with_the_users_line(cluster: dx.Cluster) -> None:
    manual = jax.shard_map(stuck, mesh=ROW, in_specs=P("i"), out_specs=P("i"), check_vma=False)
    step = dxj.jit(manual, cluster=cluster)
    verdict = step.compile(numbers(4)).check()
    line = f"test_jit.py:{stuck.__code__.co_firstlineno + 1}"
    assert verdict.outcome is Outcome.DEADLOCK
    assert line in verdict.text
    later = dxj.jit(lambda a: a + 1, cluster=cluster, in_shardings=over("i", mesh=ROW))
    result = later(step(numbers(4)))
    with pytest.raises(dx.DeadlockError) as caught:
        np.asarray(result)
    assert line in str(caught.value)
    assert "takes a result of" in "\n".join(caught.value.__notes__)
    np.testing.assert_array_equal(later(numbers(4)), numbers(4) + 1)


def test_a_trace_shows_the_calls(cluster: dx.Cluster) -> None:
    total = jax.shard_map(lambda a: jax.lax.psum(a, "i"), mesh=ROW, in_specs=P("i"), out_specs=P())
    step = dxj.jit(total, cluster=cluster, trace=True)
    step(numbers(4))
    with cluster.trace() as trace:
        for _ in range(3):
            step(numbers(4))
    assert "3 calls" in repr(trace)


def test_ordered_effects_come_in_the_order_of_calls_that_nobody_waits_for(cluster: dx.Cluster) -> None:
    seen: list[int] = []

    def log(x: Any) -> Any:
        seen.append(int(x))
        return np.int32(x + 1)

    step = dxj.jit(lambda x: io_callback(log, jax.ShapeDtypeStruct((), np.int32), x, ordered=True), cluster=cluster)
    x = np.int32(0)
    for _ in range(5):
        x = step(x)
    assert int(x) == 5
    assert seen == [0, 1, 2, 3, 4]


def test_a_callback_cannot_call_the_cluster_that_waits_for_it(cluster: dx.Cluster) -> None:
    double = dxj.jit(lambda a: a * 2, cluster=cluster)
    double(np.float32(1)).block_until_ready()
    step = dxj.jit(
        lambda x: jax.pure_callback(lambda a: np.asarray(double(a)), jax.ShapeDtypeStruct((), np.float32), x),
        cluster=cluster,
    )
    with pytest.raises(dx.ExecutionError, match="cannot run a program on a cluster itself"):
        np.asarray(step(np.float32(1)))


def test_transformations_of_jax_belong_inside(cluster: dx.Cluster) -> None:
    total = dxj.jit(lambda a: (a**2).sum(), cluster=cluster)
    for transformed in (jax.grad(total), jax.jit(total), jax.vmap(total)):
        with pytest.raises(dx.ArgumentError, match=r"args\[0\]: .* cannot trace a function that runs on a cluster"):
            transformed(numbers(4))
    np.testing.assert_allclose(dxj.jit(jax.grad(lambda a: (a**2).sum()), cluster=cluster)(numbers(4)), 2 * numbers(4))


def test_what_is_no_array_is_refused_by_its_path(cluster: dx.Cluster) -> None:
    step = dxj.jit(lambda a, b: a, cluster=cluster)
    for value in ("text", np.asarray([None]), object()):
        with pytest.raises(dx.ArgumentError, match=r"args\[1\]\['x'\]\[0\]: expected an array"):
            step(numbers(4), {"x": [value]})
    with pytest.raises(dx.ArgumentError, match=r"kwargs\['b'\]: expected an array.* found 'text'"):
        step(numbers(4), b="text")


def test_errors_of_jax_name_the_users_line(cluster: dx.Cluster) -> None:
    step = dxj.jit(lambda a: a, cluster=cluster, in_shardings=over("i", mesh=ROW))
    with pytest.raises(ValueError, match="7") as caught:
        step(numbers(7))
    assert "jitted.py" not in str(caught.value)


def test_odd_arguments_and_results(cluster: dx.Cluster) -> None:
    step = dxj.jit(lambda a: (a, a, None, a[:0], jnp.arange(3)), cluster=cluster)
    first, second, nothing, empty, constant = step(numbers(4))
    assert nothing is None
    assert (first + second).tolist() == (numbers(4) * 2).tolist()
    assert (np.asarray(empty).shape, np.asarray(constant).tolist()) == ((0,), [0, 1, 2])
    assert dxj.jit(lambda: None, cluster=cluster)() is None


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("qhd,khd->hqk", q, k) / np.sqrt(q.shape[-1])
    return jnp.einsum("hqk,khd->qhd", jax.nn.softmax(scores, axis=-1), v)


def ring_attention(q: Any, k: Any, v: Any) -> Any:
    """Blocks of keys and values go round; sums are kept with their largest exponent."""
    count = jax.lax.axis_size("i")
    ring = [(d, (d + 1) % count) for d in range(count)]

    def step(_: int, state: Any) -> Any:
        k, v, total, norm, top = state
        scores = jnp.einsum("qhd,khd->hqk", q, k) / np.sqrt(q.shape[-1])
        above = jnp.maximum(top, scores.max(-1))
        part, keep = jnp.exp(scores - above[..., None]), jnp.exp(top - above)
        total = total * keep.T[..., None] + jnp.einsum("hqk,khd->qhd", part, v)
        norm = norm * keep + part.sum(-1)
        k, v = jax.lax.ppermute((k, v), "i", ring)
        return k, v, total, norm, above

    heads, rows = q.shape[1], q.shape[0]
    begin = k, v, jnp.zeros_like(q), jnp.zeros((heads, rows)), jnp.full((heads, rows), -jnp.inf)
    _, _, total, norm, _ = jax.lax.fori_loop(0, count, step, begin)
    return total / norm.T[..., None]


def test_a_program_lowered_for_several_platforms_is_refused(cluster: dx.Cluster) -> None:
    lowered = jax.jit(lambda x: x + 1).trace(1.0).lower(lowering_platforms=("tpu", "cpu"))
    with pytest.raises(dx.ArgumentError, match=r'several platforms: lower it by lowering_platforms=\("cpu",\)'):
        dxj.compile(lowered, cluster=cluster)


def test_ring_attention(cluster: dx.Cluster) -> None:
    q, k, v = (numbers(16, 2, 8) * s for s in (1, 2, 3))
    ring = jax.shard_map(ring_attention, mesh=ROW, in_specs=(P("i"),) * 3, out_specs=P("i"), check_vma=False)
    got = dxj.jit(ring, cluster=cluster)(q, k, v)
    np.testing.assert_allclose(got, jax.jit(attention)(q, k, v), rtol=1e-4, atol=1e-5)
