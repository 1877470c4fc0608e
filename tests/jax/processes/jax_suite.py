"""JAX's own tests of several processes, by JAX's runner, unchanged: its timeouts, its barriers.

    python -m tests.jax.processes.jax_suite --processes 4 --devices 2 JAX/tests/multiprocess/array_test.py ...

Ends with status 1 where a test of expected_failures_processes.txt passes, or another one fails, in any process.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

from tests.jax.pjrt.expected_failures import reasons
from tests.jax.processes.group import ROOT

LIST: Final = Path(__file__).with_name("expected_failures_processes.txt")
SECONDS: Final = 900
_OUTCOME: Final = re.compile(r"^\[\s+(OK|FAILED|SKIPPED)\s+\] (\w+)\.(\w.*?)(?: - .*)?$", re.MULTILINE)


def outcomes(file: str, log: str) -> dict[str, Counter[str]]:
    """By test, as `file_test.py::Class::test`: how often it has passed, failed, and was skipped."""
    found: dict[str, Counter[str]] = {}
    for how, kind, name in _OUTCOME.findall(log):
        found.setdefault(f"{file}::{kind}::{name}", Counter())[how] += 1
    return found


def surprises(found: dict[str, Counter[str]], expected: dict[str, str], processes: int) -> list[str]:
    """A line for each test that did not end as it should, in all processes."""
    wrong = []
    for test, counts in sorted(found.items()):
        ended = sum(counts.values())
        if test in expected and not counts["FAILED"]:
            wrong.append(f"{test}: passes, and is expected to fail: {expected[test]}")
        elif test not in expected and (counts["FAILED"] or ended != processes):
            wrong.append(f"{test}: failed in {counts['FAILED']} of {processes} processes, ended in {ended}")
    return wrong


def run(path: Path, processes: int, devices: int) -> tuple[int, str]:
    """Run a file of JAX's tests; the runner's status, and all that the processes wrote."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "JAX_PLATFORMS": "distxla",
        "DISTXLA_DEVICES": str(devices),
    }
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, str(path.resolve()), f"--num_processes={processes}"],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    return done.returncode, done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--devices", type=int, default=2, help="of each process")
    parser.add_argument("--logs", type=Path, help="folder for what the processes write")
    given = parser.parse_args()
    expected, wrong = reasons(LIST.read_text()), list[str]()
    for path in given.files:
        status, log = run(path, given.processes, given.devices)
        if given.logs is not None:
            (given.logs / f"{path.stem}.log").write_text(log)
        found = outcomes(path.name, log)
        lines = surprises(found, expected, given.processes)
        if not found or (status and not lines and not any(test in expected for test in found)):
            lines.append(f"{path.name}: the runner ended with status {status}, and {len(found)} tests")
        total = sum(found.values(), Counter())
        print(f"{path.name}: {len(found)} tests, {dict(total)} in {given.processes} processes", *lines, sep="\n  ")
        wrong += lines
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
