"""All cases, in order, and a choice of them by patterns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cache

from distxla.conformance import (
    all_reduce,
    asynchronous,
    collective_permute,
    movement,
    ragged_all_to_all,
    reduce_scatter,
    transfers,
)
from distxla.conformance.case import Case

# each makes the cases of a kind
KINDS: tuple[Callable[[], Iterator[Case]], ...] = (
    transfers.ids,
    all_reduce.cases,
    reduce_scatter.cases,
    movement.all_gathers,
    movement.all_to_alls,
    collective_permute.cases,
    movement.collective_broadcasts,
    ragged_all_to_all.cases,
    asynchronous.cases,
    transfers.send_recv,
    transfers.control_flow,
)


@cache
def all_cases() -> tuple[Case, ...]:
    """Every case; names differ."""
    return tuple(case for kind in KINDS for case in kind())


def is_matched(name: str, pattern: str) -> bool:
    """Whether the pattern, in which `*` stands for anything, is the name or its beginning up to a slash."""
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern.rstrip('/')}/*")


def chosen(only: Iterable[str] = (), skipped: Iterable[str] = ()) -> list[Case]:
    """The cases that a pattern of `only` matches, all where there is none, and no pattern of `skipped`."""
    only, skipped = list(only), list(skipped)
    return [
        case
        for case in all_cases()
        if (not only or any(is_matched(case.name, pattern) for pattern in only))
        and not any(is_matched(case.name, pattern) for pattern in skipped)
    ]
