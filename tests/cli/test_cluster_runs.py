"""`distxla run` on a cluster: what it prints and writes, and how it ends when it does not end well."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.cli.called import call
from tests.conftest import require_ended, started_processes
from tests.programs import PROGRAMS
from tests.runtime import trace_schema

pytestmark = pytest.mark.cluster
DISTXLA = str(Path(sys.executable).with_name("distxla"))
ENDLESS = """HloModule endless, num_partitions=2
again { ROOT p = s32[] parameter(0) }
always { p = s32[] parameter(0) ROOT yes = pred[] constant(true) }
ENTRY main { p = s32[] parameter(0) s = s32[] custom-call(p), custom_call_target="started"
 ROOT w = s32[] while(s), condition=always, body=again }
"""
STARTED = """
import os
def started(p):
    open(f"started/{os.getpid()}", "w").close()
    return p
"""
HUNGRY = """HloModule hungry
ENTRY main { k = token[] after-all()
 first = (f32[2], token[]) infeed(k) next = token[] get-tuple-element(first), index=1
 second = (f32[2], token[]) infeed(next) ROOT x = f32[2] get-tuple-element(second), index=0 }
"""
SCALE = """HloModule scale
ENTRY main {{ x = f32[2] parameter(0) c = f32[] constant({factor}) b = f32[2] broadcast(c), dimensions={{}}
 ROOT y = f32[2] multiply(x, b) }}
"""


@pytest.mark.exhaustive
def test_a_trace_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of every device and step, on one clock; the results are those of a run without it."""
    program = next(p for p in PROGRAMS if p.name == "ring_attention")
    files, trace = [str(program.folder / name) for name in ("args.npz", "expected.npz")], tmp_path / "trace.json"
    arguments = ["run", str(program.folder / "optimized.hlo"), "--args", files[0], "--expected", files[1], "--json"]
    page = tmp_path / "page.html"
    lines = arguments, [*arguments, "--repeat", "2", "--trace", str(trace), "--timeline", str(page)]
    told = [call(capsys, *line) for line in lines]
    runs = [json.loads(printed) for _, printed, _ in told]
    assert runs[0]["comparisons"] == runs[1]["comparisons"]
    assert f"note: the trace is in {trace}; ui.perfetto.dev opens it\n" in told[1][2]
    assert f"note: the timeline is in {page}\n" in told[1][2]
    assert "<h1>Timeline: 8 devices, 2 calls, " in page.read_text()
    document = trace_schema.read(trace)
    rows = trace_schema.by_phase(document)
    assert len({row["tid"] for row in rows["X"]}) == 9  # eight devices, and who calls them
    assert sum(row["cat"] == "run" for row in rows["X"]) == 16
    assert {"kernel", "loop", "collective", "run", "call"} <= {row["cat"] for row in rows["X"]}
    assert len(rows["s"]) == 2 * 64


def test_a_trace_of_a_run_that_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module, items, trace = (tmp_path / name for name in ("hungry.hlo", "items.npz", "trace.json"))
    module.write_text(HUNGRY)
    np.savez(items, **{"infeed0.0": np.zeros(2, np.float32)})
    files = "--trace", str(trace), "--timeline", str(tmp_path / "page.html")
    assert call(capsys, "run", str(module), "--infeed", str(items), *files)[0] == 1
    assert "did not end" in (tmp_path / "page.html").read_text()
    rows = trace_schema.by_phase(trace_schema.read(trace))["X"]
    (failed,) = (row for row in rows if row["cat"] == "call")
    assert "Error: " in failed["args"]["error"]
    feeds = [(row["name"], row["args"].get("unfinished", False)) for row in rows if row["cat"] == "feed"]
    assert feeds == [("first", False), ("second", True)]


def test_a_real_program_from_files_to_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = next(p for p in PROGRAMS if p.name == "fsdp")
    out = tmp_path / "out.npz"
    status, printed, errors = call(
        capsys, "run", str(program.folder / "optimized.hlo"), "--args", str(program.folder / "args.npz"), "--expected",
        str(program.folder / "expected.npz"), "--compare", "reference", "--out", str(out), "--json", "--repeat", "3",
    )  # fmt: skip
    found = json.loads(printed)
    assert (status, errors) == (0, "")
    assert [c["fits"] for c in found["comparisons"]] == [True, True]
    assert len(found["steps_s"]) == 3
    assert min(found[key] for key in ("parse_s", "compile_s", "start_s")) > 0
    assert len({process["pid"] for process in found["processes"]}) == found["devices"] == 8
    with np.load(out) as file:
        program.assert_results([[file[f"out{k}@{d}"] for k in range(3)] for d in range(8)])


def test_several_programs_on_disjoint_devices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = []
    for factor in (2, 3):
        path = tmp_path / f"times{factor}.hlo"
        path.write_text(SCALE.format(factor=factor))
        paths.append(str(path))
    np.savez(tmp_path / "args.npz", arg0=np.array([1, 10], np.float32))
    out = tmp_path / "out.npz"
    status, printed, errors = call(
        capsys, "run", f"{paths[0]}@0,2", f"{paths[1]}@1", "--args", str(tmp_path / "args.npz"), "--out", str(out),
        "--compare", "reference",
    )  # fmt: skip
    assert (status, errors) == (0, "")
    assert "on devices 0,2" in printed
    assert "agrees with the reference within tolerance: 3 arrays, " in printed
    with np.load(out) as file:
        assert {key: file[key].tolist() for key in sorted(file.files)} == {
            "out0@0": [2, 20], "out0@1": [3, 30], "out0@2": [2, 20],
        }  # fmt: skip


@pytest.mark.exhaustive
def test_the_time_limit_has_its_own_status(tmp_path: Path) -> None:
    line = [*endless(tmp_path), "--time-limit", "15"]
    run = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 5
    assert (
        "error: time-limit: the time limit of 15 s ran out while running\n" in run.stderr
    )  # the whole one, not what was left of it
    assert "Traceback" not in run.stderr


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interruption_takes_everything_down(number: signal.Signals, status: int, tmp_path: Path) -> None:
    before = started_processes()
    with running_forever(tmp_path) as (process, _):
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors.strip()) == (status, "interrupted" if number == signal.SIGINT else "terminated")
    require_ended(before)


@pytest.mark.exhaustive
def test_a_killed_replica_is_named(tmp_path: Path) -> None:
    before = started_processes()
    with running_forever(tmp_path) as (process, replicas):
        os.kill(replicas[0], signal.SIGKILL)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 4, errors
    first = errors.splitlines()[0]
    assert "endless.hlo:5:7: error: lost: the replica of device " in first, errors
    assert re.search(r"ended during a call( by SIGKILL)? in w$", first), errors
    assert str(replicas[0]) in errors
    require_ended(before)


def endless(folder: Path) -> list[str]:
    """A command that runs for ever. Each of its two replicas, when it is about to begin that, makes a file in the
    folder `started`, named by its process id."""
    (folder / "endless.hlo").write_text(ENDLESS)
    (folder / "started_of_test.py").write_text(STARTED)
    (folder / "started").mkdir()
    return [DISTXLA, "run", "endless.hlo", "--custom-call", "started=started_of_test:started"]


@contextmanager
def running_forever(folder: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A command that runs an endless module, and the process ids of its two replicas."""
    process = subprocess.Popen(
        endless(folder), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 90
        while len(found := os.listdir(folder / "started")) < 2 and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        replicas = [int(name) for name in found]
        times = [psutil.Process(pid).cpu_times for pid in replicas]
        enough = [time_of().user + 0.1 for time_of in times]  # more than from that file to the loop
        while any(time_of().user < s for time_of, s in zip(times, enough)) and time.monotonic() < deadline:
            time.sleep(0.05)
        yield process, replicas
    finally:
        process.kill()
        process.communicate()
