"""The compile server's process: limits itself, loads LLVM, and answers requests (requests.py)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from distxla.compiler.memory_limit import limit_memory
from distxla.compiler.messages import PROGRESS_BYTES, out_of_memory, receive, send
from distxla.errors import CompileError, DistxlaError

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Answer requests until stdin ends."""
    progress_file, parent, memory = map(int, sys.argv[1:4])
    limit_memory(memory)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        return  # it ended before the line above
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


if __name__ == "__main__":
    main()
