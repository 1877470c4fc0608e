"""`python .ci/closing_report.py FOLDER MAIN SECONDS`: the end of .ci/run's output, at most MOST_CHARACTERS.

FOLDER holds legs.jsonl and NAME.log by .ci/leg.py and, of each run of pytest, NAME.jsonl by tests/failed_tests.py.
Prints each failed test, the last lines of its failure, and the circumstances; the same of a failed leg without failed
tests; then a table of the legs. The last line is pytest's closing summary of the leg MAIN where all legs passed, and
else `N passed, N failed` of all legs, in which a failed leg without failed tests counts one.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

MOST_CHARACTERS = 6000  # of the report, with the table and the last line
MOST_LINES = 30  # of a failure
LEAST_CHARACTERS = 350  # for a failure: where there are too many for that, the last ones are counted only
SUMMARY = re.compile(r"^=+ ((?:no tests ran|\d+ \w+).*) in [\d.]+s.*=+$", re.MULTILINE)
COLOURS = re.compile("\x1b\\[[0-9;]*m")


@dataclass
class Leg:
    """A leg, and its failures as heading and text."""

    name: str
    command: str
    status: int
    seconds: float
    processor_seconds: float
    circumstances: str
    summary: str = ""
    failures: list[tuple[str, str]] = field(default_factory=list)

    def count(self, *kinds: str) -> int:
        return sum(int(n) for n, kind in re.findall(r"(\d+) (\w+)", self.summary) if kind in kinds)

    @property
    def passed(self) -> int:
        return self.count("passed")

    @property
    def failed(self) -> int:
        return max(self.count("failed", "error", "errors"), self.status != 0)


def records(file: Path) -> list[dict[str, Any]]:
    """Lines of JSON, without the last one of a process that was killed as it wrote."""
    found = []
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def tail(text: str) -> str:
    return "\n".join(text.rstrip().splitlines()[-MOST_LINES:])


def legs(folder: Path) -> list[Leg]:
    """In the order in which they ended."""
    found = []
    for noted in records(folder / "legs.jsonl"):
        leg = Leg(**noted)
        log = folder / f"{leg.name}.log"
        output = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        output = COLOURS.sub("", output)
        if summaries := list(SUMMARY.finditer(output)):
            leg.summary = summaries[-1][0]
        leg.failures = failed_tests(leg.name, records(folder / f"{leg.name}.jsonl"))
        if leg.status and not leg.failures:
            heading = f"{leg.name}: status {leg.status} of {leg.command}\n{leg.circumstances}"
            leg.failures = [(heading, tail(output))]
        found.append(leg)
    return found


def failed_tests(leg: str, noted: list[dict[str, Any]]) -> list[tuple[str, str]]:
    alone = {record["test"]: record["alone"] for record in noted if "alone" in record}
    found = []
    for record in noted:
        if "text" in record:
            test = record["test"]
            outcome = alone.get(test, "not run again alone")
            heading = f"{leg}: {test}, {record['phase']}; {outcome}\n{record['circumstances']}"
            found.append((heading, tail(record["text"])))
    return found


def shares(wanted: list[int], together: int) -> list[int]:
    """Max-min fair shares of `together`: shares([5, 100, 20, 100], 145) == [5, 60, 20, 60]."""
    found = [0] * len(wanted)
    rest = sorted(range(len(wanted)), key=wanted.__getitem__)
    for place, index in enumerate(rest):
        found[index] = min(wanted[index], together // (len(rest) - place))
        together -= found[index]
    return found


def cut(text: str, most: int) -> str:
    """Its end, which says what was wrong."""
    return text if len(text) <= most else "…" + text[len(text) - max(most - 1, 0) :]


def told(failures: list[tuple[str, str]], most: int, folder: Path) -> str:
    """The failures in so many characters, blank lines between them."""
    shown = failures[: max(most // LEAST_CHARACTERS, 1)]
    left_out = len(failures) - len(shown)
    more = f"{left_out} more failures are left out here: see {folder}/*.log" if left_out else ""
    rules = [f"---- {cut(heading, LEAST_CHARACTERS - 20)}\n" for heading, _ in shown]
    room = most - len(more) - sum(len(rule) + 2 for rule in rules) - 2
    sizes = shares([len(text) for _, text in shown], max(room, 0))
    pieces = [rule + cut(text, size) for rule, (_, text), size in zip(rules, shown, sizes, strict=True)]
    return "\n\n".join([*pieces, *([more] if more else [])])


def table(found: list[Leg]) -> str:
    rows = [f"{'leg':24} {'status':>6} {'seconds':>8} {'of processors':>14}"]
    for leg in found:
        rows.append(f"{cut(leg.name, 24):24} {leg.status:6} {leg.seconds:8.1f} {leg.processor_seconds:14.1f}")
    return "\n".join(rows)


def report(folder: Path, main_leg: str, seconds: str = "?") -> str:
    found = legs(folder)
    failures = [one for row in zip_longest(*(leg.failures for leg in found)) for one in row if one is not None]
    main_summary = next((leg.summary for leg in found if leg.name == main_leg), "")
    if failures or not main_summary:
        closing = f"{sum(leg.passed for leg in found)} passed, {sum(leg.failed for leg in found) or 1} failed"
    else:
        closing = main_summary
    end = f"{table(found)}\n{seconds} s of the clock in all; full logs: {folder}\n{closing}\n"
    if not failures:
        return end
    return told(failures, MOST_CHARACTERS - len(end) - 2, folder) + "\n\n" + end


if __name__ == "__main__":
    print(report(Path(sys.argv[1]), *sys.argv[2:]), end="")
