"""A JAX process without JAX that issues its calls itself, as native code does."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import numpy as np

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols.launch_board import BY_FRAMES, Arrival, LaunchSet
from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.jax.partitioner.partitioning import Partitioned
from distxla.jax.processes import messages
from distxla.jax.processes.launches import LaunchSite
from distxla.jax.processes.messages import unpack_json
from distxla.jax.processes.told_errors import unpack_error
from tests.collectives.transports.native_launches import launch_set, native_launches
from tests.jax.processes.fake_process_cases import LOCAL, ROWS, Answered, FakeProcess, partitioned
from tests.stopwatch import eventually

Call = tuple[int, int]  # set of processes, ordinal


def stepping(step: str, name: str = "stepping", devices: str = "0,1,2,3") -> Partitioned:
    """A program: the sum over its devices, `step`, and the sum of that. step: HLO text of %w of %v, f32[4] both."""
    count = devices.count(",") + 1
    sums = f"channel_id=1, replica_groups={{{{{devices}}}}}, use_global_device_ids=true, to_apply=add"
    text = f"""HloModule jit_{name}, entry_computation_layout={{(f32[4]{{0}})->f32[4]{{0}}}}, num_partitions={count}

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

ENTRY main {{
  x = f32[4]{{0}} parameter(0)
  v = f32[4]{{0}} all-reduce(x), {sums}
  w = f32[4]{{0}} {step}
  ROOT r = f32[4]{{0}} all-reduce(w), {sums}
}}
"""
    return partitioned(text, count)


class Program:
    """A program that is loaded. facts: LoadedFacts.  launch: of its set."""

    def __init__(self, answered: Answered, facts: Any, launch: LaunchSet) -> None:
        self.answered, self.facts, self.launch = answered, facts, launch

    @property
    def number(self) -> int:
        return self.answered.program


class NativeProcess:
    """process: attached here, by the frames of which it tells and hears."""

    def __init__(self, process: FakeProcess) -> None:
        self.process = process
        memory = process.attached()
        self.facts = memory
        self.control = ControlBlock.open(memory.owner, memory.control, memory.devices)
        self.header = memory.slices[process.process]
        self.devices = range(LOCAL * process.process, LOCAL * (process.process + 1))
        self.segments = {device: process.segment(device) for device in self.devices}
        self._sets: dict[int, LaunchSet] = {}
        self._parts: dict[Call, tuple[int, int]] = {}

    def program(self, given: Partitioned, rows: Any = ROWS) -> Program:
        answered = self.process.compile(given, rows=rows)
        assert answered.facts.native
        facts = self.process.load(answered.program)
        return Program(answered, facts, self._set(answered, facts.board))

    def _set(self, answered: Answered, board: int) -> LaunchSet:
        members, number = answered.facts.members, answered.facts.set
        if number not in self._sets:
            base = self.control.address
            headers = [base + self.facts.slices[member] for member in members]
            logs = [base + self.facts.logs[member] for member in members]
            at = base + board if board else 0
            self._sets[number] = launch_set(members.index(self.process.process), at, headers, logs, number)
        return self._sets[number]

    # --- calls

    def call(self, program: Program, line: int = 10, value: float = 1.0, *, arrives: bool = True) -> Call:
        """Issue a call natively. value: of its argument, to which the device is added."""
        launch, (ordinal, turn) = program.launch, self._log(program, line, 0)
        self._write(program, value)
        self._issue(program, (launch.set, ordinal), turn, arrives=arrives)
        return launch.set, ordinal

    def submit(self, program: Program, line: int = 10, value: float = 1.0) -> Any:
        """Tell the owner of a call, which the result of this issues."""
        ordinal, turn = self._log(program, line, BY_FRAMES)
        launch, process = program.launch, self.process
        site = LaunchSite("/home/me/train.py", line, "main")
        process.connection.send(messages.Launch(launch.set, program.number, ordinal, turn), [site.pack()])

        def issue() -> Call:
            self._write(program, value)
            self._issue(program, (launch.set, ordinal), turn)
            return launch.set, ordinal

        return issue

    def _log(self, program: Program, line: int, by_frames: int) -> tuple[int, int]:
        launch = program.launch
        ordinal = launch.ordinal
        launch.ordinal += 1
        site = f"/home/me/train.py:{line}".encode()
        return ordinal, native_launches().log(launch, ordinal, program.number, site, by_frames)

    def _write(self, program: Program, value: float) -> None:
        begin = self.facts.device_bytes
        words = np.frombuffer(self.control.segment.bytes, np.uint64)
        for device, area in zip(program.facts.devices, program.facts.area):
            self.segments[device].bytes[begin : begin + 16].view(np.float32)[:] = value + device
            words[area // 8 : area // 8 + 2] = begin, begin + 64

    def _issue(self, program: Program, call: Call, turn: int, *, arrives: bool = True) -> None:
        control, at, native = self.control, self.header, native_launches()
        while True:
            sequence = control.load(control_words.H_COMMAND, at) + 1
            target = control.load(control_words.H_DONE, at) + len(self.devices)
            if not native.issue(program.launch, turn, call[1], sequence, target):
                break
            assert eventually(lambda: control.load(control_words.H_HOLD, at) == 0)
        for device in self.devices:
            record = control_words.record_offset(device)
            control.reset(control_words.R_COMMAND_PROGRAM, program.facts.number, record)
            control.reset(control_words.R_COMMAND_SEQUENCE, sequence, record)
            control.reset(control_words.R_COMMAND_REPEAT, 1, record)
            control.reset(control_words.R_COMMAND_KIND, control_words.CommandKind.RUN, record)
        control.store(control_words.H_DONE_TARGET, target, at)
        self._parts[call] = sequence, target
        self.arrival = native.arrive(program.launch, turn, call[1], program.number) if arrives else Arrival.WAITS

    def withdraw(self, call: Call) -> None:
        """It was refused."""
        sequence, _ = self._parts[call]
        for device in self.devices:
            record = control_words.record_offset(device)
            self.control.reset(control_words.R_COMMAND_KIND, control_words.CommandKind.NONE, record)
            self.control.reset(control_words.R_COMMAND_SEQUENCE, (sequence - 2) & 0xFFFFFFFF, record)

    def is_done(self, call: Call) -> bool:
        return self.control.load(control_words.H_DONE, self.header) >= self._parts[call][1]

    def done(self, call: Call) -> list[float]:
        """Wait until the part is over; the results."""
        assert eventually(lambda: self.is_done(call))
        return self.results()

    def results(self) -> list[float]:
        begin = self.facts.device_bytes + 64
        return [float(self.segments[d].bytes[begin : begin + 4].view(np.float32)[0]) for d in self.devices]

    # --- trouble

    def complain(self, call: Call, kind: int) -> None:
        self.process.connection.send(messages.Trouble(*call, kind), [b"{}"])

    def over(self, call: Call) -> None:
        """Wait for what the owner tells of a call; raises its error."""
        self.process.over(call)
        assert eventually(lambda: self.control.load(control_words.H_HOLD, self.header) == 0)

    def refused(self, call: Call) -> str:
        """The text of the error with which a call was refused, with all that its diagnosis says."""
        found = self.process.next_decided()
        assert found is not None
        assert found[0] == messages.Refused(*call), found
        self.process.told_error = unpack_json(found[1])
        error = unpack_error(self.process.told_error)
        with suppress(KeyError):
            self.withdraw(call)
        return f"{type(error).__name__}: {error.message}\n{error.diagnosis.text() if error.diagnosis else ''}"

    def close(self) -> None:
        self.process.close()


def wait_for_file(path: str) -> None:
    assert eventually(lambda: os.path.exists(path))


__all__ = ["Call", "NativeProcess", "Program", "stepping", "wait_for_file"]
