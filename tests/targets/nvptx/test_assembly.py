"""Kernels of all kinds assemble; every architecture assembles each op with one type."""

from __future__ import annotations

import pytest

from distxla.compiler.stages import emit
from distxla.ir.counts import Counts
from distxla.ir.element_type import DATA_TYPES, element_type
from distxla.ir.module import Module
from distxla.text.parser import parse_module
from tests.compiler.lower.grid.ops_cases import OPS, module_text
from tests.ops.case import joined
from tests.ops.matrix import cases_of, is_of_its_own
from tests.targets.nvptx.assembler import ARCHITECTURES, assemble, needs_assembler

pytestmark = needs_assembler


def kernels_assemble(module: Module, architecture: str) -> None:
    """None of them is left to the host."""
    ptx = str(emit(module, "ptx", Counts(1, 1), gpu_architecture=architecture))
    assert "<<<" in ptx
    assert "on the host" not in ptx
    assert assemble(ptx, architecture).startswith(b"\x7fELF")


def an_architecture(number: int) -> str:
    return list(ARCHITECTURES)[number % len(ARCHITECTURES)]


NAMES = [t.name for t in DATA_TYPES]
DIFFERENT = ["bf16", "f16", "f32", "f8e4m3fn", "f8e5m2"]  # architectures differ in their instructions for these


@pytest.mark.sampled(one_in=120, first=("f32-sm_90",))
@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        *((name, an_architecture(number)) for number, name in enumerate(NAMES) if name not in DIFFERENT),
        *((name, architecture) for name in DIFFERENT for architecture in ARCHITECTURES),
    ],
)
def test_every_element_wise_op_of_every_type(name: str, architecture: str) -> None:
    element = element_type(name)
    every = (name, architecture) == ("f8e5m2", "sm_90")
    kernels_assemble(joined([c for c in cases_of(element) if every or is_of_its_own(c, element)]), architecture)


KINDS = ["s32", "f32", "f64", "bf16"]  # each op on two architectures, with one of them each


@pytest.mark.sampled(one_in=20, first=("dot of a vector and a matrix-f32-sm_100",))
@pytest.mark.parametrize(
    ("name", "kind", "architecture"),
    [
        (name, KINDS[(i + k) % len(KINDS)], an_architecture(i + i // 4 + k))
        for i, name in enumerate(OPS)
        for k in range(2)
    ],
)
def test_ops(name: str, kind: str, architecture: str) -> None:
    kernels_assemble(parse_module(module_text(name, kind)), architecture)
