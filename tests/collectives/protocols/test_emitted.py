"""Emitted routines access shared words in the sequences that their models have, and in no others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from llvmlite import ir

from distxla.collectives.protocols import channel
from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols.call_loops import CALL, SERVE
from distxla.collectives.protocols.layout import Order, Word
from distxla.collectives.transports.shared_memory import (
    channel_site,
    emit_call_loops,
    emit_launches,
    group_round,
    stream_site,
)
from distxla.collectives.transports.shared_memory import permute_round as permutes
from distxla.collectives.transports.shared_memory.wait_and_wake import emit_wait, emit_wake
from distxla.ir.element_type import F32
from distxla.ir.op import Op
from distxla.ir.shape import Shape
from distxla.ops.channel import Recv, RecvDone, Send, SendDone, ZeroCopyRecv, ZeroCopySend
from distxla.targets.code import CodeModule
from tests.collectives.protocols.accesses import (
    Automaton,
    NamedInstructions,
    difference,
    of_code,
    of_model,
    recorded_words,
)
from tests.collectives.protocols.models.machine import Process, title
from tests.collectives.protocols.models.routines import NAMES, routine
from tests.collectives.protocols.models.wait import A_SLEEPERS, A_WORD

SMALL, LARGE = (64,), (1 << 20,)
EAGER, BULKY = Shape(F32, (4,)), Shape(F32, (100_000,))
Emit = Callable[[ir.Module], ir.Function]


def _permute(emit: Callable[[ir.Module, tuple[int, ...], int], ir.Function], sizes: tuple[int, ...]) -> Emit:
    return lambda module: emit(module, sizes, 7)


def _channel(kind: type[Op], payload: Shape) -> Emit:
    return lambda module: channel_site.ROUTINES[kind](module, "routine", payload).emit()


def _loop(emit: Callable[[ir.Module], None], name: str) -> Emit:
    def emitted(module: ir.Module) -> ir.Function:
        emit(module)
        return module.globals[name]

    return emitted


EMITTED: dict[str, Emit] = {
    "wait": emit_wait,
    "wake": emit_wake,
    "group round": group_round.emit_group_round,
    "group begin": group_round.emit_group_begin,
    "group end": group_round.emit_group_end,
    "small permute round": _permute(permutes.emit_permute_round, SMALL),
    "small permute begin": _permute(permutes.emit_permute_begin, SMALL),
    "small permute end": _permute(permutes.emit_permute_end, SMALL),
    "large permute round": _permute(permutes.emit_permute_round, LARGE),
    "large permute begin": _permute(permutes.emit_permute_begin, LARGE),
    "large permute end": _permute(permutes.emit_permute_end, LARGE),
    "eager send": _channel(Send, EAGER),
    "eager send-done": _channel(SendDone, EAGER),
    "eager recv-done": _channel(RecvDone, EAGER),
    "large send": _channel(Send, BULKY),
    "large zero-copy send": _channel(ZeroCopySend, BULKY),
    "large send-done": _channel(SendDone, BULKY),
    "recv": _channel(Recv, BULKY),
    "recv with a receive buffer": _channel(ZeroCopyRecv, BULKY),
    "large recv-done": _channel(RecvDone, BULKY),
    "stream await": stream_site.emit_await,
    "stream taken": stream_site.emit_taken,
    "stream room": stream_site.emit_room,
    "stream posted": stream_site.emit_posted,
    "serve": _loop(emit_call_loops.emit_serve, SERVE),
    "call": _loop(emit_call_loops.emit_call, CALL),
    "launch log": emit_launches.emit_log,
    "launch issue": emit_launches.emit_issue,
    "launch arrive": emit_launches.emit_arrive,
    "launch note site": _loop(emit_launches.emit_arrive, "launch_note_site"),
    "launch write apart": _loop(emit_launches.emit_arrive, "launch_write_apart"),
}
ARGUMENTS: dict[str, dict[int, Word]] = {"wait": {1: A_WORD, 4: A_SLEEPERS}, "wake": {0: A_WORD, 1: A_SLEEPERS}}
LEFT_OUT = {"serve": frozenset({title(control_words.R_NUMBER), title(control_words.R_EVENTS)})}  # the flight recorder's


def _code(name: str) -> Automaton:
    with recorded_words():
        function = EMITTED[name](CodeModule("test", NamedInstructions()))  # type: ignore[arg-type]
    return of_code(function, ARGUMENTS.get(name, {}), LEFT_OUT.get(name, frozenset()))


@pytest.mark.parametrize("name", NAMES)
def test_emitted_code_accesses_shared_words_as_its_model_does(name: str) -> None:
    assert difference(of_model(routine(name)), _code(name)) == ""


CHANGED: dict[str, tuple[str, Callable[[Process], None]]] = {  # a routine, and how its model is changed
    "a weaker order": ("group round", lambda p: _change(p, "publish", order=Order.MONOTONIC)),
    "no fence before waking": ("wake", lambda p: _change(p, "fence before wake", kind="assign", word=None)),
    "no second look": ("wait", lambda p: _change(p, "look again", kind="assign", word=None)),
    "no look for an abort": ("wait", lambda p: _change(p, "look for abort", kind="assign", word=None)),
    "another word": ("eager send", lambda p: _change(p, "send", word=channel.W_TAKEN)),
    "no wake": ("stream posted", lambda p: _change(p, "wake for post", routine="")),
    "a claim too few": ("large permute round", lambda p: _change(p, "claim", kind="assign", word=None)),
    "a start too few": ("launch arrive", lambda p: _change(p, "start", kind="assign", word=None)),
    "no look at the hold": ("launch issue", lambda p: _change(p, "look for a hold", kind="assign", word=None)),
    "a count too few": ("serve", lambda p: _change(p, "count the end", kind="assign", word=None)),
}


def _change(p: Process, tag: str, **fields: object) -> None:
    for at, step in enumerate(p.steps):
        if tag in step.tag.split("/") and step.kind != "jump":
            p.steps[at] = replace(step, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("change", CHANGED)
def test_a_model_that_differs_is_told_from_the_code(change: str) -> None:
    name, apply = CHANGED[change]
    process = routine(name)
    apply(process)
    assert difference(of_model(process), _code(name)).startswith("only the")
