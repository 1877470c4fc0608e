"""The example for XLA's CPU backend, and that its differences are those that the guide lists."""

from __future__ import annotations

import json
import re
import sys

import pytest

from distxla.conformance.suite import is_matched
from tests.cli.called import call
from tests.documentation.blocks import ROOT

jaxlib = pytest.importorskip("jaxlib")

ADAPTER = ["--", sys.executable, str(ROOT / "examples/conformance/xla_cpu.py")]
TRIED = "0.12."


def listed() -> list[str]:
    """The patterns in the guide's table."""
    page = (ROOT / "docs/guide/conformance.md").read_text().partition("## XLA's CPU backend")[2]
    return [
        pattern for row in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE) for pattern in re.findall("`(.+?)`", row)
    ]


def differences(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, str]:
    """Kinds by cases that are not the same."""
    _, printed, _ = call(capsys, "conformance", "--batch", "--json", *args, *ADAPTER)
    return {other["case"]: other["kind"] for other in json.loads(printed)["others"]}


@pytest.mark.slow
def test_a_part_is_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """All ways to number devices, and types that NumPy lacks."""
    flat = [f"--only=*/{name}/f32" for name in ("flattened-subgroups", "cross-replica-reordered", "both", "uneven")]
    types = [f"--only=all-gather/all/{name}" for name in ("s4", "u4", "bf16", "f8e4m3fn", "f4e2m1fn", "c64")]
    permutes = ["--only=collective-permute/cross-partition", "--only=collective-permute/one-pair"]
    assert differences(capsys, *flat, *types, *permutes, "--skip=collective-broadcast") == {}


def test_a_case_with_the_paths_as_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    status, printed, errors = call(capsys, "conformance", "--only", "loop/all-reduce/all/s32", *ADAPTER)
    assert (status, printed) == (0, "1 case: 1 the same\n"), errors


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_guide_lists_all_differences(capsys: pytest.CaptureFixture[str]) -> None:
    if not jaxlib.__version__.startswith(TRIED):
        pytest.skip(f"the guide is about jaxlib {TRIED}x")
    found, patterns = differences(capsys), listed()
    assert len(patterns) > 20
    assert [(case, kind) for case, kind in found.items() if not any(is_matched(case, p) for p in patterns)] == []
    assert [pattern for pattern in patterns if not any(is_matched(case, pattern) for case in found)] == []
