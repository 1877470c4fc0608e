"""What a computation that is applied to elements (map, reduce, sort …) may hold."""

from __future__ import annotations

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.compiler.verify.verifier import verify_module
from distxla.errors import UnsupportedOpError
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module
from tests.compiler.runner import run_single
from tests.executable import require_executable

TABLE = """HloModule table
lookup {
  a = s32[] parameter(0)
  t = f32[4] constant({10, 20, 30, 40})
  n = f32[4] negate(t)
  s = f32[1] dynamic-slice(n, a), dynamic_slice_sizes={1}
  ROOT r = f32[] reshape(s)
}
ENTRY main {
  x = s32[5] parameter(0)
  ROOT y = f32[5] map(x), dimensions={0}, to_apply=lookup
}
"""

REDUCTION = """HloModule reduction
fold {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  {root}
}}
ENTRY main {{
  x = f32[5] parameter(0)
  zero = f32[] constant(0)
  ROOT y = f32[] reduce(x, zero), dimensions={{0}}, to_apply=fold
}}
"""


def test_arrays_on_the_way_are_computed_where_they_are_read() -> None:
    module = parse_module(TABLE)
    verify_module(module)
    indices = np.array([0, 3, 1, 7, -2], np.int32)
    wanted = np.array([-10, -40, -20, -40, -10], np.float32)
    np.testing.assert_array_equal(run_reference(module, [[indices]], Counts(1, 1))[0][0], wanted)
    np.testing.assert_array_equal(run_single(compile_module(module, Counts(1, 1)), [indices])[0], wanted)


@pytest.mark.parametrize(
    ("opcode", "root"),
    [
        ("dot", "ROOT r = f32[] dot(a, b)"),
        (
            "sort",
            "t = f32[1] reshape(a)\n  u = f32[1] sort(t), dimensions={0}, to_apply=less\n  ROOT r = f32[] reshape(u)",
        ),
    ],
)
def test_what_is_no_scalar_code_is_refused_at_its_place(opcode: str, root: str) -> None:
    less = "less {\n p = f32[] parameter(0)\n q = f32[] parameter(1)\n ROOT l = pred[] compare(p, q), direction=LT\n}\n"
    module = parse_module(REDUCTION.format(root=root).replace("fold {", less + "fold {"))
    verify_module(module)
    with pytest.raises(UnsupportedOpError, match=f"execute {opcode} in a computation applied to elements") as error:
        require_executable(module)
    assert error.value.location is not None


@pytest.mark.parametrize("target", ["Sharding", "xla.sdy.PropagationBarrier"])
def test_an_annotation_is_its_operand(target: str) -> None:
    """JAX 0.12 states how results of a reduction's computation are cut, too."""
    annotation = f'c = f32[] custom-call(s), custom_call_target="{target}", sharding={{replicated}}'
    module = parse_module(REDUCTION.format(root=f"s = f32[] add(a, b)\n  ROOT {annotation}"))
    verify_module(module)
    x = np.array([1, 2, 4, 8, 16], np.float32)
    assert run_reference(module, [[x]], Counts(1, 1))[0][0] == 31
    assert run_single(compile_module(module, Counts(1, 1)), [x])[0] == 31
