"""`make docs`: the site is built without a warning, can be searched, and loads nothing from other servers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documentation.blocks import ROOT

pytest.importorskip("sphinx")
# of other extras than `docs`, with which `make docs` has to do
ABSENT = ["flax", "hypothesis", "jax", "jaxlib", "optax", "psutil", "pytest", "scipy"]
LOADED = re.compile(r"""<(?:script|img|iframe)[^>]* src="([^"]*)"|<link[^>]* href="([^"]*)"|url\(["']?([^)"']*)""")


@pytest.mark.slow
@pytest.mark.exhaustive
def test_the_site(tmp_path: Path) -> None:
    (options,) = re.findall(r"sphinx-build (.*) docs build/docs$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    site, packages = tmp_path / "site", tmp_path / "packages"
    packages.mkdir()
    for name in ABSENT:
        (packages / f"{name}.py").write_text(f"raise ImportError('the extra `docs` has no {name}')")
    command = [sys.executable, "-m", "sphinx", *options.split(), "docs", str(site)]
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        for addresses in LOADED.findall(page.read_text()):
            address = "".join(addresses).partition("?")[0].partition("#")[0]
            assert not address.startswith(("http:", "https:", "//")), f"{page.name} loads {address}"
    assert "reduce-scatter" in (site / "ops.html").read_text()
    assert "lhs_contracting_dims" in (site / "ops.html").read_text()
    reference = (site / "api.html").read_text()
    assert "time_limit" in reference
    assert all(name in reference for name in ("axis_shapes", "input_shardings", "device_memory"))  # of distxla.jax
    assert "rendezv" in (site / "searchindex.js").read_text()
