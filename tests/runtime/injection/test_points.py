"""Injection points of programs, and the faults that a device carries out there; without processes."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.collectives.transports.injection_point import HOOK
from distxla.compiler.cache_key import program_key
from distxla.compiler.compile import compile_module
from distxla.compiler.stages import emit
from distxla.ir.counts import Counts
from distxla.program.abi import AFTER_STEP, BEFORE_STEP, INSIDE_WAIT
from distxla.program.artifact import ANY_POINT, InjectionPoint
from distxla.program.options import CompileOptions
from distxla.runtime.injection import hook as hooks
from distxla.runtime.injection.drawing import draw, draw_between_hosts
from distxla.runtime.injection.faults import Fault
from distxla.runtime.injection.grammar import parse_faults
from distxla.text.parser import parse_module
from tests.runtime.injection.programs import LOOP

POINTS = (InjectionPoint(("total",), True), InjectionPoint(("y", "halves"), False))
TOTAL, COMPUTE = 0, 4


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ((), []),
        (("*",), [(("total",), True)]),
        (("total",), [(("total",), True)]),
        (("halves", "y"), [(("y", "halves"), False)]),
        (("w",), [(("w",), False)]),
        (("nothing",), []),
    ],
)
def test_instructions_become_points(wanted: tuple[str, ...], found: list[Any]) -> None:
    program = compile_module(parse_module(LOOP, "loop.hlo"), Counts(2, 1), CompileOptions(points=wanted))
    assert [(tuple(sorted(p.names)), p.communicates) for p in program.points] == [
        (tuple(sorted(names)), communicates) for names, communicates in found
    ]


def test_a_program_without_points_asks_nobody() -> None:
    module = parse_module(LOOP, "loop.hlo")
    assert HOOK not in str(emit(module, "llvm", Counts(2, 1)))
    keys = {
        program_key(module, Counts(2, 1), CompileOptions(points=points))
        for points in ((), (ANY_POINT,), ("total",), ("y",))
    }
    assert len(keys) == 4


@pytest.fixture
def block() -> Iterator[ControlBlock]:
    made = ControlBlock.create(2)
    yield made
    made.close()
    made.segment.close()


def played(block: ControlBlock, monkeypatch: pytest.MonkeyPatch, specs: list[str], codes: list[int]) -> list[str]:
    """`spec@n` for each fault that device 1 carries out, at the n-th question of the program."""
    happened: list[str] = []
    asked: list[int] = []

    def note(self: hooks.Injector, fault: Fault) -> None:
        happened.append(f"{fault.spec}@{len(asked) - 1}")

    monkeypatch.setattr(hooks.Injector, "carry_out", note)
    ask = hooks.Injector(1, block, 0, 0, parse_faults(specs, 2)).hook(POINTS)
    for code in codes:
        asked.append(code)
        ask(None, code)
    return happened


ROUND = [TOTAL + BEFORE_STEP, INSIDE_WAIT, INSIDE_WAIT, TOTAL + AFTER_STEP, COMPUTE + BEFORE_STEP, COMPUTE + AFTER_STEP]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("kill:device=1", [0]),
        ("kill:device=1,round=3", [12]),
        ("kill:device=1,at=total,round=2", [6]),
        ("kill:device=1,at=total,round=2,when=waiting", [7]),
        ("kill:device=1,at=total,round=2,when=after", [9]),
        ("kill:device=1,at=halves,round=2", [10]),
        ("kill:device=1,at=y,when=after", [5]),
        ("kill:device=1,at=y,when=waiting", []),
        ("slow:device=1,at=total,round=2,ms=1", [6, 12]),
        ("slow:device=1,at=y,ms=1", [4, 10, 16]),
        ("kill:device=1,at=total,round=4", []),
    ],
)
def test_faults_happen_where_they_are_asked_for(
    block: ControlBlock, monkeypatch: pytest.MonkeyPatch, spec: str, expected: list[int]
) -> None:
    assert played(block, monkeypatch, [spec], ROUND * 3) == [f"{spec}@{n}" for n in expected]
    assert block.record(1, control_words.R_INJECTED) == (1 if expected else 0)


def test_a_wait_that_comes_later_is_taken(block: ControlBlock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a device has to wait in a round is a matter of luck."""
    quick = [TOTAL + BEFORE_STEP, TOTAL + AFTER_STEP]
    spec = "kill:device=1,at=total,round=2,when=waiting"
    assert played(block, monkeypatch, [spec], [*ROUND, *quick, *ROUND]) == [f"{spec}@9"]


def test_each_fault_has_its_bit(block: ControlBlock, monkeypatch: pytest.MonkeyPatch) -> None:
    specs = ["delay:device=1,ms=1,round=9", "delay:device=1,ms=1", "delay:device=1,ms=1,round=2"]
    assert played(block, monkeypatch, specs, ROUND * 2) == [f"{specs[1]}@0", f"{specs[2]}@6"]
    assert block.record(1, control_words.R_INJECTED) == 0b110
    assert block.record(0, control_words.R_INJECTED) == 0


@pytest.mark.parametrize(("fails_after", "sleeps"), [(0, 0), (3, 3), (99, 10)])
def test_a_delay_ends_with_the_call(
    block: ControlBlock, monkeypatch: pytest.MonkeyPatch, fails_after: int, sleeps: int
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == fails_after:
            block.store(control_words.H_ABORT, 1)

    monkeypatch.setattr(hooks, "clock", SimpleNamespace(now=lambda: sum(slept), sleep=sleep))
    block.store(control_words.H_ABORT, int(fails_after == 0))
    ask = hooks.Injector(1, block, 0, 0, parse_faults(["delay:device=1,ms=95"], 2)).hook(POINTS)
    ask(None, BEFORE_STEP)
    assert len(slept) == sleeps
    assert block.record(1, control_words.R_INJECTED) == 1


def test_a_seed_draws_the_same_and_its_draws_can_be_asked_for() -> None:
    places = [(device, POINTS) for device in range(4)]
    for seed in range(50):
        (fault,) = parse_faults([f"random:seed={seed},faults=5,rounds=3"], 4)
        drawn = list(draw(fault, places))
        assert drawn == list(draw(fault, places[::-1]))
        assert drawn == list(parse_faults([one.spec for one in drawn], 4))
        assert all(one.at == "total" and 1 <= one.round <= 3 for one in drawn), "what communicates"
    assert len({tuple(f.spec for f in draw(parse_faults([f"random:seed={s}"], 4)[0], places)) for s in range(50)}) > 30


def test_messages_are_drawn_between_different_hosts() -> None:
    for seed in range(30):
        (fault,) = parse_faults([f"random:seed={seed},faults=4,kinds=kill+drop+late"], 4)
        between, others = list(draw_between_hosts(fault, 3)), list(draw(fault, [(0, POINTS)]))
        assert len(between) + len(others) == 4
        assert between == list(parse_faults([one.spec for one in between], 4))
        assert all(one.source != one.target and {one.source, one.target} <= {0, 1, 2} for one in between)
