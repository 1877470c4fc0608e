"""Tiles of products cover what they should, and are right for processors with fewer and shorter registers."""

from __future__ import annotations

import pytest

from distxla.compiler.lower import gemm_micro_kernel
from distxla.targets.x86_64 import code
from distxla.targets.x86_64.tuning import processor_with
from tests.ops.structured_case import StructuredCase, assert_compiled_agrees

REGISTERS = [(64, 32), (32, 16), (16, 16)]
SAME = "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"
CASES = [
    StructuredCase(f"f64[2,9,9,72] convolution(@), {SAME}", ("f64[2,9,9,40]", "f64[3,3,40,72]")),
    StructuredCase(f"f32[2,9,9,5] convolution(@), {SAME}", ("f32[2,9,9,3]", "f32[3,3,3,5]")),
    StructuredCase(
        "s32[70,90] dot(@), lhs_contracting_dims={1}, rhs_contracting_dims={0}", ("s32[70,2050]", "s32[2050,90]")
    ),
]


@pytest.fixture(params=REGISTERS, ids=lambda registers: f"{registers[1]} of {registers[0]} bytes")
def registers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Pretends a processor with these vector registers."""
    found: tuple[int, int] = request.param
    monkeypatch.setattr(code, "host_processor", lambda: processor_with(*found))
    return found


@pytest.mark.parametrize("case", CASES, ids=str)
def test_tiles_of_any_registers_are_right(case: StructuredCase, registers: tuple[int, int]) -> None:
    assert_compiled_agrees(case)


def test_a_tile_fits_its_registers_and_blocks_cover_the_columns(registers: tuple[int, int]) -> None:
    size, count = registers
    for element_bytes in (4, 8):
        for columns in range(1, 400):
            for rows in (1, 2, 6, 7, 13, 1000):
                tile = gemm_micro_kernel.choose_tile(processor_with(*registers), rows, columns, element_bytes)
                assert 1 <= tile.rows <= rows
                assert tile.lanes * element_bytes == size
                # sums, weights of a step, one element of a row
                assert tile.rows * tile.vectors + tile.vectors + 1 <= count
                assert (tile.blocks - 1) * tile.columns < columns <= tile.blocks * tile.columns
