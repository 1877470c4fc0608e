"""The driver's deputy on another node: a process that owns the memories there, runs the driver's commands, and
proxies.

It imports neither LLVM nor Ray at module level. Ray is for setting up; once the driver has connected, everything goes
over that connection, and the end of the connection is the end of this process and of the replicas of its host.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Sequence

from distxla import clock
from distxla.collectives.protocols import call_loops
from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.collectives.transports.network_fault import NetworkFault
from distxla.collectives.transports.tcp.injected_faults import PlannedFaults
from distxla.collectives.transports.tcp.proxy import Proxy
from distxla.collectives.transports.transport import Transport
from distxla.errors import ClusterError, DamagedMessageError, DistxlaError, OutOfMemoryError
from distxla.lazy_dataclass import dataclass
from distxla.machine.interfaces import address_on
from distxla.machine.segments import Segment
from distxla.program.artifact import CompiledProgram
from distxla.runtime.hosts import commands
from distxla.runtime.hosts.local import LocalHost
from distxla.runtime.hosts.nodes import Facts
from distxla.runtime.hosts.users import Users
from distxla.runtime.replica.replica import Attachment, Identity
from distxla.runtime.values.shared_image import ImageSource, SharedImage
from distxla.targets.registry import sleep_on, wake_all
from distxla.wire.connection import Connection
from distxla.wire.frame import Frame
from distxla.wire.handshake import Listener
from distxla.wire.network import Network

SLICE_NS = 200_000_000
LONGEST_WAIT_S = 1.0  # for a word to change
PATIENCE_S = 0.1  # between looks whether devices that compute have come back
CONNECT_LIMIT_S = 60.0  # for the driver, from `begin` on


@dataclass(frozen=True)
class RunShape:
    """An agent's view of the run. devices: of each host.  secret: for the handshakes of connections (distxla/wire/).

    attachment: where the driver's memories are, for the agent of the driver's own host; None for others.
    faults: injected into messages between hosts.  network: how hosts reach each other.
    """

    index: int
    name: str
    address: str
    devices: tuple[range, ...]
    memory_bytes: int
    secret: bytes
    attachment: Attachment | None
    faults: tuple[NetworkFault, ...] = ()
    network: Network = Network()


@dataclass(frozen=True)
class Made:
    """An agent's resources: where it and its proxy listen, and the memories for its replicas (None where the driver
    has them)."""

    address: tuple[str, int]
    proxy_address: tuple[str, int]
    attachment: Attachment | None


class Agent:
    """A Ray actor, one a node of a run with several hosts. Methods are called through Ray, in this order."""

    def __init__(self) -> None:
        self._host: LocalHost | None = None
        self._image: SharedImage | None = None
        self._listener: Listener | None = None
        self._driver: Connection | None = None
        self._work: queue.SimpleQueue[tuple[Frame, bytearray]] = queue.SimpleQueue()
        self._numbers: dict[int, int] = {}
        self._users = Users(self._on_user_end)
        self._ready, self._connected = threading.Event(), threading.Event()
        self._hurried = threading.Event()  # devices that still compute are not to be waited for any longer

    def facts(self, interface: str) -> Facts:
        """The facts about this node that the driver needs. interface: see Network; ClusterError where there is none."""
        from ray.util import get_node_ip_address

        return Facts.here(address_on(interface) if interface else get_node_ip_address())

    def make(self, shape: RunShape, support: CompiledProgram) -> Made:
        """Make, or on the driver's host open, the memories, and listen. Raises ClusterError."""
        self._shape = shape
        devices = shape.devices[shape.index]
        given = shape.attachment
        count = sum(map(len, shape.devices))
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
            shape.address,
            shape.secret,
            self._on_connection,
            frames=commands.DRIVER_FRAMES,
            node=shape.index,
            network=shape.network,
        )
        memories = [self._memories.get(device) for device in range(count)]
        self._proxy = Proxy(shape.index, self._control, memories, shape.devices, shape.secret, support, shape.network)
        self._proxy.on_failure(self._on_proxy_failure)
        self._transports: list[Transport] = [self._proxy, *([] if self._host is None else [self._host.transport])]
        if shape.faults:
            self._proxy.inject(PlannedFaults(shape.faults, self._on_injected))
        proxy_address = shape.address, self._proxy.listen(shape.address)
        self._support, attachment = support, None
        if self._host is not None:
            attachment = self._host.attachment(guarded=True)
        return Made(self._listener.address, proxy_address, attachment)

    def begin(self, identities: Sequence[Identity], addresses: Sequence[tuple[str, int]]) -> None:
        """The replicas of this host serve. addresses: where the proxies of all hosts listen. Blocks until they are
        connected."""
        if self._host is not None:
            self._host.begin(self._support, identities, self._on_loss)
        self._proxy.connect(addresses)
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
        """Let devices here run a program. communicators: offset of each communicator's state, by device here."""
        for transport in self._transports:
            transport.load(number, program, communicators)

    def unload(self, number: int) -> None:
        """Remove a program that no device runs any more."""
        for transport in self._transports:
            transport.unload(number)

    def _require_driver(self) -> None:
        """A driver that never comes leaves nothing behind."""
        if not self._connected.wait(CONNECT_LIMIT_S):
            self._leave()

    # --- the driver's connection

    def _on_connection(self, connection: Connection) -> None:
        """In a thread of the connection's own."""
        if connection.purpose != commands.DRIVER_FRAMES.purpose or self._driver is not None:
            connection.close()
            return
        self._driver = connection
        self._connected.set()
        if self._listener is not None:
            self._listener.close()  # no other connection is expected
        try:
            connection.require_answers(self._shape.network.lost_after)
            self._ready.wait()
            while True:
                self._handle(connection, connection.receive())
        except DamagedMessageError as error:
            self._say(commands.Failed(damaged=1), f"its connection to the driver: {error.message}")
        finally:
            self._leave()

    def _handle(self, connection: Connection, frame: Frame) -> None:
        """In the connection's thread: quick commands at once; the rest in the other thread."""
        host = self._host
        if isinstance(frame, commands.Write):
            self._write(connection, frame)
        elif isinstance(frame, commands.Read):
            part = self._part(frame.device, frame.offset, frame.size)
            connection.send(commands.Data(frame.request), [part])
        elif isinstance(frame, commands.ReadControl):
            self._require_inside(frame.offset, frame.size, self._control.segment.size)
            # a copy: devices write there, and sealed bytes must not change
            found = bytes(self._control.view[frame.offset : frame.offset + frame.size])
            connection.send(commands.Data(frame.request), [found])
        elif isinstance(frame, commands.Run):
            numbers, areas = commands.unpack_run(memoryview(connection.receive_bytes()))
            assert host is not None
            for offset, data in areas:
                self._control.view[offset : offset + len(data)] = data
            self._numbers = numbers
            host.calls.issue(numbers, frame.runs)
            host.calls.start()
            self._work.put((frame, bytearray()))
        elif isinstance(frame, commands.WriteControl):
            self._require_inside(frame.offset, connection.length, self._control.segment.size)
            connection.receive_into(self._control.view[frame.offset : frame.offset + connection.length])
        elif isinstance(frame, commands.Wake):
            self._require_inside(frame.offset, 4, self._control.segment.size)
            wake_all(self._control.segment.address + frame.offset)
        elif isinstance(frame, commands.Await):
            self._require_inside(frame.offset, 4, self._control.segment.size)
            threading.Thread(target=self._await, args=(connection, frame), name="distxla-await", daemon=True).start()
        elif isinstance(frame, commands.Watch):
            self._users.watch(frame.number, frame.pid)
        elif isinstance(frame, commands.Clock):
            connection.send(commands.Data(frame.request), [clock.now_ns().to_bytes(8, "little")])
        elif isinstance(frame, commands.Abort):
            self._abort()
        elif isinstance(frame, commands.End | commands.Leave | commands.Clear | commands.Bye):
            if not isinstance(frame, commands.Clear):
                self._abort()
            if isinstance(frame, commands.End | commands.Bye):
                self._hurried.set()
            self._work.put((frame, connection.receive_bytes()))
        elif isinstance(frame, commands.Dump):
            connection.send(commands.DeviceRecords(), [self._records()])
        elif isinstance(frame, commands.Waits):
            waits = [line for transport in self._transports for line in transport.waits()]
            connection.send(commands.Waiting(), ["\n".join(waits).encode()])
        elif isinstance(frame, commands.Punch):
            assert host is not None
            for memory in (host.common,) if frame.common else self._memories.values():
                self._require_inside(frame.offset, frame.size, memory.size)
                memory.punch(frame.offset, frame.size)
        else:
            raise ClusterError(f"the driver sent a {frame.NAME} frame, which only agents send")

    def _write(self, connection: Connection, frame: commands.Write) -> None:
        place = self._part(frame.device, frame.offset, connection.length)
        try:
            self._memories[frame.device].require_pages(frame.offset, connection.length)
        except OutOfMemoryError as error:
            connection.receive_bytes()
            self._say(commands.Failed(damaged=0), f"device {frame.device}: {error.message}")
        else:
            connection.receive_into(place)

    def _await(self, connection: Connection, frame: commands.Await) -> None:
        """In a thread of its own: wait for a word of the control block, then answer."""
        seconds = min(frame.milliseconds / 1000, LONGEST_WAIT_S)
        sleep_on(self._control.segment.address + frame.offset, frame.value, seconds)
        with contextlib.suppress(ClusterError):  # the driver is gone, which the connection's thread knows
            connection.send(commands.Data(frame.request))

    def _part(self, device: int, offset: int, size: int) -> memoryview:
        memory = self._memories.get(device)
        if memory is None:
            raise ClusterError(f"device {device} is not here")
        self._require_inside(offset, size, memory.bytes.nbytes)
        return memory.bytes.data[offset : offset + size]

    def _require_inside(self, offset: int, size: int, whole: int) -> None:
        if offset + size > whole:
            raise ClusterError(f"{size} bytes from {offset} on are not within the memory's {whole}")

    def _records(self) -> bytes:
        return commands.pack_records(self._host.records() if self._host is not None else {})

    def _abort(self) -> None:
        if self._host is not None:
            self._host.calls.abort()

    # --- slow commands

    def _run(self) -> None:
        """In a thread of its own: wait for calls, end them, reset."""
        try:
            while True:
                frame, what = self._work.get()
                if isinstance(frame, commands.Run):
                    self._finish()
                elif isinstance(frame, commands.Clear):
                    self._clear(frame.epoch, what)
                    self._say(commands.Cleared())
                elif isinstance(frame, commands.End | commands.Leave):
                    is_patient = isinstance(frame, commands.Leave)
                    for transport in self._transports:
                        transport.release()
                    devices = commands.unpack_devices(memoryview(what))
                    if not is_patient:
                        self._hurried.clear()
                    if self._host is not None and not is_patient:
                        self._host.calls.end(devices)
                    while self._host is not None and not self._hurried.is_set():
                        if self._host.calls.end(devices, patience=PATIENCE_S):
                            break
                    self._say(commands.Ended(), self._records())
                else:
                    for transport in self._transports:
                        transport.close()
                    if self._host is not None:
                        self._host.close_processes()
                    self._say(commands.Ended())
        except DistxlaError as error:
            self._say(commands.Failed(damaged=0), error.message)
        except BaseException as error:
            self._say(commands.Failed(damaged=0), f"{type(error).__name__}: {error}")
            raise

    def _finish(self) -> None:
        """Wait for the end of a call and report it."""
        host = self._host
        assert host is not None
        while (outcome := host.calls.wait(SLICE_NS)) == call_loops.CALL_AGAIN:
            pass
        if outcome == call_loops.CALL_DONE and host.calls.is_aborted:
            outcome = call_loops.CALL_ABORTED
        for device, one in host.lost.items():  # before the outcome, which they explain
            self._on_loss(device, one.pid)
        self._say(commands.Done(outcome), commands.pack_pairs((d, host.calls.run_ns(d)) for d in self._numbers))

    def _clear(self, epoch: int, payload: bytearray) -> None:
        restart = commands.unpack_clear(epoch, memoryview(payload))
        for transport in self._transports:
            transport.reset(restart)
        if self._host is not None:
            self._host.calls.allow()

    def _on_loss(self, device: int, pid: int) -> None:
        assert self._host is not None
        one = self._host.lost.get(device)  # None where it ends while the host begins to watch
        self._say(commands.ReplicaEnded(device), "" if one is None else one.how)

    def _on_user_end(self, number: int, how: str, status: int | None) -> None:
        told = commands.UNKNOWN_STATUS if status is None else status
        self._say(commands.ProcessEnded(number, told), how)

    def _on_proxy_failure(self, host: int, reason: str, damaged: bool) -> None:
        what = "its proxy failed" if host == self._shape.index else f"the connection to host {host} was lost"
        if damaged:
            what = f"the connection from host {host} can't be trusted any more"
        self._say(commands.Failed(int(damaged)), f"{what}: {reason}")

    def _on_injected(self, number: int, what: str) -> None:
        self._say(commands.Injected(number), what)

    def _say(self, frame: Frame, payload: bytes | str = b"") -> None:
        """To the driver, once it has connected; where it is gone, the connection's thread knows."""
        data = payload.encode() if isinstance(payload, str) else payload
        if self._connected.wait(CONNECT_LIMIT_S) and self._driver is not None:
            try:
                self._driver.send(frame, [data])
            except ClusterError:
                return

    def _leave(self) -> None:
        """The end: replicas get no more commands."""
        if self._listener is not None:
            self._listener.close()
        if self._host is not None:
            self._host.calls.abort()
            self._host.kill()
        os._exit(0)
