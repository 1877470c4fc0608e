"""`distxla run --inject`: refusals, the summary, the JSON, and the replay of a random run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from distxla.cli.main import main
from tests.runtime.injection.programs import LOOP

DISTXLA = str(Path(sys.executable).with_name("distxla"))


@pytest.fixture
def loop(tmp_path: Path) -> str:
    path = tmp_path / "loop.hlo"
    path.write_text(LOOP)
    return str(path)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (
            ["--inject", "kill:device=0", "--backend", "reference"],
            ["error: argument: --inject needs the backend of a cluster (cpu, interpreted)"],
        ),
        (
            ["--inject", "kill:device=2"],
            [
                "--inject:1:13: error: argument: device 2: the run has devices 0 to 1",
                "    kill:device=2",
                "                ^",
            ],
        ),
        (
            ["--inject", "delay:device=0,mss=3"],
            ["--inject:1:16: error: argument: delay has no 'mss'", "", "", "  hint: did you mean ms?"],
        ),
    ],
    ids=["reference", "device", "key"],
)
def test_what_cannot_be_injected_is_refused(
    loop: str, args: list[str], expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", loop, "--replicas", "2", *args])
    assert ended.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) >= len(expected)
    for line, wanted in zip(lines, expected, strict=False):
        assert line.startswith(wanted)


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([DISTXLA, "run", *args], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.exhaustive
@pytest.mark.cluster
def test_a_random_run_is_replayed_by_what_it_prints(loop: str) -> None:
    spec = "random:seed=4,faults=3,kinds=delay+slow"
    first = run(loop, "--replicas", "2", "--inject", spec, "--json")
    assert first.returncode == 0, first.stderr
    drawn = re.findall(rf"note: {re.escape(spec)} draws --inject (\S+)", first.stderr)
    assert len(drawn) == 3
    found = json.loads(first.stdout)["injected"]
    assert [(one["fault"], one["drawn_by"]) for one in found] == [(fault, spec) for fault in drawn]
    again = run(loop, "--replicas", "2", *(part for fault in drawn for part in ("--inject", fault)))
    assert again.returncode == 0, again.stderr
    lines = again.stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("  injected   "))
    assert [line[13:].partition(" ")[0] for line in lines[at : at + 3]] == drawn


@pytest.mark.exhaustive
@pytest.mark.cluster
def test_a_failure_tells_of_the_fault_in_json_and_on_the_page(loop: str, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    spec = "kill:device=1,at=total,round=2"
    ended = run(loop, "--replicas", "2", "--inject", spec, "--json", "--report", str(page))
    assert ended.returncode == 4, ended.stderr
    found = json.loads(ended.stdout)
    assert spec in found["error"]["message"]
    assert found["error"]["location"]["line"] == 10
    (fault,) = found["diagnosis"]["injected"]
    assert fault["happened"] is True
    assert (fault["device"], fault["instruction"]) == (1, "total")
    assert f"injected: {spec} ({loop}:10:3): happened" in ended.stderr
    assert spec in page.read_text()
