"""compile_module, its stages, and the compile server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from distxla.compiler import server as compile_server
from distxla.compiler.compile import compile_alone, compile_module
from distxla.compiler.server import CompileServer
from distxla.compiler.stages import STAGES, emit
from distxla.errors import (
    ArgumentError,
    ClusterError,
    CompileError,
    OutOfMemoryError,
    TimeLimitError,
    UnsupportedOpError,
)
from distxla.ir.counts import Counts
from distxla.program.options import CompileOptions
from distxla.text.parser import parse_module
from distxla.time_limit import phase, time_limit
from tests.compiler.runner import Devices, run_devices, run_single
from tests.targets.nvptx.assembler import needs_assembler

PROGRAMS = Path(__file__).parents[1] / "programs"
SMALL = "HloModule small\nENTRY e {\n  x = f32[4] parameter(0)\n  ROOT y = f32[4] tanh(x)\n}\n"


def small():
    return parse_module(SMALL, "small.hlo")


def program_arguments(folder: Path, prefix: str, count: int, devices: int) -> list[list[np.ndarray]]:
    name = "args" if prefix == "arg" else "expected"
    with np.load(folder / f"{name}.npz") as file:
        return [
            [file[f"{prefix}{k}@{d}"] if f"{prefix}{k}@{d}" in file else file[f"{prefix}{k}"] for k in range(count)]
            for d in range(devices)
        ]


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("text", ["partitioned", "optimized"])
@pytest.mark.parametrize("name", sorted(p.parent.name for p in PROGRAMS.glob("*/meta.json")))
def test_the_programs_give_what_xla_gave(name, text):
    folder = PROGRAMS / name
    module = parse_module((folder / f"{text}.hlo").read_text(), f"{text}.hlo")
    meta = json.loads((folder / "meta.json").read_text())
    program = compile_module(module, Counts(module.replica_count or 1, module.num_partitions or 1))
    count = program.counts.devices
    assert count == meta["devices"]
    args = program_arguments(folder, "arg", len(program.parameter_leaves), count)
    wanted = program_arguments(folder, "out", len(program.result_leaves), count)
    devices = Devices(program)
    first = devices(args)
    for device in range(count):
        for got, expected in zip(first[device], wanted[device], strict=True):
            np.testing.assert_allclose(got, expected, rtol=meta["tol"], atol=meta["tol"])
    again = devices(args)
    for a, b in zip(first, again, strict=True):
        for x, y in zip(a, b, strict=True):
            assert x.tobytes() == y.tobytes()
    devices.close()


def test_timings_cover_the_stages():
    program = compile_module(small(), Counts(1, 1))
    assert {"passes", "buffers", "emit", "optimise", "object", "link"} <= set(program.debug.timings)
    assert program.name == "small"


@pytest.mark.parametrize(
    "stage", [pytest.param(s, marks=needs_assembler) if s in ("sass-ready", "cubin") else s for s in STAGES]
)
def test_stages(stage):
    found = emit(small(), stage, Counts(1, 1))
    if stage in ("object", "cubin"):
        assert isinstance(found, bytes)
        assert found.startswith(b"\x7fELF")
        return
    assert isinstance(found, str)
    expected = {
        "hlo": "kind=kLoop",
        "schedule": "is_scheduled=true",
        "buffers": "kernel y (fusion): result[0] <- parameter[0]",
        "llvm-unoptimised": 'i32 @"distxla_entry"(',
        "llvm": "i32 @distxla_entry(",
        "asm": "distxla_entry:",
        "ptx": ".visible .entry kernel_0_y(",
        "sass-ready": " registers, 0 bytes of shared memory, 0 bytes spilled\n",
    }
    assert expected[stage] in found


def test_stages_that_are_none():
    with pytest.raises(ArgumentError, match="no stage 'x'"):
        emit(small(), "x", Counts(1, 1))
    with pytest.raises(ArgumentError, match="0 replicas"):
        compile_module(small(), Counts(0, 1))


def test_errors_name_the_instruction_and_its_place():
    text = (
        "HloModule m\nENTRY e {\n  x = c64[8] parameter(0)\n"
        '  ROOT f = c64[8] custom-call(x), custom_call_target="unknown"\n}\n'
    )
    with pytest.raises(UnsupportedOpError, match='custom-call target "unknown"') as caught:
        compile_module(parse_module(text, "m.hlo"), Counts(1, 1))
    assert str(caught.value.location) == "m.hlo:4:8"


def test_instructions_can_be_compiled_one_by_one():
    folder = PROGRAMS / "halo_stencil"
    module = parse_module((folder / "partitioned.hlo").read_text(), "partitioned.hlo")
    told: list[str] = []
    compile_alone(module, Counts(1, 8), CompileOptions(), told.append)
    assert "mul.2" in told
    assert "pmax.6" in told


def test_two_replicas_reduce():
    text = """HloModule m
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }
ENTRY e { x = f32[4] parameter(0)
 ROOT r = f32[4] all-reduce(x), replica_groups={}, to_apply=add }
"""
    program = compile_module(parse_module(text, "m.hlo"), Counts(2, 1))
    outs = run_devices(program, [[[1, 2, 3, 4]], [[10, 20, 30, 40]]])
    assert [out[0].tolist() for out in outs] == [[11, 22, 33, 44]] * 2


# --- the compile server -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server():
    """One for all tests, since each start takes half a second. Its memory suffices for small programs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DISTXLA_COMPILE_MEMORY", "300M")
        patch.setattr(compile_server, "WORKER", "tests.compiler.failing_worker")
        with CompileServer() as running:
            yield running


def test_server_compiles(server):
    program = server.compile(small(), Counts(1, 1))
    got = run_single(program, [[0.0, 1.0, -1.0, 100.0]])[0]
    np.testing.assert_allclose(got, np.tanh([0.0, 1.0, -1.0, 100.0]), rtol=1e-6)
    assert "distxla_entry" in str(server.emit(small(), "llvm", Counts(1, 1)))


def test_server_passes_errors_on(server):
    pid = server.pid
    with pytest.raises(ArgumentError, match="no stage"):
        server.emit(small(), "x", Counts(1, 1))
    text = (
        "HloModule m\nENTRY e {\n  x = c64[8] parameter(0)\n"
        '  ROOT f = c64[8] custom-call(x), custom_call_target="unknown"\n}\n'
    )
    with pytest.raises(UnsupportedOpError) as caught:
        server.compile(parse_module(text, "m.hlo"), Counts(1, 1))
    assert str(caught.value.location) == "m.hlo:4:8"
    assert server.pid == pid


def test_an_abort_costs_one_compilation_and_names_what_was_lowered(server):
    pid = server.pid
    with pytest.raises(CompileError, match=r"SIGABRT while working on dot\.7"):
        server.ask("abort", "dot.7")
    assert server.compile(small(), Counts(1, 1)).name == "small"
    assert server.pid != pid


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("what", ["memory-of-python", "memory-of-c++"])
def test_a_compilation_that_needs_too_much_memory_is_one_error(what, server):
    """Python raises MemoryError, C++ ends its process; either way the machine has the rest of its memory."""
    with pytest.raises(OutOfMemoryError, match=r"more than the 0\.293 GiB that it may have \(working on dot\.7\)"):
        server.ask(what, "dot.7")
    assert server.compile(small(), Counts(1, 1)).name == "small"


def test_a_search_for_the_culprit_that_was_interrupted_answers_no_later_request(monkeypatch, server):
    with monkeypatch.context() as patch:
        patch.setattr(compile_server, "receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            server.culprit(("compile", small(), Counts(1, 1), CompileOptions(), ()))
    assert server.compile(small(), Counts(1, 1)).name == "small"


def interrupted(pipe):
    raise KeyboardInterrupt


@pytest.mark.parametrize("given", ["much", "-1G", "0", "1X"])
def test_a_memory_limit_that_is_none_is_refused(given, monkeypatch):
    monkeypatch.setenv("DISTXLA_COMPILE_MEMORY", given)
    with pytest.raises(ArgumentError, match="DISTXLA_COMPILE_MEMORY: expected a size as in 6G"):
        CompileServer()


def test_a_time_limit_ends_a_compilation_or_the_wait_for_another_and_not_the_server(server):
    assert server.pid

    def nap():
        with (
            pytest.raises(TimeLimitError, match=r"3 s ran out while compiling: a nap$"),
            time_limit(3),
            phase("compiling"),
        ):
            server.ask("sleep", "a nap")
        ended.append("a nap")

    ended = []
    thread = threading.Thread(target=nap)
    thread.start()
    while not server._lock.locked():
        time.sleep(0.01)
    with (
        pytest.raises(TimeLimitError, match=r"0\.1 s ran out while compiling: another program is being compiled"),
        time_limit(0.1),
        phase("compiling"),
    ):
        server.compile(small(), Counts(1, 1))
    thread.join()
    assert ended == ["a nap"]
    assert server.compile(small(), Counts(1, 1)).name == "small"


def test_the_thread_that_started_a_server_may_end_and_a_closed_one_says_so():
    with CompileServer() as server:
        thread = threading.Thread(target=server.compile, args=(small(), Counts(1, 1)))
        thread.start()
        thread.join()
        pid = server.pid
        server.compile(small(), Counts(1, 1))
        assert server.pid == pid
        server.close()
        server.close()
        assert not Path(f"/proc/{pid}").exists()
        with pytest.raises(ClusterError, match="closed"):
            server.compile(small(), Counts(1, 1))


def test_no_server_outlives_its_parent():
    code = (
        "from distxla.compiler.server import CompileServer; import time\n"
        "server = CompileServer(); print(server.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 20
    while Path(f"/proc/{child}").exists() and _state(child) != "Z":
        assert time.monotonic() < deadline, "the compile server is still there"
        time.sleep(0.02)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "Z"
