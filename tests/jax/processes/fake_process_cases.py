"""A JAX process without JAX, as its owner sees it: frames over a connection, memory that it maps."""

from __future__ import annotations

import itertools
import os
import pickle
import queue
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from distxla.jax.partitioner.partitioned_bytes import pack_partitioned, unpack_partitioned
from distxla.jax.partitioner.partitioning import Partitioned
from distxla.jax.private.names import PartitionerOptions
from distxla.jax.processes import messages
from distxla.jax.processes.facts import AttachedMemory, CompiledFacts, CompileRequest, LoadedFacts, PartitionRequest
from distxla.jax.processes.launches import LaunchSite
from distxla.jax.processes.messages import PROCESS_FRAMES, pack_json, pack_parts, unpack_json, unpack_parts
from distxla.jax.processes.owner import Owner
from distxla.jax.processes.owner_file import boot_id, read_owner
from distxla.jax.processes.owner_settings import OwnerSettings
from distxla.jax.processes.told_errors import pack_error, unpack_error
from distxla.jax.processes.world import Introduction
from distxla.machine.segments import Segment
from distxla.wire.frame import Frame
from distxla.wire.handshake import connect

ANSWER_S = 60.0
LOCAL = 2
ROWS = ((0, 1, 2, 3),)


def introduction(**changes: Any) -> Introduction:
    return replace(Introduction(boot_id(), "here", os.getpid(), LOCAL, jax="0.12"), **changes)


class Answered:
    """The answer to COMPILE. program: unpickled."""

    def __init__(self, frame: Frame, payload: bytearray) -> None:
        assert isinstance(frame, messages.Compiled)
        head, rest = unpack_parts(payload)
        self.program, self.facts = frame.program, CompiledFacts.of_json(head)
        self.compiled, self.sites = pickle.loads(rest)


class FakeProcess:
    """Says hello when it is made. told: what answers no request, in the order in which it comes."""

    def __init__(self, path: str, process: int, **changes: Any) -> None:
        address, secret = read_owner(path)
        self.process = process
        self.connection = connect(address, secret, frames=PROCESS_FRAMES, node=process)
        self.told: queue.Queue[tuple[Frame, bytearray] | None] = queue.Queue()
        self._answers: dict[int, queue.Queue[tuple[Frame, bytearray]]] = {}
        self._numbers = itertools.count(1)
        self._ordinals: dict[int, int] = {}
        self._turn = 0
        self.memory: AttachedMemory | None = None
        self.told_error: dict[str, Any] = {}
        threading.Thread(target=self._receive, daemon=True).start()
        hello = introduction(**changes).to_json()
        self.connection.send(messages.Hello(process, os.getpid(), 0), [pack_json(hello)])

    def _receive(self) -> None:
        try:
            while True:
                frame = self.connection.receive()
                payload = self.connection.receive_bytes()
                number = 0 if isinstance(frame, messages.Ask) else getattr(frame, "request", 0)
                self._answers.get(number, self.told).put((frame, payload))
        except Exception:
            self.told.put(None)

    def next_told(self) -> tuple[Frame, bytearray] | None:
        """What comes next without a request; None at the end of the connection."""
        return self.told.get(timeout=ANSWER_S)

    def next_decided(self) -> tuple[Frame, bytearray] | None:
        """The same but for what a process is told and asked while it waits, which is a matter of time."""
        while True:
            found = self.next_told()
            if found is None or not _is_of_waiting(found[0]):
                return found

    def is_told_nothing(self) -> bool:
        """Whether nothing but that has come that was not taken; takes it."""
        while not self.told.empty():
            found = self.told.get()
            if found is None or not _is_of_waiting(found[0]):
                return False
        return True

    def attached(self) -> AttachedMemory:
        """The answer to HELLO; raises the owner's error."""
        found = self.next_told()
        assert found is not None
        frame, payload = found
        if isinstance(frame, messages.Failed):
            raise unpack_error(unpack_json(payload))
        assert isinstance(frame, messages.Attached)
        self.memory = AttachedMemory.of_json(unpack_json(payload))
        return self.memory

    def ask(self, make: Any, payload: Sequence[Any] = ()) -> tuple[Frame, bytearray]:
        """The answer to a request; raises the owner's error."""
        number = next(self._numbers)
        self._answers[number] = queue.Queue()
        self.connection.send(make(number), payload)
        frame, found = self._answers[number].get(timeout=ANSWER_S)
        if isinstance(frame, messages.Failed):
            raise unpack_error(unpack_json(found))
        return frame, found

    def partition(self, module: bytes, options: PartitionerOptions, is_direct: bool = False) -> Partitioned:
        head = PartitionRequest.made(options, is_direct).to_json()
        frame, payload = self.ask(messages.Partition, pack_parts(head, module))
        assert isinstance(frame, messages.Answer)
        return unpack_partitioned(payload)

    def compile(self, partitioned: Partitioned, rows: Any = ROWS, **request: Any) -> Answered:
        head = CompileRequest(rows, **request).to_json()
        return Answered(*self.ask(messages.Compile, pack_parts(head, pack_partitioned(partitioned))))

    def load(self, program: int) -> LoadedFacts:
        _, payload = self.ask(lambda number: messages.Load(number, program))
        return LoadedFacts.of_json(unpack_json(payload))

    def launch(self, program: Answered, site: LaunchSite | None = None) -> tuple[int, int]:
        """Submit the next call of the program's set; (set, ordinal)."""
        number = program.facts.set
        ordinal = self._ordinals.get(number, 0)
        self._ordinals[number] = ordinal + 1
        site = site or LaunchSite(f"p{self.process}.py", 10 + ordinal, "main")
        self.connection.send(messages.Launch(number, program.program, ordinal, self._turn), [site.pack()])
        self._turn += 1
        return number, ordinal

    def ready(self, call: tuple[int, int], rows: Any) -> None:
        """rows: offsets of arguments and results, by device of this process."""
        self.connection.send(messages.Ready(*call), [np.array(rows, np.uint64).tobytes()])

    def trouble(self, call: tuple[int, int], kind: int, error: Exception) -> None:
        self.connection.send(messages.Trouble(*call, kind), [pack_json({"error": pack_error(error)})])

    def over(self, call: tuple[int, int]) -> None:
        """Wait for the end of a call; raises its error, whose JSON is `told_error` from then on."""
        found = self.next_decided()
        assert found is not None
        frame, payload = found
        assert isinstance(frame, messages.Over | messages.Refused), frame
        assert (frame.set, frame.ordinal) == call
        if payload:
            self.told_error = unpack_json(payload)
            raise unpack_error(self.told_error)
        assert isinstance(frame, messages.Over)

    def segment(self, device: int) -> Segment:
        """A device's memory, mapped."""
        at = self.memory
        assert at is not None
        return Segment.open(at.owner, at.memories[device], at.memory_bytes, (at.common, at.memory_bytes))

    def close(self) -> None:
        self.connection.close()


def _is_of_waiting(frame: Frame) -> bool:
    return isinstance(frame, messages.Ask) or (isinstance(frame, messages.News) and frame.kind == messages.LATE)


class Served:
    """An owner in this process, served in a thread, and its processes. issues_all: by frames, as these do."""

    def __init__(self, processes: int = 2, device_memory: str = "64MiB", *, issues_all: bool = True) -> None:
        self.news: list[dict[str, Any]] = []
        settings = OwnerSettings(LOCAL, device_memory=device_memory)
        self.owner = Owner(settings, processes, self.news.append, issues_all=issues_all)
        self.path = self.owner.path
        self.processes: list[FakeProcess] = []
        self._thread = threading.Thread(target=self.owner.serve)
        self._thread.start()

    def join(self, process: int, **changes: object) -> FakeProcess:
        given = {"device_memory": self.owner.settings.device_memory, **changes}
        self.processes.append(FakeProcess(self.path, process, **given))
        return self.processes[-1]

    def end(self) -> None:
        for process in self.processes:
            process.close()
        self._thread.join(60)
        assert not self._thread.is_alive()


def partitioned(text: str, partitions: int = 4) -> Partitioned:
    """HLO text of one partition as if the partitioner had made it."""
    return Partitioned(
        text, b"", partitions, 1, ("f32[4]",), ("f32[4]",), ("{replicated}",), ("{replicated}",), "0.12", 0.5, False
    )


def summing(factor: str = "2", name: str = "total", line: int = 12) -> Partitioned:
    """A program: factor times the sum over all devices of f32[4]."""
    layout = "{(f32[4]{0})->f32[4]{0}}"
    return partitioned(f"""HloModule jit_{name}, entry_computation_layout={layout}, num_partitions=4

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

ENTRY main {{
  x = f32[4]{{0}} parameter(0)
  k = f32[] constant({factor})
  y = f32[4]{{0}} broadcast(k), dimensions={{}}
  s = f32[4]{{0}} all-reduce(x), channel_id=1, replica_groups={{{{0,1,2,3}}}}, use_global_device_ids=true, to_apply=add
  ROOT r = f32[4]{{0}} multiply(s, y), metadata={{op_name="mul" source_file="w.py" source_line={line}}}
}}
""")
