"""Numbers as element types hold them."""

from __future__ import annotations

import math

import pytest

from distxla.ir.element_type import element_type, held_number

HELD = [
    ("pred", True, True), ("pred", 1, True), ("u8", 255, 255), ("s4", -8, -8), ("s32", 2.0, 2), ("s32", True, 1),
    ("f32", 3, 3.0), ("bf16", 1.001, 1.0), ("f32", math.inf, math.inf), ("c64", 2, 2 + 0j), ("c64", 1j, 1j),
]  # fmt: skip
NOT_HELD = [
    ("pred", 2), ("pred", 0.5), ("u8", 256), ("u8", -1), ("s4", 8), ("u2", 4), ("s32", 2.5), ("s32", math.nan),
    ("s64", 2**63), ("s32", 1j), ("f32", 1j), ("f64", 10**400),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "held"), HELD)
def test_a_number_takes_the_type(kind: str, value: complex, held: complex) -> None:
    array = held_number(value, element_type(kind))
    assert array.dtype == element_type(kind).dtype
    assert array.shape == ()
    assert complex(array.astype("complex128")) == held


@pytest.mark.parametrize(("kind", "value"), NOT_HELD)
def test_a_number_that_the_type_does_not_hold_is_refused(kind: str, value: complex) -> None:
    with pytest.raises(ValueError, match=f" is no {kind}"):
        held_number(value, element_type(kind))
