"""Which functions the module calls that JAX compiles now."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from distxla.jax.pjrt.host_callbacks import HostCallbacks

OURS, OTHERS = "distxla 0.1.0", "cpu 0.1"


def one() -> None: ...


def other() -> None: ...


@pytest.mark.parametrize("version", [OURS, f"PJRT C API\n{OURS}"])  # the second is what JAX 0.10 makes of it
def test_they_are_known_in_any_thread_and_until_the_compilation_ends(version: str) -> None:
    callbacks, seen = HostCallbacks(), list[object]()

    def compile_() -> None:
        thread = threading.Thread(target=lambda: seen.append(callbacks.being_compiled))
        thread.start()
        thread.join()
        raise ValueError("it fails")

    with pytest.raises(ValueError, match="it fails"):
        callbacks.around(version, [one], compile_)
    assert seen == [[one]]
    assert callbacks.being_compiled == ()


@pytest.mark.parametrize(
    ("version", "functions", "waits"), [(OURS, [other], True), (OURS, [], False), (OTHERS, [other], False)]
)
def test_only_modules_with_callbacks_wait_for_each_other(
    version: str, functions: list[Callable[..., Any]], waits: bool
) -> None:
    callbacks, entered = HostCallbacks(), threading.Event()
    thread = threading.Thread(target=callbacks.around, args=(version, functions, entered.set))

    def compile_() -> None:
        thread.start()
        assert entered.wait(0.1 if waits else 60) is not waits
        assert callbacks.being_compiled == [one]

    callbacks.around(OURS, [one], compile_)
    thread.join()
    assert entered.is_set()


def test_a_compilation_within_another_has_its_own() -> None:
    callbacks = HostCallbacks()

    def compile_() -> None:
        assert callbacks.around(OURS, [other], lambda: callbacks.being_compiled) == [other]
        assert callbacks.being_compiled == [one]

    callbacks.around(OURS, [one], compile_)
