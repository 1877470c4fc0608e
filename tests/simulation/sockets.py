"""A stand-in for `socket`: streams of bytes in memory, delivered with delays, in parts, broken off, or damaged."""

from __future__ import annotations

import errno
import os
import selectors
import socket as real
import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from tests.simulation.scheduler import Process, Scheduler, Task

SMALL = 128  # bytes that a kernel takes whole, where it takes anything


@dataclass
class Weather:
    """Behaviour of the network. delay_ns: the longest delay of a part.  parts: share of sends that are taken in part.

    capacity: bytes that a direction holds; far less than a kernel's, so that senders find it full.
    """

    delay_ns: int
    parts: float = 0.2
    capacity: int = 64 << 10


class Direction:
    """Bytes from one end to the other. ended: none will follow.  broken: by a reset.  silent:
    what is sent does not arrive."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.arrived: deque[memoryview] = deque()
        self.in_flight = self.waiting = 0  # bytes sent and not arrived, arrived and not taken
        self.ended = self.broken = self.silent = False
        self.silent_at = 0  # time since which it is
        self.lost = 0  # bytes that did not arrive
        self.last = 0  # time of the latest arrival so far
        self.readers: list[Task] = []
        self.writers: list[Task] = []

    @property
    def room(self) -> int:
        return self._capacity - self.in_flight - self.waiting


class Network:
    """The machine room's network. `socket` stands for the module."""

    def __init__(self, run: Scheduler, weather: Weather) -> None:
        self.run, self.weather = run, weather
        self.listening: dict[tuple[str, int], Socket] = {}
        self.sockets: list[Socket] = []
        self.sent = 0  # bytes, over all connections
        self.damages: int | None = None  # after that many one is damaged
        self._ports = 40_000
        self.socket = _Module(self)
        self.selectors = SimpleNamespace(
            DefaultSelector=lambda: Selector(self), EVENT_READ=selectors.EVENT_READ, BaseSelector=Selector
        )

    def port(self) -> int:
        self._ports += 1
        return self._ports

    def end_of(self, process: Process) -> None:
        """The process has ended: the kernel closes its sockets."""
        for sock in self.sockets:
            if sock.process is process:
                sock.hang_up()

    def send(self, direction: Direction, data: bytes) -> None:
        """Let bytes arrive after a while, behind those before."""
        self.sent += len(data)
        if self.damages is not None and self.sent > self.damages:
            at = self.run.random.randrange(len(data))
            self.run.note(f"a byte is damaged, one of {len(data)}")
            data = data[:at] + bytes([data[at] ^ (1 << self.run.random.randrange(8))]) + data[at + 1 :]
            self.damages = None
        direction.in_flight += len(data)
        self._later(direction, lambda: self._arrive(direction, data))

    def finish(self, direction: Direction) -> None:
        """Tell the other end, behind all bytes, that no more follow."""

        def end() -> None:
            if direction.silent:
                return
            direction.ended = True
            self.run.wake(direction.readers)

        self._later(direction, end)

    def _later(self, direction: Direction, action: Callable[[], None]) -> None:
        delay = int(self.run.random.random() * self.weather.delay_ns)
        direction.last = max(direction.last, self.run.now + delay)
        self.run.after(direction.last - self.run.now, action)

    def _arrive(self, direction: Direction, data: bytes) -> None:
        direction.in_flight -= len(data)
        direction.lost += len(data) if direction.silent else 0
        if not direction.broken and not direction.silent:
            direction.waiting += len(data)
            direction.arrived.append(memoryview(data))
            self.run.wake(direction.readers)

    def damage_soon(self, which: float) -> None:
        """One of the next bytes that are sent over any connection arrives damaged. which: from 0 to 1."""
        self.damages = self.sent + int(2 ** (which * 12))

    def break_one(self, which: float) -> bool:
        """Reset one of the connections that there are; whether there is one. which: from 0 to 1."""
        directions = [sock.outgoing for sock in self.sockets if sock.outgoing is not None and not sock.closed]
        if directions:
            self.run.note("a connection breaks")
            self._break(directions[int(which * len(directions))])
        return bool(directions)

    def silence_one(self, which: float, seconds: float) -> bool:
        """Let nothing through on one of the connections any more; the kernels notice after a while."""
        directions = [sock.outgoing for sock in self.sockets if sock.outgoing is not None and not sock.closed]
        if directions:
            chosen = directions[int(which * len(directions))]
            self.run.note("a connection falls silent")
            for sock in self.sockets:
                if chosen in (sock.incoming, sock.outgoing):
                    for direction in (sock.incoming, sock.outgoing):
                        if direction is not None:
                            direction.silent, direction.silent_at = True, self.run.now
            self.run.after(int(seconds * 1e9), lambda: self._break(chosen))
        return bool(directions)

    def _break(self, direction: Direction) -> None:
        for sock in self.sockets:
            if direction in (sock.incoming, sock.outgoing):
                sock.reset()


class Selector:
    """selectors.DefaultSelector over simulated sockets that somebody wants to read."""

    def __init__(self, network: Network) -> None:
        self._run, self._known = network.run, dict[Socket, Any]()

    def register(self, sock: Socket, events: int, data: Any = None) -> None:
        self._known[sock] = data

    def unregister(self, sock: Socket) -> None:
        del self._known[sock]

    def select(self, timeout: float | None = None) -> list[tuple[Any, int]]:
        run = self._run
        run.step()
        end = None if timeout is None else run.now + int(timeout * 1e9)
        while True:
            found = [sock for sock in self._known if sock.is_readable]
            if found or (end is not None and run.now >= end):
                return [(SimpleNamespace(fileobj=s, data=self._known[s]), selectors.EVENT_READ) for s in found]
            queues = [sock.readers for sock in self._known]
            run.block(queues, None if end is None else end - run.now, "selects")

    def __enter__(self) -> Selector:
        return self

    def __exit__(self, *exception: object) -> None:
        self._known.clear()


class _Module:
    """The module `socket`; other names are the real one's."""

    def __init__(self, network: Network) -> None:
        self.socket = lambda family=real.AF_INET, kind=real.SOCK_STREAM: Socket(network)
        self.gethostname = lambda: "simulated"

    def __getattr__(self, name: str) -> Any:
        return getattr(real, name)


class Socket:
    """One end of a connection, or a listener."""

    def __init__(self, network: Network) -> None:
        self.network, self.run = network, network.run
        self.process = network.run.current.process
        self.incoming: Direction | None = None
        self.outgoing: Direction | None = None
        self.closed = self.is_shut = False
        self._timeout: float | None = None
        self._address = ("", 0)
        self._backlog: deque[Socket] = deque()
        self._waiters: list[Task] = []
        network.sockets.append(self)

    # --- settings

    def settimeout(self, seconds: float | None) -> None:
        self._timeout = seconds

    def gettimeout(self) -> float | None:
        return self._timeout

    def setblocking(self, flag: bool) -> None:
        self._timeout = None if flag else 0.0

    def setsockopt(self, *arguments: Any) -> None:
        self._require_open()

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        """struct tcp_info, as far as it tells of what the other kernel has not acknowledged."""
        self._require_open()
        direction = self.outgoing
        if direction is None or (level, option) != (real.IPPROTO_TCP, real.TCP_INFO):
            raise OSError(errno.ENOPROTOOPT, os.strerror(errno.ENOPROTOOPT))
        words = [0] * 13
        if direction.silent:
            words[4] = int(direction.in_flight + direction.lost > 0)
            words[12] = (self.run.now - direction.silent_at) // 1_000_000
        return struct.pack("<8B13I", *bytes(8), *words)

    def getsockname(self) -> tuple[str, int]:
        return self._address

    def getpeername(self) -> tuple[str, int]:
        if self.outgoing is None:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        return ("10.0.0.0", 1)

    def fileno(self) -> int:
        return -1 if self.closed else 1000

    # --- connections

    @property
    def is_readable(self) -> bool:
        """Whether a read, or an accept, would not block."""
        if self.incoming is None:
            return bool(self._backlog) or self.is_shut or self.closed
        return bool(self.incoming.arrived) or self.incoming.ended or self.incoming.broken or self.closed

    @property
    def readers(self) -> list[Task]:
        """The tasks that wait for that."""
        return self._waiters if self.incoming is None else self.incoming.readers

    def bind(self, address: tuple[str, int]) -> None:
        self._address = (address[0], address[1] or self.network.port())

    def listen(self, backlog: int = 1) -> None:
        self.network.listening[self._address] = self

    def accept(self) -> tuple[Socket, tuple[str, int]]:
        self.run.step()
        self._wait(self._waiters, lambda: self._backlog or self.closed or self.is_shut, "accepts")
        if self.closed or self.is_shut:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        sock = self._backlog.popleft()
        sock.process = self.run.current.process
        return sock, ("10.0.0.0", 1)

    def connect(self, address: tuple[str, int]) -> None:
        self.run.step()
        self.run.block((), int(self.run.random.random() * self.network.weather.delay_ns), "connects")
        listener = self.network.listening.get((address[0], address[1]))
        if listener is None or listener.closed or listener.is_shut or not listener.process.is_alive:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        capacity = self.network.weather.capacity
        there, one, other = Socket(self.network), Direction(capacity), Direction(capacity)
        there.process = listener.process
        self.outgoing, self.incoming = one, other
        there.outgoing, there.incoming = other, one
        listener._backlog.append(there)
        self.run.wake(listener._waiters)

    # --- bytes

    def sendmsg(self, parts: Sequence[Any], ancillary: Sequence[Any] = (), flags: int = 0) -> int:
        run, weather = self.run, self.network.weather
        run.step()
        self._require_open()
        direction = self.outgoing
        if direction is None:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        if not self._can_send(direction):
            if flags & real.MSG_DONTWAIT:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            self._wait(direction.writers, lambda: self.closed or self._can_send(direction), "sends")
        if self.closed or self.is_shut or direction.broken:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        data = b"".join(bytes(part) for part in parts)
        taken = min(len(data), direction.room)
        if taken > SMALL and run.random.random() < weather.parts:
            taken = run.random.randrange(1, taken)
        self.network.send(direction, data[:taken])
        return taken

    def _can_send(self, direction: Direction) -> bool:
        return direction.room > 0 or direction.broken or self.is_shut

    def send(self, data: Any, flags: int = 0) -> int:
        return self.sendmsg([data], (), flags)

    def sendall(self, data: Any, flags: int = 0) -> None:
        view = memoryview(data).cast("B")
        while len(view):
            view = view[self.sendmsg([view], (), flags) :]

    def recv_into(self, buffer: Any, size: int = 0, flags: int = 0) -> int:
        view = memoryview(buffer).cast("B")
        view = view[: size or len(view)]
        wanted, got = len(view), 0
        self.run.step()
        while got < wanted:
            direction = self.incoming
            if direction is None:
                raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
            if flags & real.MSG_DONTWAIT and not direction.arrived and not direction.ended:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            self._wait(direction.readers, lambda d=direction: d.arrived or d.ended or d.broken or self.closed, "reads")
            if self.closed:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            if direction.broken:
                raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
            if not direction.arrived:
                break
            part = direction.arrived.popleft()
            count = min(len(part), wanted - got)
            view[got : got + count] = part[:count]
            if count < len(part):
                direction.arrived.appendleft(part[count:])
            direction.waiting -= count
            got += count
            self.run.wake(direction.writers)
            if not flags & real.MSG_WAITALL:
                break
        return got

    def recv(self, size: int, flags: int = 0) -> bytes:
        data = bytearray(size)
        return bytes(data[: self.recv_into(data, size, flags)])

    # --- the end

    def shutdown(self, how: int) -> None:
        if self.closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        if self.is_shut:
            return
        self.is_shut = True
        if self.incoming is not None and self.outgoing is not None:
            self.incoming.ended = True
            self.run.wake(self.incoming.readers)
            self.run.wake(self.outgoing.writers)
            self.network.finish(self.outgoing)
        self.run.wake(self._waiters)

    def close(self) -> None:
        if not self.closed:
            self.hang_up()

    def hang_up(self) -> None:
        """Close it: tasks that wait for it here go on, and the other end is told."""
        if self.closed:
            return
        if not self.is_shut:
            self.shutdown(real.SHUT_RDWR)
        self.closed = True
        for sock in self._backlog:
            sock.hang_up()

    def reset(self) -> None:
        """The connection is broken, at this end."""
        for direction in (self.incoming, self.outgoing):
            if direction is not None:
                direction.broken = True
                self.run.wake(direction.readers)
                self.run.wake(direction.writers)

    def __enter__(self) -> Socket:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _require_open(self) -> None:
        if self.closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    def _wait(self, queue: list[Task], over: Callable[[], Any], why: str) -> None:
        """Until something is over, at most the socket's timeout."""
        end = None if self._timeout is None else self.run.now + int(self._timeout * 1e9)
        if self._timeout == 0.0 and not over():
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        while not over():
            if end is not None and self.run.now >= end:
                raise TimeoutError("timed out")
            self.run.block((queue,), None if end is None else end - self.run.now, why)
