"""Large programs, and short ones that stand for large ones, cost what they hold and no more."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from distxla.passes.verify import obstacles, verify_module
from distxla.runtime.compiler import emit
from distxla.text.parser import parse_module
from tests.large_texts import chained_adds, wide_tuple

SMALL, TIMES = 1000, 4  # a quadratic step takes 16 times as long, a linear one 4 times
MOST = 8.0


def read_and_verified(text: str) -> None:
    module = parse_module(text)
    verify_module(module, 1, 1)
    assert not obstacles(module)


def planned(text: str) -> None:
    emit(parse_module(text), "buffers", replicas=1, partitions=1)


def seconds(work: Callable[[], None]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


@pytest.mark.parametrize("work", [read_and_verified, planned])
@pytest.mark.parametrize("text", [wide_tuple, chained_adds])
def test_twice_as_much_text_takes_twice_as_long(text: Callable[[int], str], work: Callable[[str], None]) -> None:
    few, many = text(SMALL), text(SMALL * TIMES)
    work(few)  # imports
    ratios = []
    for _ in range(3):
        base = seconds(lambda: work(few))
        ratios.append(seconds(lambda: work(many)) / base)
        if ratios[-1] < MOST:
            return
    pytest.fail(f"{TIMES} times the text took {', '.join(f'{ratio:.1f}' for ratio in ratios)} times as long")
