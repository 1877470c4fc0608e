"""Where NaN and Inf come from, as a program that was compiled for `--check nan` notes it in a device's memory.

Each array that a step writes has an origin of its NaN and one of its Inf, 0 where it has none: the step that made the
first of them from operands without any. A step whose operands have an origin passes it on. So the origins of the
program's results tell where theirs come from, and a NaN that a `select` leaves out is nobody's.

The report lies in the program's arena. Words, u32:

    0                   not 0 once anything below was noted
    1                   1 while a new origin is noted, for the entry's own use
    2                   number of the step whose operands are in the common snapshot, + 1
    16 ..               iterations begun, by number of the loop
    shadows             two words an array: origins of its NaN and of its Inf
    entries             ENTRY_WORDS a step

An origin is 1 + the number of a step, of a parameter's leaf behind all steps, or of a constant behind those. Parameters
are looked through only where a step has made a NaN or Inf of them: until then UNKNOWN is set in the origins of their
arrays and of copies. The driver zeroes the report before a call and reads it after.
"""

from __future__ import annotations

from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass, field

NAN, INF = 1, 2  # bits of what an array has
UNKNOWN = 1 << 31  # of both origins: nobody has looked whether the array has any
HEADER_WORDS = 16
W_NOTED, W_FRESH, W_SNAPSHOT = 0, 1, 2
LOOP_DEPTHS = 8  # loops around a step whose iterations are kept, outermost first
# words of a step's entry, by kind of number: E_COUNT + 0 for NaN, + 1 for Inf
E_COUNT = 0  # how often the step made one
E_SENT = 2  # of a step that communicates: the origin that an operand had when one first had any
E_CAUSE = 4  # the origin of the operands' Inf when the step first made a NaN
E_ITERATIONS = 8  # LOOP_DEPTHS words for each of the first NaN, the first Inf
E_SENT_ITERATIONS = E_ITERATIONS + 2 * LOOP_DEPTHS
ENTRY_WORDS = E_SENT_ITERATIONS + LOOP_DEPTHS


@dataclass(frozen=True, slots=True)
class WatchedStep:
    """A step that an array's NaN or Inf may come from.

    instruction, opcode, computation: what it computes, in the compiled module.  fused: the computation of a fusion, ""
    for another step.  loops: numbers of the loops around it, outermost first.  order: positions in the program, for
    comparisons: of each loop around it, then its own.  operands: shapes of its leaves.  snapshot: offset in the arena
    of a copy of the operands as they were when it first made one; -1 without.  shares_snapshot: with other steps.
    communicates: its operands are other devices', too.
    """

    instruction: str
    opcode: str
    computation: str
    fused: str = ""
    loops: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    operands: tuple[Shape, ...] = ()
    snapshot: int = -1
    shares_snapshot: bool = False
    communicates: bool = False


@dataclass(frozen=True)
class WatchReport:
    """offset: of the report in the arena; words: its size without snapshots.  loops: names of the loops, by number.
    shadows: offset of the arrays' origins in words.  results: number of the array by leaf of the result, for those that
    may have any.  parameters: leaves.  constants: names of the instructions.  origins: by computation and name of
    an instruction in the compiled module, the same in the text that was compiled."""

    offset: int
    words: int
    steps: tuple[WatchedStep, ...] = field(repr=False)
    loops: tuple[str, ...]
    shadows: int
    entries: int
    results: dict[int, int]
    parameters: int
    constants: tuple[str, ...]
    origins: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict, repr=False)


__all__ = ["INF", "NAN", "WatchReport", "WatchedStep"]
