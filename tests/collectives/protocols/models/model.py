"""The initial state of an exploration."""

from __future__ import annotations

from collections.abc import Sequence

from distxla.lazy_dataclass import dataclass
from tests.collectives.protocols.models.machine import Process
from tests.collectives.protocols.models.wait import Sleep, aborter


@dataclass(frozen=True)
class Model:
    """The members of a protocol.

    sleeps: the words on which they sleep.  symmetric: their programs, and the instances of words that they use, are the
    same but for a rotation.
    """

    members: Sequence[Process]
    sleeps: Sequence[Sleep]
    symmetric: bool = False

    def with_abort(self) -> Model:
        """With a process that aborts at any time. No longer symmetric: the aborter goes from device to device."""
        return Model([*self.members, aborter(len(self.members), self.sleeps)], self.sleeps)
