"""A long-lived process that compiles.

LLVM ends its process when it meets an inconsistency; here that costs one compilation.

Parent and child exchange length-prefixed pickles over the child's stdin and stdout. The child writes its current work
into a memory file that both have open, so that an error can name it after the child has died.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from typing import IO, Any

from distxla import clock
from distxla.compiler import memory_limit
from distxla.compiler.cache_folder import cache_folder, cache_limit
from distxla.compiler.memory_limit import compile_memory_bytes
from distxla.compiler.messages import PROGRESS_BYTES, out_of_memory, receive, send
from distxla.errors import ClusterError, CompileError, DistxlaError, TimeLimitError
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.machine import child_process
from distxla.machine.extras import COMPILE, unmet
from distxla.machine.memory_files import memory_file
from distxla.machine.processes import is_readable
from distxla.machine.shortages import not_started
from distxla.ops.custom_calls.user import declarations, user_targets
from distxla.program.artifact import CompiledProgram
from distxla.program.options import CompileOptions
from distxla.targets.registry import environment_of_targets
from distxla.time_limit import current_limit

WORKER = "distxla.compiler.worker"  # the module that the child runs
STOP_SECONDS = 2.0
OUT_OF_MEMORY = ("out of memory", "bad_alloc", "MemoryError")  # messages of Python, LLVM and C++
LLVM_STAGES = ("optimising LLVM IR", "emitting object code")  # in which an instruction is only a part of the whole


class CompileServer:
    """The parent's side. Thread-safe: one compilation at a time, others wait.

    The process starts with the first compilation, and one that died is replaced with the next: a driver whose programs
    are all in the cache has none.
    Close it, or use it in a `with`; when the parent ends in any way, the child ends, too.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.is_closed = False
        self.process: subprocess.Popen[bytes] | None = None
        self._limit_bytes = compile_memory_bytes()
        self.progress = self.messages = -1
        self._environment: dict[str, str | None] = {}  # that the child was started with

    def __enter__(self) -> CompileServer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Process id of the present child, which is started if there is none."""
        return self._child().pid

    def start(self) -> None:
        """Begin to start the child, if there is none, so that it is there sooner. ClusterError and OutOfMemoryError
        where no process can be started."""
        if self._lock.locked():  # somebody compiles: there is one
            return
        with self._lock:
            if not self.is_closed:
                self._child()

    def compile(self, module: Module, counts: Counts, options: CompileOptions | None = None) -> CompiledProgram:
        """`compile_module` in the child; blocks until it is done.

        Raises the errors of compile_module, CompileError naming the instruction where the child died, OutOfMemoryError
        where it needed more memory than it may have, TimeLimitError (`distxla.time_limit`), ClusterError after `close`
        and where no process can be started.
        """
        options, names, folder = options or CompileOptions(), _registered(module), (cache_folder(), cache_limit())
        module = module.replace(stablehlo=None)
        program: CompiledProgram = self.ask("compile", module, counts, options, names, folder)
        return program

    def emit(
        self,
        module: Module,
        stage: str,
        counts: Counts,
        options: CompileOptions | None = None,
        *,
        passes: str | None = None,
        gpu_architecture: str | None = None,
    ) -> str | bytes:
        """`compiler.stages.emit` in the child; blocks, raises like `compile`."""
        options = options or CompileOptions()
        request = module, stage, counts, options, _registered(module), passes, gpu_architecture
        text: str | bytes = self.ask("emit", *request)
        return text

    def emit_after(self, module: Module, name: str, counts: Counts, *, passes: str | None = None) -> str:
        """`compiler.stages.emit_after` in the child; blocks, raises like `compile`."""
        text: str = self.ask("emit after", module, name, counts, CompileOptions(), _registered(module), passes)
        return text

    def close(self) -> None:
        """End the child; blocks until it is gone. Twice is fine."""
        with self._lock:
            self.is_closed = True
            self._stop()

    def ask(self, *request: Any) -> Any:
        self._await_turn()
        with self._lock:
            if self.is_closed:
                raise ClusterError("the compile server is closed")
            if self.process is not None and (
                self.process.poll() is not None or self._environment != _environment_of_compilation()
            ):
                self._stop()
            process = self._child()
            try:
                assert process.stdin is not None
                assert process.stdout is not None
                send(process.stdin, request)
                self._await_answer(process.stdout)
                answer = receive(process.stdout)
            except (BrokenPipeError, EOFError):
                raise self._death(request) from None
            except BaseException:
                # Interrupted between question and answer: that answer must not be taken for the next one's.
                process.kill()
                self._stop()
                raise
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _await_turn(self) -> None:
        """Wait until no other compilation goes on; TimeLimitError after this thread's limit.

        The lock itself is only taken by `with`: an interrupt could come between `acquire` and whatever releases it.
        """
        limit = current_limit()
        if limit is None:
            return
        with limit.waiting():
            while self._lock.locked():
                if limit.is_over:
                    raise limit.error("another program is being compiled")
                clock.sleep(0.01)

    def _await_answer(self, answers: IO[bytes]) -> None:
        """Wait until the child answers or has ended; TimeLimitError after this thread's limit."""
        limit = current_limit()
        if limit is None:
            return
        with limit.waiting():
            if not is_readable(answers.fileno(), limit.end - clock.now()):
                raise limit.error(self._last_words())

    def _child(self) -> subprocess.Popen[bytes]:
        if self.process is None:
            try:
                self.process = self._start()
            except OSError as error:
                self._close_files()
                raise not_started("the compile server cannot be started", error) from error
        return self.process

    def _start(self) -> subprocess.Popen[bytes]:
        if (why := unmet("compiling", COMPILE)) is not None:
            raise CompileError(why)
        self._limit_bytes, self._environment = compile_memory_bytes(), _environment_of_compilation()
        self.progress = memory_file("distxla-compile-progress", PROGRESS_BYTES)
        self.messages = memory_file("distxla-compile-messages")
        return child_process.started_module(
            WORKER,
            *(self.progress, os.getpid(), self._limit_bytes),
            paths=[*filter(None, [os.environ.get("PYTHONPATH")])],
            environment={name: value for name, value in os.environ.items() if name != "RAY_AUTH_TOKEN"},
            messages=self.messages,
            kept=self.progress,
        )

    def _stop(self) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        child_process.end(process, 0 if process.returncode is not None else STOP_SECONDS)
        self._close_files()

    def _close_files(self) -> None:
        for descriptor in (self.progress, self.messages):
            if descriptor >= 0:
                os.close(descriptor)
        self.progress = self.messages = -1

    def _death(self, request: tuple[Any, ...]) -> DistxlaError:
        """The error for a child that ended instead of answering `request`."""
        status = self._child().wait()
        progress = self._last_words()
        size = os.fstat(self.messages).st_size
        tail = os.pread(self.messages, 2000, max(0, size - 2000)).decode(errors="replace").strip()
        last = next((line for line in reversed(tail.splitlines()) if "Assertion" in line or "ERROR" in line), "")
        last = last or (tail.splitlines()[-1] if tail else "")
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        doing = f" while working on {progress}" if progress else ""
        if any(sign in tail for sign in OUT_OF_MEMORY):
            return out_of_memory(self._limit_bytes, progress)
        if status == -signal.SIGKILL:  # sent by the kernel: nothing else kills it
            doing += ", probably for want of memory on this machine"
        if request[0] == "compile" and progress in LLVM_STAGES and (culprit := self.culprit(request)):
            doing = f" while {progress}: the code of {culprit}"
        return CompileError(f"the compile server ended with {how}{doing}" + (f": {last[:500]}" if last else ""))

    def _last_words(self) -> str:
        return os.pread(self.progress, PROGRESS_BYTES, 0).split(b"\0")[0].decode(errors="replace")

    def culprit(self, request: tuple[Any, ...]) -> str:
        """The instruction whose code ends a process: let another one compile them one by one. "" if none does, or if
        the time limit runs out before."""
        self._stop()
        process = self._child()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            send(process.stdin, ("alone", *request[1:5]))
            self._await_answer(process.stdout)
            receive(process.stdout)
        except (BrokenPipeError, EOFError):
            process.wait()
            return self._last_words()
        except BaseException as error:  # as in `ask`
            process.kill()
            self._stop()
            if not isinstance(error, TimeLimitError):
                raise
        return ""


def _environment_of_compilation() -> dict[str, str | None]:
    """The variables of this process's environment that a child reads: where one changes, another child is needed."""
    return {memory_limit.VARIABLE: os.environ.get(memory_limit.VARIABLE), **environment_of_targets()}


def _registered(module: Module) -> tuple[tuple[str, str], ...]:
    """Names and kinds of the user's custom-calls in the module: the child knows of no others."""
    return declarations(user_targets(module))
