"""Element-wise ops of all shapes give the processor's bits on a grid; of all types: tests/ops/test_matrix.py."""

from __future__ import annotations

import pytest

from tests.compiler.lower.grid.agreement import both, differing
from tests.ops import cases_data_movement, cases_elementwise
from tests.ops.case import Case, joined

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


SHAPED: dict[str, list[Case]] = {}
for _case in [*cases_elementwise.SHAPED, *cases_data_movement.CASES]:
    if not _case.shape.is_tuple and not _case.op.start_done.completes:  # asynchronous ones have no kernel
        SHAPED.setdefault(_case.opcode, []).append(_case)


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("opcode", SHAPED)
def test_shapes(opcode: str) -> None:
    """Empty, scalar and odd ones, and all kinds of data movement."""
    cases = SHAPED[opcode]
    _, wanted, got = both(joined(cases), [value for case in cases for value in case.values()])
    wrong = [case for case, one, other in zip(cases, wanted, got, strict=True) if differing(one, other).any()]
    assert not wrong, "\n".join(map(str, wrong))
