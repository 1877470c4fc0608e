"""Which arrays a shape holds."""

from __future__ import annotations

import pytest

from distxla.ir.element_type import F32
from distxla.ir.shape import Shape

DYNAMIC = Shape(F32, (2, 8), dynamic=(False, True))


@pytest.mark.parametrize(
    ("dimension_sizes", "holds"),
    [((2, 8), True), ((2, 0), True), ((2, 9), False), ((1, 8), False), ((2,), False), ((2, 8, 1), False)],
)
def test_a_dynamic_dimension_holds_up_to_its_bound(dimension_sizes: tuple[int, ...], holds: bool) -> None:
    assert DYNAMIC.holds(dimension_sizes) is holds
    assert DYNAMIC.holds(dimension_sizes=dimension_sizes) is holds


def test_the_former_name_of_the_argument_warns() -> None:
    with pytest.warns(DeprecationWarning, match="is now dimension_sizes"):
        assert DYNAMIC.holds(extents=(2, 5))
    with pytest.raises(TypeError, match="needs dimension_sizes"):
        DYNAMIC.holds()
