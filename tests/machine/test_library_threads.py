"""NumPy's library starts no threads where none are wanted, and the user's own wish stays."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from distxla.targets.registry import host

IMPORT = """
import os, sys
os.environ.pop("OMP_NUM_THREADS", None)
if sys.argv[2] == "unset":
    os.environ.pop("OPENBLAS_NUM_THREADS", None)
else:
    os.environ["OPENBLAS_NUM_THREADS"] = sys.argv[2]
from contextlib import nullcontext
from distxla.machine.library_threads import one_thread
from distxla.targets.registry import host
with one_thread(host().thread_variables) if sys.argv[1] == "one" else nullcontext():
    import numpy
print(len(os.listdir("/proc/self/task")), os.environ.get("OPENBLAS_NUM_THREADS"), os.environ.get("OMP_NUM_THREADS"))
"""


def imported(how: str, wish: str) -> str:
    done = subprocess.run([sys.executable, "-c", IMPORT, how, wish], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_variables_are_those_of_the_library() -> None:
    assert "OPENBLAS_NUM_THREADS" in host().thread_variables


@pytest.mark.parametrize("wish", ["unset", "3"])
def test_importing_starts_no_threads_and_keeps_the_variables(wish: str) -> None:
    assert imported("one", wish) == f"1 {None if wish == 'unset' else wish} None"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) == 1, reason="the library starts no more threads than processors")
def test_the_library_would_start_some() -> None:
    assert imported("as wished", "2") == "2 2 None"
