"""Computations that XLA's host offloader wants run on the host: each device computes them itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from distxla.compiler.obstacles import obstacles
from distxla.compiler.verify.verifier import verify_module
from distxla.errors import UnsupportedOpError
from distxla.text.parser import parse_module
from distxla.text.printer import print_module
from tests.ops.program_case import compiled, evaluated

WORK = "{ x = f32[2,3] parameter(0)\n ROOT p = f32[2,2] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={1} }"
SUGAR = (
    's = ((f32[2,3]), f32[2,2], u32[]) custom-call-start(x), custom_call_target="HostExecute", '
    'async_execution_thread="host", {}\n  ROOT y = f32[2,2] custom-call-done(s)'
)
WRAPPED = (
    "wrapped { x = f32[2,3] parameter(0)\n"
    ' ROOT c = f32[2,2] custom-call(x), custom_call_target="HostExecute", called_computations={work}, '
    'frontend_attributes={_xla_compute_type="host"} }, execution_thread="host"'
)
STARTED = (
    's = ((f32[2,3]), f32[2,2], u32[]) async-start(x), async_execution_thread="host", calls=wrapped\n'
    '  ROOT y = f32[2,2] async-done(s), frontend_attributes={_xla_compute_type="host"}'
)
PROGRAMS = {  # what stands before the entry, and what makes its result of x
    "at once": (f"work {WORK}", 'ROOT y = f32[2,2] custom-call(x), custom_call_target="HostExecute", to_apply=work'),
    "asynchronous": (f'work {WORK}, execution_thread="host"', SUGAR.format("called_computations={work}")),
    "of the main thread": (f"work {WORK}", SUGAR.format("to_apply=work")),
    "wrapped": (f'work {WORK}, execution_thread="host"\n{WRAPPED}', STARTED),
    "moved there and back": (
        f'work {WORK}, execution_thread="host"',
        'h = f32[2,3] custom-call(x), custom_call_target="MoveToHost"\n  '
        + SUGAR.format("to_apply=work").replace("start(x)", "start(h)").replace("ROOT y", "z")
        + '\n  ROOT y = f32[2,2] custom-call(z), custom_call_target="MoveToDevice"',
    ),
}
OBSTACLES = {
    "no computation": ("", 'ROOT y = f32[2,2] custom-call(x), custom_call_target="HostExecute"', "none of this module"),
    "other operands": (
        f"work {WORK}",
        'ROOT y = f32[2,2] custom-call(x, x), custom_call_target="HostExecute", to_apply=work',
        "it names work, not one that fits it",
    ),
    "another result": (
        f"work {WORK}",
        'ROOT y = f32[4] custom-call(x), custom_call_target="HostExecute", to_apply=work',
        "it names work, not one that fits it",
    ),
}


def _module(before: str, body: str) -> str:
    return f"HloModule m\n\n{before}\n\nENTRY e {{\n  x = f32[2,3] parameter(0)\n  {body}\n}}\n"


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("executor", [evaluated, compiled])
def test_the_device_computes_it(executor: Callable[..., Any], name: str) -> None:
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    (y,) = executor(_module(*PROGRAMS[name]), x)
    np.testing.assert_array_equal(y, [[14, 32], [32, 77]])


@pytest.mark.parametrize("name", PROGRAMS)
def test_xla_takes_what_is_printed(name: str) -> None:
    hlo = pytest.importorskip("jaxlib._hlo")
    hlo.hlo_module_from_text(print_module(parse_module(_module(*PROGRAMS[name]))))


@pytest.mark.parametrize("name", OBSTACLES)
def test_what_the_text_does_not_hold_is_an_obstacle(name: str) -> None:
    before, body, why = OBSTACLES[name]
    module = parse_module(_module(before, body))
    verify_module(module)
    instruction, found = obstacles(module)[0]
    assert instruction.name == "y"
    assert why in found
    with pytest.raises(UnsupportedOpError, match="HostExecute"):
        compiled(_module(before, body), np.zeros((2, 3), np.float32))
