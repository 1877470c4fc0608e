"""An embedded Ray is joined without a look at other processes of the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster
MODULE = "HloModule m\nENTRY e {\n  ROOT x = f32[4] parameter(0)\n}\n"
JOINED = """
import distxla as dx
import ray._private.services as services
def look(*_):
    raise AssertionError("all processes are looked at")
services.psutil.process_iter = look
if __name__ == "__main__":
    with dx.Cluster(1) as cluster:
        cluster.wait_started()
    print("closed")
"""


def test_no_process_of_the_machine_is_looked_at() -> None:
    """Ray would search all of them for its raylet: 0.2 ms each."""
    ended = subprocess.run([sys.executable, "-c", JOINED], capture_output=True, text=True, timeout=120)
    assert (ended.stdout, ended.returncode) == ("closed\n", 0), ended.stderr


@pytest.mark.parametrize("command", ["-m distxla run {module}", "-c '{joined}'"])
def test_under_uv_workers_get_no_environment_of_their_own(command: str, tmp_path: Path) -> None:
    """Ray would have its agent make one, and there is no agent."""
    (tmp_path / "module.hlo").write_text(MODULE)
    whole = command.format(module=tmp_path / "module.hlo", joined=JOINED)
    (tmp_path / "run").write_text(f'"$PYTHON" {whole}\nended=$?\nexit $ended\n')
    ended = subprocess.run(
        ["uv", "run"],  # a shell that is called so, which reads the file `run`
        executable="/bin/sh",
        cwd=tmp_path,
        env=os.environ | {"PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
