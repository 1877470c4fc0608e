"""Which cases of a function with the mark `sampled` stay in `make test`."""

from __future__ import annotations

from typing import Any

import pytest

from tests import samples
from tests.samples import examples, in_turn, mark_samples


class Item:
    """As much of a pytest.Item as is asked for."""

    def __init__(self, nodeid: str, mark: pytest.Mark | None) -> None:
        self.nodeid, self.marks = nodeid, {} if mark is None else {"sampled": mark}

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self.marks.get(name)

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks[mark.name] = mark.mark


def left(count: int, times: int = 1, are_all: bool = True, **sample: Any) -> list[str]:
    mark = pytest.mark.sampled(**sample).mark
    items: list[Any] = [Item(f"t.py::test[{number}]", mark) for number in range(count)]
    said = mark_samples(items, times=times, are_all=are_all)
    stay = [item.nodeid[len("t.py::test[") : -1] for item in items if "exhaustive" not in item.marks]
    left_out = count - len(stay)
    assert said.startswith(f"samples: {left_out} of the {count} cases of 1 tests are left" if left_out else "")
    return stay


@pytest.mark.parametrize(
    ("count", "one_in", "times", "stay"), [(12, 4, 1, 3), (13, 4, 1, 4), (1, 9, 1, 1), (12, 4, 3, 9), (3, 2, 9, 3)]
)
def test_as_many_stay(count: int, one_in: int, times: int, stay: int) -> None:
    assert len(left(count, times, one_in=one_in)) == stay


def test_those_that_are_named_stay() -> None:
    assert {"3", "7"} < set(left(12, one_in=4, first=("7", "3")))
    assert left(12, one_in=12, first=("7", "3")) == ["3", "7"]
    with pytest.raises(pytest.UsageError, match=r"no such cases: t.py::test\[12\]$"):
        left(12, one_in=4, first=("12",))


def test_a_run_of_few_cases_needs_none_of_those_that_are_named() -> None:
    assert left(1, are_all=False, one_in=4, first=("7", "3")) == ["0"]


def test_others_are_left_alone() -> None:
    item: Any = Item("t.py::test[1]", None)
    mark_samples([item])
    assert item.marks == {}


def test_in_turn_each_pair_has_one_value_of_the_last_axis_and_all_occur() -> None:
    found = in_turn("ab", "xyz", [1, 2, 3])
    assert found == [("a", "x", 1), ("a", "y", 2), ("a", "z", 3), ("b", "x", 2), ("b", "y", 3), ("b", "z", 1)]
    assert in_turn(range(3), "xy") == [(0, "x"), (1, "y"), (2, "x")]


@pytest.mark.parametrize(("takes_all", "found"), [(True, [15, 15]), (False, [8, 4])])
def test_examples(takes_all: bool, found: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "takes_all", takes_all)
    assert [examples(15), examples(15, one_in=4)] == found


def test_this_run_takes_all_unless_it_leaves_out_the_exhaustive_tests(request: pytest.FixtureRequest) -> None:
    assert samples.takes_all == ("not exhaustive" not in request.config.option.markexpr)
