"""The oracle itself against XLA CPU: all cases of an opcode in one module, run by both.

Element-wise ops over all element types: test_matrix.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

import numpy as np
import pytest

from distxla.ir.element_type import PRED
from distxla.text.printer import print_module
from tests.ops import cases_data_movement, cases_elementwise
from tests.ops.case import Array, Case, joined
from tests.tolerances import ulps_between

jax = pytest.importorskip("jax")

# XLA CPU, or the conversion on the way to it, has no form of these.
NOT_IN_XLA_CPU = {"copy-start", "copy-done", "get-tuple-element", "tuple", "bitcast"}
XLA_ULPS = 16  # what XLA's own exponential is off by


def _is_comparable(case: Case) -> bool:
    if case.opcode in NOT_IN_XLA_CPU:
        return False
    shapes = (*case.operands, case.shape)
    if any(leaf.dtype.bits < 4 for shape in shapes for leaf in shape.leaves()):
        return False
    # StableHLO's pred has one bit; its dynamic-slice takes scalars only; padding of rank 0 has no text in HLO.
    if case.opcode == "bitcast-convert" and any(shape.dtype is PRED for shape in shapes):
        return False
    if case.opcode == "dynamic-slice" and any(shape.rank for shape in case.operands[1:]):
        return False
    return not (case.opcode == "pad" and not case.shape.rank)


def _by_opcode() -> dict[str, list[Case]]:
    cases = sorted(
        filter(_is_comparable, [*cases_elementwise.SHAPED, *cases_data_movement.CASES]), key=lambda c: c.opcode
    )
    return {opcode: list(found) for opcode, found in groupby(cases, key=lambda c: c.opcode)}


@lru_cache(maxsize=1)  # callers run a text with one row of arguments after the other
def _compiled_by_xla(text: str, optimised: bool) -> Any:
    import jaxlib.xla_client
    from jaxlib import _hlo, _jax

    device = jax.devices("cpu")[0]
    proto = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    program = jaxlib.xla_client._xla.mlir.hlo_to_stablehlo(proto)
    options = jaxlib.xla_client.CompileOptions()
    if not optimised:  # a third of the time
        options.executable_build_options.debug_options.xla_backend_optimization_level = 0
    return device.client.compile_and_load(program, _jax.DeviceList((device,)), options)


def run_by_xla(text: str, arguments: Sequence[Array], *, optimised: bool = False) -> list[Array]:
    """optimised: where bits are compared, since LLVM then joins multiplications and additions."""
    device, executable = jax.devices("cpu")[0], _compiled_by_xla(text, optimised)
    with jax.enable_x64(True):
        return [np.asarray(out) for out in executable.execute([jax.device_put(a, device) for a in arguments])]


@pytest.mark.sampled(one_in=9)
@pytest.mark.slow
@pytest.mark.parametrize("opcode", _by_opcode())
@pytest.mark.filterwarnings("ignore")
def test_evaluate_agrees_with_xla(opcode: str) -> None:
    cases = _by_opcode()[opcode]
    arguments = [value for case in cases for value in case.values()]
    wanted = run_by_xla(print_module(joined(cases)), arguments)
    off = [text for case, xla in zip(cases, wanted, strict=True) for text in _differences(case, xla)]
    assert not off, "\n".join(off)


def _differences(case: Case, xla: Array) -> list[str]:
    (got,) = case.evaluated()
    assert got is not None
    element = case.shape.dtype
    assert xla.dtype == got.dtype
    if element.is_float:
        wrong = ulps_between(got, xla) > (XLA_ULPS if case.op.is_expensive else 1)
    else:
        wrong = np.asarray(got != xla) & ~(np.isnan(got) & np.isnan(xla) if element.is_complex else False)
    if element.is_float:
        # XLA CPU flushes what its exponential makes of subnormals, and NumPy does not.
        wrong &= np.abs(got.astype(np.float64)) > np.finfo(np.float32).tiny
    if not wrong.any():
        return []
    return [f"{case}: {_listed(case, wrong)}: {got[wrong][:4]}, XLA {xla[wrong][:4]}"]


def _listed(case: Case, wrong: Any) -> str:
    return ", ".join(str(v[wrong][:4]) for v in case.values() if v.shape == wrong.shape)
