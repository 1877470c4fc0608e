"""A whole module: computations, header and the tables that metadata points into."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from functools import cached_property
from operator import is_
from typing import Any

from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction, Metadata, Span
from distxla.ir.shape import ProgramShape
from distxla.lazy_dataclass import dataclass, field, replace
from distxla.location import Location


@dataclass(frozen=True)
class Source:
    """The text a module was read from, for messages."""

    file: str
    lines: tuple[str, ...] = field(repr=False)

    def location(self, span: Span, frame: str | None = None) -> Location:
        text = self.lines[span.line - 1] if 0 < span.line <= len(self.lines) else ""
        return Location(self.file, span.line, span.column, span.end_column, text, frame)


@dataclass(frozen=True, slots=True)
class FileLocation:
    """A row of the FileLocations table; ids are 1-based keys of the other tables, 0 where absent."""

    file_name_id: int = 0
    function_name_id: int = 0
    line: int = 0
    end_line: int = 0
    column: int = 0
    end_column: int = 0


@dataclass(frozen=True, slots=True)
class StackFrame:
    """A row of StackFrames; parent_frame_id equal to the row's own id or 0 ends the chain.

    As XLA prints it: parent_frame_id is the parent's id plus one in some writers; `Module.frame` copes with both.
    """

    file_location_id: int = 0
    parent_frame_id: int = 0


@dataclass(frozen=True, slots=True)
class FrameTables:
    """FileNames, FunctionNames, FileLocations, StackFrames: (id, row) in text order."""

    file_names: tuple[tuple[int, str], ...] = ()
    function_names: tuple[tuple[int, str], ...] = ()
    file_locations: tuple[tuple[int, FileLocation], ...] = ()
    stack_frames: tuple[tuple[int, StackFrame], ...] = ()

    def frame(self, metadata: Metadata) -> str | None:
        """`file.py:36:28 in loss`: the innermost user frame that the metadata names, or None."""
        frames, locations = dict(self.stack_frames), dict(self.file_locations)
        row = locations.get(frames[fid].file_location_id) if (fid := metadata.get("stack_frame_id")) in frames else None
        if row is not None:
            file = dict(self.file_names).get(row.file_name_id, "?")
            function = dict(self.function_names).get(row.function_name_id)
            at = f"{file}:{row.line}" + (f":{row.column}" if row.column else "")
            return f"{at} in {function}" if function else at
        if metadata.get("source_file"):
            line = metadata.get("source_line")
            return f"{metadata.get('source_file')}:{line}" if line else str(metadata.get("source_file"))
        return None


@dataclass(frozen=True)
class Module:
    """computations: text order, called ones before their callers.  entry: name of the entry computation.

    entry_layout: entry_computation_layout of the header, None where absent.  header: the remaining header attributes
    in order, as (name, raw text): input_output_alias, buffer_donor, frontend_attributes, alias_passthrough_params,
    allow_spmd_sharding_propagation_to_*.  source: None for modules that were not parsed.  stablehlo: what a front end
    wrote, where the module was converted from it: a partitioner is given that, since HLO text loses a part of Shardy's
    annotations. `replace` drops it.
    """

    name: str
    computations: tuple[Computation, ...]
    entry: str
    is_scheduled: bool = False
    replica_count: int | None = None
    num_partitions: int | None = None
    entry_layout: ProgramShape | None = None
    header: tuple[tuple[str, str], ...] = ()
    frames: FrameTables = FrameTables()
    source: Source | None = field(default=None, compare=False)
    stablehlo: bytes | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """The HLO text."""
        printer = importlib.import_module("distxla.text.printer")  # by its name: text is a higher layer
        return str(printer.print_module(self))

    def __repr__(self) -> str:
        counts = (("replica_count", self.replica_count), ("num_partitions", self.num_partitions))
        stated = "".join(f", {name}={count}" for name, count in counts if count is not None)
        many, several = sum(len(c.instructions) for c in self.computations), len(self.computations)
        size = f"{many} instruction{'' if many == 1 else 's'} in {several} computation{'' if several == 1 else 's'}"
        return f"Module({self.name}{stated}, {size})"

    @cached_property
    def by_name(self) -> dict[str, Computation]:
        return {c.name: c for c in self.computations}

    def __getitem__(self, name: str) -> Computation:
        return self.by_name[name]

    @property
    def entry_computation(self) -> Computation:
        return self.by_name[self.entry]

    def holder_of(self, instruction: Instruction) -> Computation | None:
        """The computation that holds this very instruction, None if it is none of the module's."""
        return next((c for c in self.computations if c.by_name.get(instruction.name) is instruction), None)

    def reached(self, *names: str) -> tuple[Computation, ...]:
        """The computations of these names (the entry's by default) and all that they call; in the order of the text."""
        found: set[str] = set()
        waiting = [*(names or (self.entry,))]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting.extend(called for i in self[name] for called in i.op.called_computations)
        return tuple(c for c in self.computations if c.name in found)

    def replace(self, **changes: Any) -> Module:
        return replace(self, **{"stablehlo": None, **changes})

    def with_computations(self, computations: Sequence[Computation]) -> Module:
        """With these computations; the same object where they are the ones that it has."""
        if len(computations) == len(self.computations) and all(map(is_, computations, self.computations)):
            return self
        return self.replace(computations=tuple(computations))

    def frame(self, instruction: Instruction) -> str | None:
        """`file.py:36:28 in loss`: the innermost user frame that the instruction's metadata names, or None."""
        return None if instruction.metadata is None else self.frames.frame(instruction.metadata)

    def locate(self, instruction: Instruction, at: str | None = None) -> Location | None:
        """The location of the instruction (or of its attribute `at`) in the text.

        Of a module without text: the line of the user's own program that the metadata names, None if it names none.
        """
        span = (instruction.attribute_spans.get(at) if at else None) or instruction.span
        if self.source is not None and span is not None:
            return self.source.location(span, self.frame(instruction))
        metadata = instruction.metadata
        if self.source is not None or metadata is None or not metadata.get("source_file"):
            return None
        line = int(metadata.get("source_line", 1))
        return Location(str(metadata.get("source_file")), line, int(metadata.get("source_column", 1)), 2)

    def locate_header(self, name: str) -> Location | None:
        """The location of the header attribute `name`, a number or something in braces, in the text."""
        for number, line in enumerate(self.source.lines if self.source is not None else (), 1):
            if found := re.search(rf"\b{name}\s*=\s*(?:\d+|\{{)", line):
                assert self.source is not None
                return self.source.location(Span(number, found.start() + 1, found.end() + 1))
            if "{" in line and "HloModule" not in line:
                return None
        return None
