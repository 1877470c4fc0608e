"""Runs the tests of each mutant's module: see the package."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TEST_S = 15  # of processor time, after which a test counts as failed
MOST = 12  # test files for a module
SUITE_S = 25  # of processor time, after which a mutant counts as alive
MOST_SAID = 1000  # bytes
HANG_S = 120  # for all tests together, after which they count as failed


def tests_of(module: str, root: Path) -> list[str]:
    """Test files that belong to a module: its own, those that import it or name what it defines, those of the folder
    that mirrors its own, or of the nearest one that exists."""
    parts = Path(module).with_suffix("").parts
    package, _, stem = ".".join(parts if parts[0] == "distxla" else ("distxla", *parts)).rpartition(".")
    imported = re.compile(rf"from {re.escape(package)}\.{stem} import|from {re.escape(package)} import .*\b{stem}\b")
    defined = re.findall(r"^(?:class|def|    def) ([A-Za-z]\w{5,})", (root / module).read_text(), re.MULTILINE)
    named = re.compile(rf"\b({'|'.join([stem, *defined])})\b")
    folders = (root / "tests" / Path(*package.split(".")[1:end]) for end in range(len(parts), 0, -1))
    mirror = next(folder for folder in folders if folder.is_dir())
    scores = {}
    for path in sorted((root / "tests").rglob("test_*.py")):
        text = path.read_text()
        if re.search(r"^pytestmark = .*cluster", text, re.MULTILINE):
            continue
        own = path.stem == f"test_{parts[-1]}"
        if score := 8 * own + 4 * bool(imported.search(text)) + 2 * bool(named.search(text)) + (path.parent == mirror):
            scores[path] = score
    return [str(path.relative_to(root)) for path in sorted(scores, key=lambda path: (-scores[path], path))][:MOST]


class Bounds:
    """pytest's part: which tests run, within which processor time, and which of them failed."""

    def __init__(self, files: list[str], exhaustive: bool) -> None:
        self.files, self.exhaustive, self.killer = files, exhaustive, ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        def mark(item: pytest.Item, name: str) -> bool:
            return item.get_closest_marker(name) is not None

        items[:] = [i for i in items if not mark(i, "cluster") and mark(i, "exhaustive") is self.exhaustive]
        items.sort(key=lambda item: (self.files.index(item.nodeid.partition("::")[0]), mark(item, "slow")))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        if sum(resource.getrusage(resource.RUSAGE_SELF)[:2]) > SUITE_S:
            pytest.exit("out of time", returncode=0)
        signal.signal(signal.SIGPROF, lambda *_: pytest.fail(f"takes more than {TEST_S} s"))
        signal.setitimer(signal.ITIMER_PROF, TEST_S)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.killer:
            self.killer = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.killer:
            self.killer = report.nodeid


def killer(root: Path, files: list[str], exhaustive: bool) -> str:
    """The first of these tests that fails, '' if none does; in a process that has imported what they all import."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os.chdir(root)
        sys.path.insert(0, str(root))
        for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
            del sys.modules[name]  # the copy has its own
        os.environ |= {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
        sys.dont_write_bytecode = True  # a mutant may have the length and the time of what it replaces
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nowhere, number)
        bounds = Bounds(files, exhaustive)
        try:
            options = ["-x", "-q", "-p", "no:cacheprovider", "--rootdir", str(root)]
            status = pytest.main([*options, *files], plugins=[bounds])
            said = bounds.killer or ("" if status in (0, 5) else f"pytest ended with {int(status)}")
        except BaseException as error:
            said = repr(error)
        os.write(writer, said.encode()[:MOST_SAID])
        os._exit(0)
    os.close(writer)
    is_there = bool(select.select([reader], [], [], HANG_S)[0])
    said = os.read(reader, MOST_SAID).decode(errors="replace") if is_there else ""
    os.close(reader)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # also what it has started
    _, status = os.waitpid(child, 0)
    if is_there and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return said  # it had said all
    return said if os.WIFEXITED(status) else f"the process ended by signal {os.WTERMSIG(status)}"


def copied(folder: Path) -> Path:
    """The working tree's tracked files, and the environment."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in names.rstrip("\0").split("\0"):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)
    return folder


def judged(root: Path, mutant: dict[str, Any]) -> dict[str, Any]:
    path = root / mutant["module"]
    before = path.read_text()
    files = tests_of(mutant["module"], root)
    path.write_text(mutant["text"])
    try:
        by = killer(root, files, exhaustive=False) if files else ""
        also = killer(root, files, exhaustive=True) if files and not by else ""
    finally:
        path.write_text(before)
    if by or also:  # by the mutant, or by anything else?
        test = (by or also).partition("::")[0]
        files = [test] if (root / test).is_file() else files
        unmutated = killer(root, files, exhaustive=bool(also)) == (by or also)
        if unmutated:
            by = also = ""
    return {**{key: value for key, value in mutant.items() if key != "text"}, "test": by, "exhaustive": also}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("mutants", type=Path, help="what sample.py wrote")
    parser.add_argument("--out", type=Path, help="a line of JSON for each mutant; goes on behind those that are there")
    options = parser.parse_args()
    mutants = json.loads(options.mutants.read_text())
    done = len(options.out.read_text().splitlines()) if options.out and options.out.exists() else 0
    import llvmlite.binding  # noqa: F401  for all children
    import numpy  # noqa: F401

    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        root = copied(Path(folder))
        for mutant in mutants[done:]:
            found = judged(root, mutant)
            by = "make test" if found["test"] else "make test-all" if found["exhaustive"] else "nothing"
            counts[by] += 1
            print(f"{found['module']}:{found['line']} {found['operator']}: {by} {found['test'] or found['exhaustive']}")
            sys.stdout.flush()
            if options.out:
                with options.out.open("a") as out:
                    out.write(json.dumps(found) + "\n")
    print(", ".join(f"{count} killed by {by}" for by, count in counts.items()))


if __name__ == "__main__":
    main()
