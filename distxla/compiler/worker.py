"""The compile server's process: limits itself, loads LLVM, and answers requests (requests.py)."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading

from distxla.compiler.memory_limit import limit_memory
from distxla.compiler.messages import PROGRESS_BYTES, out_of_memory, receive, send
from distxla.errors import CompileError, DistxlaError
from distxla.machine.processes import descriptor_of, readable

GARBAGE = 200_000  # objects between looks for cycles, as in distxla/__main__.py


def main() -> None:
    """Answer requests until stdin ends."""
    progress_file, parent, memory = map(int, sys.argv[1:4])
    limit_memory(memory)
    gc.set_threshold(GARBAGE)
    try:
        watch = descriptor_of(parent)
    except ProcessLookupError:
        return
    if os.getppid() != parent:
        return  # it ended before the lines above
    threading.Thread(target=_end_with, args=(watch,), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A library's output must not get into the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    questions = sys.stdin.buffer

    def progress(text: str) -> None:
        data = text.encode()[: PROGRESS_BYTES - 1]
        os.pwrite(progress_file, data.ljust(PROGRESS_BYTES, b"\0"), 0)

    progress("loading LLVM")
    # Now: its memory counts, its messages don't get into the answers, and an error names this step.
    from distxla.compiler import requests

    requests.warm_up()
    gc.freeze()  # modules, classes, tables of the ops: all that stays
    progress("")
    while True:
        try:
            kind, *arguments = receive(questions)
        except EOFError:
            return
        doing = [""]

        def progress_now(text: str, doing: list[str] = doing) -> None:
            doing[0] = text
            progress(text)

        try:
            answer = requests.answer(kind, arguments, progress_now)
        except MemoryError:
            answer = out_of_memory(memory, doing[0])
        except DistxlaError as error:
            answer = error
        except Exception as error:
            answer = CompileError(f"{type(error).__name__}: {error}")
            answer.__notes__ = getattr(error, "__notes__", [])
        progress("")
        send(answers, answer)


def _end_with(process: int) -> None:
    """End this process when that one has ended, also amid a compilation: LLVM runs without Python's lock.

    processes.end_with_parent would end it with the thread that has started it.
    """
    readable(process)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
