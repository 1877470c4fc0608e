"""The legs of .ci/run, with a stand-in for make."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ci.scripts import FOLDER

MAKE = """#!/bin/sh
echo "$@" >>made
case "$*" in
  *" test "*) echo "===== 7 passed in 1.00s =====" ;;
  *" quick "*) echo "===== 2 passed in 1.00s =====" ;;
esac
case "$*" in *"$FAILING"*) echo "it failed"; exit 2 ;; esac
"""


def executable(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.mark.sampled(one_in=2, first=("none", "in the background"))
@pytest.mark.parametrize(
    ("failing", "told", "closing"),
    [
        ("no leg", "", "===== 7 passed in 1.00s ====="),
        (" check", "---- check: status 2 of make", "11 passed, 1 failed"),
        # in the background, and so is what it says
        ("installed-quick", "---- install-3.12: status 2 of make", "11 passed, 2 failed"),
        (" simulate", "---- simulate: status 2 of make", "11 passed, 1 failed"),
    ],
    ids=["none", "check", "in the background", "simulate"],
)
def test_all_legs_run(tmp_path: Path, failing: str, told: str, closing: str) -> None:
    shutil.copytree(FOLDER, tmp_path / ".ci")
    for name in ("3.13", "3.12", "3.11"):  # which give their version as .ci/run asks for it, and run its Python files
        asked = f'[ "$1" = -c ] && echo {name} || exec {sys.executable} "$@"'
        executable(tmp_path / "pythons" / name, f"#!/bin/sh\n{asked}\n")
    executable(tmp_path / "requirements" / "pythons", f"#!/bin/sh\nls -r -d {tmp_path}/pythons/*\n")
    executable(tmp_path / "bin" / "make", MAKE)
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", ".ci/run"], cwd=tmp_path, env={**os.environ, "PATH": path, "FAILING": failing, "PYTHONHASHSEED": "7"},
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    made = [re.sub(r"--\S+ PYTHON=\S+/", "", line) for line in (tmp_path / "made").read_text().splitlines()]
    assert sorted(made[:6]) == [
        "3.11 VENV=.venv-3.11 .venv-3.11/installed-quick",
        "3.12 VENV=.venv-3.12 .venv-3.12/installed-quick",
        "3.13 VENV=.venv-3.13 .venv-3.13/installed-all",
        "3.13 VENV=.venv-3.13 check",
        "3.13 VENV=.venv-3.13 docs",
        "3.13 VENV=.venv-3.13 simulate SEEDS=500",
    ]
    assert made[6:] == [
        "3.12 VENV=.venv-3.12 quick SHARE=1/4 FAILURES=build/ci/quick-3.12.jsonl",
        "3.11 VENV=.venv-3.11 quick SHARE=2/4 FAILURES=build/ci/quick-3.11.jsonl",
        "3.13 VENV=.venv-3.13 test FAILURES=build/ci/test.jsonl",
    ]
    assert done.returncode == (failing != "no leg")
    assert done.stdout.splitlines()[-1] == closing
    assert told in done.stdout
    assert "no further targets: git" in done.stderr
    assert (tmp_path / "build" / "ci" / "check.log").exists()
