"""A slice of `make chaos`: one case of some kinds, always the same.

What is left of killed processes of Ray: tests/runtime/test_leaks.py; of several hosts: tests/runtime/hosts/.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chaos.judgement import Bounds, judge
from tests.chaos.plan import draw
from tests.chaos.runner import Runner

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
KINDS_HERE = (
    "kill a device at an instruction",
    "kill a device",
    "stop a device at an instruction",
    "stop a device",
    "kill the compiler",
    "kill the driver",
    "processes: kill one",
    "processes: kill process 0",
    "processes: kill the owner",
    "processes: kill a device",
    "processes: terminate a hung run",
)
LOADED = Bounds(
    lost=8.0, stopped=15.0, over=1.0
)  # other tests run beside it; `make chaos` has the bounds that are promised


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    made = Runner(tmp_path_factory.mktemp("chaos"))
    yield made
    made.close()


@pytest.mark.sampled(one_in=11, first=("kill a device",))
@pytest.mark.parametrize("kind", KINDS_HERE)
def test_it_ends_right(runner: Runner, kind: str) -> None:
    story = runner.play(draw(1, 0, (kind,)))
    verdict = judge(story, runner.bits(story), LOADED)
    assert not verdict.wrong, f"{story.case}: {verdict.wrong}\n{story.messages}"
