"""Schedules as XLA's TPU compiler writes them: tiles, memory spaces, mixed types in fusions, collectives that several
fusions carry on with (rewrites/spread_collectives.py), and its custom-calls. `check`'s verdict, both executors, what
is refused, and the round trip.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distxla.compiler.obstacles import obstacles
from distxla.compiler.verify.verifier import verify_module
from distxla.ir.counts import Counts
from distxla.ir.element_type import BF16
from distxla.rewrites.executed_form import executed_form
from distxla.scheduler.deadlocks import examine
from distxla.text.parser import parse_module
from distxla.text.printer import print_module
from tests.cli.called import call
from tests.collectives.executors import EXECUTORS, run_module

Array = np.ndarray[Any, Any]

DEVICES = 4
FOLDER = Path(__file__).parent / "tpu_schedules"
HEAD = f"HloModule jit_step, is_scheduled=true, num_partitions={DEVICES}\n"
BARRIER = 'backend_config={"barrier_config":{"barrier_type":"CUSTOM","id":"0"},"used_scoped_memory_configs":[]}'
ALL = "channel_id=1, replica_groups=mesh['a'=4] {'a'}, use_global_device_ids=true"

PAIRS = "replica_groups={{0,2},{1,3}}, use_global_device_ids=true"

SUM = """%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[]{:T(128)} parameter(0)
  %b = f32[]{:T(128)} parameter(1)
  ROOT %add = f32[]{:T(128)} add(%a, %b)
}
"""
MIXED = (FOLDER / "mixed_types.hlo").read_text()
SPREAD = (FOLDER / "spread_collective.hlo").read_text()
LOOP = (FOLDER / "ring.hlo").read_text()
CALLS = (FOLDER / "offloaded_calls.hlo").read_text()


def narrowed(array: Array) -> Array:
    return array.astype(BF16.dtype).astype(np.float32)


def mixed_arguments(device: int) -> tuple[Array, ...]:
    random = np.random.default_rng(device)
    return (
        random.standard_normal((8, 4), np.float32),
        random.standard_normal((4, 16), np.float32),
        np.array(0.25, np.float32),
    )


def mixed_results(rows: list[tuple[Array, ...]]) -> list[tuple[Array, ...]]:
    kept = []
    for x, w, bound in rows:
        product = narrowed(x) @ w
        kept.append(np.where(product > bound, product, np.float32(0)))
    total = narrowed(np.sum([narrowed(k.sum(1)) for k in kept], 0, dtype=np.float32))
    return [(total, k) for k in kept]


def spread_arguments(device: int) -> tuple[Array, ...]:
    rows = np.arange(16, dtype=np.float32).reshape(2, 8) + 100 * device
    return np.eye(8, dtype=np.float32) * (device + 1), narrowed(rows).astype(BF16.dtype)


def spread_results(rows: list[tuple[Array, ...]]) -> list[tuple[Array, ...]]:
    whole = np.concatenate([w.astype(np.float32) for _, w in rows])
    return [(x @ x + whole,) for x, _ in rows]


def loop_arguments(device: int) -> tuple[Array, ...]:
    return (np.arange(8, dtype=np.float32).reshape(2, 4) * (device + 1),)


def loop_results(rows: list[tuple[Array, ...]]) -> list[tuple[Array, ...]]:
    return [(np.sum([x for (x,) in rows], 0),)] * len(rows)


def calls_arguments(device: int) -> tuple[Array, ...]:
    return np.array([[7], [0], [3], [device]], np.int32), np.arange(32, dtype=np.float32).reshape(8, 4) + device


def calls_results(rows: list[tuple[Array, ...]]) -> list[tuple[Array, ...]]:
    return [(x[i[:, 0]], x) for i, x in rows]


# name: (text, what a device is given, what all of them give)
SCHEDULES: dict[str, tuple[str, Any, Any]] = {
    "mixed types in fusions": (MIXED, mixed_arguments, mixed_results),
    "a collective that is spread over fusions": (SPREAD, spread_arguments, spread_results),
    "a ring in a loop": (LOOP, loop_arguments, loop_results),
    "calls of another core, slices": (CALLS, calls_arguments, calls_results),
}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_run(name: str, executor: str) -> None:
    text, arguments, results = SCHEDULES[name]
    given = [arguments(device) for device in range(DEVICES)]
    outs = run_module(executor, text, given, 1, DEVICES)
    for got, wanted in zip(outs, results(given), strict=True):
        for mine, theirs in zip(got, wanted, strict=True):
            np.testing.assert_allclose(mine.astype(np.float32), theirs, rtol=1e-2 if name.startswith("mixed") else 1e-6)


@pytest.mark.parametrize("name", SCHEDULES)
def test_check_proves_that_they_end(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.hlo").write_text(SCHEDULES[name][0])
    status, printed, _ = call(capsys, "check", "--json", str(tmp_path / "m.hlo"))
    found = json.loads(printed)
    assert (status, found["refused"], found["text"]) == (
        0,
        [],
        f"deadlock: none can happen on the {DEVICES} devices",
    )


def test_a_spread_collective_is_one_that_begins_and_ends() -> None:
    module = parse_module(SPREAD, "m.hlo")
    verify_module(module)
    joined = executed_form(module)
    verify_module(joined)
    acting = [i for i in joined.entry_computation if "all-gather" in i.opcode]
    assert [i.opcode for i in acting] == ["all-gather-start", "all-gather-done"]
    places = [i.name for i in joined.entry_computation]
    assert places.index(acting[0].name) < places.index("square") < places.index(acting[1].name)
    where = module.locate(acting[0])
    assert where is not None
    assert where.line == 1 + SPREAD[: SPREAD.index("%all-gather.1 =")].count("\n")
    assert executed_form(joined) is joined


@pytest.mark.parametrize("name", SCHEDULES)
def test_tiles_and_memory_spaces_are_printed_as_they_are_read(name: str) -> None:
    module = parse_module(SCHEDULES[name][0], "m.hlo")
    printed = print_module(module)
    assert parse_module(printed, "m.hlo").computations == module.computations
    for part in ("T(8,128)(2,1)", "T(256)(128)(2,1)S(1)", "{:S(2)}", "{:T(512)S(6)}", "{0:S(4)}"):
        assert printed.count(part) == print_module(parse_module(printed)).count(part)
        assert (part in printed) == (part in SCHEDULES[name][0])
    hlo = pytest.importorskip("jaxlib._hlo")
    hlo.hlo_module_from_text(printed)


# --- schedules of which devices wait for each other -----------------------------------------------------------------
CROSSED = (FOLDER / "crossed.hlo").read_text()


def test_a_deadlock_is_found_behind_mixed_types() -> None:
    module = parse_module(CROSSED, "m.hlo")
    verify_module(module)
    verdict = examine([(range(DEVICES), module)], Counts(1, DEVICES))
    assert verdict.outcome.value == "deadlock"
    assert "all" in verdict.text
    assert "sent" in verdict.text


def test_only_the_end_of_a_spread_collective_waits() -> None:
    """Half of the devices come to an all-reduce before they begin the all-gather, the others while it is in flight."""
    loss = "f32[]{:T(128)}"
    # other groups, whose rounds are counted for themselves
    act = f"  %l = {loss} constant(1)\n  %loss = {loss} all-reduce(%l), channel_id=9, {PAIRS}, to_apply=%sum\n"
    programs = []
    for place in ("async-collective-start", "async-collective-done"):
        text = SPREAD.replace(HEAD, HEAD + SUM).replace(f"  %{place} =", f"{act}  %{place} =")
        programs.append(parse_module(text, f"{place}.hlo"))
        verify_module(programs[-1])
    verdict = examine([((0, 1), programs[0]), ((2, 3), programs[1])], Counts(1, DEVICES))
    assert verdict.outcome.value == "safe", verdict.text


KERNEL = """ENTRY %main (x: f32[8,128]) -> f32[8,128] {
  %x = f32[8,128]{1,0:T(8,128)} parameter(0)
  ROOT %k = f32[8,128]{1,0:T(8,128)} custom-call(%x), custom_call_target="tpu_custom_call",
    backend_config={"custom_call_config":{"body":"TUzv",FLAG"serialization_format":"1"}}
}
"""


@pytest.mark.parametrize(("flag", "outcome"), [('"has_communication":true,', "unknown"), ("", "safe")])
def test_a_kernel_that_communicates_leaves_the_verdict_open(
    flag: str, outcome: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.hlo").write_text(HEAD + KERNEL.replace("FLAG", flag))
    page = tmp_path / "page.html"
    status, printed, _ = call(capsys, "check", "--json", str(tmp_path / "m.hlo"), "--report", str(page))
    found = json.loads(printed)
    assert (status, found["outcome"], page.exists()) == (2, outcome, bool(flag))
    undecided = found["diagnosis"]["undecided"] if flag else []
    assert [each["by"]["instruction"] for each in undecided] == (["k"] if flag else [])
    assert (found["diagnosis"] is None) == (not flag)
    assert ("m.hlo:4:8" in found["text"]) == bool(flag)
    assert [refused["instruction"] for refused in found["refused"]] == ["k"]


# --- what can't be executed -----------------------------------------------------------------------------------------


# name: (text of the instruction, the last one before the root; what is said of it)
REFUSED = {
    "a kernel": (
        '%c = f32[4]{0:T(128)} custom-call(%x), custom_call_target="tpu_custom_call", '
        'backend_config={"custom_call_config":{"body":"TUzvUg=="}}',
        'nothing executes the custom-call target "tpu_custom_call"',
    ),
    "a start without its done": (
        f"%g = f32[16]{{0:T(128)}} all-gather(%x), {ALL}, dimensions={{0}}\n"
        "  %s = (f32[4]{0:T(128)}, f32[16]{0:T(128)S(1)}, u32[]{:S(2)}) custom-call(%g), "
        'custom_call_target="AsyncCollectiveStart"\n'
        "  %c = f32[4]{0:T(128)} get-tuple-element(%s), index=0",
        'custom-call of "AsyncCollectiveStart" without its other end',
    ),
    "slices along two dimensions": (
        "%a = f32[2,2]{1,0:T(2,128)} reshape(%x)\n"
        '  %b = f32[4,4]{1,0:T(4,128)} custom-call(%a, %a), custom_call_target="ConcatBitcast"\n'
        "  %c = f32[4]{0:T(128)} copy(%x)",
        "joins slices along one dimension, not f32[2,2], f32[2,2], to f32[4,4]",
    ),
    "indices of another shape": (
        '%c = f32[5]{0:T(128)} custom-call(%x), custom_call_target="GatherScatterIndicesBitpacked"',
        'custom-call of "GatherScatterIndicesBitpacked" from f32[4] to f32[5]',
    ),
    "a preparation of something": (
        '%p = s32[]{:S(2)} custom-call(%x), custom_call_target="PrepareAsyncCallStart"\n  %c = f32[4] copy(%x)',
        'custom-call of "PrepareAsyncCallStart" to s32[], not of nothing to s32[]',
    ),
    "the end of no preparation": (
        '%p = token[] custom-call(%x), custom_call_target="PrepareAsyncCallDone"\n  %c = f32[4] copy(%x)',
        'custom-call of "PrepareAsyncCallDone" to token[], not of s32[] to token[]',
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_stops_a_run_is_named_beside_the_verdict(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line, why = REFUSED[name]
    text = f"{HEAD}{SUM}\nENTRY %main (x: f32[4]) -> f32[4] {{\n  %x = f32[4]{{0:T(128)}} parameter(0)\n  {line}\n"
    text += f"  %y = f32[4]{{0:T(128)}} copy(%x)\n  ROOT %r = f32[4] all-reduce(%y), {ALL}, to_apply=%sum\n}}\n"
    module = parse_module(text, "m.hlo")
    verify_module(module)
    (found,) = obstacles(module)
    assert why in found[1]
    (tmp_path / "m.hlo").write_text(text)
    status, printed, _ = call(capsys, "check", "--json", str(tmp_path / "m.hlo"))
    report = json.loads(printed)
    assert status == 2
    assert report["text"] == f"deadlock: none can happen on the {DEVICES} devices"
    assert [refused["instruction"] for refused in report["refused"]] == [found[0].name]
    assert str(tmp_path) in report["refused"][0]["location"]
