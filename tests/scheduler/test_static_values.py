"""Between which devices a value of several parts is the same."""

from __future__ import annotations

import pytest

from distxla.scheduler.simulation.static_values import Uniformity, meet

ROWS: Uniformity = {0: "a", 1: "a", 2: "b"}
COLUMNS: Uniformity = {0: "c", 1: "d", 2: "d"}


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        ([], {}),
        ([{}, ROWS, ROWS], ROWS),
        ([ROWS, None], None),
        ([ROWS, {}, COLUMNS], {0: ("a", "c"), 1: ("a", "d"), 2: ("b", "d")}),
    ],
    ids=["no part", "one that differs", "one that is unknown", "two that differ"],
)
def test_meet(parts: list[Uniformity], whole: Uniformity) -> None:
    assert meet(parts, range(3)) == whole
