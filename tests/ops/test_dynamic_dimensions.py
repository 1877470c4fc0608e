"""Bounded dynamic dimensions: the reference's natural arrays, XLA's answers, and compiled code on padded arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distxla.compiler.compile import compile_module
from distxla.compiler.obstacles import obstacles
from distxla.compiler.pipeline import Pipeline
from distxla.compiler.verify.verifier import verify_module
from distxla.errors import UnsupportedOpError
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module
from tests.compiler.runner import Devices, run_devices
from tests.executable import require_executable
from tests.ops import cases_dynamic
from tests.ops.cases_dynamic import COMPUTATIONS, SETUP, arguments

Array = np.ndarray[Any, Any]
SIZES = [(n, m) for n in range(7) for m in range(5)]
# XLA's memory still holds elements beyond a size, which a slice, a gathered row, a larger size, or a reshape that
# follows no size then shows; its select does not repeat a size of 1; its dynamic-reshape moves no rows together. On
# sizes out of bounds, windows and spatial convolutions of dynamic dimension sizes it ends the process or refuses, and
# StableHLO, through which texts get to XLA here, has no reshape with two dynamic dimensions.
NOT_AS_XLA = {
    "select", "smaller_or_larger", "to_the_bound", "too_large", "negative", "pad_negative", "slice", "slice_kept",
    "slice_strided", "dynamic_slice", "dynamic_slice_kept", "dynamic_update", "split_into_static", "split_inferred",
    "dynamic", "ones", "one_of_two", "other_of_two", "merge_into_static_text", "window", "window_padded",
    "window_base_dilated", "prefixes", "suffixes", "convolution", "convolution_strided", "convolution_batch",
    "gather_rows", "scatter_unsigned", "barrier", "bitcast_convert_split", "select_and_scatter",
    "select_and_scatter_no_infinity",
    "bitcast", "bitcast_split", "bitcast_to_static", "pad_to_static", "sizes", "slice_to_dynamic", "fft", "solve",
    "top_k",
}  # fmt: skip


def by_reference(text: str, rows: Sequence[Sequence[Any]], partitions: int = 1) -> list[list[Any]]:
    module = parse_module(text, "<test>")
    verify_module(module)
    return run_reference(module, rows, Counts(1, partitions))


def assert_equal(got: Any, wanted: Any, what: str) -> None:
    assert got.shape == wanted.shape, what
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5, err_msg=what)


def test_the_example_of_the_operation_semantics() -> None:
    """Reductions take what the size leaves: 1 + .. + 5, 1 * .. * 5, 1 + .. + 6; the text may say f32[10], too."""
    text = (
        "HloModule sizes\n"
        + COMPUTATIONS
        + """
        ENTRY main {
          v = f32[10] constant({1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
          five = s32[] constant(5)
          six = s32[] constant(6)
          zero = f32[] constant(0)
          one = f32[] constant(1)
          padded_v_five = f32[10] set-dimension-size(v, five), dimensions={0}
          padded_v_six = f32[<=10] set-dimension-size(v, six), dimensions={0}
          sum = f32[] reduce(padded_v_five, zero), dimensions={0}, to_apply=sum
          product = f32[] reduce(padded_v_five, one), dimensions={0}, to_apply=product
          sum_six = f32[] reduce(padded_v_six, zero), dimensions={0}, to_apply=sum
          ROOT all = (f32[], f32[], f32[]) tuple(sum, product, sum_six)
        }
        """
    )
    wanted = [15.0, 120.0, 21.0]
    assert [float(leaf) for leaf in by_reference(text, [[]])[0]] == wanted
    program = compile_module(parse_module(text, "<test>"), Counts(1, 1))
    assert [float(leaf) for leaf in run_devices(program, [[]])[0]] == wanted


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("family", cases_dynamic.CASES)
def test_compiled_code_agrees_with_the_reference_for_every_size(family: str) -> None:
    """NaN stands in memory behind the elements of arguments: none of it may reach a result."""
    cases = cases_dynamic.CASES[family]
    text = cases_dynamic.text(cases, cases_dynamic.ARRAYS_AS_PARAMETERS)
    module = parse_module(text, "<test>")
    require_executable(module)
    devices = Devices(compile_module(module, Counts(1, 1)))
    try:
        for n, m in SIZES:
            row = cases_dynamic.all_arguments(n, m)
            wanted = by_reference(text, [row])[0]
            for name, ours, theirs in zip(cases, devices([row])[0], wanted, strict=True):
                assert_equal(ours, theirs, f"{name} with n={n}, m={m}")
    finally:
        devices.close()


@pytest.mark.sampled(one_in=12, first=("ordering-scatter",))
@pytest.mark.parametrize(
    ("family", "name"), [(f, n) for f, cases in cases_dynamic.CASES.items() for n in cases if n not in NOT_AS_XLA]
)
@pytest.mark.filterwarnings("ignore")
def test_the_reference_agrees_with_xla(family: str, name: str) -> None:
    version = pytest.importorskip("jax").__version_info__
    from tests.ops.xla_cpu import run_by_xla

    if name == "split_minor" and version >= (0, 12):
        pytest.skip("XLA's result is memory that nothing has written, from 0.12 on")
    text = cases_dynamic.text({name: cases_dynamic.CASES[family][name]})
    text = text.replace("ROOT all = (", "all = (").replace(f"  {name} =", f"  ROOT {name} =")
    for n, m in ((0, 0), (1, 4), (2, 3), (5, 1), (6, 2)):
        (wanted,) = by_reference(text, [arguments(n, m)])[0]
        (found,) = run_by_xla(text, arguments(n, m))
        # XLA packs a dynamic result at the beginning of a buffer for its bounds
        got = found.reshape(-1)[: wanted.size].reshape(wanted.shape)
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5, err_msg=f"n={n}, m={m}")


CONTROL = {
    "while_shrinks": (
        """
        body {
          s = (s32[], f32[<=6], f32[4,<=6]) parameter(0)
          i = s32[] get-tuple-element(s), index=0
          d = f32[<=6] get-tuple-element(s), index=1
          w = f32[4,<=6] get-tuple-element(s), index=2
          one = s32[] constant(1)
          next = s32[] add(i, one)
          k = s32[] get-dimension-size(d), dimensions={0}
          less = s32[] subtract(k, one)
          cut = f32[<=6] set-dimension-size(d, less), dimensions={0}
          double = f32[<=6] add(cut, cut)
          ROOT r = (s32[], f32[<=6], f32[4,<=6]) tuple(next, double, w)
        }
        go_on {
          s = (s32[], f32[<=6], f32[4,<=6]) parameter(0)
          i = s32[] get-tuple-element(s), index=0
          two = s32[] constant(2)
          ROOT c = pred[] compare(i, two), direction=LT
        }
        """,
        """
          i = s32[] constant(0)
          t = (s32[], f32[<=6], f32[4,<=6]) tuple(i, d, columns)
          ROOT l = (s32[], f32[<=6], f32[4,<=6]) while(t), condition=go_on, body=body
        """,
    ),
    "while_becomes_dynamic": (
        """
        body {
          s = (s32[], f32[6]) parameter(0)
          i = s32[] get-tuple-element(s), index=0
          d = f32[6] get-tuple-element(s), index=1
          one = s32[] constant(1)
          next = s32[] add(i, one)
          five = s32[] constant(5)
          size = s32[] subtract(five, i)
          cut = f32[6] set-dimension-size(d, size), dimensions={0}
          ROOT r = (s32[], f32[6]) tuple(next, cut)
        }
        go_on {
          s = (s32[], f32[6]) parameter(0)
          i = s32[] get-tuple-element(s), index=0
          three = s32[] constant(3)
          ROOT c = pred[] compare(i, three), direction=LT
        }
        """,
        """
          i = s32[] minimum(n, m)
          t = (s32[], f32[6]) tuple(i, v)
          l = (s32[], f32[6]) while(t), condition=go_on, body=body
          x = f32[6] get-tuple-element(l), index=1
          ROOT s = f32[] reduce(x, zero), dimensions={0}, to_apply=sum
        """,
    ),
    "while_of_an_array": (
        """
        body {
          d = f32[<=6] parameter(0)
          k = s32[] get-dimension-size(d), dimensions={0}
          one = s32[] constant(1)
          less = s32[] subtract(k, one)
          ROOT cut = f32[<=6] set-dimension-size(d, less), dimensions={0}
        }
        go_on {
          d = f32[<=6] parameter(0)
          k = s32[] get-dimension-size(d), dimensions={0}
          two = s32[] constant(2)
          ROOT c = pred[] compare(k, two), direction=GT
        }
        """,
        "ROOT l = f32[<=6] while(d), condition=go_on, body=body",
    ),
    "branches_of_different_sizes": (
        """
        yes {
          s = (f32[<=6], (s32[], f32[4,6])) parameter(0)
          d = f32[<=6] get-tuple-element(s), index=0
          u = (s32[], f32[4,6]) get-tuple-element(s), index=1
          k = s32[] get-tuple-element(u), index=0
          ROOT t = (f32[<=6], s32[]) tuple(d, k)
        }
        no {
          v = f32[6] parameter(0)
          k = s32[] constant(7)
          ROOT t = (f32[6], s32[]) tuple(v, k)
        }
        """,
        """
          c = pred[] compare(n, m), direction=GT
          u = (s32[], f32[4,6]) tuple(n, w)
          s = (f32[<=6], (s32[], f32[4,6])) tuple(d, u)
          ROOT l = (f32[<=6], s32[]) conditional(c, s, v), true_computation=yes, false_computation=no
        """,
    ),
    "one_branch_twice": (
        """
        b0 {
          d = f32[<=6] parameter(0)
          ROOT r = f32[<=6] negate(d)
        }
        b1 {
          d = f32[<=6] parameter(0)
          ROOT r = f32[<=6] add(d, d)
        }
        """,
        "ROOT l = f32[<=6] conditional(m, d, e, v), branch_computations={b0, b1, b0}",
    ),
    "calls": (
        """
        centred {
          d = f32[<=6] parameter(0)
          zero = f32[] constant(0)
          s = f32[] reduce(d, zero), dimensions={0}, to_apply=sum
          b = f32[<=6] broadcast(s), dimensions={}
          ROOT r = f32[<=6] subtract(d, b)
        }
        """,
        """
          x = f32[<=6] call(d), to_apply=centred
          y = f32[<=6] fusion(e), kind=kLoop, calls=centred
          ROOT t = (f32[<=6], f32[<=6]) tuple(x, y)
        """,
    ),
}


@pytest.mark.sampled(one_in=6, first=("branches_of_different_sizes", "while_of_an_array"))
@pytest.mark.parametrize("name", CONTROL)
def test_sizes_travel_through_control_flow(name: str) -> None:
    computations, body = CONTROL[name]
    text = f"HloModule control\n{COMPUTATIONS}{computations}\nENTRY main {{{SETUP}\n{body}\n}}\n"
    devices = Devices(compile_module(parse_module(text, "<test>"), Counts(1, 1)))
    try:
        for n, m in SIZES:
            wanted = by_reference(text, [arguments(n, m)])[0]
            for ours, theirs in zip(devices([arguments(n, m)])[0], wanted, strict=True):
                assert_equal(ours, theirs, f"n={n}, m={m}")
    finally:
        devices.close()


PARAMETERS = """HloModule parameters
ENTRY main {
  t = (f32[<=4,<=3], s32[]) parameter(0)
  p = f32[2,<=4] parameter(1)
  a = f32[<=4,<=3] get-tuple-element(t), index=0
  r = f32[2,<=3] dot(p, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  q = f32[<=12] reshape(a)
  u = (f32[<=12], f32[2,<=4]) tuple(q, p)
  ROOT o = (f32[2,<=3], (f32[<=12], f32[2,<=4])) tuple(r, u)
}
"""


def test_parameters_and_results_have_any_size_up_to_the_bound() -> None:
    random = np.random.default_rng(0)
    program = compile_module(parse_module(PARAMETERS, "<test>"), Counts(1, 1))
    assert program.parameter_sizes == ((0, 0), (0, 1), (2, 1))
    assert program.result_sizes == ((0, 1), (1, 0), (2, 1))
    for n in range(5):
        for m in range(4):
            a, p = (random.random(dims, np.float32) for dims in ((n, m), (2, n)))
            row = [a, np.int32(1), p]
            got = run_devices(program, [row])[0]
            assert_equal(got[0], p @ a, f"{n} {m}")
            for ours, theirs in zip(got, by_reference(PARAMETERS, [row])[0], strict=True):
                assert_equal(ours, theirs, f"{n} {m}")


COLLECTIVES = f"""HloModule collectives, num_partitions=2
{COMPUTATIONS}
ENTRY main {{
  p = f32[<=6,2] parameter(0)
  a = f32[<=6,2] all-reduce(p), to_apply=sum, replica_groups={{{{0,1}}}}, channel_id=1, use_global_device_ids=true
  c = f32[<=6,2] collective-permute(p), source_target_pairs={{{{0,1}}}}, channel_id=2
  b = f32[<=6,2] collective-broadcast(p), replica_groups={{{{1,0}}}}, channel_id=3
  ROOT t = (f32[<=6,2], f32[<=6,2], f32[<=6,2]) tuple(a, c, b)
}}
"""


def test_devices_with_different_sizes() -> None:
    """An all-reduce has the smallest size; what is sent keeps the sender's; who gets nothing has none."""
    one, two = (np.arange(2 * n, dtype=np.float32).reshape(n, 2) for n in (3, 5))
    wanted = [
        [one + two[:3], np.zeros((0, 2), np.float32), two],
        [one + two[:3], one, two],
    ]
    program = compile_module(parse_module(COLLECTIVES, "<test>"), Counts(1, 2))
    for rows in (by_reference(COLLECTIVES, [[one], [two]], partitions=2), run_devices(program, [[one], [two]])):
        for got, expected in zip(rows, wanted, strict=True):
            for ours, theirs in zip(got, expected, strict=True):
                assert_equal(ours, theirs, "")


@pytest.mark.parametrize(
    ("body", "opcode", "why"),
    [
        (
            "ROOT r = f32[2,<=6] all-gather(x), dimensions={0}, replica_groups={{0}}, channel_id=1, "
            "use_global_device_ids=true",
            "all-gather",
            "this version cannot execute all-gather of dynamic dimensions (operands f32[1,<=6])",
        ),
        (
            "k = f32[1,<=6,1] reshape(e)\n ROOT r = f32[1,1,1] convolution(y, k), window={size=6}, "
            "dim_labels=b0f_i0o->b0f",
            "convolution",
            "this version cannot execute convolution of dynamic dimensions: the kernel's spatial dimensions are",
        ),
    ],
)
def test_what_has_no_rule_is_refused_at_check(body: str, opcode: str, why: str) -> None:
    before = "x = f32[1,<=6] reshape(d)\n  y = f32[1,<=6,1] reshape(d)\n"
    module = parse_module(f"HloModule refused\n{COMPUTATIONS}\nENTRY main {{{SETUP}{before}{body}\n}}\n", "<test>")
    ((instruction, message),) = obstacles(module)
    assert (instruction.opcode, message[: len(why)]) == (opcode, why)
    with pytest.raises(UnsupportedOpError) as caught:
        require_executable(module)
    assert caught.value.location is not None


def test_unbounded_dimensions_are_refused() -> None:
    module = parse_module(
        "HloModule m\nENTRY main {\n  p = f32[?] parameter(0)\n  ROOT n = f32[?] negate(p)\n}\n", "<t>"
    )
    with pytest.raises(UnsupportedOpError, match=r"unbounded shape f32\[\?\]"):
        require_executable(module)


STEPS = st.sampled_from(
    [
        "f32[<=6] add(A, B)",
        "f32[<=6] multiply(A, A)",
        "f32[<=6] reverse(A), dimensions={0}",
        "f32[<=6] sort(A), dimensions={0}, to_apply=greater",
        "f32[<=6] reduce-window(A, zero), window={size=3 pad=1_1}, to_apply=sum",
        "f32[<=6] set-dimension-size(A, n), dimensions={0}",
        "f32[<=6] set-dimension-size(A, m), dimensions={0}",
        "f32[<=6] dynamic-update-slice(A, B, m)",
        "f32[<=6] pad(A, one), padding=-1_1",
        "f32[<=6] dynamic-reshape(A, m)",
    ]
)


@settings(max_examples=12, deadline=None)
@given(st.lists(st.tuples(STEPS, st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=6))
def test_chains_on_padded_arrays_agree_with_natural_arrays(chain: list[tuple[str, int, int]]) -> None:
    """The pass's own output, run by the reference: no code is generated."""
    from distxla.compiler.passes.pad_dynamic_dimensions import padded

    names = ["d", "e"]
    lines = []
    for number, (step, a, b) in enumerate(chain):
        lines.append(f"  s{number} = " + step.replace("A", names[a % len(names)]).replace("B", names[b % len(names)]))
        names.append(f"s{number}")
    root = f"  ROOT all = f32[<=6] copy({names[-1]})"
    text = "\n".join(["HloModule chain", COMPUTATIONS, "ENTRY main {", SETUP, *lines, root, "}"])
    module = parse_module(text, "<test>")
    verify_module(module)
    static, shape = padded(module)
    verify_module(static)
    assert shape == Pipeline().through("pad-dynamic-dimensions").run(module).result
    for n, m in ((0, 3), (1, 4), (2, 0), (4, 1), (6, 2), (5, 5)):
        (wanted,) = by_reference(text, [arguments(n, m)])[0]
        found: Any = run_reference(static, [arguments(n, m)], Counts(1, 1))[0]
        got = found[0][: int(found[1])] if len(found) > 1 else found[0]
        assert_equal(got, wanted, f"n={n}, m={m}")


@pytest.mark.parametrize(
    ("instruction", "shape"),
    [
        ("negate(both)", "f32[<=4,<=6]"),
        ("compare(w, both), direction=LT", "pred[<=4,<=6]"),
        ("transpose(rows), dimensions={1,0}", "f32[6,<=4]"),
        ("reduce(both, zero), dimensions={1}, to_apply=sum", "f32[<=4]"),
        ("reduce-window(d, zero), window={size=2}, to_apply=sum", "f32[<=5]"),
        ("dot(columns, w), lhs_contracting_dims={0}, rhs_contracting_dims={0}", "f32[<=6,6]"),
        ("concatenate(w, rows), dimensions={0}", "f32[<=8,6]"),
        ("pad(d, zero), padding=1_1", "f32[<=8]"),
        ("slice(both), slice={[0:2], [0:6]}", "f32[2,<=6]"),
        ("dynamic-slice(both, m, n), dynamic_slice_sizes={2,6}", "f32[2,<=6]"),
        ("sort(d), dimensions={0}, to_apply=greater", "f32[<=6]"),
        ("set-dimension-size(w, n), dimensions={0}", "f32[<=4,6]"),
        ("get-dimension-size(d), dimensions={0}", "s32[]"),
        ("tuple(d, v)", "(f32[<=6], f32[6])"),
    ],
)
def test_inferred_shapes_carry_dynamic_dimensions(instruction: str, shape: str) -> None:
    module = parse_module(
        f"HloModule inferred\n{COMPUTATIONS}\nENTRY main {{{SETUP}  ROOT r = {instruction}\n}}\n", "<test>"
    )
    assert str(module.entry_computation.root_instruction.shape) == shape
    verify_module(module)


def test_which_dimensions_are_dynamic_is_no_matter_of_verification() -> None:
    """As in XLA: `f32[6]` and `f32[<=6]` are compatible, sizes follow the values."""
    body = """
      a = f32[6] add(d, v)
      s = f32[6] slice(a), slice={[0:6]}
      ROOT r = s32[] get-dimension-size(s), dimensions={0}"""
    text = f"HloModule flags\n{COMPUTATIONS}\nENTRY main {{{SETUP}{body}\n}}\n"
    assert int(by_reference(text, [arguments(2, 0)])[0][0]) == 2
    program = compile_module(parse_module(text, "<test>"), Counts(1, 1))
    assert int(run_devices(program, [arguments(2, 0)])[0][0]) == 2
