"""The attributes of a send or recv. Apart from collectives/channels.py, of which the runtime needs no more."""

from __future__ import annotations

from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass, field
from distxla.location import Location

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class End:
    """One send or recv of a program.

    pairs: (source, target) as written; None where none are.  bounds: one for each pair; None where every execution
    transfers.  zero_copy: the operand or receive buffer stays allocated until the transfer is over
    (compiler/passes/zero_copy_transfers.py).
    location: of the instruction; attributes: of its frontend attributes, where they are known.
    """

    instruction: str
    sends: bool
    channel: int
    stream: int
    payload: Shape
    pairs: Pairs | None = None
    bounds: Pairs | None = None
    zero_copy: bool = False
    location: Location | None = field(default=None, compare=False)
    attributes: Location | None = field(default=None, compare=False)

    @property
    def key(self) -> tuple[int, int]:
        """Equal for sends and recvs that belong together."""
        return self.channel, self.stream

    def __str__(self) -> str:
        return f"{self.instruction} ({self.location})" if self.location else self.instruction
