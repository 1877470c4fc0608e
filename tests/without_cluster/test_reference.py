"""`distxla.reference` and `distxla.Watch`: arguments in all forms, results, values of every execution."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import distxla as dx
from distxla.jax.private.names import is_jaxlib_there

ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"
SUM = f"""HloModule sum, num_partitions=4
{ADD}ENTRY main {{ x = f32[2] parameter(0)
 n = s32[] parameter(1)
 y = f32[2] all-reduce(x), to_apply=add, channel_id=1
 ROOT out = (f32[2], s32[]) tuple(y, n) }}
"""
X = np.arange(2, dtype=np.float32)


def test_a_list_for_each_device() -> None:
    outs = dx.reference(dx.parse(SUM), [[X + d, np.int32(d)] for d in range(4)])
    assert len(outs) == 4
    for d, (total, number) in enumerate(outs):
        np.testing.assert_array_equal(total, 4 * X + 6)
        assert (number, number.dtype) == (d, np.int32)


def test_a_flat_list_is_the_same_for_all_and_numbers_take_the_type() -> None:
    outs = dx.reference(dx.parse(SUM), [X, 7])
    np.testing.assert_array_equal(outs[3][0], 4 * X)
    assert outs[3][1] == 7


def test_counts_where_no_header_says_them() -> None:
    module = dx.parse(SUM.replace(", num_partitions=4", ""))
    np.testing.assert_array_equal(dx.reference(module, [X, 0], replicas=2, partitions=3)[5][0], 6 * X)
    assert len(dx.reference(module, [X, 0])) == 1


GLOBAL = """HloModule g, num_partitions=4
ENTRY main { x = f32[8,2] parameter(0), sharding={devices=[4,1]<=[4]}
 a = f32[8,2] custom-call(x), custom_call_target="Sharding", sharding={devices=[4,1]<=[4]}
 b = f32[2,2] custom-call(a), custom_call_target="SPMDFullToShardShape", sharding={manual}
 c = f32[2,2] negate(b)
 d = f32[2,2] custom-call(c), custom_call_target="Sharding", sharding={manual}
 ROOT e = f32[8,2] custom-call(d), custom_call_target="SPMDShardToFullShape", sharding={devices=[4,1]<=[4]} }
"""


def test_whole_arrays_of_a_global_module() -> None:
    whole = np.arange(16, dtype=np.float32).reshape(8, 2)
    outs = dx.reference(dx.parse(GLOBAL), [whole])
    np.testing.assert_array_equal(outs[1][0], -whole[2:4])
    (joined,) = outs.join()
    np.testing.assert_array_equal(joined, -whole)
    parts = dx.reference(dx.parse(GLOBAL), [[whole[2 * d : 2 * d + 2]] for d in range(4)])
    np.testing.assert_array_equal(parts.join()[0], -whole)
    with pytest.raises(dx.ArgumentError, match="there is no replica 1 among 1"):
        outs.join(1)
    with pytest.raises(dx.ArgumentError, match="sum is no global module"):
        dx.reference(dx.parse(SUM), [X, 0]).join()


def test_several_programs() -> None:
    sends = dx.parse(
        "HloModule a\nENTRY main { x = f32[2] parameter(0)\n t = token[] after-all()\n"
        " s = (f32[2], u32[], token[]) send(x, t), channel_id=1\n ROOT d = token[] send-done(s), channel_id=1 }\n"
    )
    receives = dx.parse(
        "HloModule b\nENTRY main { t = token[] after-all()\n r = (f32[2], u32[], token[]) recv(t), channel_id=1\n"
        " d = (f32[2], token[]) recv-done(r), channel_id=1\n ROOT v = f32[2] get-tuple-element(d), index=0 }\n"
    )
    outs = dx.reference([((0,), sends), ((2,), receives)], [[X], [], []])
    assert outs[0] == [None]
    assert outs[1] == []
    np.testing.assert_array_equal(outs[2][0], X)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([X], "sum takes 2 arguments, device 0 got 1"),
        ([[X, 0]] * 3, "expected 4 lists, one a device, or one flat sequence"),
        ([[X, 0], X, [X, 0], [X, 0]], "expected 4 lists"),
        ([X.astype(np.float64), 0], r"args\[0\]\[0\]: expected f32\[2\], found float64\[2\]"),
        ([np.zeros(3, np.float32), 0], r"args\[0\]\[0\]: expected f32\[2\], found float32\[3\]"),
        ([X, 1.5], r"args\[0\]\[1\]: expected s32\[\]: 1.5 is no s32"),
        (X, "expected a sequence of arrays, found ndarray"),
        ("xy", "expected a sequence of arrays, found str"),
    ],
)
def test_arguments_that_do_not_fit(args: object, message: str) -> None:
    with pytest.raises(dx.ArgumentError, match=message):
        dx.reference(dx.parse(SUM), args)  # type: ignore[arg-type]


def test_a_whole_array_where_a_part_is_due_has_a_hint() -> None:
    text = SUM.replace("parameter(0)\n n", "parameter(0), sharding={devices=[4]<=[4]}\n n")
    with pytest.raises(dx.ArgumentError) as caught:
        dx.reference(dx.parse(text), [np.zeros(8, np.float32), 0])
    (hint,) = caught.value.__notes__
    assert hint.startswith("hint: give each device its part: args[d][0] is part d of np.split(whole, 4, axis=0)")


def test_devices_that_wait_for_ever_and_limits_are_errors() -> None:
    undecided = dx.parse(
        f"HloModule m, replica_count=2\n{ADD}with {{ x = f32[2] parameter(0)\n"
        " ROOT y = f32[2] all-reduce(x), to_apply=add }\n"
        "without { ROOT x = f32[2] parameter(0) }\nENTRY main { x = f32[2] parameter(0)\n p = pred[] parameter(1)\n"
        " ROOT y = f32[2] conditional(p, x, x), true_computation=with, false_computation=without }\n"
    )
    with pytest.raises(dx.DeadlockError) as caught:
        dx.reference(undecided, [[X, True], [X, False]])
    assert caught.value.diagnosis is not None
    with pytest.raises(dx.TimeLimitError, match="the time limit of 1e-09 s ran out"):
        dx.reference(dx.parse(SUM), [X, 0], time_limit=1e-9)


LOOP = f"""HloModule loop, num_partitions=2
{ADD}below {{ s = (s32[], f32[2]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 three = s32[] constant(3)
 ROOT less = pred[] compare(i, three), direction=LT }}
step {{ s = (s32[], f32[2]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 one = s32[] constant(1)
 next = s32[] add(i, one)
 v = f32[2] get-tuple-element(s), index=1
 total = f32[2] all-reduce(v), to_apply=add, channel_id=1
 ROOT r = (s32[], f32[2]) tuple(next, total) }}
ENTRY main {{ x = f32[2] parameter(0)
 zero = s32[] constant(0)
 s = (s32[], f32[2]) tuple(zero, x)
 w = (s32[], f32[2]) while(s), condition=below, body=step
 t = token[] after-all()
 ROOT y = f32[2] get-tuple-element(w), index=1 }}
"""
ONES = [[np.ones(2, np.float32)], [np.full(2, 2, np.float32)]]


def test_a_watch_keeps_every_execution_with_its_iterations() -> None:
    watch = dx.Watch("total", "less", "w")
    dx.reference(dx.parse(LOOP), ONES, watch=watch)
    assert sorted(watch.values) == ["less", "total", "w"]
    assert [(value.tolist(), iterations) for value, iterations in watch.values["total"][0]] == [
        ([3, 3], (1,)),
        ([6, 6], (2,)),
        ([12, 12], (3,)),
    ]
    # the condition is asked before each iteration, and once more
    assert [(bool(value), iterations) for value, iterations in watch.values["less"][1]] == [
        (True, (0,)),
        (True, (1,)),
        (True, (2,)),
        (False, (3,)),
    ]
    ((whole, iterations),) = watch.values["w"][1]
    assert (int(whole[0]), whole[1].tolist(), iterations) == (3, [12, 12], ())


def test_patterns_devices_functions_and_everything() -> None:
    module = dx.parse(LOOP)
    chosen = dx.Watch("to*", "[xy]", devices=1)
    dx.reference(module, ONES, watch=chosen)
    assert {name: sorted(found) for name, found in chosen.values.items()} == {"x": [1], "total": [1], "y": [1]}
    by_function = dx.Watch(where=lambda i: i.opcode == "all-reduce", devices=[0])
    dx.reference(module, ONES, watch=by_function)
    assert list(by_function.values) == ["total"]
    everything = dx.Watch()
    dx.reference(module, ONES, watch=everything)
    assert {"x", "zero", "s", "w", "t", "y", "i", "total", "r", "less"} <= set(everything.values)
    assert everything.values["t"][0][0].value is None
    assert "add" not in everything.values


def test_values_are_of_their_own_and_of_the_last_run() -> None:
    module, watch = dx.parse(LOOP), dx.Watch("x", "total")
    given = [[value.copy() for value in row] for row in ONES]
    dx.reference(module, given, watch=watch)
    given[0][0][:] = 9
    assert watch.values["x"][0][0].value.tolist() == [1, 1]
    watch.values["total"][0][0].value[:] = 0  # nobody else's
    dx.reference(module, given, watch=watch)
    assert [value.tolist() for value, _ in watch.values["x"][0]] == [[9, 9]]
    assert len(watch.values["total"][0]) == 3
    assert repr(watch) == "Watch('x', 'total'): 8 values of 2 instructions"


def test_names_and_devices_that_are_none() -> None:
    module = dx.parse(LOOP)
    with pytest.raises(dx.ArgumentError, match="no instruction is named 'totl'") as caught:
        dx.reference(module, ONES, watch=dx.Watch("totl"))
    assert caught.value.__notes__ == ["hint: did you mean total?"]
    with pytest.raises(dx.ArgumentError, match="there is no device 2 among 2"):
        dx.reference(module, ONES, watch=dx.Watch(devices=[2]))
    with pytest.raises(dx.ArgumentError, match=r"devices: expected flattened ids, found 1\.5"):
        dx.Watch(devices=1.5)  # type: ignore[arg-type]
    assert dx.Watch(devices=np.arange(2)).devices == frozenset((0, 1))
    with pytest.raises(dx.ArgumentError, match="expected names of instructions, found 3"):
        dx.Watch(3)  # type: ignore[arg-type]
    with pytest.raises(dx.ArgumentError, match="where: expected a function"):
        dx.Watch(where="dot")  # type: ignore[arg-type]


@pytest.mark.skipif(not is_jaxlib_there(), reason="needs jaxlib")
def test_a_module_that_xla_partitions(tmp_path: Path) -> None:
    text = """HloModule dot, num_partitions=2
ENTRY main { x = f32[4,4] parameter(0), sharding={devices=[1,2]<=[2]}
 w = f32[4,4] parameter(1), sharding={devices=[2,1]<=[2]}
 ROOT y = f32[4,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={replicated} }
"""
    x, w = np.arange(32, dtype=np.float32).reshape(2, 4, 4)
    module = dx.parse(text)
    watch = dx.Watch(where=lambda i: i.opcode == "dot", devices=0)
    outs = dx.reference(module, [x, w], watch=watch)
    np.testing.assert_allclose(outs.join()[0], x @ w)
    ((by_device,),) = [watch.values.values()]
    np.testing.assert_allclose(by_device[0][0].value, x[:, :2] @ w[:2])
    assert [row["kind"] for row in dx.check(module).communication] == ["all-reduce"]


def test_neither_ray_nor_llvm_nor_jax_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(LOOP)
    program = (
        "import sys, distxla, numpy as np\nimport distxla.oracle.lockstep\n"
        f"distxla.reference(distxla.load({str(path)!r}), [np.ones(2, np.float32)])\n"
        "print(sorted({'ray', 'llvmlite', 'jax', 'click', 'rich'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout == "[]\n"
