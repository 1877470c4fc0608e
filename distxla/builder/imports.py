"""Computations of one module for use in another."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping

from distxla.ir.computation import Computation
from distxla.ir.instruction import Metadata
from distxla.ir.module import Module
from distxla.ir.structure import Structure


def copied_computations(module: Module, names: Mapping[str, str]) -> Iterator[Computation]:
    """The module's computations, called ones first, under new names; metadata no longer needs the module's tables."""
    for computation in module.computations:
        instructions = tuple(
            instruction.replace(
                op=instruction.op.rename_computations(names.__getitem__),
                metadata=_resolved(module, instruction.metadata),
            )
            for instruction in computation
        )
        yield Computation(names[computation.name], instructions, computation.root, computation.execution_thread)


def _resolved(module: Module, metadata: Metadata | None) -> Metadata | None:
    """The file and the line in place of a reference to the module's stack frames."""
    if metadata is None or metadata.get("stack_frame_id") is None:
        return metadata
    fields = [(key, value) for key, value in metadata.fields if key != "stack_frame_id"]
    tables = module.frames
    frame = dict(tables.stack_frames).get(metadata.get("stack_frame_id"))
    row = dict(tables.file_locations).get(frame.file_location_id) if frame is not None else None
    file = dict(tables.file_names).get(row.file_name_id) if row is not None else None
    if row is not None and file is not None:
        fields += [("source_file", file), ("source_line", row.line)]
    return Metadata(tuple(fields))


def shared_key(module: Module) -> Hashable | None:
    """Equal for computations of scalars that differ in names and places only; None for any other computation."""
    computation = module.entry_computation
    scalars = all(leaf.is_array and leaf.rank == 0 for i in computation for leaf in i.shape.leaves())
    if not scalars or any(i.op.called_computations or i.sharding or i.frontend_attributes for i in computation):
        return None
    return Structure(module).key(computation)
