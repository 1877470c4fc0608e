"""A connection to one other proxy: frames leave in order of urgency, received frames are handed to the proxy.

A thread that sends gives its bytes to the kernel at once; those that the kernel does not take are left to a thread of
the link. So a small frame costs no switch of threads, and no receiver ever waits for sending: two proxies could
otherwise each wait for the other one to receive.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from distxla import clock
from distxla.collectives.transports.network_fault import FaultKind, NetworkFault
from distxla.collectives.transports.tcp.frames import EpochFrame, Pulse
from distxla.errors import ClusterError
from distxla.wire.checksums import Buffer
from distxla.wire.connection import Connection
from distxla.wire.frame import Frame

Done = Callable[[], None]
PULSE_S = 1.0  # of silence until one is sent: its number shows whether a frame before it is missing
Faults = Callable[[int, Frame], NetworkFault | None]


class _Item(NamedTuple):
    """A frame that waits to be sent."""

    frame: Frame
    payload: Sequence[Buffer]
    done: Done | None


_PULSE = _Item(Pulse(), (), None)


class Link:
    """The connection to the proxy of host `host`.

    on_frame: called with each received frame, in the link's receiving thread; takes the payload from the link.
    on_loss: called once with the error when the connection ends, unless `close` ended it.
    faults: returns the injected fault of a frame to that host; None if there are no faults.
    heard: when the last frame was received, in seconds of clock.now.
    """

    def __init__(
        self,
        host: int,
        connection: Connection,
        on_frame: Callable[[Link, EpochFrame], None],
        on_loss: Callable[[int, Exception], None],
        faults: Faults | None = None,
    ) -> None:
        self.host, self.connection = host, connection
        self._on_frame, self._on_loss, self._faults = on_frame, on_loss, faults
        self._urgent: deque[_Item] = deque()
        self._bulk: deque[_Item] = deque()
        self._begun: tuple[list[Buffer], Done | None] | None = None  # a frame of which the kernel has a part
        self.heard = clock.now()
        self._held_until = 0.0  # in seconds of clock.now: an injected delay; nothing is sent before
        self._sending = threading.Lock()
        self._left = threading.Semaphore(0)
        self._closed = False
        self._threads = [
            threading.Thread(target=body, name=f"distxla-{name}-{host}", daemon=True)
            for name, body in (("send", self._send), ("receive", self._receive))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def post(
        self, frame: Frame, payload: Sequence[Buffer] = (), *, urgent: bool = False, done: Done | None = None
    ) -> None:
        """Send a frame; does not block. The payload must stay as it is until `done` is called, in any thread.

        urgent: before all others that wait, in the order of the urgent ones.
        """
        (self._urgent if urgent else self._bulk).append(_Item(frame, payload, done))
        self._drain(wait=False)

    def forget(self) -> None:
        """Drop the frames of which nothing has been sent yet; their `done` is not called."""
        self._urgent.clear()
        self._bulk.clear()

    def close(self) -> None:
        """End the connection and the threads. Twice is fine."""
        self._closed = True
        self.connection.close()
        self._left.release()
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(2.0)

    def _drain(self, *, wait: bool) -> None:
        """Send the queue, unless another thread does; without `wait`, as much as the kernel takes at once."""
        while (self._begun or self._urgent or self._bulk) and not self._closed:
            if not self._sending.acquire(blocking=wait):
                return  # its holder looks again after it has let go
            try:
                finished = self._send_waiting(wait=wait)
            except ClusterError as error:
                self._lost(error)
                return
            finally:
                self._sending.release()
            if not finished:
                self._left.release()
                return

    def _send_waiting(self, *, wait: bool) -> bool:
        while True:
            begun = self._begun
            if begun is None:
                try:
                    frame, payload, done = (self._urgent or self._bulk).popleft()
                except IndexError:
                    return True
                parts = self.connection.seal(frame, payload)
                if self._faults is not None and not isinstance(frame, Pulse):
                    parts = self._suffer(self._faults(self.host, frame), parts)
            else:
                parts, done = begun
            if self._held_until and not self._is_free(wait=wait):
                self._begun = (parts, done)
                return False
            rest = self.connection.send_parts(parts, wait=wait)
            if rest:
                self._begun = (rest, done)
                return False
            self._begun = None
            if done is not None:
                done()

    def _suffer(self, fault: NetworkFault | None, parts: list[Buffer]) -> list[Buffer]:
        """The parts to send for a frame, after its injected fault, if any."""
        if fault is None:
            return parts
        if fault.kind is FaultKind.DROP:
            return []
        if fault.kind is FaultKind.DUPLICATE:
            return parts + parts
        if fault.kind is FaultKind.CORRUPT:
            whole = bytearray(b"".join(parts))
            whole[fault.bit // 8 % len(whole)] ^= 1 << fault.bit % 8
            return [whole]
        if fault.kind is FaultKind.DELAY:
            self._held_until = clock.now() + fault.seconds
        return parts

    def _is_free(self, *, wait: bool) -> bool:
        """Whether an injected delay, if any, is over; with `wait`, block until it is."""
        while wait and not self._closed and clock.now() < self._held_until:
            clock.sleep(min(0.05, max(0.0, self._held_until - clock.now())))
        if clock.now() < self._held_until:
            return False
        self._held_until = 0.0
        return True

    def _send(self) -> None:
        try:
            while not self._closed:
                if not self._left.acquire(timeout=PULSE_S):
                    self._urgent.append(_PULSE)
                self._drain(wait=True)
        except Exception as error:  # of a frame's `done`
            self._lost(error)

    def _receive(self) -> None:
        try:
            while True:
                frame = self.connection.receive()
                self.heard = clock.now()
                if isinstance(frame, EpochFrame):
                    self._on_frame(self, frame)
        except Exception as error:
            self._lost(error)

    def _lost(self, error: Exception) -> None:
        if not self._closed:
            self._closed = True
            self._left.release()
            try:
                self._on_loss(self.host, error)  # first, so that the cause is reported before its consequences
            finally:
                self.connection.close()
