"""The processes of `distxla launch`, and their owner: started, watched, and ended."""

from __future__ import annotations

import json
import os
import selectors
import signal
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Final

from distxla import clock
from distxla.cli.guarded_processes import Guarded, GuardedProcesses
from distxla.cli.launch_environment import LaunchOptions, free_port, on_this_machine, shared_environments
from distxla.cli.launch_outcome import GRACE_S, Outcome
from distxla.cli.other_hosts import OtherHost, OtherHosts, order_of
from distxla.cli.process_lines import ProcessLines
from distxla.errors import ArgumentError, ClusterError
from distxla.jax.processes.spawn import OwnerProcess, spawn_owner
from distxla.jax.processes.told_errors import unpack_error
from distxla.machine.processes import descriptor_of, is_readable
from distxla.runtime.ray.supervisor import kill_descendants

OWNER_S: Final = 15.0  # for the owner to take its devices down
HOSTS_S: Final = 60.0  # for the guards of other hosts to connect
LOOK_S: Final = 0.05
LAST_S: Final = 1.0  # for the guard to end what it has been told to end
SAID: Final = 1 << 18  # bytes of what processes have said last
_MOST: Final = 1 << 16


class Launched:
    """The processes, from `start` to `close`. outcome: how they have ended so far.

    write: gets their lines, and whether these are for stderr.  ClusterError where they can't be started, ArgumentError
    where the command can't.
    """

    def __init__(self, options: LaunchOptions, write: Callable[[bytes, bool], None]) -> None:
        self.outcome = Outcome(options.processes, options.settings.local)
        self.said = b""  # the end of what they have written to stderr
        self._options, self._put = options, write
        self._folder = os.getcwd()  # now: Ray may put that of a job anew meanwhile
        has_prompts = options.stdin is not None and _is_terminal(0)
        self._lines = ProcessLines(options.processes, self._write, options.stdin if has_prompts else None)
        self._selector = selectors.DefaultSelector()
        self._open = ExitStack()
        self._open.callback(self._selector.close)
        self._here: GuardedProcesses | None = None
        self._others: OtherHosts | None = None
        self._owner: OwnerProcess | None = None
        self._news: _JsonLines | None = None  # of the owner
        self._reports: list[tuple[_JsonLines, range, OtherHost | None]] = []  # of the guards: of which processes
        self._outputs: set[int] = set()  # those that are open
        self._is_over = False

    # --- life

    def start(self) -> None:
        """Start the owner, and all processes."""
        options = self._options
        read, write = os.pipe()
        self._news = self._watch_lines(read)
        orders, to_owner = os.pipe()
        with os.fdopen(to_owner, "w") as order:
            try:
                self._owner = owner = spawn_owner(
                    options.processes, options.settings, guarded=True, news=write, orders=orders
                )
            finally:
                os.close(write)
                os.close(orders)
            self._watch(descriptor_of(owner.pid), self._owner_ends)
            here, others = hosts_of(owner, options.processes)
            stdin = options.stdin
            if stdin is not None and stdin not in here:
                if options.is_stdin_wanted:
                    raise ArgumentError(f"--stdin {stdin}: process {stdin} runs on another host, and can't read stdin")
                stdin = None
            host = "127.0.0.1"
            if others:
                host = owner.hosts[0][1]
                self._others = OtherHosts(host, others)
                order.write(json.dumps(order_of(self._others.path)) + "\n")
                order.flush()
                self._await_others(self._others)
        first = next((other for other in others if 0 in other.processes), None)
        port = free_port(host) if first is None else first.port
        if first is not None:
            host = owner.hosts[first.index][1]
        counts = [len(here), *(len(other.processes) for other in others)]
        common, own = shared_environments(options, os.environ, f"{host}:{port}", counts)
        for other in others:
            self._watch_guard(other.report, other.outputs, other.processes, other)
            other.start(self._folder, options.command, common, own)
        if here:
            processes = [
                Guarded(k, on_this_machine({**common, **own[k]}, owner.path), has_stdin=k == stdin) for k in here
            ]
            self._here = guarded = GuardedProcesses(options.command, processes, self._folder)
            self._watch_guard(guarded.report, guarded.outputs, here, None)

    def _watch_guard(
        self, report: int, outputs: Sequence[tuple[int, bool, int]], processes: range, other: OtherHost | None
    ) -> None:
        self._reports.append((self._watch_lines(report), processes, other))
        for process, is_error, descriptor in outputs:
            self._watch(descriptor, self._output(process, is_error, descriptor))
            self._outputs.add(descriptor)

    def _await_others(self, others: OtherHosts) -> None:
        """Until the guards of other hosts have connected. ClusterError where one doesn't."""
        end = clock.now() + HOSTS_S
        while not others.are_here:
            now = clock.now()
            if self.outcome.first is not None:
                raise ClusterError(f"the processes can't be started: {self.outcome.first.how}")
            if now > end:
                raise ClusterError(f"the guards of other hosts did not connect within {HOSTS_S:g} s")
            self._step(now + LOOK_S)

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
        if self._others is not None:
            self._others.close()
        status = self._here.close() if self._here is not None else 0
        if self._owner is not None:
            _end_owner(self._owner)
            self._owner = None
        if status:
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
        reported = [(told, other) for lines, _, other in self._reports for told in self._read(lines)]
        for news in self._read(self._news):
            if (failed := news.get("failed")) is not None:
                raise unpack_error(failed)
            self.outcome.tell(news, clock.now())
        for told, other in reported:
            self._take_report(told, other)
        for one in self._reports:
            if one[0].is_over:
                self._end_report(*one)
        self._reports = [one for one in self._reports if not one[0].is_over]
        self._is_over = not self._reports
        self.outcome.look(clock.now())

    def _end_report(self, lines: _JsonLines, processes: range, other: OtherHost | None) -> None:
        """There is nothing left of the processes of a guard. Those of which it has not told have ended with it."""
        left = [process for process in processes if process in self.outcome.running]
        if other is not None and other.is_lost:
            self.outcome.host_is_lost(other.name, left, clock.now())
            return
        for process in left:
            self.outcome.has_ended(process, signal.SIGKILL, clock.now())

    def _read(self, lines: _JsonLines | None) -> list[dict[str, Any]]:
        if lines is None or lines.is_over:
            return []
        found = lines.read()
        if lines.is_over:
            self._selector.unregister(lines.descriptor)
        return found

    def _take_report(self, told: dict[str, Any], other: OtherHost | None) -> None:
        if "error" in told and other is not None:
            raise ArgumentError(f"cannot start {self._options.command[0]} on {other.name}: {told['error']}")
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

    def _tell_line(self, line: str) -> None:
        if self._here is not None:
            self._here.tell(line)
        for other in self._others.all if self._others is not None else ():
            other.tell(line)


def hosts_of(owner: OwnerProcess, processes: int) -> tuple[range, list[OtherHost]]:
    """The processes of this host, and the other hosts that have some."""
    if not owner.hosts:
        return range(processes), []
    begin, found = 0, []
    for index, (name, _, count) in enumerate(owner.hosts):
        found.append(OtherHost(index, f"host {index} ({name})", range(begin, begin + count)) if index else None)
        begin += count
    return range(owner.hosts[0][2]), [one for one in found if one is not None]


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


__all__ = ["Launched"]
