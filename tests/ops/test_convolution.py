"""`convolution`: strides, padding of either sign, dilations, reversal, groups, dimension orders, types."""

from __future__ import annotations

import pytest

from tests.ops.convolution_cases import CASES
from tests.ops.structured_case import StructuredCase, assert_compiled_agrees


@pytest.mark.sampled(
    one_in=6,
    first=(
        "f32[3,20,5,7]_convolution(f32[3,6,5,7],f32[20,6,1,1]),_window={size=1x1},_dim_labels=bf01_oi01->bf01",
        "s32[3,3,3,70]_convolution(s32[4,34,34,3],s32[4,34,34,70]),_window={size=34x34_pad=1_1x1_1},_dim_labels=f01b_i01o->01bf",
        "s32[3,3,8,64]_convolution(s32[4,34,34,8],s32[4,34,34,64]),_window={size=34x34_pad=1_1x1_1},_dim_labels=f01b_i01o->01bf",
    ),
)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_compiled_agrees_with_evaluate(case: StructuredCase) -> None:
    assert_compiled_agrees(case)
