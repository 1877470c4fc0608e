"""By plain JAX on 8 CPU devices: right forms agree with their unsharded ones in each type, and bugs differ clearly."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.differ.planted.program import FAMILIES, FOLDER, RIGHT_ONES, TYPES, load, marks

ROOT = Path(__file__).parents[3]
ROUNDING = {"float32": 1e-5, "bfloat16": 5e-2, "float16": 1e-2}  # of the largest value
CLEARLY = 0.05
KINDS = {
    "missing psum (forward)", "missing psum (gradient)", "missing psum from the second iteration on", "doubled psum",
    "wrong axis", "psum for pmean", "mean of means on uneven parts", "one dropout key", "wrong in_spec",
    "wrong out_spec", "ppermute the wrong way", "stale halo", "weights gathered before the update",
    "all_to_all on the wrong dimension", "softmax with the local maximum", "softmax with the local sum",
    "wrong offset by axis_index",
}  # fmt: skip


def measured(family: str) -> list[dict[str, Any]]:
    """Each program of the family, in a process with 8 devices."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.differ.planted", family],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=850, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.sampled(one_in=4, first=("missing_psum",))
@pytest.mark.parametrize("family", FAMILIES + RIGHT_ONES)
def test_right_forms_agree_and_bugs_differ(family: str) -> None:
    found = measured(family)
    expected = {(p.name, dtype, bug) for p in load(family).values() for dtype in TYPES for bug in range(1 + p.has_bug)}
    assert {(row["name"], row["dtype"], int(row["bug"])) for row in found} == expected
    wrong = [
        row for row in found if row["bug"] != (row["difference"] > (CLEARLY if row["bug"] else ROUNDING[row["dtype"]]))
    ]
    assert not wrong


def test_each_kind_has_its_programs() -> None:
    programs = load().values()
    assert {p.kind for p in programs if p.has_bug} == KINDS
    assert {p.kind for p in programs if not p.has_bug} == {"right"}
    assert min(Counter(p.kind for p in programs if p.has_bug).values()) >= 2
    twins = Counter(p.twin for p in programs if p.has_bug)
    assert min(twins["one"], twins["plain"]) >= 20


def test_marks_name_the_programs() -> None:
    """Each bug has a line of its fault, and a mark stands behind code, not on a line of its own."""
    bugs = {p.of or p.name for p in load().values() if p.has_bug}
    assert set(marks()) == bugs
    for name, lines in marks().items():
        assert "planted" in lines.values(), name
        for line in lines:
            file, _, number = line.partition(":")
            text = (FOLDER / file).read_text().splitlines()[int(number) - 1]
            assert text.partition("#")[0].strip(), line


def test_builders_use_their_flag() -> None:
    """What has a bug reads `bug`: in its own text, or by a function that it hands it to."""
    for family in FAMILIES:
        for node in ast.parse((FOLDER / f"{family}.py").read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.decorator_list and node.args.args[1:2]:
                names = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
                assert node.args.args[1].arg != "bug" or "bug" in names, node.name
