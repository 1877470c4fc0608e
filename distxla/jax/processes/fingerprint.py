"""The fingerprint of a partitioned program: equal in all processes exactly if they compiled the same.

It is of the parsed module, not of its text: tables of source lines stand between the header and the first computation,
and cutting them out of the text may cut out too much. Then different programs would count as one, and their
devices would compute wrong numbers without an error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from distxla.compiler.cache_key import described
from distxla.ir.computation import Computation
from distxla.ir.literal import Literal
from distxla.ir.module import Module
from distxla.jax.partitioner.partitioning import Partitioned
from distxla.jax.processes.callback_functions import CallbackFunction
from distxla.lazy_dataclass import replace
from distxla.ops.constant import Constant


def fingerprint_of(
    module: Module,
    partitioned: Partitioned,
    rows: Sequence[Sequence[int]],
    donated: frozenset[int],
    checks: frozenset[str] = frozenset(),
    callbacks: Sequence[CallbackFunction] = (),
) -> str:
    """Of everything that one process must have as the others do; a line, a file, a value's or the module's name is not
    of it.

    rows: ids of devices, [replica][partition].  donated: parameters that results may alias.  checks: compiled into it.
    callbacks: the functions from which it takes values.
    """
    digest = hashlib.sha256()
    parts: list[bytes] = [
        described(renamed(module).replace(name="module")).encode(),
        *_constants(module),
        repr([list(map(int, row)) for row in rows]).encode(),
        repr(sorted(donated)).encode(),
        repr(sorted(checks)).encode(),
        repr((partitioned.parameter_shapes, partitioned.output_shapes)).encode(),
        repr((partitioned.parameter_shardings, partitioned.output_shardings)).encode(),
        repr((partitioned.partitions, partitioned.replicas)).encode(),
        repr(sorted((number, code) for number, _, code in callbacks)).encode(),
    ]
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def renamed(module: Module) -> Module:
    """The module with numbers for the names of its computations and instructions, which mean nothing."""
    numbers = {computation.name: f"c{k}" for k, computation in enumerate(module.computations)}

    def with_numbers(computation: Computation) -> Computation:
        names = {instruction.name: f"i{k}" for k, instruction in enumerate(computation)}
        instructions = tuple(
            instruction.replace(
                name=names[instruction.name],
                op=instruction.op.rename_computations(numbers.__getitem__),
                operands=tuple(names[operand] for operand in instruction.operands),
                control_predecessors=tuple(names[before] for before in instruction.control_predecessors),
            )
            for instruction in computation
        )
        return replace(
            computation, name=numbers[computation.name], instructions=instructions, root=names[computation.root]
        )

    return module.replace(computations=tuple(map(with_numbers, module.computations)), entry=numbers[module.entry])


def _constants(module: Module) -> Iterator[bytes]:
    """The bits of all constants: text doesn't tell one NaN from another."""
    for computation in module.computations:
        for instruction in computation:
            if isinstance(instruction.op, Constant):
                yield from map(_bits, instruction.op.literal.leaves)


def _bits(literal: Literal) -> bytes:
    return b"-" if literal.array is None else b"=" + literal.array.tobytes()


__all__ = ["fingerprint_of", "renamed"]
