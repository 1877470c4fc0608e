"""`scan`: by reference and compiled, against XLA CPU and against NumPy's own scans."""

from __future__ import annotations

import numpy as np
import pytest

from distxla.errors import VerificationError
from tests.ops.program_case import compiled, evaluated, parsed
from tests.ops.scan_cases import (
    CASES,
    _scan,
)


@pytest.mark.parametrize("name", CASES)
def test_compiled_agrees_with_evaluate(name: str) -> None:
    text, arguments = CASES[name]
    for got, wanted in zip(compiled(text, *arguments), evaluated(text, *arguments), strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in CASES if name != "no step"])  # XLA's own expansion fails there
def test_evaluate_agrees_with_xla(name: str) -> None:
    pytest.importorskip("jax")
    from tests.ops.xla_cpu import run_by_xla

    text, arguments = CASES[name]
    for got, wanted in zip(evaluated(text, *arguments), run_by_xla(text, arguments), strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("opcode", ["add", "multiply", "maximum"])
def test_cumulative_functions(opcode: str, reverse: bool) -> None:
    step = f"step {{\n  x = f64[] parameter(0)\n  c = f64[] parameter(1)\n  a = f64[] {opcode}(c, x)\n"
    step += "  ROOT r = (f64[], f64[]) tuple(a, a)\n}"
    attributes = ", is_reverse=true" if reverse else ""
    text = _scan("(f64[1000], f64[])", ["f64[1000]", "f64[]"], step, 1, attributes).replace("{1}", "{0}")
    values = np.random.default_rng(0).normal(1, 0.1, 1000)
    order = slice(None, None, -1 if reverse else None)
    wanted = getattr(np, opcode).accumulate(values[order])[order]
    initial = {"add": 0.0, "multiply": 1.0, "maximum": -np.inf}[opcode]
    got, last = compiled(text, values, np.float64(initial))
    np.testing.assert_allclose(got, wanted, rtol=1e-12)
    assert last == got[0 if reverse else -1]


def test_within_a_loop_and_a_call() -> None:
    """An expansion in computations that others call."""
    text = """HloModule nested
step {
  x = s32[] parameter(0)
  c = s32[] parameter(1)
  a = s32[] add(x, c)
  ROOT r = (s32[], s32[]) tuple(a, a)
}
sums {
  x = s32[3] parameter(0)
  zero = s32[] constant(0)
  s = (s32[3], s32[]) scan(x, zero), dimensions={0}, num_carries=1, to_apply=step
  ROOT r = s32[3] get-tuple-element(s), index=0
}
more {
  s = (s32[], s32[3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(2)
  ROOT r = pred[] compare(i, n), direction=LT
}
body {
  s = (s32[], s32[3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = s32[3] get-tuple-element(s), index=1
  y = s32[3] call(x), to_apply=sums
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT r = (s32[], s32[3]) tuple(j, y)
}
ENTRY main {
  x = s32[3] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], s32[3]) tuple(zero, x)
  w = (s32[], s32[3]) while(s), condition=more, body=body
  ROOT r = s32[3] get-tuple-element(w), index=1
}
"""
    x = np.array([1, 2, 3], np.int32)
    wanted = x.cumsum().cumsum().tolist()
    assert evaluated(text, x)[0].tolist() == compiled(text, x)[0].tolist() == wanted


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("(s32[2,3], s32[2]) scan", "(s32[2,4], s32[2]) scan", "scan.C6"),
        ("(s32[2,3], s32[2]) scan", "(s32[3,3], s32[2]) scan", "scan.C6"),
        ("dimensions={1}", "dimensions={2}", "scan.C1"),
        ("num_carries=1", "num_carries=3", "scan.C2"),
        ("num_carries=1", "num_carries=0", "scan.C[13]"),
    ],
)
def test_rules(old: str, new: str, rule: str) -> None:
    with pytest.raises(VerificationError, match=rule):
        parsed(CASES["vectors"][0].replace(old, new))
