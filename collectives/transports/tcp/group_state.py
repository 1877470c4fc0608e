"""Groups with members on several hosts, as the proxy of one of them sees their shared state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distxla.collectives.protocols import group as group_words
from distxla.collectives.protocols import rounds as round_words
from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.targets.registry import wake_all


class Area:
    """One of the areas for rounds in a group's state (collectives/protocols/group.py)."""

    def __init__(self, group: Group, index: int) -> None:
        block, size = group.block, len(group.members)
        self.group, self.index = group, index
        self.offset = group.offset + group_words.area_of(index, size)
        self._block = block

    @property
    def number(self) -> int:
        """Of the round that gathers here or was enqueued."""
        return self._block.load(group_words.E_PHASE, self.offset) // 2 * group_words.ROUNDS + self.index

    def head(self, position: int) -> tuple[int, int, int]:
        """(signature, site, device) of a member."""
        load, slot = self._block.load, self._slot(position)
        return load(round_words.S_SIGNATURE, slot), load(round_words.S_SITE, slot), load(round_words.S_DEVICE, slot)

    def copy_heads(self, positions: Sequence[int]) -> bytes:
        """The heads of members, one behind the other, for another host."""
        copy = self._block.copy
        return b"".join(copy(round_words.HEAD, round_words.S_SIGNATURE, self._slot(p)) for p in positions)

    def paste_heads(self, positions: Sequence[int], heads: memoryview) -> None:
        """Post the heads of members on another host, which has copied them."""
        size = round_words.HEAD.size
        for k, p in enumerate(positions):
            head = heads[k * size : (k + 1) * size]
            self._block.paste(round_words.HEAD, round_words.S_SIGNATURE, head, self._slot(p))

    def mark_begun(self, positions: Sequence[int]) -> None:
        """Note that members on another host have begun the round that is in flight here."""
        for p in positions:
            counter = self.group.offset + group_words.begun_of(p)
            self._block.store(group_words.G_MEMBER_BEGUN, self.number + 1, counter)

    def posted(self, position: int, leaf: int) -> int:
        """The offset that a member posted for a leaf: operands, then results, then shared places."""
        return self._block.load(round_words.S_OFFSETS, self._slot(position) + 8 * leaf)

    def shares(self, position: int) -> bool:
        """Whether a member posted shared places for its results."""
        return self._block.load(round_words.S_SHARES, self._slot(position)) != 0

    def _slot(self, position: int) -> int:
        return self.offset + group_words.slot_of(position)

    def finish(self, outcome: int, once: int) -> None:
        """End the round: members may leave it. once: 0, or 1 + position of a member whose shared places were used."""
        block = self._block
        block.store(group_words.E_ONCE, once, self.offset)
        block.store(group_words.E_OUTCOME, outcome, self.offset)
        phase = block.load(group_words.E_PHASE, self.offset)
        block.store(group_words.E_PHASE, (phase + 2) & 0xFFFFFFFF, self.offset)
        self.wake()

    def wake(self) -> None:
        wake_all(self._block.address + self.offset + group_words.E_PHASE)


class Group:
    """A group whose members are on several hosts.

    offset: of its state in the control block, the same on all hosts, and so its name among the proxies.
    members: device ids in group order.  homes: the host of each.  local: positions on this host.
    """

    def __init__(
        self,
        block: ControlBlock,
        offset: int,
        members: Sequence[int],
        home: Mapping[int, int],
        here: int,
    ) -> None:
        self.block = block
        self.offset, self.members = offset, tuple(members)
        self.homes = tuple(home[device] for device in members)
        self.local = tuple(p for p, host in enumerate(self.homes) if host == here)
        self.others = tuple(sorted(set(self.homes) - {here}))
        self.positions = {host: tuple(p for p, h in enumerate(self.homes) if h == host) for host in set(self.homes)}
        self.areas = tuple(Area(self, index) for index in range(group_words.ROUNDS))
