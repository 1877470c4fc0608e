"""Constant tables that generated code reads."""

from __future__ import annotations

import hashlib
from functools import cache
from math import ldexp

from llvmlite import ir

from distxla.compiler.lower.scalar_expression import F64T
from distxla.emit.native_function import I8
from distxla.ir.literal import Literal
from distxla.program.abi import ALIGNMENT


def planned_constant(module: ir.Module, literal: Literal, number: int) -> ir.GlobalVariable:
    """The bytes of constant `number` of a plan, in device memory's layout."""
    data = b"" if literal.array is None else literal.array.tobytes()
    initial = byte_array(data)
    variable = ir.GlobalVariable(module, initial.type, f"constant_{number}")
    variable.linkage = "internal"
    variable.global_constant = True
    variable.align = ALIGNMENT
    variable.initializer = initial
    return variable


def byte_array(data: bytes) -> ir.Constant:
    """The initial value of an array of bytes: all escaped at once, where llvmlite asks of each whether it has to be."""
    escaped = "\\" + data.hex("\\") if data else ""
    return ir.FormattedConstant(ir.ArrayType(I8, len(data)), f'c"{escaped}"')


def _arctangent_of_inverse(n: int, bits: int) -> int:
    """atan(1/n) * 2^bits, by its series."""
    total, power, k = 0, (1 << bits) // n, 0
    while power:
        total += (-power if k % 2 else power) // (2 * k + 1)
        power //= n * n
        k += 1
    return total


@cache
def _two_over_pi_bits(bits: int) -> int:
    """2/pi * 2^bits, by Machin's formula for pi."""
    work = bits + 64
    pi = 4 * (4 * _arctangent_of_inverse(5, work) - _arctangent_of_inverse(239, work))
    return (1 << (bits + 1 + work)) // pi


@cache
def _two_over_pi_parts() -> tuple[tuple[float, ...], tuple[float, ...]]:
    """By biased exponent of an f32: 2^(exponent of its last bit) * 2/pi modulo 4, split after 29 significant bits."""
    from fractions import Fraction  # 5 ms of every start, for few programs

    bits = 320
    value = Fraction(_two_over_pi_bits(bits), 1 << bits)
    first, second = [], []
    for biased in range(256):
        scale = Fraction(2) ** (max(biased, 1) - 150)
        number = value * scale
        number -= 4 * (number // 4)
        # at most 29 bits, so that times 24 bits is exact in f64
        step = Fraction(2) ** (number.numerator.bit_length() - number.denominator.bit_length() - 28)
        high = step * (number // step)
        first.append(float(high))
        second.append(float(number - high))
    return tuple(first), tuple(second)


@cache
def _two_over_pi_parts_f64() -> tuple[tuple[float, ...], ...]:
    """By biased exponent of an f64, from 1021 on: 2^(exponent of its last bit) * 2/pi modulo 4, in four f64."""
    bits = 1300
    value = _two_over_pi_bits(bits)
    rows: list[list[float]] = [[], [], [], []]
    for biased in range(1021, 2047):
        point = bits - (biased - 1075)
        number = value & ((4 << point) - 1)
        for row in rows:
            part = _as_f64(number, point)
            row.append(part)
            numerator, denominator = part.as_integer_ratio()
            number -= (numerator << point) // denominator
    return tuple(map(tuple, rows))


def _as_f64(number: int, point: int) -> float:
    """number / 2^point."""
    shift = max(number.bit_length() - 53, 0) if number > 0 else max((-number).bit_length() - 53, 0)
    return ldexp(number >> shift, shift - point)


def two_over_pi(module: ir.Module) -> ir.GlobalVariable:
    """double[2][256]: see `_two_over_pi_parts`."""
    return _table(module, "two_over_pi", _two_over_pi_parts())


def two_over_pi_f64(module: ir.Module) -> ir.GlobalVariable:
    """double[4][1026]: see `_two_over_pi_parts_f64`."""
    return _table(module, "two_over_pi_f64", _two_over_pi_parts_f64())


def _table(module: ir.Module, name: str, rows: tuple[tuple[float, ...], ...]) -> ir.GlobalVariable:
    found = module.globals.get(name)
    if found is None:
        row = ir.ArrayType(F64T, len(rows[0]))
        found = ir.GlobalVariable(module, ir.ArrayType(row, len(rows)), name)
        found.linkage, found.global_constant = "internal", True
        found.align = 64
        found.initializer = ir.Constant(ir.ArrayType(row, len(rows)), [ir.Constant(row, list(part)) for part in rows])
    return found


def constant_bytes(module: ir.Module, literal: Literal) -> ir.GlobalVariable:
    """The elements of an array literal in memory order, 64-byte aligned."""
    assert literal.array is not None
    data = literal.array.tobytes()
    name = f"literal.{hashlib.sha256(data).hexdigest()[:24]}.{len(data)}"
    found = module.globals.get(name)
    if found is None:
        initial = byte_array(data)
        found = ir.GlobalVariable(module, initial.type, name)
        found.linkage, found.global_constant = "internal", True
        found.align = 64
        found.initializer = initial
    return found
