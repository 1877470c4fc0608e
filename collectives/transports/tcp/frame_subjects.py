"""Names the subjects of frames between proxies, as far as this host knows: kind, instruction, devices, round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from distxla.collectives.protocols import channel as channel_words
from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols import group as group_words
from distxla.collectives.protocols import permute as permute_words
from distxla.collectives.transports.tcp.frames import MessageFrame, RoundFrame, TransferFrame
from distxla.collectives.transports.tcp.point_to_point import MessageSlot
from distxla.collectives.transports.tcp.subject import Subject
from distxla.program.artifact import CompiledProgram
from distxla.wire.frame import Frame

if TYPE_CHECKING:
    from distxla.collectives.transports.control_block_view import ControlBlock
    from distxla.collectives.transports.tcp.group_state import Group


class Names:
    """Looks up a frame's subject in the control block of this host. Malformed frames raise no error."""

    def __init__(
        self,
        block: ControlBlock,
        programs: Mapping[int, CompiledProgram],
        groups: Mapping[int, Group],
        messages: Mapping[int, MessageSlot],
    ) -> None:
        """The mappings grow as programs are loaded."""
        self._block = block
        self._programs, self._groups, self._messages = programs, groups, messages

    def subject(self, frame: Frame) -> Subject:
        """The subject of a frame to or from another proxy."""
        if isinstance(frame, RoundFrame):
            return self.round_of(frame.group, frame.round, frame.NAME)
        if isinstance(frame, TransferFrame):
            return self._transfer(frame)
        if isinstance(frame, MessageFrame):
            return self.message_at(frame.message, frame.use, frame.NAME)
        return Subject(frame.NAME, "", (), 0)

    def round_of(self, offset: int, number: int, kind: str = "") -> Subject:
        """The subject of a round of the group whose state is at `offset`. number: of the round, from 0."""
        group = self._groups.get(offset)
        if group is None:
            return Subject(kind, "", (), number + 1)
        area = group.areas[number % group_words.ROUNDS]
        name = ""
        if area.number == number and group.local:
            _, site, device = area.head(group.local[0])
            name = self._instruction(site, device)
        return Subject(kind, name, group.members, number + 1)

    def message_at(self, place: int, use: int, kind: str = "") -> Subject:
        """The subject of a permute's message in slot `place` of a pair's ring. use: of the slot, from 1."""
        message = self._messages.get(place)
        if message is None:
            return Subject(kind, "", (), use)
        number = permute_words.round_of(use, message.slot)
        head = self._block.load(permute_words.M_SITE, place), self._block.load(permute_words.M_DEVICE, place)
        return Subject(kind, self._instruction(*head), (message.source, message.target), number)

    def _transfer(self, frame: TransferFrame) -> Subject:
        pair, kind, block = frame.pair, frame.NAME, self._block
        if pair % channel_words.ALIGNMENT or pair + channel_words.C_SLOTS > block.size:
            return Subject(kind, "", (), frame.transfer)
        ends = block.load(channel_words.C_SOURCE, pair), block.load(channel_words.C_TARGET, pair)
        slot = pair + channel_words.slot_of(frame.transfer - 1, block.load(channel_words.C_SLOT_BYTES, pair))
        name = ""
        if slot + channel_words.M_PAYLOAD <= block.size:
            name = self._instruction(block.load(channel_words.M_SITE, slot), block.load(channel_words.M_DEVICE, slot))
        return Subject(kind, name, ends, frame.transfer)

    def _instruction(self, site: int, device: int) -> str:
        if device >= self._block.devices:
            return ""
        program = self._programs.get(self._block.record(device, control_words.R_PROGRAM))
        return program.sites[site].instruction if program is not None and site < len(program.sites) else ""
