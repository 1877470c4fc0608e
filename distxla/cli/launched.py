"""The processes of `distxla launch`, and their owner: started, watched, and ended."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any, Final

from distxla import clock
from distxla.cli.in_process.sitecustomize import FOLDER, PYTHONPATH
from distxla.cli.launch_outcome import GRACE_S, Outcome
from distxla.cli.process_lines import ProcessLines
from distxla.errors import ArgumentError
from distxla.jax.processes.owner_file import OWNER
from distxla.jax.processes.owner_settings import OwnerSettings
from distxla.jax.processes.spawn import OwnerProcess, spawn_owner
from distxla.lazy_dataclass import dataclass
from distxla.machine.processes import descriptor_of, is_readable
from distxla.machine.shortages import not_started
from distxla.runtime.ray.supervisor import kill_descendants

OWNER_S: Final = 15.0  # for the owner to take its devices down
LAST_S: Final = 1.0  # for the guard to end what it has been told to end
SAID: Final = 1 << 18  # bytes of what processes have said last
_MOST: Final = 1 << 16


@dataclass(frozen=True)
class LaunchOptions:
    """command: of each process.  settings: of the owner.  environment: for all, beside this process's.  stdin: the
    process that reads this one's; None: none does."""

    command: tuple[str, ...]
    processes: int
    settings: OwnerSettings
    environment: Mapping[str, str]
    stdin: int | None = 0


def environments(options: LaunchOptions, owner: str, base: Mapping[str, str]) -> list[dict[str, str]]:
    """Of each process. JAX finds its processes by Open MPI's variables: it has none of its own for index and count."""
    port = _free_port()
    common = {name: value for name, value in base.items() if name != "OMPI_VERSION"}
    common.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # jaxlib's notes on each process's end
    if "distxla" not in common.get("JAX_PLATFORMS", "").split(","):
        common["JAX_PLATFORMS"] = "distxla"
    common |= {
        "DISTXLA_DEVICES": str(options.settings.local),
        "DISTXLA_PROCESSES": str(options.processes),
        "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
        "JAX_COORDINATOR_BIND_ADDRESS": f"127.0.0.1:{port}",  # else JAX listens on all interfaces, and asks for no key
        "OMPI_MCA_orte_hnp_uri": f"4096.0;tcp://127.0.0.1:{port}",
        "OMPI_COMM_WORLD_SIZE": str(options.processes),
        "PYTHONUNBUFFERED": "1",
        OWNER: owner,
        **options.environment,
    }
    if (paths := common.get("PYTHONPATH")) is not None:
        common[PYTHONPATH] = paths
    common["PYTHONPATH"] = os.pathsep.join(filter(None, (FOLDER, paths)))
    ranks = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "DISTXLA_PROCESS")
    return [{**common, **dict.fromkeys(ranks, str(process))} for process in range(options.processes)]


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Launched:
    """The processes, from `start` to `close`. outcome: how they have ended so far.

    write: gets their lines, and whether these are for stderr.  ClusterError where they can't be started, ArgumentError
    where the command can't.
    """

    def __init__(self, options: LaunchOptions, write: Callable[[bytes, bool], None]) -> None:
        self.outcome = Outcome(options.processes, options.settings.local)
        self.said = b""  # the end of what they have written to stderr
        self._options, self._put = options, write
        has_prompts = options.stdin is not None and _is_terminal(0)
        self._lines = ProcessLines(options.processes, self._write, options.stdin if has_prompts else None)
        self._selector = selectors.DefaultSelector()
        self._open = ExitStack()
        self._open.callback(self._selector.close)
        self._guard: subprocess.Popen[bytes] | None = None
        self._owner: OwnerProcess | None = None
        self._news: _JsonLines | None = None  # of the owner
        self._report: _JsonLines | None = None  # of the guard
        self._control: IO[bytes] | None = None
        self._outputs: set[int] = set()  # those that are open
        self._is_over = False

    # --- life

    def start(self) -> None:
        """Start the owner, and all processes."""
        options = self._options
        read, write = os.pipe()
        self._news = self._watch_lines(read)
        try:
            self._owner = spawn_owner(options.processes, options.settings, guarded=True, news=write)
        finally:
            os.close(write)
        descriptor = descriptor_of(self._owner.pid)
        self._watch(descriptor, self._owner_ends)
        self._start_guard(self._owner.path)

    def _start_guard(self, owner: str) -> None:
        options = self._options
        control, to_guard = os.pipe()
        report, of_guard = os.pipe()
        theirs = [control, of_guard]
        outputs: list[dict[str, int]] = []
        for process in range(options.processes):
            ends = {}
            for name, err in (("out", False), ("err", True)):
                read, ends[name] = os.pipe()
                theirs.append(ends[name])
                self._watch(read, self._output(process, err, read))
                self._outputs.add(read)
            outputs.append(ends)
        self._control = self._open.enter_context(os.fdopen(to_guard, "wb", buffering=0))
        self._report = self._watch_lines(report)
        package = str(Path(__file__).resolve().parents[2])
        paths = [package, *filter(None, sys.path)]
        command = [
            sys.executable,
            "-P",
            "-m",
            "distxla.cli.launch_guard",
            str(control),
            str(of_guard),
            str(os.getpid()),
        ]
        try:
            self._guard = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL if options.stdin is None else None,
                stdout=2,
                pass_fds=theirs,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                start_new_session=True,
            )
        except OSError as error:
            raise not_started("the processes cannot be started", error) from error
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        given = environments(options, owner, os.environ)
        processes = [
            {"environment": environment, "has_stdin": process == options.stdin, **ends}
            for process, (environment, ends) in enumerate(zip(given, outputs))
        ]
        self._tell({"command": options.command, "processes": processes})

    def run(self) -> None:
        """Until all processes have ended; those that outlive the first failure by GRACE_S are. Blocks."""
        while not self._is_over:
            now = clock.now()
            ends_at = self.outcome.ends_at
            if ends_at is not None and ends_at <= now:
                self._kill()
                ends_at = now + LAST_S
            self._step(ends_at)
        self._drain()

    def stop(self, number: int) -> None:
        """Pass a signal on, give the processes GRACE_S, then end them. Blocks."""
        self._tell_line(f"signal {number}")
        end = clock.now() + GRACE_S
        while not self._is_over and clock.now() < end:
            self._step(end)
        if not self._is_over:
            self._kill()
        end = clock.now() + LAST_S
        while not self._is_over and clock.now() < end:
            self._step(end)
        self._drain()

    def close(self) -> None:
        """End all that is left, the owner and its devices last; blocks. Twice is fine.

        What a guard that was killed has left are descendants of this process, if that adopts orphans.
        """
        with suppress(OSError):
            if self._control is not None:
                self._control.close()
        if self._guard is not None:
            self._guard.wait()
        if self._owner is not None:
            _end_owner(self._owner)
            self._owner = None
        if self._guard is not None and self._guard.returncode:
            kill_descendants()
        self._open.close()

    def _kill(self) -> None:
        self.outcome.ended |= set(self.outcome.running)
        self._tell_line("kill")

    # --- input

    def _step(self, until: float | None) -> None:
        """Wait for something, and take it."""
        left = self._lines.settle(clock.now())
        if until is not None:
            left = min(max(0.0, until - clock.now()), left if left is not None else until)
        ready = dict.fromkeys(key.data for key, _ in self._selector.select(left))
        if self._take_told in ready:  # before output and the end of the owner
            self._take_told()
        for take in ready:
            if take != self._take_told:
                take()

    def _watch(self, descriptor: int, take: Callable[[], None]) -> None:
        self._open.callback(_close, descriptor)
        self._selector.register(descriptor, selectors.EVENT_READ, take)

    def _output(self, process: int, err: bool, descriptor: int) -> Callable[[], None]:
        def take() -> None:
            data = os.read(descriptor, _MOST)
            if data:
                self._lines.take(process, err, data, clock.now())
            else:
                self._selector.unregister(descriptor)
                self._outputs.discard(descriptor)
                self._lines.end(process, err, clock.now())

        return take

    def _watch_lines(self, descriptor: int) -> _JsonLines:
        self._watch(descriptor, self._take_told)
        return _JsonLines(descriptor)

    def _take_told(self) -> None:
        """Take what the owner and the guard have told. The report is read first and taken last: what the owner has told
        before something was reported has arrived by then, and counts first."""
        reported = self._read(self._report)
        for news in self._read(self._news):
            self.outcome.tell(news, clock.now())
        for told in reported:
            self._take_report(told)
        if self._report is not None and self._report.is_over:
            self._is_over = True
            for process in self.outcome.running:  # the guard was killed, and its children with it
                self.outcome.has_ended(process, signal.SIGKILL, clock.now())
        self.outcome.look(clock.now())

    def _read(self, lines: _JsonLines | None) -> list[dict[str, Any]]:
        if lines is None or lines.is_over:
            return []
        found = lines.read()
        if lines.is_over:
            self._selector.unregister(lines.descriptor)
        return found

    def _take_report(self, told: dict[str, Any]) -> None:
        if "error" in told:
            raise ArgumentError(f"cannot start {self._options.command[0]}: {told['error']}")
        if "script" in told:
            self.outcome.script_has_ended(told["script"], clock.now())
        elif "ended" in told:
            self.outcome.has_ended(told["ended"], told["status"], clock.now())

    def _owner_ends(self) -> None:
        assert self._owner is not None
        for key in list(self._selector.get_map().values()):
            if key.data == self._owner_ends:
                self._selector.unregister(key.fd)
        status = self._owner.process.wait()
        if status and (self.outcome.running or self.outcome.first is not None):
            self.outcome.owner_has_ended(status, clock.now())

    def _drain(self) -> None:
        """Take what is still in the pipes."""
        end = clock.now() + LAST_S
        while self._outputs and clock.now() < end:
            self._step(end)
        self._take_told()
        self._lines.finish(clock.now())

    def _write(self, data: bytes, err: bool) -> None:
        if err:
            self.said = (self.said + data)[-SAID:]
        self._put(data, err)

    def _tell(self, told: object) -> None:
        self._tell_line(json.dumps(told))

    def _tell_line(self, line: str) -> None:
        data = memoryview(line.encode() + b"\n")
        with suppress(OSError, ValueError):  # the guard has ended
            while data and self._control is not None:
                data = data[self._control.write(data) :]


class _JsonLines:
    """Lines of JSON from a pipe. is_over: there will be no more."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.is_over = False
        self._pending = b""

    def read(self) -> list[dict[str, Any]]:
        """All that are there now."""
        with suppress(BlockingIOError):
            while data := os.read(self.descriptor, _MOST):
                self._pending += data
            self.is_over = True
        *lines, self._pending = self._pending.split(b"\n")
        return [json.loads(line) for line in lines]


def _end_owner(owner: OwnerProcess) -> None:
    """It ends with its last process; otherwise it is told to."""
    process = owner.process
    if process.poll() is None:
        process.terminate()
        descriptor = descriptor_of(process.pid)
        try:
            if not is_readable(descriptor, OWNER_S):
                process.kill()
        finally:
            os.close(descriptor)
    process.wait()


def _close(descriptor: int) -> None:
    with suppress(OSError):
        os.close(descriptor)


def _is_terminal(descriptor: int) -> bool:
    try:
        return os.isatty(descriptor)
    except OSError:
        return False


__all__ = ["LaunchOptions", "Launched", "environments"]
