"""Comparisons of results."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import distxla as dx
from distxla.testing import assert_matches_reference, assert_matches_unsharded, assert_same_on_all_devices
from distxla.testing.named_leaves import named_leaves
from tests.runtime import hand_made

F32 = np.float32
GLOBAL = """HloModule halves, num_partitions=2
ENTRY main {
  n = f32[] parameter(0)
  x = f32[4] parameter(1)
  b = f32[4] broadcast(n), dimensions={}
  p = u32[] partition-id()
  q = f32[] convert(p)
  d = f32[4] broadcast(q), dimensions={}
  s = f32[4] add(b, x)
  ROOT y = f32[4] add(s, d)
}"""


def leaves(*values: Any) -> list[np.ndarray[Any, Any]]:
    return [np.array(value, F32) for value in values]


@pytest.mark.parametrize(
    "outs",
    [
        [leaves([1, np.nan, -0.0]), leaves([1, np.nan, 0])],
        leaves(3, 3, 3),
        [[None, np.int32(7)], [None, np.int32(7)]],
    ],
)
def test_devices_that_agree(outs: Any) -> None:
    assert_same_on_all_devices(outs)


def test_devices_that_differ_are_listed() -> None:
    outs = [leaves(1, [1, 2]), leaves(1, [1, 2]), leaves(1, [1, 2.5])]
    with pytest.raises(AssertionError) as caught:
        assert_same_on_all_devices(outs)
    text = str(caught.value)
    assert text.startswith("differs from device 0 in 1 of 4 arrays")
    assert "out1        2 f32" in text
    assert "[1]: 2.5 instead of 2.0" in text
    assert_same_on_all_devices(outs, leaves=[0])
    assert_same_on_all_devices(outs, tolerance=0.2)


def test_a_nan_on_one_device_only_differs() -> None:
    with pytest.raises(AssertionError, match=r"nan instead of 1\.0"):
        assert_same_on_all_devices(leaves(1, np.nan), tolerance=0.5)


@pytest.mark.parametrize(
    ("outs", "options", "error", "message"),
    [
        ([leaves(1)], {}, dx.ArgumentError, "expected the results of at least 2 devices, found those of 1"),
        ([leaves(1), leaves(1, 2)], {}, dx.ArgumentError, "expected as many leaves on each device"),
        ([leaves(1), leaves(1)], {"leaves": [1]}, dx.ArgumentError, "leaves: expected numbers from 0 to 0, found 1"),
        ([[None], [None]], {}, dx.ArgumentError, "found none with elements"),
        (leaves(1, [1]), {}, AssertionError, r"leaf 0 on device 1: expected float32\[\], found float32\[1\]"),
    ],
)
def test_what_cannot_be_compared(outs: Any, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        assert_same_on_all_devices(outs, **options)


@dataclass
class Whole:
    """As arrays of distxla.jax are: shards with device, index and data."""

    shards: list[SimpleNamespace]


def whole(*values: float, parts: int) -> Whole:
    return Whole([SimpleNamespace(device=d, index=d % parts, data=F32(value)) for d, value in enumerate(values)])


def test_shards_of_the_same_part() -> None:
    assert_same_on_all_devices(whole(1, 2, 1, 2, parts=2))
    with pytest.raises(AssertionError, match=r"from the first device with the same part in 1 of 2(.|\n)* 3 f32"):
        assert_same_on_all_devices(whole(1, 2, 1, 3, parts=2))
    with pytest.raises(dx.ArgumentError, match="every device has another part"):
        assert_same_on_all_devices(whole(1, 2, parts=2))


class Layer(NamedTuple):
    """A node of a pytree."""

    w: Any
    b: Any


def test_the_leaves_of_a_pytree_of_arrays_have_their_paths() -> None:
    same, part, other = whole(1, 1, parts=1), whole(1, 2, parts=2), whole(1, 1, 3, 3, parts=1)
    assert_same_on_all_devices({"params": {"w": same, "b1": [same, part]}, "step": 3})
    with pytest.raises(AssertionError) as caught:
        assert_same_on_all_devices({"params": {"w": same, "b1": Layer(same, other)}, "state": (other,)})
    lines = str(caught.value).splitlines()
    assert lines[0] == "differs from the first device with the same part in 4 of 8 arrays"
    assert [line.split()[:2] for line in lines[2:]] == [["params['b1'].b", "2,"], ["state[0]", "2,"]]
    assert_same_on_all_devices({"a": same, "b": other}, leaves=[0])
    with pytest.raises(dx.ArgumentError, match="every device has another part of each array"):
        assert_same_on_all_devices({"a": part})
    with pytest.raises(dx.ArgumentError, match="expected the results of each device, found dict"):
        assert_same_on_all_devices({"a": np.zeros(2)})


def test_each_device_may_have_a_pytree() -> None:
    rows = [{"b1": F32(k // 3), "w": [F32(1), None]} for k in range(8)]
    with pytest.raises(AssertionError) as caught:
        assert_same_on_all_devices(rows)
    first, _, *table = str(caught.value).splitlines()
    assert first == "differs from device 0 in 5 of 14 arrays"
    assert [line.split()[:2] for line in table] == [["b1", "3-5"], ["b1", "6,"]]
    assert "6, 7 f32" in table[1]
    with pytest.raises(dx.ArgumentError, match="a pytree of the same structure on each device"):
        assert_same_on_all_devices([{"a": F32(1)}, {"b": F32(1)}])


@pytest.mark.parametrize("has_jax", [False, True])
def test_paths_are_those_of_jax(has_jax: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if has_jax:
        pytest.importorskip("jax")
    else:
        monkeypatch.delitem(sys.modules, "jax", raising=False)
    tree = {"params": {"w": 1, "b": (2, [3, None])}, "layer": Layer(4, {7: 5}), "no name": 6}
    paths = ["layer.w", "layer.b[7]", "['no name']", "params['b'][0]", "params['b'][1][0]", "params['b'][1][1]"]
    assert [path for path, _ in named_leaves(tree)] == [*paths, "params['w']"]
    assert [leaf for _, leaf in named_leaves(tree)] == [4, 5, 6, 2, 3, None, 1]
    assert named_leaves(3) == [("", 3)]


# each device enters the rounds of its branch in another order, and may change it
CROSSED = """
HloModule crossed, num_partitions=2
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
larger { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] maximum(a, b) }
first { x = f32[2] parameter(0)
  s = f32[2] all-reduce(x), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add
  m = f32[2] all-reduce(x), channel_id=2, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=larger
  ROOT r = f32[2] add(s, m) }
second { x = f32[2] parameter(0)
  m = f32[2] all-reduce(x), channel_id=2, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=larger
  ROOT s = f32[2] all-reduce(m), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add }
ENTRY main { x = f32[2] parameter(0)  i = u32[] partition-id()  j = s32[] convert(i)
  ROOT r = f32[2] conditional(j, x, x), branch_computations={first, second} }
"""


@pytest.mark.cluster
@pytest.mark.devices(2)
def test_the_reference_communicates_in_the_order_of_the_call(cluster: dx.Cluster) -> None:
    assert_matches_reference(cluster.compile(dx.parse(CROSSED)), [[np.arange(2, dtype=F32)], [np.ones(2, F32)]])


@pytest.mark.cluster
@pytest.mark.devices(2)
def test_the_reference(cluster: dx.Cluster) -> None:
    step = cluster.compile(dx.parse(GLOBAL))
    args = [1.5, np.arange(4, dtype=F32)]
    assert_matches_reference(step, args)
    outs = step(args)
    with pytest.raises(AssertionError, match="differs from device 0 in 1 of 1 array"):
        assert_same_on_all_devices(outs)
    with pytest.raises(AssertionError, match=r"differs from the reference in 2 of 2 arrays.*\n.*\n.*instead of"):
        assert_matches_reference(step, args, outs[::-1])
    with pytest.raises(dx.ArgumentError, match="its module is not known"):
        assert_matches_reference(hand_made.adopted(cluster, step.program), args)


def test_sharded_functions_and_their_unsharded_form() -> None:
    jax = pytest.importorskip("jax")
    import distxla.jax as dxj

    def on_mesh(total: Any) -> Any:
        mesh, spec = dxj.make_mesh((4,), ("x",)), jax.sharding.PartitionSpec
        return jax.shard_map(total, mesh=mesh, in_specs=spec("x"), out_specs=spec(), check_vma=False)

    x = np.linspace(0, 1, 16, dtype=F32)
    right, wrong = on_mesh(lambda x: jax.lax.psum(x.sum(), "x")), on_mesh(lambda x: x.sum())
    assert_matches_unsharded(right, lambda x: x.sum(), x)
    with pytest.raises(AssertionError) as caught:
        assert_matches_unsharded(wrong, lambda x: x.sum(), x)
    text = str(caught.value)
    assert text.startswith("out0 differs on 4 of 4 devices\nfirst difference: not reduced at ")
    assert "a psum over 'x' is missing" in text
    assert_matches_unsharded(on_mesh(lambda x: jax.lax.psum(x.sum(), "x") * 1.01), lambda x: x.sum(), x, tolerance=0.1)
    with pytest.raises(AssertionError):
        assert_matches_unsharded(on_mesh(lambda x: jax.lax.psum(x.sum(), "x") * 1.01), lambda x: x.sum(), x)
