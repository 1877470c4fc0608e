"""`distxla run` starts a Ray before it reads its command line, and takes it down where no cluster wants it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from distxla.__main__ import wants_cluster
from tests.conftest import require_ended, started_processes

pytestmark = pytest.mark.cluster
# the command, and whether it has imported Ray
COMMAND = """
import sys
from distxla.__main__ import main
try:
    main()
finally:
    print("ray" in sys.modules)
"""
MODULE = "HloModule m\nENTRY e {\n  x = f32[2] parameter(0)\n  ROOT y = f32[2] negate(x)\n}\n"


@pytest.mark.parametrize(
    ("line", "wants"),
    [
        ("run m.hlo", True),
        ("run m.hlo --replicas 2", True),
        ("run", False),
        ("run --help", False),
        ("run m.hlo --backend reference", False),
        ("run m.hlo --backend=reference", False),
        ("run m.hlo --address localhost:6379", False),
        ("check m.hlo", False),
        ("", False),
    ],
)
def test_only_runs_on_a_cluster_of_their_own_begin_early(line: str, wants: bool) -> None:
    assert wants_cluster(line.split()) == wants


@pytest.mark.sampled(one_in=3, first=("fine",))
@pytest.mark.parametrize(
    ("text", "status"),
    [("HloModule m\nENTRY e {\n  ROOT x = f32[2] unknown()\n}\n", 2), (None, 2), (MODULE, 0)],
    ids=["refused", "missing", "fine"],
)
def test_nothing_is_left_of_a_ray_that_began_early(text: str | None, status: int, tmp_path: Path) -> None:
    """Nor is Ray imported."""
    before = started_processes()
    module, temporary = tmp_path / "m.hlo", tmp_path / "t"
    temporary.mkdir()
    if text is not None:
        module.write_text(text)
    environment = {**os.environ, "TMPDIR": str(temporary)}
    line = [sys.executable, "-c", COMMAND, "run", str(module)]
    ended = subprocess.run(line, capture_output=True, text=True, env=environment, timeout=120)
    assert ended.returncode == status, ended.stderr
    assert ("  ran on     1 device" in ended.stdout) == (status == 0)
    assert ended.stdout.splitlines()[-1] == "False"
    require_ended(before, temporary)


def test_little_is_imported_before_the_first_process_starts() -> None:
    """All others wait for it."""
    names = {"dataclasses", "inspect", "numpy", "pathlib"}
    look = f"import sys, distxla.runtime.ray.spawn; print({names} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-I", "-c", look], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "set()\n"
