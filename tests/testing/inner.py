"""Runs of pytest inside a test, in a process and a folder of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HEAD = '''
import os, signal, subprocess, sys, threading
import numpy as np
import pytest
import distxla as dx

SUM = """HloModule sum, num_partitions=2
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[2] parameter(0)
  ROOT y = f32[2] all-reduce(x), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add
}"""
ARGS = [[np.full(2, d, np.float32)] for d in range(2)]
pytestmark = pytest.mark.devices(2)
'''

RECORDER = """
import json, sys
AT_START = set(sys.modules)
found = {}
def pytest_runtest_logreport(report):
    name = report.nodeid.partition("::")[2]
    found.setdefault(name, {})[report.when] = [report.outcome, report.longreprtext, dict(report.sections)]
def pytest_terminal_summary(terminalreporter, config):
    if not hasattr(config, "workerinput"):
        with open("reports.json", "w") as file:
            json.dump(found, file)
"""


class Inner:
    """A run that is over. reports: by test and phase its outcome, its text and its sections.  output, status: as of the
    process."""

    def __init__(self, folder: Path, source: str, *options: str, timeout: float = 280, **environment: str) -> None:
        (folder / "test_inner.py").write_text(HEAD + source)
        (folder / "conftest.py").write_text(RECORDER)
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(folder), *options]
        outcome = subprocess.run(
            command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=timeout
        )
        self.output, self.status = outcome.stdout + outcome.stderr, outcome.returncode
        file = folder / "reports.json"
        self.reports: dict[str, dict[str, Any]] = json.loads(file.read_text()) if file.exists() else {}

    def outcomes(self) -> dict[str, str]:
        """`passed`, `failed`, or the phase beside the call that failed, by test."""
        found = {}
        for name, phases in self.reports.items():
            failed = [phase for phase, (outcome, _, _) in phases.items() if outcome == "failed"]
            found[name] = ("failed" if failed == ["call"] else " and ".join(failed)) if failed else "passed"
        return found

    def text(self, name: str, phase: str = "teardown") -> str:
        """Why a phase of a test failed."""
        return str(self.reports[name][phase][1])

    def sections(self, name: str, phase: str) -> dict[str, str]:
        return dict(self.reports[name][phase][2])
