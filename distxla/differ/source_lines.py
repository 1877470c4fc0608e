"""The user's lines that an instruction comes from: the frames of its metadata, innermost first."""

from __future__ import annotations

import re
from typing import Final

from distxla.ir.instruction import Instruction
from distxla.ir.module import FrameTables, Module
from distxla.lazy_dataclass import dataclass

# parts of op_name that only say which function, or which region of devices, an instruction stands in
_PLACES = re.compile(
    r"p?jit\(.*\)|shard_map|shmap_body|main|closed_call|core_call|xla_call|checkpoint|rematted_computation"
)
_AT = re.compile(r"^(?P<line>.*?:\d+)(?::\d+)?(?: in (?P<function>.*))?$", re.DOTALL)

_MOST_KNOWN: Final = 8  # modules whose frames are kept


@dataclass(frozen=True)
class Frame:
    """line: `file.py:12`."""

    line: str
    function: str


# by id of the tables, which are held here: to hash a large module's takes longer than most of what asks for them
_KNOWN: Final[dict[int, tuple[FrameTables, dict[int, tuple[Frame, ...]]]]] = {}


def frames(module: Module, instruction: Instruction) -> tuple[Frame, ...]:
    """Innermost first; one frame where the metadata has no stack, none where it names no line."""
    metadata = instruction.metadata
    if metadata is None:
        return ()
    number = metadata.get("stack_frame_id")
    if number is not None and (found := _stacks(module.frames).get(number)):
        return found
    at = module.frame(instruction)
    return () if at is None or (frame := _frame(at)) is None else (frame,)


def written_as(instruction: Instruction) -> str:
    """op_name without the parts that depend on where the function was called: `jvp()/dot_general`."""
    name = "" if instruction.metadata is None else instruction.metadata.op_name
    return "/".join(part for part in name.split("/") if part and not _PLACES.fullmatch(part))


def primitive(instruction: Instruction) -> str:
    """The last part of op_name: `dot_general`; the opcode where there is none."""
    return written_as(instruction).rpartition("/")[2] or instruction.opcode


def _frame(at: str) -> Frame | None:
    found = _AT.match(at)
    return Frame(found["line"], found["function"] or "") if found else None


def _stacks(tables: FrameTables) -> dict[int, tuple[Frame, ...]]:
    """By number of the innermost frame."""
    known = _KNOWN.get(id(tables))
    if known is None or known[0] is not tables:
        while len(_KNOWN) >= _MOST_KNOWN:
            del _KNOWN[next(iter(_KNOWN))]
        known = _KNOWN[id(tables)] = tables, _read_stacks(tables)
    return known[1]


def _read_stacks(tables: FrameTables) -> dict[int, tuple[Frame, ...]]:
    rows, places = dict(tables.stack_frames), dict(tables.file_locations)
    files, functions = dict(tables.file_names), dict(tables.function_names)
    shift = _parent_shift(tables)
    found: dict[int, tuple[Frame, ...]] = {0: ()}
    for number in rows:
        chain: list[tuple[int, Frame]] = []  # up to a frame whose callers are known
        while number not in found:
            found[number] = ()  # of a chain that comes back to itself
            row = rows.get(number)
            place = None if row is None else places.get(row.file_location_id)
            if row is None or place is None:
                break
            line = f"{files.get(place.file_name_id, '?')}:{place.line}"
            chain.append((number, Frame(line, functions.get(place.function_name_id, ""))))
            number = row.parent_frame_id - shift
        callers = found[number]
        for number, frame in reversed(chain):
            callers = found[number] = (frame, *callers)
    return found


def _parent_shift(tables: FrameTables) -> int:
    """1 where parent_frame_id is the parent's id plus one, as some writers have it, else 0.

    Tables list a frame right after its parent where they can: these rows tell.
    """
    own = sum(row.parent_frame_id == number for number, row in tables.stack_frames)
    before = sum(row.parent_frame_id == number - 1 for number, row in tables.stack_frames if number > 1)
    return 1 if own > before else 0
