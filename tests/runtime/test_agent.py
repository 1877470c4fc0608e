"""An agent's answers to the driver, without a driver."""

from __future__ import annotations

from typing import Any

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.runtime.hosts import commands
from distxla.runtime.hosts.agent import Agent
from distxla.wire.frame import Frame


class Recorder:
    """A connection that keeps payloads, like a full socket."""

    def __init__(self) -> None:
        self.payload: list[Any] = []

    def send(self, frame: Frame, payload: Any = ()) -> None:
        self.payload += payload


def test_a_page_of_the_control_block_stays_what_it_was_when_it_was_sealed() -> None:
    """Devices write into the block meanwhile: the checksum would not be that of the bytes that arrive."""
    agent, connection = Agent(), Recorder()
    block = agent._control = ControlBlock.create(1)
    try:
        place = control_words.record_offset(0)
        agent._handle(connection, commands.ReadControl(7, place, 64))  # type: ignore[arg-type]
        before = bytes(connection.payload[0])
        block.view[place : place + 64] = bytes(range(1, 65))
        assert bytes(connection.payload[0]) == before
    finally:
        block.close()
