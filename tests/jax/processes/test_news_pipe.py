"""What the owner tells a launcher that reads late, or not at all: distxla/jax/processes/news_pipe.py."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

from distxla.jax.processes.news_pipe import MOST_VERDICTS, NewsPipe

LONG = "x" * 5000  # more than a pipe writes in one piece
COUNT = 3 * MOST_VERDICTS


@pytest.fixture
def ends() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    for descriptor in (read, write):
        with suppress(OSError):  # closed by the test
            os.close(descriptor)


def told(read: int, last: object) -> list[dict[str, object]]:
    """The lines up to that one."""
    found = []
    with open(os.dup(read)) as lines:
        for line in lines:
            found.append(json.loads(line))
            if found[-1] == last:
                return found
    return found


def test_what_there_is_room_for_is_in_the_pipe_when_it_is_told(ends: tuple[int, int]) -> None:
    read, write = ends
    news = NewsPipe(write)
    news.tell({"came": 1})
    os.set_blocking(read, False)
    assert os.read(read, 100) == b'{"came":1}\n'


def test_nobody_waits_for_a_reader_who_gets_it_all_in_order_later(ends: tuple[int, int]) -> None:
    read, write = ends
    news = NewsPipe(write)
    given: list[dict[str, object]] = [{"came": k, "text": LONG} for k in range(COUNT)]
    for one in given:
        news.tell(one)
    assert not news.flush(0)
    assert told(read, given[-1]) == given
    assert news.flush()


def test_of_verdicts_that_nobody_reads_the_last_are_kept(ends: tuple[int, int]) -> None:
    read, write = ends
    news = NewsPipe(write)
    for k in range(COUNT):
        news.tell({"verdict": k, "text": LONG})
        news.tell({"ended": k})
    news.tell({"attached": 2})
    found = told(read, {"attached": 2})
    assert [one["ended"] for one in found if "ended" in one] == list(range(COUNT))
    verdicts = [one["verdict"] for one in found if "verdict" in one]
    assert verdicts == sorted(verdicts)  # type: ignore[type-var]
    assert verdicts[-MOST_VERDICTS:] == list(range(COUNT - MOST_VERDICTS, COUNT))
    assert len(verdicts) < COUNT


def test_a_reader_that_is_gone_stops_nobody(ends: tuple[int, int]) -> None:
    read, write = ends
    news = NewsPipe(write)
    os.close(read)
    for _ in range(COUNT):
        news.tell({"verdict": LONG})
    assert news.flush(0)
