"""Which functions the module calls that JAX compiles now."""

from __future__ import annotations

import threading

import pytest

from distxla.jax.pjrt.host_callbacks import HostCallbacks

OURS, OTHERS = "distxla 0.1.0", "cpu 0.1"


def one() -> None: ...


def other() -> None: ...


def test_they_are_known_in_any_thread_and_until_the_compilation_ends() -> None:
    callbacks, seen = HostCallbacks(), list[object]()

    def compile_() -> None:
        with callbacks.during(OURS, [one]):
            thread = threading.Thread(target=lambda: seen.append(callbacks.being_compiled))
            thread.start()
            thread.join()
            raise ValueError("it fails")

    with pytest.raises(ValueError, match="it fails"):
        compile_()
    assert seen == [[one]]
    assert callbacks.being_compiled == ()


@pytest.mark.parametrize(
    ("version", "functions", "waits"), [(OURS, [other], True), (OURS, [], False), (OTHERS, [other], False)]
)
def test_only_modules_with_callbacks_wait_for_each_other(version: str, functions: list[object], waits: bool) -> None:
    callbacks, entered = HostCallbacks(), threading.Event()

    def compile_() -> None:
        with callbacks.during(version, functions):  # type: ignore[arg-type]
            entered.set()

    thread = threading.Thread(target=compile_)
    with callbacks.during(OURS, [one]):
        thread.start()
        assert entered.wait(0.1 if waits else 60) is not waits
        assert callbacks.being_compiled == [one]
    thread.join()
    assert entered.is_set()


def test_a_compilation_within_another_has_its_own() -> None:
    callbacks = HostCallbacks()
    with callbacks.during(OURS, [one]):
        with callbacks.during(OURS, [other]):
            assert callbacks.being_compiled == [other]
        assert callbacks.being_compiled == [one]
