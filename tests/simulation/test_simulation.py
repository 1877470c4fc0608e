"""The runtime's protocols under seeds: each ends right or with a typed error, nothing waits, and a seed replays."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.scenarios import draw, simulate_seed


def test_seeds_end_right_or_with_a_typed_error() -> None:
    """`make simulate` runs 10,000 of them."""
    complaints = [simulate_seed(seed).complaint for seed in range(0, 500, 20)]
    assert not [text for text in complaints if text]


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_seed_replays_in_another_process() -> None:
    """Independent of the seeds that ran before, and of the order of sets."""
    seeds = [2, 6, 30]
    here = [f"{simulate_seed(seed).digest:x}" for seed in seeds]
    text = f"""
from tests.simulation.scenarios import simulate_seed
for seed in {seeds[::-1]}:
    print(f"{{simulate_seed(seed).digest:x}}")
"""
    for hashes in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", text], env={**os.environ, "PYTHONHASHSEED": hashes}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.stdout.split()[::-1] == here, done.stderr


def test_seeds_differ() -> None:
    plans = {str(draw(seed)) for seed in range(200)}
    assert len(plans) > 190
