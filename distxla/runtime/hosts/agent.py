"""The process that stands for the driver on a node: it owns the memories there, runs the driver's commands, and relays.

It imports neither LLVM nor Ray at module level. Ray is for setting up; once the driver has connected, everything goes
over that connection, and the end of the connection is the end of this process and of the replicas of its host.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from distxla.collectives.protocols import call_loops
from distxla.collectives.transports.control_block import ControlBlock
from distxla.collectives.transports.tcp.injected_faults import NetworkFault, PlannedFaults
from distxla.collectives.transports.tcp.proxy import Relay
from distxla.compiler.artifact import CompiledProgram
from distxla.errors import ClusterError, DamagedMessageError, DistxlaError, OutOfMemoryError
from distxla.machine.segments import Segment
from distxla.runtime.hosts import commands
from distxla.runtime.hosts.commands import Command
from distxla.runtime.hosts.local import LocalHost, Ticket
from distxla.runtime.hosts.nodes import Facts
from distxla.runtime.replica import Attachment, Identity
from distxla.runtime.shared_image import ImageSource, SharedImage
from distxla.targets.registry import sleep_on, wake_all
from distxla.wire.connection import Connection, Frame
from distxla.wire.handshake import Listener

SLICE_NS = 200_000_000
LONGEST_WAIT_S = 1.0  # for a word to change
PATIENCE_S = 0.1  # between looks whether devices that compute have come back
CONNECT_LIMIT_S = 60.0  # for the driver, from `begin` on


@dataclass(frozen=True)
class RunShape:
    """An agent's view of the run. devices: of each host.  secret: for the handshakes of connections (distxla/wire/).

    attachment: where the driver's memories are, for the agent of the driver's own host; None for others.
    faults: injected into messages between hosts.
    """

    index: int
    name: str
    address: str
    devices: tuple[range, ...]
    replicas: int
    partitions: int
    memory_bytes: int
    secret: bytes
    attachment: Attachment | None
    faults: tuple[NetworkFault, ...] = ()


@dataclass(frozen=True)
class Made:
    """What an agent has made: where it and its relay listen, and the memories for its replicas (None where the driver
    has them)."""

    address: tuple[str, int]
    relay_address: tuple[str, int]
    attachment: Attachment | None


class Agent:
    """A Ray actor, one a node of a run with several hosts. Methods are called through Ray, in this order."""

    def __init__(self) -> None:
        self._host: LocalHost | None = None
        self._image: SharedImage | None = None
        self._listener: Listener | None = None
        self._driver: Connection | None = None
        self._work: queue.SimpleQueue[tuple[Command, Ticket | bytearray]] = queue.SimpleQueue()
        self._numbers: dict[int, int] = {}
        self._epoch = 0
        self._ready, self._connected = threading.Event(), threading.Event()
        self._hurried = threading.Event()  # devices that still compute are not to be waited for any longer

    def facts(self) -> Facts:
        """What the driver must know of this node."""
        from ray.util import get_node_ip_address

        return Facts.here(get_node_ip_address())

    def make(self, shape: RunShape, support: CompiledProgram) -> Made:
        """Make, or on the driver's host open, the memories, and listen. Raises ClusterError."""
        self._shape = shape
        devices = shape.devices[shape.index]
        given = shape.attachment
        count = shape.replicas * shape.partitions
        if given is None:
            self._host = LocalHost(shape.index, shape.name, devices, count, shape.memory_bytes)
            self._control: ControlBlock = self._host.control
            self._memories: dict[int, Segment] = self._host.memories
        else:
            self._control = ControlBlock.open(given.owner, given.control, count)
            self._memories = {
                device: Segment.open(given.owner, descriptor, given.memory_bytes, (given.common, given.memory_bytes))
                for device, descriptor in enumerate(given.memories)
                if descriptor is not None
            }
        self._listener = Listener(
            shape.address, shape.secret, self._on_connection, purpose=commands.DRIVER_PURPOSE, node=shape.index
        )
        memories = [self._memories.get(device) for device in range(count)]
        self._relay = Relay(shape.index, self._control, memories, shape.devices, shape.secret, support)
        self._relay.on_failure(self._on_relay_failure)
        if shape.faults:
            self._relay.inject(PlannedFaults(shape.faults, self._on_injected))
        relay_address = shape.address, self._relay.listen(shape.address)
        self._support, attachment = support, None
        if self._host is not None:
            attachment = self._host.attachment(shape.replicas, shape.partitions, guarded=True)
        return Made(self._listener.address, relay_address, attachment)

    def begin(self, identities: Sequence[Identity], addresses: Sequence[tuple[str, int]]) -> None:
        """The replicas of this host serve. addresses: where the relays of all hosts listen. Blocks until they are
        connected."""
        if self._host is not None:
            self._host.begin(self._support, identities, self._on_loss)
        self._relay.connect(addresses)
        self._ready.set()
        threading.Thread(target=self._run, name="distxla-run", daemon=True).start()
        threading.Thread(target=self._require_driver, name="distxla-driver", daemon=True).start()

    def hold(self, program: CompiledProgram) -> ImageSource:
        """Hold the program's image in a file for this host's replicas until `let_go`; returns its location."""
        self.let_go()
        self._image = SharedImage(program)
        return self._image.source

    def let_go(self) -> None:
        """Close the file of `hold`; without one, do nothing."""
        if self._image is not None:
            self._image.close()
            self._image = None

    def load(self, number: int, program: CompiledProgram, communicators: dict[int, tuple[int | None, ...]]) -> None:
        """Be ready to relay for a program. communicators: offset of each communicator's state, by device here."""
        self._relay.load(number, program, communicators)

    def unload(self, number: int) -> None:
        """Remove a program that no device runs any more."""
        self._relay.unload(number)

    def _require_driver(self) -> None:
        """A driver that never comes leaves nothing behind."""
        if not self._connected.wait(CONNECT_LIMIT_S):
            self._leave()

    # --- the driver's connection

    def _on_connection(self, connection: Connection) -> None:
        """In a thread of the connection's own."""
        if connection.purpose != commands.DRIVER_PURPOSE or self._driver is not None:
            connection.close()
            return
        self._driver = connection
        self._connected.set()
        if self._listener is not None:
            self._listener.close()  # nobody else is expected
        try:
            self._ready.wait()
            while True:
                self._handle(connection, connection.receive())
        except DamagedMessageError as error:
            self._say(Command.FAILED, a=1, payload=f"its connection to the driver: {error.message}".encode())
        finally:
            self._leave()

    def _handle(self, connection: Connection, frame: Frame) -> None:
        """In the connection's thread: what takes no time, at once; the rest in the other thread."""
        host = self._host
        if frame.kind == Command.WRITE:
            place, memory = self._part(frame.a, frame.b, frame.length), self._memories.get(frame.a)
            try:
                if memory is not None:
                    memory.require_pages(frame.b, frame.length)
            except OutOfMemoryError as error:
                connection.receive_bytes(frame)
                self._say(Command.FAILED, payload=f"device {frame.a}: {error.message}".encode())
            else:
                connection.receive_into(place)
        elif frame.kind == Command.READ:
            part = self._part(frame.a, frame.b, frame.c)
            if frame.a == commands.CONTROL_BLOCK:  # devices write there; sealed bytes must not change
                part = memoryview(bytes(part))
            connection.send(Command.DATA, frame.tag, payload=[part])
        elif frame.kind == Command.RUN:
            numbers, areas = commands.unpack_run(memoryview(connection.receive_bytes(frame)))
            assert host is not None
            for offset, data in areas:
                self._control.view[offset : offset + len(data)] = data
            self._numbers = numbers
            ticket = host.issue(numbers, frame.tag)
            host.start(ticket)
            self._work.put((Command.RUN, ticket))
        elif frame.kind == Command.CONTROL:
            self._require_inside(frame.a, frame.length, self._control.segment.size)
            connection.receive_into(self._control.view[frame.a : frame.a + frame.length])
        elif frame.kind == Command.WAKE:
            self._require_inside(frame.a, 4, self._control.segment.size)
            wake_all(self._control.segment.address + frame.a)
        elif frame.kind == Command.AWAIT:
            self._require_inside(frame.a, 4, self._control.segment.size)
            threading.Thread(target=self._await, args=(connection, frame), name="distxla-await", daemon=True).start()
        elif frame.kind == Command.CLOCK:
            connection.send(Command.DATA, frame.tag, payload=[time.monotonic_ns().to_bytes(8, "little")])
        elif frame.kind == Command.POISON:
            self._poison()
        elif frame.kind in (Command.END, Command.LEAVE, Command.CLEAR, Command.BYE):
            if frame.kind == Command.CLEAR:
                self._epoch = frame.tag
            else:
                self._poison()
            if frame.kind in (Command.END, Command.BYE):
                self._hurried.set()
            self._work.put((Command(frame.kind), connection.receive_bytes(frame)))
        elif frame.kind == Command.DUMP:
            connection.send(Command.RECORDS, payload=[self._records()])
        elif frame.kind == Command.WAITS:
            connection.send(Command.WAITING, payload=["\n".join(self._relay.waits()).encode()])
        elif frame.kind == Command.PUNCH:
            assert host is not None
            for memory in (host.common,) if frame.c else self._memories.values():
                self._require_inside(frame.a, frame.b, memory.size)
                memory.punch(frame.a, frame.b)
        else:
            raise ClusterError(f"the driver sent a frame of unknown kind {frame.kind}")

    def _await(self, connection: Connection, frame: Frame) -> None:
        """In a thread of its own: wait for a word of the control block, then answer."""
        seconds = min(frame.c / 1000, LONGEST_WAIT_S)
        sleep_on(self._control.segment.address + frame.a, frame.b & 0xFFFFFFFF, seconds)
        with contextlib.suppress(ClusterError):  # the driver is gone, which the connection's thread knows
            connection.send(Command.DATA, frame.tag)

    def _part(self, device: int, offset: int, size: int) -> memoryview:
        if device == commands.CONTROL_BLOCK:
            self._require_inside(offset, size, self._control.segment.size)
            return self._control.view[offset : offset + size]
        memory = self._memories.get(device)
        if memory is None:
            raise ClusterError(f"device {device} is not here")
        self._require_inside(offset, size, memory.bytes.nbytes)
        return memory.bytes.data[offset : offset + size]

    def _require_inside(self, offset: int, size: int, whole: int) -> None:
        if offset + size > whole:
            raise ClusterError(f"{size} bytes from {offset} on do not lie in the {whole} that there are")

    def _records(self) -> bytes:
        return commands.pack_records(self._host.records(self._host.devices) if self._host is not None else {})

    def _poison(self) -> None:
        if self._host is not None:
            self._host.poison()

    # --- what takes time

    def _run(self) -> None:
        """In a thread of its own: wait for calls, end them, begin afresh."""
        try:
            while True:
                kind, what = self._work.get()
                if isinstance(what, Ticket):
                    self._finish(what)
                elif kind == Command.CLEAR:
                    self._clear(what)
                    self._say(Command.CLEARED)
                elif kind in (Command.END, Command.LEAVE):
                    self._relay.release()
                    devices = commands.unpack_devices(memoryview(what))
                    if kind == Command.END:
                        self._hurried.clear()
                    if self._host is not None and kind == Command.END:
                        self._host.end(devices)
                    while self._host is not None and not self._hurried.is_set():
                        if self._host.end(devices, patience=PATIENCE_S):
                            break
                    self._say(Command.ENDED, payload=self._records())
                else:
                    self._relay.close()
                    if self._host is not None:
                        self._host.close_processes()
                    self._say(Command.ENDED)
        except DistxlaError as error:
            self._say(Command.FAILED, payload=error.message.encode())
        except BaseException as error:
            self._say(Command.FAILED, payload=f"{type(error).__name__}: {error}".encode())
            raise

    def _finish(self, ticket: Ticket) -> None:
        """Wait for the end of a call and report it."""
        host = self._host
        assert host is not None
        while (outcome := host.wait(ticket, SLICE_NS)) == call_loops.CALL_AGAIN:
            pass
        if outcome == call_loops.CALL_DONE and host.is_poisoned:
            outcome = call_loops.CALL_POISONED
        for device, pid in host.lost.items():  # before the outcome, which they explain
            self._on_loss(device, pid)
        self._say(Command.DONE, outcome, commands.pack_pairs((d, host.run_ns(d)) for d in self._numbers))

    def _clear(self, payload: bytearray) -> None:
        self._relay.reset(self._epoch)
        areas, words = commands.unpack_clear(memoryview(payload))
        if self._host is not None:
            for offset, size in areas:
                self._host.control_zero(offset, size)
            for word, value in words:
                self._control.words[word] = value
            self._host.allow()

    def _on_loss(self, device: int, pid: int) -> None:
        assert self._host is not None
        self._say(Command.LOST, device, self._host.hows.get(device, "").encode())

    def _on_relay_failure(self, host: int, reason: str, damaged: bool) -> None:
        what = "its relay failed" if host == self._shape.index else f"the connection to host {host} was lost"
        if damaged:
            what = f"the connection from host {host} can't be trusted any more"
        self._say(Command.FAILED, a=int(damaged), payload=f"{what}: {reason}".encode())

    def _on_injected(self, number: int, what: str) -> None:
        self._say(Command.INJECTED, number, what.encode())

    def _say(self, kind: Command, a: int = 0, payload: bytes = b"") -> None:
        """To the driver, once it has connected; where it is gone, the connection's thread knows."""
        if self._connected.wait(CONNECT_LIMIT_S) and self._driver is not None:
            try:
                self._driver.send(kind, a=a, payload=[payload])
            except ClusterError:
                return

    def _leave(self) -> None:
        """The end: nobody is there any more to tell replicas what to do."""
        if self._listener is not None:
            self._listener.close()
        if self._host is not None:
            self._host.poison()
            self._host.kill()
        os._exit(0)
