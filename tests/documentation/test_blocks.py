"""Every code block of README.md and docs/ runs, and prints what is shown."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import distxla as dx
from tests.documentation.blocks import PAGES, ROOT, blocks
from tests.documentation.runner import PATH, Runner

pytestmark = pytest.mark.cluster
PAGES_WITH_BLOCKS = [page for page in PAGES if any(block.language not in ("text", "") for block in blocks(page))]


@pytest.fixture(scope="module")
def ray() -> Iterator[None]:
    """One embedded Ray for all pages, whose clusters share it."""
    with dx.Cluster():
        yield


@pytest.mark.sampled(one_in=32, first=("docs/guide/feeds.md",))  # with blocks of most kinds, and without JAX
@pytest.mark.parametrize("page", PAGES_WITH_BLOCKS, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of(
    page: Path, ray: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PATH", PATH)  # a command of distxla's may start others
    before = set(sys.modules)
    runner = Runner(tmp_path, capsys)
    try:
        for block in blocks(page):
            runner.run(block)
    finally:
        for name in set(sys.modules) - before:
            if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]
