"""Which of many cases `make test` runs; `make test-all`, and a run of one folder, take all of them.

@pytest.mark.sampled(one_in=4, first=("f32",))
@pytest.mark.parametrize("kind", KINDS)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import product
from typing import Any
from zlib import crc32

import pytest

takes_all = True  # whether this run has the exhaustive tests, too
# one of every kind that the code tells apart: signs, widths, formats that are computed in themselves and in others
TYPES = {"pred", "s4", "u8", "s32", "u64", "f8e5m2", "bf16", "f16", "f32", "f64", "c64"}


def examples(count: int, *, one_in: int = 2) -> int:
    """How many examples Hypothesis draws: `make test` takes one in so many."""
    return count if takes_all else -(-count // one_in)


def mark_samples(items: Iterable[pytest.Item], *, times: int = 1, are_all: bool = False) -> str:
    """Of a function with the mark `sampled`, all but one in so many cases get the mark `exhaustive`.

    First those that `first` names, then in the order of the checksums of their names: cases of two parameters are
    mixed, and a new case changes few. times: so many times as many cases stay.  are_all: the items are those of all
    tests, so UsageError where a name of `first` is none of a case.  Returns a line that says how many it left out, if
    any.
    """
    left_out = 0
    cases: dict[tuple[str, int, tuple[str, ...]], list[pytest.Item]] = defaultdict(list)
    for item in items:
        mark = item.get_closest_marker("sampled")
        if mark is not None and item.get_closest_marker("exhaustive") is None:
            sample = mark.kwargs["one_in"], mark.kwargs.get("first", ())
            cases[item.nodeid.partition("[")[0], *sample].append(item)
    for (function, one_in, first), all_ in cases.items():
        named = {f"{function}[{name}]" for name in first}
        if are_all and (unknown := named - {item.nodeid for item in all_}):
            raise pytest.UsageError(f"sampled: no such cases: {', '.join(sorted(unknown))}")
        all_.sort(key=lambda item: (item.nodeid not in named, crc32(item.nodeid.encode())))
        kept = sum(item.nodeid in named for item in all_)
        for item in all_[max(kept, -(-len(all_) * times // one_in)) :]:
            item.add_marker(pytest.mark.exhaustive)
            left_out += 1
    count = sum(map(len, cases.values()))
    said = f"samples: {left_out} of the {count} cases of {len(cases)} tests are left to `make test-all`"
    return said if left_out else ""


def in_turn(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """All combinations of values of the axes but the last one, each with one value of the last, in turn."""
    *others, last = map(list, axes)
    places = product(*(range(len(axis)) for axis in others))
    return [
        (*(axis[k] for axis, k in zip(others, place, strict=True)), last[sum(place) % len(last)]) for place in places
    ]


def sampled_types(names: Iterable[object]) -> list[Any]:
    """Element types, or their names, for `parametrize`: all but one of every kind have the mark `exhaustive`."""
    return [pytest.param(name, marks=[] if str(name) in TYPES else pytest.mark.exhaustive) for name in names]
