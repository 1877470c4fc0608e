"""The parent's side of the partitioner's process (partition_worker.py)."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import io
import os
import pickle
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Final, cast

from distxla import clock
from distxla.errors import JaxError, PartitioningError
from distxla.jax.partitioner.partition_messages import Answer, Converted, Death, Request
from distxla.jax.private.names import PartitionerOptions, require_jaxlib
from distxla.machine import child_process
from distxla.machine.memory_files import memory_file
from distxla.machine.processes import is_readable
from distxla.machine.shortages import not_started
from distxla.targets.registry import host
from distxla.time_limit import current_limit

STOP_SECONDS: Final = 2.0
# XLA's flags of the user are for the user's own XLA: one that this jaxlib doesn't know would end the process.
_NOT_INHERITED: Final = ("XLA_FLAGS", "RAY_AUTH_TOKEN")
_LOG_LEVEL: Final = {"TF_CPP_MIN_LOG_LEVEL": "1"}
_FATAL: Final = re.compile(r"F\d{4} [^\]]*\] (.*)")
_LOGGED: Final = re.compile(r"[IWE]\d{4} ")
_MESSAGE_BYTES: Final = 1 << 16


class _LostProcess(Exception):
    """The process that forks, not a fork, has ended."""


class PartitionServer:
    """A process that has imported jaxlib, and forks for each module. Thread-safe: one module at a time.

    It starts with the first module, or with `start`, and ends with this process, however that ends.

    answered: how many modules it was asked for.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._messages = -1
        self._owner = os.getpid()
        self._is_ready = False
        self.answered = 0

    @property
    def pid(self) -> int | None:
        """Of the process that waits for modules; None before the first one."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Begin to start the process, which takes 0.3 s; does not block. JaxError where there is no jaxlib."""
        with self._lock:
            self._child()

    def partition(self, module: bytes, options: PartitionerOptions) -> Answer:
        """Blocks until the module is partitioned. PartitioningError with XLA's message; JaxError; TimeLimitError;
        ClusterError and OutOfMemoryError where no process can be started."""
        answer = self._answered(module, options)
        assert isinstance(answer, Answer)
        return answer

    def convert(self, module: bytes, platform: int | None = None) -> Converted:
        """HLO text of a module in another form; blocks, raises as `partition`. platform: as of `converted_module`."""
        answer = self._answered(module, None, platform)
        assert isinstance(answer, Converted)
        return answer

    def _answered(self, module: bytes, options: PartitionerOptions | None, platform: int | None = None) -> Any:
        with self._lock:
            self.answered += 1
            # made by the process when it has the request: it removes the folder, too, where this process is killed
            folder = Path(tempfile.gettempdir(), f"distxla-partition-{secrets.token_hex(8)}")
            request = pickle.dumps(Request(module, options, str(folder), platform), protocol=pickle.HIGHEST_PROTOCOL)
            waited = self._is_ready
            try:
                answer = self._asked(request)
            except _LostProcess as lost:
                if not waited:  # one that had been waiting may have been ended by anything
                    raise JaxError(str(lost)) from None
                shutil.rmtree(folder, ignore_errors=True)
                answer = self._asked_anew(request)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        if isinstance(answer, Death):
            raise _death(answer)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def close(self) -> None:
        """End the process; blocks until it is gone. The next module starts another one."""
        with self._lock:
            self._stop()

    def forget(self) -> None:
        """In a forked child: close its ends of the parent's pipes, by which the process knows that the parent lives."""
        process, self._process, self._messages, self._owner = self._process, None, -1, os.getpid()
        self._lock = threading.Lock()
        if process is None:
            return
        process.returncode = 0  # it is the parent's to wait for
        for pipe in (cast("io.BufferedWriter", process.stdin), cast("io.BufferedReader", process.stdout)):
            pipe.raw.close()  # what a buffer has, the parent writes

    def _asked(self, request: bytes) -> Any:
        process = self._child()
        assert process.stdin is not None
        try:
            if not self._is_ready:
                refused = self._answer(process)
                if refused is not None:
                    raise refused
                self._is_ready = True
            child_process.write_message(process.stdin, request)
            return self._answer(process)
        except (BrokenPipeError, EOFError):
            status, messages = process.wait(), self._last_messages()
            self._stop()
            raise _LostProcess(f"the partitioner's process ended with {_how(status)}{_last_line(messages)}") from None
        except BaseException:  # that answer must not be taken for the next one's
            self._stop(at_once=True)
            raise

    def _asked_anew(self, request: bytes) -> Any:
        try:
            return self._asked(request)
        except _LostProcess as lost:
            raise JaxError(str(lost)) from None

    def _answer(self, process: subprocess.Popen[bytes]) -> Any:
        assert process.stdout is not None
        limit = current_limit()
        if limit is not None:
            with limit.waiting():
                if not is_readable(process.stdout.fileno(), limit.end - clock.now()):
                    raise limit.error()
        return pickle.loads(child_process.read_message(process.stdout))

    def _child(self) -> subprocess.Popen[bytes]:
        if self._owner != os.getpid():  # a fork has its parent's pipes, which are not for it
            self._process, self._messages, self._owner = None, -1, os.getpid()
        if self._process is not None and self._process.poll() is not None:
            self._stop()
        if self._process is None:
            require_jaxlib("partitioning")
            try:
                self._process = self._start()
            except OSError as error:
                self._close_messages()
                raise not_started("the partitioner's process cannot be started", error) from error
            self._is_ready = False
        return self._process

    def _start(self) -> subprocess.Popen[bytes]:
        self._messages = memory_file("distxla-partition-messages")
        fcntl.fcntl(self._messages, fcntl.F_SETFL, os.O_APPEND)  # the child empties it
        environment = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
        return child_process.started_module(
            "distxla.jax.partitioner.partition_worker",
            self._messages,
            os.getpid(),
            paths=[*filter(None, sys.path)],
            environment={**environment, **_LOG_LEVEL, **dict.fromkeys(host().thread_variables, "1")},
            messages=self._messages,
            kept=self._messages,
        )

    def _last_messages(self) -> str:
        return os.pread(self._messages, _MESSAGE_BYTES, 0).decode(errors="replace")

    def _stop(self, *, at_once: bool = False) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if at_once:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        child_process.end(process, STOP_SECONDS)
        self._close_messages()

    def _close_messages(self) -> None:
        if self._messages >= 0:
            os.close(self._messages)
        self._messages = -1


def _death(death: Death) -> PartitioningError:
    error = PartitioningError(f"XLA's partitioner ended with {_how(death.status)}{_last_line(death.messages)}")
    error.add_note("only the partitioner's own process has ended")
    return error


def _how(status: int) -> str:
    if status == -signal.SIGKILL:  # sent by the kernel: nothing else kills it
        return "signal SIGKILL, probably for want of memory on this machine"
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


def _last_line(messages: str) -> str:
    """XLA's own message: of a failed check, else Python's last line; not what XLA logs of its work."""
    lines = [line.strip() for line in messages.splitlines() if line.strip()]
    for line in lines:
        if found := _FATAL.match(line):
            return f": {found[1][:1000]}"
    last = next((line for line in reversed(lines) if not _LOGGED.match(line)), "")
    return f": {last[:1000]}" if last else ""


SERVER: Final = PartitionServer()
os.register_at_fork(after_in_child=SERVER.forget)
atexit.register(lambda: SERVER.close() if SERVER._owner == os.getpid() else None)

__all__ = ["SERVER", "PartitionServer"]
