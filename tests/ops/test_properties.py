"""Instructions with any shapes, attributes and element types: compiled code against `evaluate`, it against XLA CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from distxla.text.printer import print_module
from tests.compiler.lower.harness import Kernel
from tests.ops import drawn
from tests.ops.case import Array
from tests.ops.drawn import Drawn
from tests.samples import examples

# Of each example a kernel is compiled. The same examples every time: a failure is the change's.
QUICK = settings(
    max_examples=examples(15),
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)

STRATEGIES: dict[str, Callable[..., st.SearchStrategy[Drawn]]] = {
    "gather": drawn.gathers,
    "scatter": drawn.scatters,
    "pad": drawn.pads,
    "dynamic-slice": drawn.dynamic_slices,
    "reduce": drawn.reduces,
    "reduce-window": drawn.reduce_windows,
    "select-and-scatter": drawn.selects_and_scatters,
    "sort": drawn.sorts,
    "dot": drawn.dots,
    "convolution": drawn.convolutions,
}


def _compiled(case: Drawn) -> list[Array]:
    result = Kernel(case.module())(*case.values())
    return list(result) if isinstance(result, tuple) else [result]


def _assert_equal(case: Drawn, got: Sequence[Array | None], want: Sequence[Any]) -> None:
    """The same numbers; NaNs are equal to each other, and so are zeros."""
    for ours, theirs in zip(got, want, strict=True):
        assert ours is not None
        theirs = np.asarray(theirs)
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), str(case)
        if ours.dtype.kind not in "biu":
            wide = np.complex128 if ours.dtype.kind == "c" else np.float64
            ours, theirs = ours.astype(wide), theirs.astype(wide)
        np.testing.assert_array_equal(ours, theirs, err_msg=f"{case}\n{print_module(case.module())}")


def _is_comparable(case: Drawn) -> bool:
    """Padding of rank 0 has no text in HLO; XLA drops updates of a scatter whose index vectors are empty."""
    op: Any = case.module().entry_computation.root_instruction.op
    if op.opcode == "pad":
        return bool(op.padding)
    return op.opcode != "scatter" or bool(op.scatter_dims_to_operand_dims)


@pytest.mark.sampled(one_in=9, first=("reduce-window",))
@pytest.mark.parametrize("opcode", STRATEGIES)
def test_compiled_agrees_with_evaluate(opcode: str) -> None:
    @QUICK
    @given(STRATEGIES[opcode]())
    def check(case: Drawn) -> None:
        _assert_equal(case, _compiled(case), case.evaluated())

    check()


@pytest.mark.exhaustive
@pytest.mark.parametrize("opcode", STRATEGIES)
def test_many_compiled_agree_with_evaluate(opcode: str) -> None:
    @settings(QUICK, max_examples=40)
    @given(STRATEGIES[opcode]())
    def check(case: Drawn) -> None:
        _assert_equal(case, _compiled(case), case.evaluated())

    check()


@pytest.mark.sampled(one_in=9, first=("convolution-10",))
@pytest.mark.parametrize("examples", [10, pytest.param(20, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("opcode", STRATEGIES)
@pytest.mark.filterwarnings("ignore")
def test_evaluate_agrees_with_xla(opcode: str, examples: int) -> None:
    pytest.importorskip("jax")
    from tests.ops.xla_cpu import run_by_xla

    @settings(QUICK, max_examples=examples)
    @given(STRATEGIES[opcode](drawn.XLA_TYPES))
    def check(case: Drawn) -> None:
        assume(_is_comparable(case))
        _assert_equal(case, case.evaluated(), run_by_xla(print_module(case.module()), case.values()))

    check()
