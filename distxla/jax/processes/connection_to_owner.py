"""A JAX process's connection to the owner of its devices."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import signal
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from distxla.errors import ClusterError, DistxlaError, ReplicaLostError, raised
from distxla.jax.processes.messages import Answer, Compiled, Failed, Loaded, unpack_json
from distxla.jax.processes.told_errors import unpack_error
from distxla.machine.processes import descriptor_of, ended_by, is_readable
from distxla.machine.shortages import started_thread
from distxla.wire.checksums import Buffer
from distxla.wire.connection import Connection
from distxla.wire.frame import Frame

SLICE_S: Final = 0.05  # a waiting thread looks for Ctrl-C this often
_LAST_S: Final = 1.0  # for what was posted to be sent, when the connection is closed
_END_S: Final = 0.5  # for the kernel to tell that the owner has ended, once its connection has


class _Request:
    """answer: the frame and its payload, once `is_over` is set; else `error`."""

    __slots__ = ("answer", "error", "is_over")

    def __init__(self) -> None:
        self.is_over = threading.Event()
        self.answer: tuple[Frame, bytearray] | None = None
        self.error: DistxlaError | None = None


class OwnersConnection:
    """Requests of this process, and what the owner tells it.

    Frames are sent by threads that no signal handler interrupts, in the order in which they were posted: an interrupt
    amid a frame would end the connection. pushed: takes each frame that answers no request, in the receiving thread;
    it must not wait for the owner.  failure: why nothing is answered any more, None while something is.
    """

    def __init__(self) -> None:
        self._connection: Connection | None = None
        self._owner: int | None = None  # its descriptor
        self._host = ""
        self.pid = 0
        self.failure: DistxlaError | None = None
        self.pushed: dict[type[Frame], Callable[[Frame, bytearray], object]] = {}
        self.lost: Callable[[DistxlaError], object] = lambda failure: None
        self._numbers = itertools.count(1)
        self._requests: dict[int, _Request] = {}
        self._posted: deque[Callable[[], object]] = deque()
        self._sending = threading.Lock()
        self._news: queue.SimpleQueue[bool] = queue.SimpleQueue()  # whether there is something to send, or the end
        self._threads: list[threading.Thread] = []

    def start(self, connection: Connection) -> None:
        """Receive and send, from now on. ClusterError where it was closed before."""
        self._connection = connection
        if self.failure is not None:
            connection.close()
            raise self.failure
        for name, target in (("distxla-owner", self._receive), ("distxla-tell", self._send)):
            thread = threading.Thread(target=target, name=name, daemon=True)
            self._threads.append(started_thread(thread, "the owner of the devices can't be talked to"))

    def watch(self, pid: int, host: str) -> None:
        """The owner's process, of whose end later errors tell, or where it is, if on another host."""
        if host:
            self._host = host
            return
        self.pid = pid
        with contextlib.suppress(OSError):
            self._owner = descriptor_of(pid)

    # --- sending

    def post(self, send: Callable[[], object]) -> None:
        """Have `send`, which calls `send_now`, called in turn. Takes no lock: a collection may come here."""
        self._posted.append(send)
        self._news.put(True)

    def send_now(self, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        """To be called by what was posted only. Nothing happens once the connection is lost."""
        with contextlib.suppress(ClusterError):
            if self._connection is not None:
                self._connection.send(frame, payload)

    def tell(self, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        """Send a frame behind all that was posted, soon."""
        self.post(lambda: self.send_now(frame, payload))
        self.flush()

    def flush(self) -> None:
        """Send at once what was posted; in the main thread another one does it."""
        if self._connection is None or threading.current_thread() is threading.main_thread():
            return
        with self._sending:
            while self._posted:
                send = self._posted.popleft()
                send()

    def _send(self) -> None:
        while self._news.get():
            self.flush()

    # --- requests

    def ask(
        self,
        make: Callable[[int], Frame],
        payload: Sequence[Buffer] = (),
        stop_reason: Callable[[], DistxlaError | None] = lambda: None,
    ) -> tuple[Frame, bytearray]:
        """The answer to a request and its payload; raises the owner's error. make: the frame, given its number.
        stop_reason: why nobody waits for the answer any more."""
        number = next(self._numbers)
        request = self._requests[number] = _Request()
        try:
            self.tell(make(number), payload)
            while not request.is_over.wait(SLICE_S):
                if self.failure is not None:
                    raise self.failure
                if (reason := stop_reason()) is not None:
                    raise reason
        finally:
            self._requests.pop(number, None)
        if request.error is not None:
            raise request.error
        assert request.answer is not None
        return request.answer

    # --- receiving

    def _receive(self) -> None:
        connection = self._connection
        assert connection is not None
        try:
            while True:
                frame = connection.receive()
                self._take(frame, connection.receive_bytes())
        except DistxlaError as error:
            self._fail(self.failure or self._why(error))
        except Exception as error:
            self._fail(ClusterError(f"what the owner of the devices has told can't be read: {raised(error)}"))

    def _take(self, frame: Frame, payload: bytearray) -> None:
        number = frame.request if isinstance(frame, Failed | Answer | Compiled | Loaded) else 0
        request = self._requests.get(number)
        if request is None:
            if (take := self.pushed.get(type(frame))) is not None:
                take(frame, payload)
            return
        if isinstance(frame, Failed):
            request.error = unpack_error(unpack_json(payload))
        else:
            request.answer = frame, payload
        request.is_over.set()

    def _why(self, error: DistxlaError) -> DistxlaError:
        if self._host:
            return ReplicaLostError(
                f"the process that owns the devices, on {self._host}, can't be reached any more: {error.message}"
            )
        if self._owner is None:
            return ClusterError(f"the owner of the devices does not answer: {error.message}")
        how = "has closed the connection"
        if is_readable(self._owner, _END_S):
            number = ended_by(self.pid, self._owner)
            how = f"was ended by {signal.Signals(number).name}" if number else "has ended"
        return ReplicaLostError(f"the process that owns the devices (pid {self.pid}) {how}")

    def _fail(self, failure: DistxlaError) -> None:
        if self.failure is None:
            self.failure = failure
        if self._connection is not None:
            self._connection.close()
        self.lost(self.failure)

    def close(self, why: DistxlaError) -> None:
        """End the connection, once what was posted is sent or 1 s is over; pending requests fail. Twice is fine."""
        if self.failure is None:
            self.failure = why
        self._news.put(False)
        try:
            for thread in self._threads[1:]:  # BYE may be the last; not the one that receives
                if thread is not threading.current_thread():
                    thread.join(_LAST_S)
        finally:
            if self._connection is not None:
                self._connection.close()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        self._threads = []
        if self._owner is not None:
            os.close(self._owner)
            self._owner = None


__all__ = ["SLICE_S", "OwnersConnection"]
