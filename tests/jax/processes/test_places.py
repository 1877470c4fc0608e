"""distxla/jax/processes/places.py."""

from __future__ import annotations

import inspect
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from distxla.errors import ClusterError
from distxla.jax.processes.places import Stack, site_of_traceback, stack_of, user_site
from tests.jax.pjrt.scripts import ROOT

HERE = Path(__file__).name


def function_of(module: str, file: str = "inner.py") -> Callable[..., Any]:
    """A function `outer(call)` of a module of this name, which calls another of its functions, and that one `call`."""
    names: dict[str, Any] = {"__name__": module}
    text = "def inner(call):\n    return call()\n\ndef outer(call):\n    return inner(call)\n"
    exec(compile(text, file, "exec"), names)
    found = names["outer"]
    assert isinstance(found, types.FunctionType)
    return found


def caller() -> Stack:
    """What the function does that calls this."""
    return stack_of(here().f_back or here())


def here() -> types.FrameType:
    """The frame that calls this."""
    found = inspect.currentframe()
    assert found is not None
    assert found.f_back is not None
    return found.f_back


@pytest.mark.parametrize("module", ["jax._src.pjit", "flax.linen", "distxla.jax.pjrt.calls", "contextlib", "functools"])
def test_the_users_line_is_behind_libraries(module: str) -> None:
    site = function_of(module)(lambda: function_of("jax._src.api")(user_site))
    assert (Path(site.file).name, site.function) == (HERE, "<lambda>")


def test_a_package_of_the_users_is_the_users() -> None:
    site = function_of("jaxtrain.steps", "steps.py")(function_of("jax")(lambda: user_site) and user_site)
    assert (site.file, site.line, site.function) == ("steps.py", 2, "inner")


def test_a_line_outside_of_functions_has_no_function() -> None:
    names: dict[str, Any] = {"__name__": "__main__", "user_site": user_site}
    exec(compile("\n\nfound = user_site()", "train.py", "exec"), names)
    assert str(names["found"]) == "train.py:3"


def test_a_sleep_is_told_by_its_line() -> None:
    stack = stack_of(here())
    assert (stack.function, stack.is_debugger, stack.inside) == ("test_a_sleep_is_told_by_its_line", False, "")
    assert str(stack).endswith(": stack = stack_of(here())")
    assert str(stack).startswith(f"at {HERE}:")
    assert stack.frames[-1] == f"{HERE}:{stack.line} in {stack.function}"


def test_a_wait_in_a_library_is_told_by_the_users_line_and_its_function() -> None:
    stack = function_of("jax._src.distributed")(caller)
    assert (stack.function, stack.inside) == (
        "test_a_wait_in_a_library_is_told_by_the_users_line_and_its_function",
        "jax._src.distributed.inner",
    )


def test_a_debugger_is_told_by_the_line_that_it_stands_at() -> None:
    stack = function_of("bdb")(lambda: function_of("pdb")(caller))
    assert stack.is_debugger
    assert str(stack).startswith(f"at a breakpoint at {HERE}:")


def test_the_end_of_a_process_has_no_line_of_the_users() -> None:
    names: dict[str, Any] = {"__name__": "jax._src.api"}
    exec("def clean_up():\n    pass", names)

    class Outermost:  # no frame of this test is below it
        f_globals, f_back, f_code, f_lineno = names, None, names["clean_up"].__code__, 3

    stack = stack_of(Outermost())  # type: ignore[arg-type]
    assert str(stack) == "at its end, in jax._src.api.clean_up"
    assert str(Stack()) == "at its end"


def test_a_stack_comes_back_from_json() -> None:
    stack = stack_of(here())
    told = stack.to_json() | {"frames": list(stack.frames)}
    assert Stack.of_json(told) == stack
    with pytest.raises(ClusterError, match=r"Stack\.line: expected int, found 'x'"):
        Stack.of_json(told | {"line": "x"})


def test_an_errors_place_is_the_users_innermost_line() -> None:
    def load() -> None:
        raise ValueError("data loader")

    try:
        function_of("jax._src.pjit")(load)
    except ValueError as error:
        site = site_of_traceback(error.__traceback__)
    assert (Path(site.file).name, site.function) == (HERE, "load")
    assert site_of_traceback(None).line == 0


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("while True: breakpoint()", "at a breakpoint at train.py:13"),
        ("def load():\n    time.sleep(60)\nload()", "at train.py:14: time.sleep(60)"),
        ("os.read(os.pipe()[0], 1)", "at train.py:13: os.read(os.pipe()[0], 1)"),
    ],
)
def test_the_main_thread_is_seen_by_another_one(body: str, expected: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    watch = """
import os, sys, threading, time
from distxla.jax.processes.places import where_main_is
def watch():
    found = ""
    for _ in range(20_000):
        time.sleep(0.001)
        found = str(where_main_is())
        if found == sys.argv[1]:
            break
    os.write(1, found.encode())
    os._exit(0)
threading.Thread(target=watch).start()

"""
    script.write_text(watch.strip() + "\n" + body)  # which begins in line 13
    command = [sys.executable, str(script), expected]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PYTHONPATH": str(ROOT)}, stderr=subprocess.STDOUT
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        found = process.stdout.read()
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
    assert found.decode().endswith(expected)
