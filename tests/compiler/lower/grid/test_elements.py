"""Every element-wise op over every element type gives the processor's bits on a grid."""

from __future__ import annotations

import numpy as np
import pytest

from distxla.ir.element_type import DATA_TYPES, element_type
from tests.compiler.lower.grid.agreement import both, differing
from tests.ops import cases_data_movement, cases_elementwise
from tests.ops.case import Case, joined
from tests.ops.matrix import cases_of, joined_values
from tests.samples import sampled_types

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.mark.sampled(one_in=14, first=("f32",))
@pytest.mark.parametrize("name", sampled_types([t.name for t in DATA_TYPES]))
def test_the_processors_bits(name: str) -> None:
    cases = list(cases_of(element_type(name)))
    program, wanted, got = both(joined(cases), joined_values(cases))
    assert program.launched
    wrong = []
    for case, one, other in zip(cases, wanted, got, strict=True):
        places = np.flatnonzero(differing(one, other))
        if len(places):
            wrong.append(f"{case}: {other.ravel()[places[:3]]} instead of {one.ravel()[places[:3]]}")
    assert not wrong, "\n".join(wrong)


SHAPED: dict[str, list[Case]] = {}
for _case in [*cases_elementwise.SHAPED, *cases_data_movement.CASES]:
    if not _case.shape.is_tuple and not _case.op.completes:  # an asynchronous instruction has no kernel by itself
        SHAPED.setdefault(_case.opcode, []).append(_case)


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("opcode", SHAPED)
def test_shapes(opcode: str) -> None:
    """Empty, scalar and odd ones, and all kinds of data movement."""
    cases = SHAPED[opcode]
    _, wanted, got = both(joined(cases), [value for case in cases for value in case.values()])
    wrong = [case for case, one, other in zip(cases, wanted, got, strict=True) if differing(one, other).any()]
    assert not wrong, "\n".join(map(str, wrong))
