"""A test that fails is run once more, alone: in a process of its own, after all others have ended.

One that then passes is printed under "passed only alone", with its first failure in full. It still counts as failed:
two tests that disturb each other, or a race, are faults as well.

Nothing is run again after Ctrl-C, with `-x`, `--pdb` or `--once`, and where the test was the only one of its run. A
module's teardown fails with the module's last test: alone, that test may pass although another one left something.

`--failures=FILE` writes a line of JSON for each failure, for .ci/closing_report.py (in one word: pytest takes a second
one for a file of tests where it exists, as it does for xdist's workers):

    {"test": "tests/test_a.py::test_b", "phase": "call", "text": "...", "circumstances": "load 2.1 ..."}
    {"test": "tests/test_a.py::test_b", "alone": "passed only alone"}
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

MOST_TESTS = 10  # that are run again
HOPELESS = 50  # of so many failures none is run again
LIMIT_S = 300.0  # for all of them
SHORT_LIMIT_S = 60.0  # for those of a run without xdist's workers, for which somebody waits
END_S = 10.0  # from Ctrl-C to the end of a test's processes
PASSED, FAILED = "passed only alone", "failed alone, too"
CIRCUMSTANCES = "Circumstances of the failure"  # the title of a report's section


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--once", action="store_true", help="do not run failed tests again, alone")
    parser.addoption("--failures", metavar="FILE", help="write the failures as lines of JSON")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # a worker of xdist tells the process that started it
        config.pluginmanager.register(FailedTests(config), "failed tests")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """In the process that ran the test."""
    report: Any = yield
    if report.failed:
        report.sections.append((CIRCUMSTANCES, "\n".join([machine_load(), seeds(item)])))
    return report


def machine_load() -> str:
    """How busy the machine is now: `load 2.10 1.52 0.98; cpu 45 %, io 0 %, memory 0 % of the last 10 s waited for`."""
    found = [f"load {' '.join(f'{load:.2f}' for load in os.getloadavg())}"]
    waits = []
    for resource in ("cpu", "io", "memory"):
        try:
            # some avg10=1.53 avg60=1.87 avg300=1.73 total=1088168194
            line = Path("/proc/pressure", resource).read_text()
            waits.append(f"{resource} {float(line.partition('avg10=')[2].split()[0]):.0f} %")
        except (OSError, IndexError, ValueError):
            continue  # a kernel that doesn't count it
    if waits:
        found.append(f"{', '.join(waits)} of the last 10 s waited for")
    return "; ".join(found)


def seeds(item: Any) -> str:
    """Seeds of the test that its parameters don't have."""
    found = [f"PYTHONHASHSEED={os.environ.get('PYTHONHASHSEED', 'random')}"]
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        found.append(f"worker {worker}")
    test = getattr(item, "obj", None)
    if hasattr(test, "hypothesis"):
        if getattr(getattr(test, "_hypothesis_internal_use_settings", None), "derandomize", False):
            found.append("hypothesis draws the same in every run")
        else:
            drawn = getattr(test, "_hypothesis_internal_use_generated_seed", None)
            given = item.config.getoption("--hypothesis-seed", None)
            found.append(f"--hypothesis-seed={drawn if given is None else given}")
    return ", ".join(found)


def phase(report: Any) -> str:
    """`setup`, `call`, `teardown`, or what xdist calls `???`."""
    return "its worker's end" if report.when == "???" else str(report.when)


def section(report: Any, title: str) -> str:
    return "\n".join(text for name, text in report.sections if name == title)


@dataclass(eq=False)  # plugins are keys
class FailedTests:
    """Hooks of the process that reports. reports: by test, in the order in which they failed."""

    config: pytest.Config
    reports: dict[str, list[Any]] = field(default_factory=dict)
    collected: int = 0

    def __post_init__(self) -> None:
        self.file = self.config.getoption("--failures")
        if self.file:
            Path(self.file).parent.mkdir(parents=True, exist_ok=True)
            Path(self.file).write_text("")

    def pytest_runtest_logreport(self, report: Any) -> None:
        if not report.failed:
            return
        if not section(report, CIRCUMSTANCES):  # its process crashed
            report.sections.append((CIRCUMSTANCES, machine_load()))
        self.reports.setdefault(report.nodeid, []).append(report)
        self._write_failure(report, phase(report))

    def pytest_collectreport(self, report: Any) -> None:
        """A file that can't be imported. Running it again would say the same."""
        if report.failed:
            self._write_failure(report, "collection")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.collected = session.testscollected

    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int) -> None:
        """All workers have ended by now, and so have this process's clusters."""
        has_workers = self.config.getoption("dist", "no") != "no"
        was_alone = self.collected == 1 and not has_workers
        option = self.config.option
        if option.once or option.maxfail or option.usepdb or was_alone:
            return
        if exitstatus == pytest.ExitCode.TESTS_FAILED and self.reports:
            self._run_again(terminalreporter, LIMIT_S if has_workers else SHORT_LIMIT_S)

    def _run_again(self, terminal: Any, limit_s: float) -> None:
        terminal.section("failed tests, each run again alone")
        tests = list(self.reports)
        if len(tests) > HOPELESS:
            terminal.write_line(f"{len(tests)} tests failed, which is no chance: none was run again")
            return
        passed = []
        end = time.monotonic() + limit_s
        for count, test in enumerate(tests):
            left_s = end - time.monotonic()
            if count == MOST_TESTS or left_s <= 0:
                bound = f"{MOST_TESTS} tests" if count == MOST_TESTS else f"{limit_s:.0f} s"
                terminal.write_line(f"not run again, after {bound}: {len(tests) - count} tests, from {test} on")
                break
            try:
                outcome = run_alone(test, self.config, left_s)
            except KeyboardInterrupt:
                terminal.write_line(f"not run again, after Ctrl-C: {len(tests) - count} tests, from {test} on")
                break
            self._write({"test": test, "alone": outcome})
            terminal.write_line(f"{outcome}: {test}")
            if outcome == PASSED:
                passed.append(test)
        if passed:
            terminal.section(PASSED)
            for report in (report for test in passed for report in self.reports[test]):
                terminal.write_sep("_", f"{report.nodeid}, {phase(report)}")
                terminal.write_line(report.longreprtext)
                for title, text in report.sections:
                    terminal.write_sep("-", title)
                    terminal.write_line(text)

    def _write_failure(self, report: Any, phase: str) -> None:
        circumstances = section(report, CIRCUMSTANCES) or machine_load()
        text = report.longreprtext
        self._write({"test": report.nodeid, "phase": phase, "text": text, "circumstances": circumstances})

    def _write(self, record: dict[str, str]) -> None:
        if self.file:
            with open(self.file, "a", encoding="utf-8") as lines:
                lines.write(json.dumps(record) + "\n")


def run_alone(test: str, config: pytest.Config, limit_s: float) -> str:
    """The outcome of the test in a process of its own: PASSED, FAILED, or how else it ended. Blocks limit_s at most."""
    command = [sys.executable, "-m", "pytest", test, "--once", "-q", "--color=no", "-p", "no:cacheprovider"]
    command.append(f"--rootdir={config.rootpath}")
    if config.pluginmanager.hasplugin("xdist"):
        command += ["-n", "0"]
    for option in ("--conformance", "--hypothesis-seed"):
        if (value := config.getoption(option, None)) is not None:
            command.append(f"{option}={value}")
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, cwd=config.rootpath, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return f"ran for {limit_s:.0f} s alone, and was ended"
        finally:
            if process.poll() is None:
                _end(process)
        output.seek(0)
        lines = output.read().decode(errors="replace").split("\n")
    closing = next((line for line in reversed(lines) if line.strip()), "")
    if status == 0 and re.search(r"\b1 passed\b", closing):
        return PASSED
    return FAILED if status == 1 else f"ended alone with status {status}, {closing.strip('= ') or 'no output'}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """With all that it started in its session; pytest gets the time to close clusters."""
    process.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
