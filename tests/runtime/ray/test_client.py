"""An embedded Ray is joined without a look at other processes of the machine."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import distxla as dx
from distxla.runtime.ray import client
from tests.stopwatch import Stopwatch

ROOT = Path(__file__).parents[3]
POLL_S = 0.25  # for which a thread of Ray's client waits while a call is pending
MODULE = "HloModule m\nENTRY e {\n  ROOT x = f32[4] parameter(0)\n}\n"
STARTED = """
import distxla as dx
if __name__ == "__main__":
    with dx.Cluster(1) as cluster:
        cluster.wait_started()
    print("closed")
"""


@pytest.mark.parametrize("before", [signal.SIG_DFL, lambda *_: None], ids=["default", "a handler"])
def test_a_handler_that_ray_sets_for_sigterm_goes(before: Any) -> None:
    former = signal.signal(signal.SIGTERM, before)
    try:
        with client.same_end():
            signal.signal(signal.SIGTERM, lambda *_: None)
        assert signal.getsignal(signal.SIGTERM) is before
    finally:
        signal.signal(signal.SIGTERM, former)


def test_no_process_of_the_machine_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray would search all of them for its raylet: 0.2 ms each."""
    from ray._private import services, worker

    nodes, printer = services.find_node_ids, worker.print_to_stdstream
    seen: list[object] = []
    monkeypatch.setattr("ray.init", lambda **_: seen.append(services.find_node_ids()))
    monkeypatch.setattr(worker, "print_to_stdstream", printer)
    assert client.join("127.0.0.1:1", "a node") is printer
    assert seen == [{"a node"}]
    assert services.find_node_ids is nodes


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("command", "said"),
    [
        pytest.param("-m distxla run {module}", "", marks=pytest.mark.exhaustive, id="command"),
        pytest.param(f"-c '{STARTED}'", "closed\n", id="in Python"),
    ],
)
def test_under_uv_workers_get_no_environment_of_their_own(command: str, said: str, tmp_path: Path) -> None:
    """Ray would have its agent make one, and there is no agent."""
    (tmp_path / "module.hlo").write_text(MODULE)
    whole = command.replace("{module}", str(tmp_path / "module.hlo"))
    (tmp_path / "run").write_text(f'"$PYTHON" {whole}\nended=$?\nexit $ended\n')
    ended = subprocess.run(
        ["uv", "run"],  # a shell that is called so, which reads the file `run`
        executable="/bin/sh",
        cwd=tmp_path,
        env=os.environ | {"PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    assert said in ended.stdout


@pytest.mark.exhaustive
@pytest.mark.cluster
def test_closing_does_not_wait_for_pending_calls() -> None:
    seconds = []
    for _ in range(3):
        cluster = dx.Cluster(1).start()
        cluster.wait_started()
        watch = Stopwatch()
        cluster.close()
        seconds.append(watch.seconds)
    assert statistics.median(seconds) < POLL_S
