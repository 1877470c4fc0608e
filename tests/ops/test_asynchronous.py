"""Asynchronous pairs, spelled out and in their short forms, native ones of collectives and of copies."""

from __future__ import annotations

import numpy as np
import pytest

from distxla.compiler.compile import compile_module, optimised
from distxla.compiler.verify.verifier import verify_module
from distxla.errors import VerificationError
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_programs, run_reference
from distxla.text.parser import parse_module
from distxla.text.printer import print_module
from tests.compiler.runner import run_devices
from tests.ops.asynchronous_cases import ADD, ALONE, NATIVE, X, _entry
from tests.ops.program_case import parsed


@pytest.mark.sampled(one_in=12)
@pytest.mark.parametrize("name", NATIVE)
def test_collectives(name: str) -> None:
    text, expected = NATIVE[name]
    xs = [X + i for i in range(4)]
    module = parse_module(text)
    verify_module(module, 4, 1)
    arguments = [[x] for x in xs]
    by_reference = run_reference(module, arguments, Counts(4, 1))
    by_code = run_devices(compile_module(module, Counts(4, 1)), arguments)
    for outs in (by_reference, by_code):
        for i, leaves in enumerate(outs):
            for got, wanted in zip(leaves, expected(xs, i), strict=True):
                np.testing.assert_array_equal(got, wanted)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ALONE)
def test_on_one_device(name: str) -> None:
    text, wanted = ALONE[name]
    module = parsed(text)
    by_reference = run_reference(module, [[X]], Counts(1, 1))[0]
    by_code = run_devices(compile_module(module, Counts(1, 1)), [[X]])[0]
    for outs in (by_reference, by_code):
        for got, want in zip(outs, wanted, strict=True):
            np.testing.assert_array_equal(got, want)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [*NATIVE, *ALONE])
def test_pairs_survive_their_text(name: str) -> None:
    module = parse_module({**NATIVE, **ALONE}[name][0])
    assert parse_module(print_module(module)) == module


def test_reports_name_the_start() -> None:
    """The halves of the collective have the names and the places of the instructions in the text."""
    module = parse_module(NATIVE["all-gather"][0], "pairs.hlo")
    sites = compile_module(module, Counts(4, 1)).sites
    found = [(site.instruction, site.opcode, str(site.location).split(": ")[0]) for site in sites]
    assert found == [("s", "all-gather-start", "pairs.hlo:4:3"), ("d", "all-gather-done", "pairs.hlo:5:8")]


def test_programs_meet_in_synchronous_and_asynchronous_forms() -> None:
    """Some devices begin an all-reduce, the others have it in one instruction."""
    pair = parse_module(
        _entry(
            "s = f32[8] all-reduce-start(x), replica_groups={}, to_apply=add",
            "ROOT d = f32[8] all-reduce-done(s)",
            before=ADD,
        )
    )
    single = parse_module(_entry("ROOT s = f32[8] all-reduce(x), replica_groups={}, to_apply=add", before=ADD))
    outs = run_programs({0: pair, 1: single}, {0: [X], 1: [X]}, Counts(2, 1))
    np.testing.assert_array_equal(outs[0][0], 2 * X)  # type: ignore[arg-type]
    np.testing.assert_array_equal(outs[1][0], 2 * X)  # type: ignore[arg-type]


def test_pairs_stay_pairs() -> None:
    """Members may have the synchronous form, and those of different modules are not combined alike."""
    text = _entry(
        "y = f32[8] negate(x)",
        "s = f32[8] all-reduce-start(x), replica_groups={}, to_apply=add",
        "t = f32[8] all-reduce-start(y), replica_groups={}, to_apply=add",
        "d = f32[8] all-reduce-done(s)",
        "e = f32[8] all-reduce-done(t)",
        "ROOT r = (f32[8], f32[8]) tuple(d, e)",
        before=ADD,
    )
    assert [i.opcode for i in optimised(parse_module(text)).entry_computation].count("all-reduce-start") == 2


@pytest.mark.parametrize(
    ("name", "old", "new", "rule"),
    [
        ("another thread", "((f32[8]), f32[8], u32[]) async", "((f32[8]), f32[4], u32[]) async", "async-start.C2"),
        ("another thread", "p = f32[8]", "p = f32[4]", "negate|async-start.C1"),
        ("a parameter as the result", "calls=same", "output_to_operand_aliasing={{}: (1, {})}, calls=same", "aliasing"),
        ("a parameter as the result", "async-done(s)", "async-done(x)", "async-done.(pair|C1)"),
        ("all-gather", "all-gather-done(s)", "negate(x)", "all-gather-start.pair|negate"),
    ],
)
def test_rules(name: str, old: str, new: str, rule: str) -> None:
    with pytest.raises(VerificationError, match=rule):
        verify_module(parse_module({**NATIVE, **ALONE}[name][0].replace(old, new)))


def test_members_of_a_pair_agree_on_run_time_sizes() -> None:
    """The smallest one is everybody's; a start that must know it is carried out as a whole."""
    text = f"""HloModule dynamic, replica_count=2
{ADD}ENTRY e {{
  x = f32[<=8] parameter(0)
  s = f32[<=8] all-reduce-start(x), replica_groups={{}}, to_apply=add
  y = f32[<=8] negate(x)
  d = f32[<=8] all-reduce-done(s)
  a = ((f32[<=8]), f32[<=8], u32[]) async-start(x), calls=whole
  b = f32[<=8] async-done(a)
  ROOT r = (f32[<=8], f32[<=8], f32[<=8]) tuple(d, y, b)
}}
""".replace(
        "ENTRY",
        """whole {
  p = f32[<=8] parameter(0)
  ROOT q = f32[<=8] all-reduce(p), replica_groups={}, to_apply=add
}
ENTRY""",
    )
    module = parse_module(text)
    verify_module(module, 2, 1)
    arguments = [[X[:6]], [X[:4]]]
    by_code = run_devices(compile_module(module, Counts(2, 1)), arguments)
    by_reference = run_reference(module, arguments, Counts(2, 1))
    for code, reference, x in zip(by_code, by_reference, arguments, strict=True):
        for got, expected, wanted in zip(code, reference, (2 * X[:4], -x[0], 2 * X[:4]), strict=True):
            np.testing.assert_array_equal(np.asarray(got), wanted)
            np.testing.assert_array_equal(np.asarray(expected), wanted)
