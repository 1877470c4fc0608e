"""`make docs`: the site is built without a warning, can be searched, and loads nothing from other servers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documentation.blocks import ROOT

pytest.importorskip("sphinx")
LOADED = re.compile(r"""<(?:script|img|iframe)[^>]* src="([^"]*)"|<link[^>]* href="([^"]*)"|url\(["']?([^)"']*)""")


@pytest.mark.slow
@pytest.mark.exhaustive
def test_the_site(tmp_path: Path) -> None:
    (options,) = re.findall(r"sphinx-build (.*) docs build/docs$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    command = [sys.executable, "-m", "sphinx", *options.split(), "docs", str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    pages = sorted(tmp_path.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        for addresses in LOADED.findall(page.read_text()):
            address = "".join(addresses).partition("?")[0].partition("#")[0]
            assert not address.startswith(("http:", "https:", "//")), f"{page.name} loads {address}"
    assert "reduce-scatter" in (tmp_path / "ops.html").read_text()
    assert "lhs_contracting_dims" in (tmp_path / "ops.html").read_text()
    assert "time_limit" in (tmp_path / "api.html").read_text()
    assert "rendezv" in (tmp_path / "searchindex.js").read_text()
