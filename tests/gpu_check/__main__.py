"""Runs the parts of the check, one process each; the package says what they are."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = (
    "tests/targets/nvptx/driver",
    "tests/targets/nvptx/test_cublas.py",
    "tests/targets/nvptx/test_programs.py",
    "tests/targets/nvptx/test_program_memory.py",
    "tests/targets/nvptx/test_rounds.py",
    "tests/compiler/lower/grid",
    "tests/ops/test_matrix.py::test_a_grid_gives_the_processors_bits",
    "tests/ops/test_rng.py",
)
CLUSTERS = "tests/targets/nvptx/test_clusters.py"
# pytest-benchmark, where it is installed, warns of other processes, and warnings are errors
PYTEST = (sys.executable, "-m", "pytest", "-q", "-rfs", "-p", "no:benchmark")
SANITIZER = shutil.which("compute-sanitizer")
SANITIZERS = ("memcheck", "racecheck")  # tools of it


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu_check", description=__doc__)
    parser.add_argument("--conformance", type=Path, help="a folder of cases, as of tests/test_conformance.py")
    parser.add_argument("--json", type=Path, help="where to write the table of kernels")
    parser.add_argument("--jobs", type=int, default=min(16, os.cpu_count() or 1), help="processes that run tests")
    parser.add_argument("--only", action="append", help="a part: " + ", ".join(PARTS), choices=PARTS)
    options = parser.parse_args()
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"DISTXLA_GPU_DRIVER": "cuda", "PYTHONPATH": paths}
    failed = []
    for name in options.only or PARTS:
        for command in PARTS[name](options):
            print(f"== {name}: {' '.join(command[1:])}", flush=True)
            begin = time.monotonic()
            status = subprocess.run(command, cwd=ROOT, env=environment).returncode
            print(f"== {name}: status {status} after {time.monotonic() - begin:.0f} s", flush=True)
            failed += [name] * bool(status)
    missing = [name for name, found in (("compute-sanitizer", SANITIZER), ("Ray", find_spec("ray"))) if found is None]
    passed = "all parts passed" + "".join(f", but not those with {name}, which is missing" for name in missing)
    print(f"failed: {', '.join(dict.fromkeys(failed))}" if failed else passed)
    return 1 if failed else 0


def _probe(options: argparse.Namespace) -> list[list[str]]:
    return [[sys.executable, "-m", "tests.gpu_check.probe"]]


def _tests(options: argparse.Namespace) -> list[list[str]]:
    """Skipped tests are told, too: without a GPU nothing was checked."""
    pytest = [*PYTEST, "-n", str(options.jobs), "--dist", "worksteal"]
    commands = [[*pytest, "-m", "not exhaustive", "--more-cases", "3", *TESTS]]
    if options.conformance is not None:
        cases = ["tests/test_conformance.py", "-k", "grid", "--conformance", str(options.conformance.resolve())]
        commands.append([*pytest, *cases])
    return commands


def _clusters(options: argparse.Namespace) -> list[list[str]]:
    """A process a device."""
    if find_spec("ray") is None:
        return []
    return [[*PYTEST, CLUSTERS]]


def _sanitizers(options: argparse.Namespace) -> list[list[str]]:
    if SANITIZER is None:
        return []
    return [
        [SANITIZER, "--tool", tool, "--error-exitcode", "1", sys.executable, "-m", "tests.gpu_check.programs"]
        for tool in SANITIZERS
    ]


def _bench(options: argparse.Namespace) -> list[list[str]]:
    written = ["--json", str(options.json.resolve())] if options.json is not None else []
    return [[sys.executable, "-m", "bench.gpu", *written]]


PARTS = {"probe": _probe, "tests": _tests, "clusters": _clusters, "sanitizers": _sanitizers, "bench": _bench}


if __name__ == "__main__":
    sys.exit(main())
