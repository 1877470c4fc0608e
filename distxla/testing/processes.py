"""Several JAX processes for tests: they share distxla's devices, run the tests' functions, and stay for later ones."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FunctionType
from typing import Any, Final

from distxla import clock
from distxla.cli.launch_environment import LaunchOptions, environments
from distxla.errors import ArgumentError, ClusterError, TimeLimitError
from distxla.jax.processes.owner_settings import OwnerSettings
from distxla.jax.processes.spawn import OwnerProcess, spawn_owner
from distxla.lazy_dataclass import dataclass
from distxla.machine.processes import readable
from distxla.wording import processes_named

LIMIT_S: Final = 300.0  # of a function
GRACE_S: Final = 5.0  # for the other processes, once one has failed
END_S: Final = 30.0  # for a process, or the owner, to end
_SIZE: Final = 8
_MOST_SHOWN: Final = 3000  # characters of what processes have written


@dataclass(frozen=True)
class Function:
    """A function at the top of a module, as another process finds it. paths: of sys.path."""

    module: str
    file: str
    name: str
    paths: tuple[str, ...]

    @staticmethod
    def of(function: Callable[..., Any]) -> Function:
        """ArgumentError where another process can't find it."""
        name = getattr(function, "__qualname__", "")
        if not isinstance(function, FunctionType) or "<" in name:
            raise ArgumentError(
                f"{name or function}: expected a function at the top of a module, which processes import"
            )
        return Function(function.__module__, function.__code__.co_filename, name, tuple(sys.path))


@dataclass(frozen=True)
class Answer:
    """What a process says of a function. data: its result, or what it raised, pickled."""

    is_fine: bool
    data: bytes
    trace: str = ""


class _Member:
    """A process. answers: descriptor of its stdout."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", "distxla.testing.process_member", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
        )
        assert self.process.stdout is not None
        self.answers = self.process.stdout.fileno()

    def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        with suppress(OSError):  # it has ended, which is seen when it answers
            self.process.stdin.write(sized(data))
            self.process.stdin.flush()

    def answer(self) -> Answer:
        """Blocks. ClusterError where the process has ended."""
        assert self.process.stdout is not None
        data = read_sized(self.process.stdout.read)
        if not data:
            status = self.process.wait()
            how = f"status {status}" if status >= 0 else f"signal {-status}"
            raise ClusterError(f"the process has ended with {how}")
        found = pickle.loads(data)
        assert isinstance(found, Answer)
        return found

    def written(self) -> str:
        """The end of what it has written."""
        size = os.fstat(self._errors.fileno()).st_size
        return os.pread(self._errors.fileno(), _MOST_SHOWN, max(0, size - _MOST_SHOWN)).decode(errors="replace").strip()

    def close(self, seconds: float) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self._errors.close()


class Processes:
    """So many JAX processes, each with so many of distxla's devices. They start with the first function, again after
    one that has ended them, and end with `close`."""

    def __init__(self, count: int, devices: int = 1, **environment: str) -> None:
        self.count, self.devices = count, devices
        self._environment = environment
        self._members: list[_Member] = []
        self._owner: OwnerProcess | None = None

    def run(
        self, function: Callable[..., Any], *args: Any, limit: float = LIMIT_S, return_exceptions: bool = False
    ) -> list[Any]:
        """What the function returns in each process. It is imported there, and calls JAX as in any script.

        What it raises is raised here, that of the first process that fails, with notes on the others; with
        return_exceptions it stands in the list. Where one fails and others wait for it, these are ended after GRACE_S.
        TimeLimitError after `limit` seconds.
        """
        told = pickle.dumps((Function.of(function), args))
        self._start()
        for member in self._members:
            member.send(told)
        answers = self._answers(clock.now() + limit)
        missing = [k for k in range(self.count) if k not in answers]
        failures = {k: answer for k, answer in answers.items() if isinstance(answer, BaseException)}
        written = {k: self._members[k].written() for k in (*failures, *missing)}
        if missing or any(isinstance(failure, _Ended) for failure in failures.values()):
            self._end(0.0)
        for k in missing:
            why = "the function did not end in time" if not failures else "it waited for a process that has failed"
            answers[k] = _noted(TimeLimitError(f"process {k}: {why}"), written[k])
        if return_exceptions:
            return [answers[k] for k in range(self.count)]
        for k, failure in failures.items():
            others = [other for other in (*failures, *missing) if other != k]
            if others:
                failure.add_note(f"{processes_named(others)} failed, too: {answers[others[0]]}")
            raise _noted(failure, written[k])
        if missing:
            raise answers[missing[0]]
        return [answers[k] for k in range(self.count)]

    def close(self) -> None:
        """End them, and the owner of the devices; blocks."""
        self._end(END_S)

    def _start(self) -> None:
        if self._members:
            return
        memory, backend = (os.environ.get(name) or None for name in ("DISTXLA_DEVICE_MEMORY", "DISTXLA_BACKEND"))
        settings = OwnerSettings(self.devices, None, memory, backend or "cpu")
        self._owner = spawn_owner(self.count, settings, guarded=False)
        options = LaunchOptions((), self.count, settings, self._environment, None)
        paths = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
        base = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        for environment in environments(options, self._owner.path, base):
            self._members.append(_Member(environment))

    def _answers(self, end: float) -> dict[int, Any]:
        """By process, in the order in which they come: the result, or an exception."""
        answers: dict[int, Any] = {}
        waiting = {member.answers: k for k, member in enumerate(self._members)}
        while waiting:
            ready = readable(*waiting, seconds=end - clock.now())
            if not ready:
                return answers
            for descriptor in ready:
                k = waiting.pop(descriptor)
                answers[k] = found = self._answer(k)
                if isinstance(found, BaseException):
                    end = min(end, clock.now() + GRACE_S)
        return answers

    def _answer(self, k: int) -> Any:
        try:
            answer = self._members[k].answer()
        except ClusterError as error:
            return _Ended(f"process {k}: {error.message}")
        try:
            found = pickle.loads(answer.data)
        except Exception as error:
            found = ClusterError(f"process {k}: its result can't be read: {type(error).__name__}: {error}")
        if isinstance(found, BaseException):
            found.add_note(f"raised by process {k}:\n{answer.trace}")
        return found

    def _end(self, seconds: float) -> None:
        members, self._members = self._members, []
        for member in members:
            assert member.process.stdin is not None
            with suppress(OSError):
                member.process.stdin.close()
            if not seconds:
                member.process.kill()
        for member in members:
            member.close(seconds or END_S)
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.process.terminate()
            try:
                owner.process.wait(END_S)
            except subprocess.TimeoutExpired:
                owner.process.kill()
                owner.process.wait()


class _Ended(ClusterError):
    """A process has ended instead of answering."""


def _noted(error: BaseException, written: str) -> BaseException:
    if written:
        error.add_note(f"it has written:\n{written}")
    return error


class ProcessPool:
    """Processes by number and devices, for all tests of a run."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int], Processes] = {}

    def take(self, count: int, devices: int = 1) -> Processes:
        """Those of these numbers; two tests never run at once."""
        key = count, devices
        if key not in self._found:
            self._found[key] = Processes(count, devices)
        return self._found[key]

    def close(self) -> None:
        """End all of them."""
        found, self._found = self._found, {}
        for processes in found.values():
            processes.close()


def pickled(value: Any) -> bytes:
    """Of a result or an exception; of one that can't be pickled an error that says so."""
    try:
        data = pickle.dumps(value)
        pickle.loads(data)
    except Exception as error:
        if isinstance(value, BaseException):
            return pickle.dumps(RuntimeError("".join(traceback.format_exception_only(value)).strip()))
        return pickle.dumps(TypeError(f"a result of type {type(value).__name__} can't be pickled: {error}"))
    return data


def sized(data: bytes) -> bytes:
    """As it goes through a pipe."""
    return len(data).to_bytes(_SIZE, "little") + data


def read_sized(read: Callable[[int], bytes]) -> bytes:
    """The other end; b"" where there will be no more."""
    size = read(_SIZE)
    return read(int.from_bytes(size, "little")) if len(size) == _SIZE else b""


__all__ = ["Answer", "Function", "ProcessPool", "Processes", "pickled", "read_sized", "sized"]
