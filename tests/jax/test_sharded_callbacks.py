"""Callbacks and custom_partitioning under shardings, outside of shard_map: each runs once, on the whole arrays, as in
JAX with as many CPU devices."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
from jax.experimental import io_callback
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import distxla as dx
import distxla.jax as dxj
from tests.jax.pjrt.scripts import ROOT

pytestmark = pytest.mark.cluster
ROW = dxj.make_mesh((4,), ("i",))
CUT = NamedSharding(ROW, P("i"))
X = np.arange(8, dtype=np.float32)
LIKE_X = jax.ShapeDtypeStruct((8,), np.float32)


@pytest.fixture(scope="module")
def cluster() -> Iterator[dx.Cluster]:
    with dx.Cluster(partitions=4) as found:
        yield found


class Noted:
    """Calls of Python, by what they were given."""

    def __init__(self) -> None:
        self.seen: list[list[float]] = []

    def double(self, x: Any) -> Any:
        self.seen.append(np.asarray(x).tolist())
        return np.asarray(x) * 2

    def note(self, x: Any) -> None:
        self.seen.append(np.asarray(x).tolist())


def pure(noted: Noted) -> Callable[[Any], Any]:
    return lambda x: jax.pure_callback(noted.double, LIKE_X, x + 1) - 3


def pure_alone(noted: Noted) -> Callable[[Any], Any]:
    """Its result is the program's, which XLA leaves on the device of the callback."""
    return lambda x: jax.pure_callback(noted.double, LIKE_X, x)


def ordered(noted: Noted) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        y = io_callback(noted.double, LIKE_X, x, ordered=True)
        io_callback(noted.note, None, y[:2], ordered=True)
        return y + 1

    return f


def in_a_loop(noted: Noted) -> Callable[[Any], Any]:
    return lambda x: jax.lax.fori_loop(0, 3, lambda _, x: jax.pure_callback(noted.double, LIKE_X, x), x)


def debugged(noted: Noted) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        jax.debug.callback(noted.note, x * 3)
        return x + 1

    return f


def beside_a_manual_part(noted: Noted) -> Callable[[Any], Any]:
    total = jax.shard_map(lambda x: x + jax.lax.psum(x, "i"), mesh=ROW, in_specs=P("i"), out_specs=P("i"))
    return lambda x: jax.pure_callback(noted.double, LIKE_X, total(x))


TOTAL = X + np.tile(X.reshape(4, 2).sum(0), 4)


@pytest.mark.parametrize("given", [CUT, NamedSharding(ROW, P())], ids=["cut", "whole"])
@pytest.mark.parametrize(
    ("make", "result", "calls"),
    [
        (pure, 2 * (X + 1) - 3, [X + 1]),
        (pure_alone, 2 * X, [X]),
        (ordered, 2 * X + 1, [X, 2 * X[:2]]),
        (in_a_loop, 8 * X, [X, 2 * X, 4 * X]),
        (debugged, X + 1, [3 * X]),
        (beside_a_manual_part, 2 * TOTAL, [TOTAL]),
    ],
)
def test_callbacks_run_once_on_whole_arrays(
    cluster: dx.Cluster, make: Callable[[Noted], Any], result: Any, calls: list[Any], given: NamedSharding
) -> None:
    noted = Noted()
    got = dxj.jit(make(noted), cluster=cluster, in_shardings=given)(X)
    np.testing.assert_array_equal(np.asarray(got), result)
    assert noted.seen == [call.tolist() for call in calls]


def test_the_result_of_a_callback_is_whole_on_every_device(cluster: dx.Cluster) -> None:
    got = dxj.jit(pure_alone(Noted()), cluster=cluster, in_shardings=CUT)(X)
    assert [np.asarray(shard.data).tolist() for shard in got.shards] == [(2 * X).tolist()] * 4
    assert got.sharding == NamedSharding(ROW, P())
    again = dxj.jit(lambda x: x - 1, cluster=cluster)(got)
    np.testing.assert_array_equal(np.asarray(again), 2 * X - 1)


def test_custom_partitioning_sees_the_mesh_and_the_shardings(cluster: dx.Cluster) -> None:
    seen: list[Any] = []

    @custom_partitioning
    def reversed_parts(x: Any) -> Any:
        return x[::-1]

    def partition(mesh: Any, args: Any, result: Any) -> Any:
        seen.append((dict(mesh.shape), args[0].sharding.spec))
        return mesh, lambda part: part[::-1], args[0].sharding, (args[0].sharding,)

    reversed_parts.def_partition(
        infer_sharding_from_operands=lambda mesh, args, result: args[0].sharding,
        partition=partition,
        sharding_rule="i -> i",
    )
    got = dxj.jit(lambda x: reversed_parts(x) + 1, cluster=cluster, in_shardings=CUT)(X)
    np.testing.assert_array_equal(np.asarray(got), X.reshape(4, 2)[:, ::-1].reshape(-1) + 1)
    assert seen == [({"i": 4}, P("i"))]


def test_shardings_are_inspected(cluster: dx.Cluster) -> None:
    seen: list[Any] = []

    def f(x: Any) -> Any:
        jax.debug.inspect_array_sharding(2 * x, callback=lambda sharding: seen.append(sharding.spec))
        return 2 * x

    np.testing.assert_array_equal(np.asarray(dxj.jit(f, cluster=cluster, in_shardings=CUT)(X)), 2 * X)
    assert seen == [P("i")]


REAL_MESH = """
import jax, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import distxla as dx, distxla.jax as dxj

mesh = jax.make_mesh((2,), ("i",), axis_types=(AxisType.Auto,))
x = jax.device_put(np.arange(4, dtype=np.float32), NamedSharding(mesh, P("i")))
f = jax.jit(lambda x: jax.pure_callback(lambda x: np.asarray(x) * 2, jax.ShapeDtypeStruct((4,), np.float32), x))
with dx.Cluster(partitions=2) as cluster:
    print(f(x).tolist(), np.asarray(dxj.compile(f.lower(x), cluster=cluster)(x)).tolist())
"""


def test_what_jax_has_lowered_for_its_own_devices() -> None:
    flags = "import os; os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=2'\n"
    done = subprocess.run(
        [sys.executable, "-c", flags + REAL_MESH], capture_output=True, text=True, timeout=120, cwd=ROOT
    )
    assert done.stdout == "[0.0, 2.0, 4.0, 6.0] [0.0, 2.0, 4.0, 6.0]\n", done.stderr[-2000:]
