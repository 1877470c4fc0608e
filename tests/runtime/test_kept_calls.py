"""Calls that stay calls, on a cluster: results, and a time limit that ends a billion rounds."""

from __future__ import annotations

import re

import numpy as np
import pytest

import distxla as dx
from tests.large_texts import doubling_all_reduces
from tests.stopwatch import Stopwatch

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
X = np.ones(4, np.float32)


@pytest.mark.exhaustive
def test_a_billion_rounds_end_at_the_time_limit_with_a_report() -> None:
    with dx.Cluster(2) as cluster:
        few = cluster.compile(dx.parse(doubling_all_reduces(3)))
        many = cluster.compile(dx.parse(doubling_all_reduces()), time_limit=120)
        assert np.asarray(few([X], time_limit=60)[1][0]).tolist() == [256.0] * 4
        watch = Stopwatch()
        with pytest.raises(dx.TimeLimitError) as caught:
            many([X], time_limit=2)
        assert watch.seconds < 20  # loading, two seconds, and the report, on a machine full of other work
        assert caught.value.diagnosis is not None
        lines = str(caught.value).splitlines()[1:]
        assert lines
        for line in lines:
            assert re.fullmatch(r"  devices? .* (waits? in|computes?) \S+ \(<string>:\d+:\d+\).*", line), line
        assert np.asarray(few([X], time_limit=60)[0][0]).tolist() == [256.0] * 4
