"""The verdict of a proof."""

from __future__ import annotations

from enum import Enum
from typing import Any

from distxla.ir.instruction import Instruction
from distxla.lazy_dataclass import dataclass
from distxla.location import Location


class Outcome(Enum):
    EQUAL = "equal"
    DIFFERS = "differs"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Verdict:
    """outcome: of all results.  instruction: where the programs differ, or up to where nothing was decided; None for
    EQUAL.  location: in the sharded module's text; `frame` is the line of the user's program.  why: in words.
    result: number of the result leaf that it is about.  results: how many there are.  is_assumed: of DIFFERS, that the
    results would be equal if a part that is taken for the whole were the whole.
    """

    outcome: Outcome
    results: int
    instruction: Instruction | None = None
    location: Location | None = None
    frame: str | None = None
    why: str = ""
    result: int | None = None
    is_assumed: bool = False

    @property
    def text(self) -> str:
        """One sentence."""
        if self.outcome is Outcome.EQUAL:
            many = "1 result is" if self.results == 1 else f"{self.results} results are"
            return f"{many} equal for all inputs, up to the order of sums and the rounding of constant factors"
        name = "" if self.instruction is None else f" at {self.instruction.name}"
        source = "" if self.frame is None else f" ({self.frame})"
        which = "" if self.result is None else f"out{self.result} "
        word = "differs" if self.outcome is Outcome.DIFFERS else "is not decided"
        return f"{which}{word}{name}{source}: {self.why}"

    def as_json(self) -> dict[str, Any]:
        """verdict: "equal", "differs" or "undecided"."""
        return {
            "verdict": self.outcome.value,
            "results": self.results,
            "result": self.result,
            "at": None if self.instruction is None else self.instruction.name,
            "op_name": None
            if self.instruction is None or self.instruction.metadata is None
            else self.instruction.metadata.op_name or None,
            "location": None if self.location is None else str(self.location),
            "source": self.frame,
            "why": self.why,
        }
