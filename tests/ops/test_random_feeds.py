"""Random programs with feeds and host transfers: every item in its place, compiled and in the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.ops.feed_cases import compiled, evaluated, same, taken
from tests.ops.random_feeds import BODIES, RECEIVES, SENDS, Statement, Walk, module_text
from tests.samples import examples

MOST_ITEMS = 200


def check(run: Any, body: list[Statement], seed: int) -> None:
    walk = Walk(np.random.default_rng(seed))
    begin = walk.value()
    end = walk.statements(body, begin)
    if len(walk.infeed) + len(walk.outfeed) > MOST_ITEMS or not np.all(end < 1 << 24):
        return

    given_: list[tuple[int | None, list[Any]]] = [(None, walk.infeed), (RECEIVES, walk.received)]
    wanted: list[tuple[int | None, list[Any]]] = [(None, walk.outfeed), (SENDS, walk.sent)]

    def feed(streams: Any) -> None:
        for channel, items in given_:
            if items:  # the program may have no such stream
                streams.infeed(0, channel).put_all(items)

    (out,), streams = run(module_text(body), [begin], feed)
    assert same(out, end)
    for channel, items in wanted:
        assert not items or all(map(same, taken(streams, len(items), channel), items))
    for channel, items in given_:
        assert not items or streams.infeed(0, channel).pending == 0


@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(BODIES, st.integers(0, 1 << 16))
def test_in_the_reference(body: list[Statement], seed: int) -> None:
    check(evaluated, body, seed)


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(BODIES, st.integers(0, 1 << 16))
def test_compiled(body: list[Statement], seed: int) -> None:
    check(compiled, body, seed)


@pytest.mark.exhaustive
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(BODIES, st.integers(0, 1 << 16))
def test_more_of_them_compiled(body: list[Statement], seed: int) -> None:
    check(compiled, body, seed)
