"""READY messages, with their operands, for rounds that have not begun on this host."""

from __future__ import annotations

from collections.abc import Mapping

from distxla.collectives.protocols import group as group_words
from distxla.collectives.transports.tcp.group_state import Group
from distxla.errors import ClusterError

Key = tuple[int, int]  # offset of the group's state, and number of the round, from 0


class EarlyRounds:
    """READY messages by round and host. Not thread-safe.

    A host ends a round only once all hosts of the group are ready for it, and begins one only once the round ROUNDS
    before has ended. So a ready host is in the round that has not ended here, or at most in the one ROUNDS later. Any
    other number, and a repeated one, is an error. For a group that no program here has, at most ROUNDS rounds are kept:
    its other hosts can't end any.
    """

    def __init__(self, groups: Mapping[int, Group]) -> None:
        """groups: of this host, by offset; the mapping may change."""
        self._groups = groups
        self._found: dict[Key, dict[int, memoryview]] = {}

    def keep(self, host: int, key: Key, payload: memoryview) -> None:
        """Keep that a host is ready for a round that has not begun here. ClusterError if it cannot be ready."""
        offset, number = key
        group = self._groups.get(offset)
        if group is not None:
            now = group.areas[number % group_words.ROUNDS].number
            if number not in (now, now + group_words.ROUNDS):
                is_over = number < now
                reason = "is over" if is_over else f"may begin after round {number + 1 - group_words.ROUNDS} only"
                raise ClusterError(f"host {host} is ready for round {number + 1} of a group, which {reason}")
        elif sum(of == offset and host in hosts for (of, _), hosts in self._found.items()) >= group_words.ROUNDS:
            raise ClusterError(
                f"host {host} is ready for more than {group_words.ROUNDS} rounds of a group without this host"
            )
        found = self._found.setdefault(key, {})
        if host in found:
            raise ClusterError(f"host {host} is ready twice for one round")
        found[host] = payload

    def take(self, key: Key) -> dict[int, memoryview]:
        """Remove and return the payloads, by host, for a round that begins here."""
        return self._found.pop(key, {})

    def clear(self) -> None:
        self._found.clear()
