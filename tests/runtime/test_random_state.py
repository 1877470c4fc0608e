"""The random state on real replicas: alike on all of them, going on from run to run, begun anew with every program."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import distxla as dx
from tests.cli.called import call

pytestmark = pytest.mark.cluster

TEXT = """HloModule random, replica_count=2

ENTRY main {
  low = f32[] constant(-1)
  high = f32[] constant(1)
  u = f32[64] rng(low, high), distribution=rng_uniform
  s = u64[2] rng-get-and-update-state(), delta=3
  ROOT r = (f32[64], u64[2]) tuple(u, s)
}
"""


@pytest.mark.devices(replicas=2)
def test_the_state_of_replicas(cluster: dx.Cluster) -> None:
    module = dx.parse(TEXT)
    program = cluster.compile(module)
    runs = [[[np.asarray(leaf) for leaf in row] for row in program([])] for _ in range(3)]
    again = [[np.asarray(leaf) for leaf in row] for row in cluster.compile(module)([])]
    for first, second in runs:
        assert all(map(np.array_equal, first, second))
    numbers = [run[0][0] for run in runs]
    assert not np.array_equal(numbers[0], numbers[1])
    assert not np.array_equal(numbers[1], numbers[2])
    blocks = 64 // 4
    states = [int(run[0][1][0]) for run in runs]
    assert np.diff(states).tolist() == [blocks + 3, blocks + 3]
    assert all(map(np.array_equal, again[0], runs[0][0]))


def test_repeated_steps_are_compared_with_as_many_of_the_reference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "random.hlo"
    path.write_text(TEXT)
    status, printed, errors = call(capsys, "run", str(path), "--repeat", "3", "--compare", "reference")
    assert status == 0, printed + errors
    assert "agrees with the reference" in printed
