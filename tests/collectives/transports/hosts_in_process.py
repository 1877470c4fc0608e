"""Hosts of a run without Ray: in this process, a thread a device, each host with memories and transports of its own."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from distxla.collectives.protocols import control_block
from distxla.collectives.protocols import group as group_words
from distxla.collectives.transports.abort import abort
from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.collectives.transports.shared_memory.transport import SharedMemory, release_waits
from distxla.collectives.transports.tcp.injected_faults import FrameFaults
from distxla.collectives.transports.tcp.proxy import Proxy
from distxla.collectives.transports.transport import Restart, Transport
from distxla.machine.segments import Segment
from distxla.program.abi import COMMUNICATE_SYMBOL, ENTRY_SYMBOL, Status
from distxla.program.artifact import CompiledProgram
from distxla.program.execution_context import ExecutionContext
from distxla.runtime.replica.serve import support_program
from distxla.targets.registry import load_image
from distxla.wire.handshake import new_secret

PAGE = 4096
GRACE_S = 1.0
Array = np.ndarray[Any, Any]


class Host:
    """Memories and devices of one host for programs by device. offsets: of states, the same on all hosts."""

    def __init__(
        self,
        index: int,
        hosts: Sequence[Sequence[int]],
        programs: Sequence[CompiledProgram],
        running: Sequence[int],
        secret: bytes,
    ) -> None:
        """running: number of each device's program."""
        count = sum(len(devices) for devices in hosts)
        self.index, self.devices, self.programs, self.running = index, tuple(hosts[index]), programs, running
        self.control = ControlBlock.create(count, len(self.devices))
        self.layouts = [_layout(program) for program in programs]
        own = max(layout[2] + p.arena_bytes for layout, p in zip(self.layouts, programs))
        own = -(-(own + PAGE) // PAGE) * PAGE
        shared, common_bytes = _shared_arenas(programs, own)
        common = Segment.create("test-common", common_bytes) if common_bytes else None
        self.memories = [
            Segment.create("test-device", own, common) if d in self.devices else None for d in range(count)
        ]
        home = {device: host for host, devices in enumerate(hosts) for device in devices}
        places: dict[tuple[str, tuple[int, ...]], int] = {}
        self.states: list[dict[int, list[int | None]]] = []
        self.areas: list[tuple[int, int, dict[int, int]]] = []  # offset, bytes, words that stay
        for program in programs:
            rows: dict[int, list[int | None]] = {d: [None] * len(program.communicators) for d in self.devices}
            for number, spec in enumerate(program.communicators):
                for group, size in zip(spec.groups, spec.state_bytes, strict=True):
                    key = (spec.common_key or spec.key, group)
                    if key not in places:
                        offset = places[key] = self.control.carve(size)
                        here = sum(home[d] == index for d in group)
                        configured = {}
                        if here and not spec.pairs and len({home[d] for d in group}) > 1:
                            configured = {
                                (offset + group_words.G_LOCAL) // 4: here,
                                (offset + group_words.G_PROXY) // 4: 1,
                            }
                        self.areas.append((offset, size, configured))
                    for device in group:
                        if device in rows:
                            rows[device][number] = places[key]
            self.states.append(rows)
        self._proxy: Proxy | None = None
        self.transports: list[Transport] = [SharedMemory(self.control, range(self.control.devices))]
        if len(hosts) > 1:
            self._proxy = Proxy(index, self.control, self.memories, hosts, secret, support_program())
            self.transports.insert(0, self._proxy)
        self.transports[-1].reset(self._restart(0))
        self._images = [load_image(program) for program in programs]
        self.contexts = {device: self._context(device, shared) for device in self.devices}

    def load(self) -> None:
        for number, (program, rows) in enumerate(zip(self.programs, self.states, strict=True)):
            mine = {d: row for d, row in rows.items() if self.running[d] == number}
            for transport in self.transports:
                transport.load(number, program, mine)

    def unload(self, number: int) -> None:
        for transport in self.transports:
            transport.unload(number)

    @property
    def proxy(self) -> Proxy:
        assert self._proxy is not None, "a run on one host has none"
        return self._proxy

    def _context(self, device: int, shared: list[list[dict[int, int]]]) -> ExecutionContext:
        number = self.running[device]
        program, image, base = self.programs[number], self._images[number], self.control.segment.address
        parameters, results, end = self.layouts[number]
        routines = [image.address_of(COMMUNICATE_SYMBOL.format(site=s.index)) for s in program.sites]
        states = [None if offset is None else base + offset for offset in self.states[number][device]]
        record = control_block.record_offset(device)
        self.control.store(control_block.R_PROGRAM, number, record)
        return ExecutionContext(
            device,
            [memory.address if memory is not None else None for memory in self.memories],
            partitions=program.counts.partitions,
            control=base,
            record=base + record,
            arena=end,
            parameters=parameters,
            results=results,
            routines=routines,
            communicators=states,
            shared=[arena.get(device, 0) for arena in shared[number]],
        )

    def store(self, device: int, arrays: Sequence[Any]) -> None:
        program, (parameters, _, _) = self.programs[self.running[device]], self.layouts[self.running[device]]
        for array, leaf, offset in zip(arrays, program.parameter_leaves, parameters, strict=True):
            data = np.ascontiguousarray(np.asarray(array, leaf.dtype.dtype)).tobytes()
            self.memories[device].bytes[offset : offset + len(data)] = np.frombuffer(data, np.uint8)

    def results(self, device: int) -> list[Array]:
        program, (_, results, _) = self.programs[self.running[device]], self.layouts[self.running[device]]
        memory = self.memories[device].bytes
        return [
            np.frombuffer(memory[offset : offset + leaf.byte_size].tobytes(), leaf.dtype.dtype).reshape(leaf.dims)
            for leaf, offset in zip(program.result_leaves, results, strict=True)
        ]

    def call(self, device: int, repeat: int = 1) -> int:
        image = self._images[self.running[device]]
        entry = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(image.address_of(ENTRY_SYMBOL))
        status = 0
        for _ in range(repeat):
            status = entry(self.contexts[device].address) or status
        return status

    def _restart(self, epoch: int) -> Restart:
        areas = [(offset, size) for offset, size, _ in self.areas]
        return Restart(epoch, areas, [item for _, _, configured in self.areas for item in configured.items()])

    def release(self) -> None:
        for transport in self.transports:
            transport.release()

    def begin_anew(self, epoch: int) -> None:
        """After a failed call, whose devices are back: states are zeroed but for what was configured."""
        for transport in self.transports:
            transport.reset(self._restart(epoch))
        self.control.store(control_block.H_ABORT, 0)

    def record(self, device: int, field: int) -> int:
        return self.control.record(device, field)

    def close(self) -> None:
        for transport in self.transports:
            transport.close()
        for image in self._images:
            image.close()


class Hosts:
    """All hosts of a run, connected. failures: (host, other host, reason) that proxies have reported."""

    def __init__(
        self,
        hosts: Sequence[Sequence[int]],
        programs: CompiledProgram | Sequence[CompiledProgram],
        running: Sequence[int] | None = None,
        faults: Mapping[int, FrameFaults] | None = None,
    ) -> None:
        """faults: applied to the frames that these hosts send."""
        programs = [programs] if isinstance(programs, CompiledProgram) else programs
        count = sum(len(devices) for devices in hosts)
        running = running or [0] * count
        secret = new_secret()
        self.failures: list[tuple[int, int, str]] = []
        self.hosts = [Host(k, hosts, programs, running, secret) for k in range(len(hosts))]
        self.home = {device: self.hosts[k] for k, devices in enumerate(hosts) for device in devices}
        for host in self.hosts if len(hosts) > 1 else ():
            host.proxy.on_failure(lambda other, reason, _, here=host.index: self._failed(here, other, reason))
            if faults and host.index in faults:
                host.proxy.inject(faults[host.index])
        if len(hosts) > 1:
            self._connect()
        for host in self.hosts:
            host.load()

    def _connect(self) -> None:
        addresses = [("127.0.0.1", host.proxy.listen("127.0.0.1")) for host in self.hosts]
        threads = [threading.Thread(target=host.proxy.connect, args=(addresses,)) for host in self.hosts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def __enter__(self) -> Hosts:
        return self

    def __exit__(self, *exception: object) -> None:
        for host in self.hosts:
            host.close()

    def _failed(self, here: int, other: int, reason: str) -> None:
        self.failures.append((here, other, reason))

    def run(self, args: Sequence[Sequence[Any]], repeat: int = 1, seconds: float = 100) -> list[list[Array]]:
        """outs[d][k]. AssertionError for a status but OK."""
        for device, arrays in enumerate(args):
            self.home[device].store(device, arrays)
        status = self.statuses(range(len(args)), repeat, seconds)
        assert set(status.values()) == {Status.OK}, (status, self.failures)
        return [self.home[device].results(device) for device in range(len(args))]

    def statuses(self, devices: Sequence[int], repeat: int = 1, seconds: float = 100) -> dict[int, int | None]:
        """Run these devices; what each returned, None for those that had to be released after `seconds`.

        Where one fails, those that don't end because of that are released after GRACE_S.
        """
        found: dict[int, int | None] = dict.fromkeys(devices)
        failed = threading.Event()

        def body(device: int) -> None:
            status = self.home[device].call(device, repeat)
            found[device] = status
            if status:  # as the serve loop does
                self.home[device].control.store(control_block.H_ABORT, status)
                failed.set()

        threads = [threading.Thread(target=body, args=(d,), daemon=True) for d in devices]
        for thread in threads:
            thread.start()
        end, is_failing = time.monotonic() + seconds, False
        while any(thread.is_alive() for thread in threads) and time.monotonic() < end:
            if failed.is_set() and not is_failing:
                end, is_failing = min(end, time.monotonic() + GRACE_S), True
            time.sleep(0.0005)
        stuck = [d for d, thread in zip(devices, threads) if thread.is_alive()]
        self.release()
        for thread in threads:
            thread.join(5)
        return {d: None if d in stuck else status for d, status in found.items()} if stuck else found

    def begin_anew(self, epoch: int) -> None:
        """What follows a failed call, on all hosts."""
        for host in self.hosts:
            abort(host.control)
            host.release()
        for host in self.hosts:
            host.begin_anew(epoch)

    def release(self) -> None:
        """Release the devices that wait."""
        for host in self.hosts:
            if any(host.record(d, control_block.R_STATE) == control_block.ReplicaState.WAITING for d in host.devices):
                abort(host.control)
                release_waits(host.control)


def _layout(program: CompiledProgram) -> tuple[list[int], list[int], int]:
    """Offsets of parameter and of result leaves, and the end."""
    rows, at = [], 0
    for leaves in (program.parameter_leaves, program.result_leaves):
        row = []
        for leaf in leaves:
            row.append(at)
            at += (leaf.byte_size + 63) // 64 * 64
        rows.append(row)
    return rows[0], rows[1], at


def _shared_arenas(programs: Sequence[CompiledProgram], begin: int) -> tuple[list[list[dict[int, int]]], int]:
    found: list[list[dict[int, int]]] = []
    at = begin
    for program in programs:
        found.append([])
        for arena in program.shared:
            found[-1].append({})
            for group in arena.groups:
                found[-1][-1].update(dict.fromkeys(group, at if len(group) > 1 else 0))
                at += arena.bytes
    return found, -(-(at - begin) // PAGE) * PAGE
