"""Which of many cases `make test` runs; `make test-all`, and a run of one folder, take all of them.

@pytest.mark.parametrize("kind", sampled(KINDS, one_in=4))
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

# one of every kind that the code tells apart: signs, widths, formats that are computed in themselves and in others
TYPES = {"pred", "s4", "u8", "s32", "u64", "f8e5m2", "bf16", "f16", "f32", "f64", "c64"}


def sampled(values: Iterable[Any], *, one_in: int) -> list[Any]:
    """The values for `parametrize`, a tuple for several names. All but each `one_in`-th have the mark `exhaustive`."""
    found = []
    for number, value in enumerate(values):
        marks = [pytest.mark.exhaustive] if number % one_in else []
        found.append(pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=marks))
    return found


def sampled_types(names: Iterable[object]) -> list[Any]:
    """Element types, or their names, for `parametrize`: all but one of every kind have the mark `exhaustive`."""
    return [pytest.param(name, marks=[] if str(name) in TYPES else pytest.mark.exhaustive) for name in names]
