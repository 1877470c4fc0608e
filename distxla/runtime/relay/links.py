"""A connection to one other relay: frames leave in order of urgency, frames that come in are handed to the relay.

Whoever has something to send tries to give it to the kernel at once; what the kernel does not take is left to a thread
of the link. So a small frame costs no switch of threads, and nobody who receives ever waits for sending: two relays
could otherwise each wait for the other one to receive.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from distxla.errors import ClusterError
from distxla.runtime.wire.connection import Buffer, Connection, Frame

Done = Callable[[], None]


class Link:
    """The connection to the relay of host `host`.

    on_frame: called with each header that comes in, in the link's receiving thread; takes the payload from the link.
    on_loss: called once with the reason when the connection ends, unless `close` ended it.
    """

    def __init__(
        self,
        host: int,
        connection: Connection,
        on_frame: Callable[[Link, Frame], None],
        on_loss: Callable[[int, str], None],
    ) -> None:
        self.host, self.connection = host, connection
        self._on_frame, self._on_loss = on_frame, on_loss
        self._urgent: deque[tuple[list[Buffer], Done | None]] = deque()
        self._bulk: deque[tuple[list[Buffer], Done | None]] = deque()
        self._begun: tuple[list[Buffer], Done | None] | None = None  # a frame of which the kernel has a part
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
        item: tuple[list[Buffer], Done | None] = ([frame.pack(), *payload], done)
        (self._urgent if urgent else self._bulk).append(item)
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
        """Send what waits, unless another thread does; without `wait` what the kernel takes at once."""
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
            item = self._begun
            if item is None:
                try:
                    item = (self._urgent or self._bulk).popleft()
                except IndexError:
                    return True
            parts, done = item
            rest = self.connection.send_parts(parts, wait=wait)
            if rest:
                self._begun = (rest, done)
                return False
            self._begun = None
            if done is not None:
                done()

    def _send(self) -> None:
        try:
            while not self._closed:
                self._left.acquire()
                self._drain(wait=True)
        except Exception as error:  # of a frame's `done`
            self._lost(ClusterError(f"{type(error).__name__}: {error}"))

    def _receive(self) -> None:
        try:
            while True:
                self._on_frame(self, self.connection.receive())
        except ClusterError as error:
            self._lost(error)
        except Exception as error:
            self._lost(ClusterError(f"{type(error).__name__}: {error}"))

    def _lost(self, error: ClusterError) -> None:
        if not self._closed:
            self._closed = True
            self.connection.close()
            self._left.release()
            self._on_loss(self.host, error.message)
