"""A composite call: `call` with is_composite, run by its decomposition."""

from __future__ import annotations

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module
from distxla.text.printer import print_module
from tests.compiler.runner import run_single

COMPOSITE = """HloModule composite
decomposition {
  a = f32[3] parameter(0)
  ROOT r = f32[3] multiply(a, a)
}
ENTRY main {
  x = f32[3] parameter(0)
  ROOT c = f32[3] call(x), to_apply=decomposition, is_composite=true, frontend_attributes=ATTRIBUTES
}
"""


@pytest.mark.parametrize(
    "attributes",
    [
        '{composite.name="foo.bar",composite.attributes={n = 1 : i32, t = "}"},composite.version="1"}',
        '{composite.name="foo.bar",composite.version="0"}',
    ],
)
def test_it_is_its_decomposition(attributes: str) -> None:
    module = parse_module(COMPOSITE.replace("ATTRIBUTES", attributes))
    x = np.array([1, 2, 3], np.float32)
    assert np.array_equal(run_reference(module, [[x]], Counts(1, 1))[0][0], x * x)
    assert np.array_equal(run_single(compile_module(module, Counts(1, 1)), [x])[0], x * x)
    assert parse_module(print_module(module)) == module
