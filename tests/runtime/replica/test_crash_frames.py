"""A replica that a signal ends in Python code is told with the innermost frames of that."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distxla as dx
from distxla.runtime.replica.crash_frames import frames_text

MODULE = """
HloModule m, replica_count=2
ENTRY main { x = f32[4] parameter(0) ROOT r = f32[4] custom-call(x), custom_call_target="crash" }
"""
HEAD = b"Fatal Python error: Segmentation fault\n\nStack (most recent call first):\n"


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (b"", ""),
        (
            HEAD + b'  File "/a b/m.py", line 3 in f\n  File "m.py", line 9 in <module>\n',
            "; its Python was in f (/a b/m.py:3), called by <module> (m.py:9)",
        ),
        (
            HEAD
            + b"".join(b'  File "m.py", line %d in f\n' % line for line in range(1, 9))
            + b"\nExtension modules: x\n",
            "; its Python was in f (m.py:1), called by f (m.py:2), called by f (m.py:3)",
        ),
        (HEAD + b'  File "replica.py", line 240 in _serve\n  File "threading.py", line 992 in run\n', ""),
        (HEAD + b"  <no Python frame>\n", ", in a thread that runs no Python"),
        (b"Fatal Python error: Segmentation fault\n\n", ", in a thread that runs no Python"),
    ],
    ids=["nothing", "frames", "many frames", "only the serving thread", "no frame", "no stack"],
)
def test_the_words_for_what_the_handler_writes(written: bytes, text: str) -> None:
    assert frames_text(written) == text


def crash(x: Any) -> Any:
    ctypes.string_at(0)
    return x


def crash_here() -> Any:
    ctypes.string_at(0)


class CrashesWhenLoaded:
    """A routine for custom-calls, which crashes in the replica that reads it."""

    def __call__(self, x: Any) -> Any:
        return x

    def __reduce__(self) -> Any:
        return crash_here, ()


@pytest.mark.sampled(one_in=2)
@pytest.mark.cluster
@pytest.mark.parametrize(
    ("routine", "when", "frame"),
    [
        (
            crash,
            "ended during a call by SIGSEGV (at address 0x0) in r; its Python was in string_at (",
            "called by crash (",
        ),
        (CrashesWhenLoaded(), "has ended (by SIGSEGV; its Python was in string_at (", "called by crash_here ("),
    ],
    ids=["in a call", "in loading"],
)
def test_a_crash_in_python_is_told_with_its_frames(routine: Any, when: str, frame: str) -> None:
    dx.register_custom_call("crash", routine)
    with dx.Cluster(replicas=2) as cluster, pytest.raises(dx.ReplicaLostError) as caught:
        cluster.compile(dx.parse(MODULE, "call.hlo"))([np.ones(4, np.float32)])
    assert when in str(caught.value)
    assert f"{frame}{Path(__file__)}:" in str(caught.value)
