"""Tables of constants: 2/pi against its published digits, and bytes that are written with escapes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from llvmlite import binding, ir

from distxla.compiler.lower.constant_tables import (
    byte_array,
    constant_bytes,
    planned_constant,
    two_over_pi,
    two_over_pi_f64,
)
from distxla.ir.element_type import S32, U8
from distxla.ir.literal import Literal
from distxla.ir.shape import Shape
from distxla.program.abi import ALIGNMENT

# of the table ipio2 in fdlibm's k_rem_pio2.c: 24 bits each
TWO_OVER_PI = """
A2F983 6E4E44 1529FC 2757D1 F534DD C0DB62 95993C 439041 FE5163 ABDEBB C561B7
246E3A 424DD2 E00649 2EEA09 D1921C FE1DEB 1CB129 A73EE8 8235F5 2EBB44 84E99C
7026B4 5F7E41 3991D6 398353 39F49C 845F8B BDF928 3B1FF8 97FFDE 05980F EF2F11
8B5A0A 6D1F6D 367ECF 27CB09 B74F46 3F669E 5FEA2D 7527BA C7EBE5 F17B3D 0739F7
8A5292 EA6BFB 5FB11F 8D5D08 560330 46FC7B 6BABF0 CFBC20 9AF436 1DA9E3 91615E
"""
DIGITS = Fraction(int("".join(TWO_OVER_PI.split()), 16), 1 << 24 * len(TWO_OVER_PI.split()))


def rows_of(table: ir.GlobalVariable) -> list[list[Fraction]]:
    rows: Any = table.initializer.constant
    return [[Fraction(number.constant) for number in row.constant] for row in rows]


def significant_bits(number: Fraction) -> int:
    """From the first to the last bit that is set; the denominator is a power of two."""
    numerator = abs(number.numerator)
    return (numerator // (numerator & -numerator)).bit_length() if numerator else 0


def test_two_over_pi_for_f32_has_a_first_part_whose_products_are_exact() -> None:
    first, second = rows_of(two_over_pi(ir.Module()))
    assert len(first) == len(second) == 256
    for biased, (high, low) in enumerate(zip(first, second, strict=True)):
        wanted = DIGITS * Fraction(2) ** (max(biased, 1) - 150) % 4
        assert significant_bits(high) <= 29, biased
        assert abs(wanted - high - low) <= abs(low) / 2**53, biased
        assert abs(low) <= high / 2**28, biased


def test_two_over_pi_for_f64_is_right_to_a_last_bit_of_four_parts() -> None:
    rows = rows_of(two_over_pi_f64(ir.Module()))
    assert [len(row) for row in rows] == [1026] * 4
    for place, parts in enumerate(zip(*rows, strict=True)):
        wanted = DIGITS * Fraction(2) ** (1021 + place - 1075) % 4
        assert abs(wanted - sum(parts)) <= wanted / 2**200, place


def test_a_module_has_each_table_once() -> None:
    module = ir.Module()
    assert two_over_pi(module) is two_over_pi(module)
    assert two_over_pi_f64(module) is not two_over_pi(module)
    shape = Shape(S32, (3,))
    ones, again, others = (Literal.of([value] * 3, shape) for value in (1, 1, 2))
    assert constant_bytes(module, ones) is constant_bytes(module, again)
    assert constant_bytes(module, others) is not constant_bytes(module, ones)


@pytest.mark.parametrize("data", [b"", b"\0", b'"', bytes(range(256))], ids=len)
def test_bytes_are_those_that_llvm_reads(data: bytes) -> None:
    """As llvmlite writes them, which asks of each whether it has to be escaped."""
    read = []
    for value in (byte_array(data), ir.Constant(ir.ArrayType(ir.IntType(8), len(data)), bytearray(data))):
        module = ir.Module()
        ir.GlobalVariable(module, value.type, "bytes").initializer = value
        read.append(str(binding.parse_assembly(str(module)).get_global_variable("bytes")))
    assert read[0] == read[1]


def test_constants_of_a_plan_are_aligned_as_device_memory() -> None:
    module = ir.Module()
    found = planned_constant(module, Literal.of([1, 2, 3], Shape(U8, (3,))), 5)
    assert (found.name, found.align, found.linkage, found.global_constant) == (
        "constant_5",
        ALIGNMENT,
        "internal",
        True,
    )
    assert str(found.initializer.type) == "[3 x i8]"
