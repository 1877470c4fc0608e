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

from tests.conftest import require_ended, started_processes
from tests.programs import PROGRAMS
from tests.runtime import trace_schema

pytestmark = pytest.mark.cluster
DISTXLA = str(Path(sys.executable).with_name("distxla"))
ENDLESS = """HloModule endless, num_partitions=2
again { ROOT p = s32[] parameter(0) }
always { p = s32[] parameter(0) ROOT yes = pred[] constant(true) }
ENTRY main { p = s32[] parameter(0) ROOT w = s32[] while(p), condition=always, body=again }
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


def distxla(*args: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    run = subprocess.run([DISTXLA, *args], capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == status, run.stdout + run.stderr
    return run


@pytest.mark.exhaustive
def test_a_trace_of_a_run(tmp_path: Path) -> None:
    """Of every device and step, on one clock; the results are those of a run without it."""
    program = next(p for p in PROGRAMS if p.name == "ring_attention")
    files, trace = [str(program.folder / name) for name in ("args.npz", "expected.npz")], tmp_path / "trace.json"
    arguments = ["run", str(program.folder / "optimized.hlo"), "--args", files[0], "--expected", files[1], "--json"]
    runs = [json.loads(distxla(*arguments, *extra).stdout) for extra in ((), ("--repeat", "2", "--trace", str(trace)))]
    assert runs[0]["comparisons"] == runs[1]["comparisons"]
    document = trace_schema.read(trace)
    rows = trace_schema.by_phase(document)
    assert len({row["pid"] for row in rows["X"]}) == 9  # eight devices, and who calls them
    assert sum(row["cat"] == "run" for row in rows["X"]) == 16
    assert {"kernel", "loop", "collective", "run", "call"} <= {row["cat"] for row in rows["X"]}
    assert len(rows["s"]) == 2 * 64


def test_a_trace_of_a_run_that_fails(tmp_path: Path) -> None:
    module, items, trace = (tmp_path / name for name in ("hungry.hlo", "items.npz", "trace.json"))
    module.write_text(HUNGRY)
    np.savez(items, **{"infeed0.0": np.zeros(2, np.float32)})
    distxla("run", str(module), "--infeed", str(items), "--trace", str(trace), status=1)
    rows = trace_schema.by_phase(trace_schema.read(trace))["X"]
    (call,) = (row for row in rows if row["cat"] == "call")
    assert "Error: " in call["args"]["error"]
    feeds = [(row["name"], row["args"].get("unfinished", False)) for row in rows if row["cat"] == "feed"]
    assert feeds == [("first", False), ("second", True)]


def test_a_real_program_from_files_to_files(tmp_path: Path) -> None:
    program = next(p for p in PROGRAMS if p.name == "fsdp")
    out = tmp_path / "out.npz"
    run = distxla(
        "run", str(program.folder / "optimized.hlo"), "--args", str(program.folder / "args.npz"), "--expected",
        str(program.folder / "expected.npz"), "--compare", "reference", "--out", str(out), "--json", "--repeat", "3",
    )  # fmt: skip
    found = json.loads(run.stdout)
    assert run.stderr == ""
    assert [c["fits"] for c in found["comparisons"]] == [True, True]
    assert len(found["steps_s"]) == 3
    assert min(found[key] for key in ("parse_s", "compile_s", "start_s")) > 0
    assert len({process["pid"] for process in found["processes"]}) == found["devices"] == 8
    with np.load(out) as file:
        program.assert_results([[file[f"out{k}@{d}"] for k in range(3)] for d in range(8)])


def test_several_programs_on_disjoint_devices(tmp_path: Path) -> None:
    paths = []
    for factor in (2, 3):
        path = tmp_path / f"times{factor}.hlo"
        path.write_text(SCALE.format(factor=factor))
        paths.append(str(path))
    np.savez(tmp_path / "args.npz", arg0=np.array([1, 10], np.float32))
    out = tmp_path / "out.npz"
    run = distxla(
        "run", f"{paths[0]}@0,2", f"{paths[1]}@1", "--args", str(tmp_path / "args.npz"), "--out", str(out),
        "--compare", "reference",
    )  # fmt: skip
    assert "on devices 0,2" in run.stdout
    assert "agrees with the reference within tolerance: 3 arrays, " in run.stdout
    with np.load(out) as file:
        assert {key: file[key].tolist() for key in sorted(file.files)} == {
            "out0@0": [2, 20], "out0@1": [3, 30], "out0@2": [2, 20],
        }  # fmt: skip


@pytest.mark.exhaustive
def test_the_time_limit_has_its_own_status(tmp_path: Path) -> None:
    (tmp_path / "endless.hlo").write_text(ENDLESS)
    run = distxla("run", str(tmp_path / "endless.hlo"), "--time-limit", "15", status=5)
    assert (
        "error: time-limit: the time limit of 15 s ran out while running\n" in run.stderr
    )  # the whole one, not what was left of it
    assert "Traceback" not in run.stderr


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interruption_takes_everything_down(number: signal.Signals, status: int, tmp_path: Path) -> None:
    (tmp_path / "endless.hlo").write_text(ENDLESS)
    before = started_processes()
    with running_forever(tmp_path / "endless.hlo", before) as (process, _):
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors.strip()) == (status, "interrupted" if number == signal.SIGINT else "terminated")
    require_ended(before)


@pytest.mark.exhaustive
def test_a_killed_replica_is_named(tmp_path: Path) -> None:
    (tmp_path / "endless.hlo").write_text(ENDLESS)
    before = started_processes()
    with running_forever(tmp_path / "endless.hlo", before) as (process, replicas):
        os.kill(replicas[0], signal.SIGKILL)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 4, errors
    first = errors.splitlines()[0]
    assert "endless.hlo:4:42: error: lost: the replica of device " in first, errors
    assert re.search(r"ended during a call( by SIGKILL)? in w$", first), errors
    assert str(replicas[0]) in errors
    require_ended(before)


@contextmanager
def running_forever(module: Path, before: set[str]) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A command that runs an endless module, and the process ids of its two replicas."""
    process = subprocess.Popen(
        [DISTXLA, "run", str(module)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 90
        replicas: list[int] = []
        while len(replicas) < 2 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
            replicas = [int(p.split()[0]) for p in started_processes() - before if "ray::Replica" in p]
        assert len(replicas) == 2
        times = [psutil.Process(pid).cpu_times for pid in replicas]
        enough = [time_of().user + 1 for time_of in times]  # far more than the rest of their start takes
        while any(time_of().user < s for time_of, s in zip(times, enough)) and time.monotonic() < deadline:
            time.sleep(0.1)
        yield process, replicas
    finally:
        process.kill()
        process.communicate()
