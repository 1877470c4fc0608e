"""Ops that only order others, or pass values on: after-all, add-dependency, opt-barrier, domain."""

from __future__ import annotations

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.compiler.verify.verifier import verify_module
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module
from tests.compiler.runner import run_single

BODIES = {
    "after-all and add-dependency": """
  t = token[] after-all()
  u = token[] after-all(t, t)
  ROOT y = f32[3] add-dependency(x, u)""",
    "after-all of a value that nothing else needs": """
  n = f32[3] negate(x)
  p = (f32[3], f32[3]) tuple(n, x)
  t = token[] after-all(n, p)
  ROOT y = f32[3] add-dependency(x, t)""",
    "opt-barrier of an array": "ROOT y = f32[3] opt-barrier(x)",
    "opt-barrier of a tuple": """
  p = (f32[3], f32[3]) tuple(x, x)
  b = (f32[3], f32[3]) opt-barrier(p)
  ROOT y = f32[3] get-tuple-element(b), index=1""",
    "domain": 'ROOT y = f32[3] domain(x), domain={kind="sharding", entry={maximal device=0}, exit={replicated}}',
}


@pytest.mark.parametrize("name", BODIES)
def test_the_value_passes_through(name: str) -> None:
    module = parse_module(f"HloModule m\nENTRY main {{\n  x = f32[3] parameter(0)\n  {BODIES[name]}\n}}\n")
    verify_module(module)
    x = np.array([1.0, -0.0, np.nan], np.float32)
    by_reference = run_reference(module, [[x]], Counts(1, 1))[0]
    compiled = run_single(compile_module(module, Counts(1, 1)), [x])
    assert np.asarray(by_reference[0]).tobytes() == np.asarray(compiled[0]).tobytes() == x.tobytes()
