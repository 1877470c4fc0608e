"""The compile server's process with requests at which it fails as LLVM, a library or a long compilation may."""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any

from distxla.compiler import requests, worker
from distxla.compiler.compile import Progress

ordinary = requests.answer


def answer(kind: str, arguments: list[Any], progress: Progress) -> Any:
    if kind not in ("abort", "memory-of-python", "memory-of-c++", "sleep"):
        return ordinary(kind, arguments, progress)
    progress(arguments[0])
    if kind == "abort":
        os.abort()
    if kind == "memory-of-python":
        return bytearray(1 << 40)
    if kind == "memory-of-c++":
        ctypes.CDLL("libstdc++.so.6")["_Znwm"](ctypes.c_size_t(1 << 40))  # operator new
    time.sleep(60)
    return None


if __name__ == "__main__":
    requests.answer = answer
    worker.main()
