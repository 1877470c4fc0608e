"""Which function of the user's is behind a callback, and when two of them count as the same."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from distxla.jax.partitioner.host_callbacks import host_calls_of
from distxla.jax.processes.callback_functions import described
from distxla.rewrites.host_calls import functions_with_results
from distxla.text.parser import parse_module

FILE = "test_callback_functions.py"
SCALAR = jax.ShapeDtypeStruct((), np.float32)


def plain(x: Any) -> Any:
    return np.asarray(x) in {"a", "b", "c"} or x


def scaled(number: int) -> Callable[..., Any]:
    return lambda x: number * np.asarray(x)


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*values: Any) -> Any:
        return function(*values)

    return called


class Callback:
    def __call__(self, x: Any) -> Any:
        return x

    def method(self, x: Any) -> Any:
        return x


def of(function: Callable[..., Any], **options: Any) -> tuple[str, str]:
    """Name and digest of a function behind pure_callback."""
    return behind(lambda x: jax.pure_callback(function, SCALAR, x, **options))


def behind(function: Callable[..., Any]) -> tuple[str, str]:
    """Of the one callback of a function."""
    lowered = jax.jit(function).trace(np.float32(1)).lower(lowering_platforms=("cpu",))
    ((number, name, digest),) = described(host_calls_of(lowered))
    assert number == 0
    return name, digest


def line(function: Any) -> int:
    return int(function.__code__.co_firstlineno)


@pytest.mark.parametrize(
    ("function", "name", "code"),
    [
        (plain, "plain", plain),
        (scaled(1), "scaled.<locals>.<lambda>", scaled(1)),
        (functools.partial(plain), "plain", plain),
        (decorated(plain), "plain", plain),
        (jax.jit(plain), "plain", plain),
        (Callback(), "Callback", Callback.__call__),
        (Callback().method, "Callback.method", Callback.method),
        (np.sin, "sin", None),
        (abs, "abs", None),
    ],
    ids=["plain", "lambda", "partial", "decorated", "jit", "object", "method", "ufunc", "builtin"],
)
def test_the_users_function_is_named(function: Any, name: str, code: Any) -> None:
    assert of(function)[0] == (name if code is None else f"{name} ({FILE}:{line(code)})")


def test_other_kinds_of_callbacks() -> None:
    from jax.experimental import io_callback

    want = f"plain ({FILE}:{line(plain)})"
    for kind in (
        lambda x: io_callback(plain, SCALAR, x, ordered=True),
        lambda x: io_callback(plain, SCALAR, x),
        lambda x: jax.debug.callback(plain, x),
        lambda x: jax.vmap(lambda v: jax.pure_callback(plain, SCALAR, v, vmap_method="sequential"))(x[None]),
    ):
        assert behind(kind)[0] == want


def test_a_function_of_jax_is_not_another_one() -> None:
    assert of(jnp.sin)[1] == of(jnp.sin)[1] != of(jnp.cos)[1]
    assert of(np.sin)[1] != of(np.cos)[1]


def test_values_that_a_function_has_do_not_count() -> None:
    assert of(scaled(1)) == of(scaled(2))
    assert of(functools.partial(plain, 1)) == of(functools.partial(plain, 2))


def test_code_counts() -> None:
    one, other = (compiled(f"lambda x: x * {k}") for k in (2, 3))
    assert of(one)[0] == of(other)[0]
    assert of(one)[1] != of(other)[1]
    assert of(one)[1] != of(compiled("lambda x: x + 2"))[1]
    assert of(one)[1] != of(compiled("\nlambda x: x * 2"))[1]
    assert of(decorated(one))[1] != of(one)[1]
    nested = [compiled(f"lambda x: [v * {k} for v in (lambda: x)()]") for k in (2, 3)]
    assert of(nested[0])[1] != of(nested[1])[1]


def compiled(text: str) -> Any:
    return eval(compile(f"({text})", "script.py", "eval"))


@pytest.mark.exhaustive
def test_another_process_gets_the_same() -> None:
    """Whatever order its sets have."""
    script = f"import json; from {__name__} import *; print(json.dumps([of(plain), of(Callback()), of(jnp.sin)]))"
    want = json.loads(json.dumps([of(plain), of(Callback()), of(jnp.sin)]))
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, check=True, text=True, env={"PYTHONHASHSEED": seed}
        )
        assert json.loads(done.stdout.splitlines()[-1]) == want


def test_a_circle_of_wrappers_ends() -> None:
    def called(x: Any) -> Any:
        return x

    called.__wrapped__ = called  # type: ignore[attr-defined]
    assert described({3: called})[0][0] == 3
    around: list[Any] = []

    def wrapper() -> Any:
        return around_again

    around_again = wrapper
    wrapper.__module__ = "jax.made_up"
    assert described({0: wrapper})[0][1].startswith("test_a_circle_of_wrappers_ends")
    assert not around


def test_functions_whose_results_a_program_takes() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[] parameter(0)
  a = (f32[]) custom-call(x), custom_call_target="xla_ffi_python_cpu_callback", api_version=API_VERSION_TYPED_FFI, backend_config={index = 0 : ui64}
  b = () custom-call(x), custom_call_target="xla_ffi_python_cpu_callback", api_version=API_VERSION_TYPED_FFI, backend_config={index = 1 : ui64}
  t = token[] after-all()
  c = (token[], f32[]) custom-call(t, x), custom_call_target="xla_ffi_python_cpu_callback", api_version=API_VERSION_TYPED_FFI, backend_config={index = 2 : ui64}
  d = (token[]) custom-call(t, x), custom_call_target="xla_ffi_python_cpu_callback", api_version=API_VERSION_TYPED_FFI, backend_config={index = 3 : ui64}
  ROOT r = f32[] get-tuple-element(a), index=0
}
"""  # noqa: E501
    assert functions_with_results(parse_module(text)) == {0, 2}
