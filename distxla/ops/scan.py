"""HLO `scan`: a loop along one dimension that carries values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from distxla.ir.attribute import attribute
from distxla.ir.computation import Computation
from distxla.ir.element_type import S64
from distxla.ir.instruction import Instruction
from distxla.ir.op import Lowering
from distxla.ir.op_traits import OperandCount
from distxla.ir.shape import Called, Shape
from distxla.ops.call import Call
from distxla.ops.constant import Constant
from distxla.ops.control_flow import signature
from distxla.ops.dynamic_slice import DynamicSlice
from distxla.ops.dynamic_update_slice import DynamicUpdateSlice
from distxla.ops.support.emit import Buffer, Index, IndexLike, KernelEmitter, Value
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.expansion import Build
from distxla.ops.support.grid_scan import emit_grid_scan
from distxla.ops.support.registry import register
from distxla.ops.tuple import Tuple


@register
class Scan(ExecutableOp):
    """Run a computation along a dimension, carrying values from step to step.

    is_reverse begins at the end. is_associative allows another grouping; this version needs none.

    Shapes:  N arrays T_i[.., n, ..] and C carries U_j -> (M arrays V_i[.., n, ..], the last carries U_j); the
             computation takes the arrays' slices without the dimension, then the carries, and gives the results'
             slices and carries. A single result is not in a tuple.
    Errors:  C1 not one dimension of the arrays; C2 more carries than operands; C3 the computation's parameters; C4 the
             number of results; C5 a carry of another shape; C6 an array that isn't n of the computation's slices.
    Source:  XLA's HLO text.
    """

    opcode: ClassVar[str] = "scan"
    lowering: ClassVar[Lowering] = Lowering.EXPANSION
    operand_count: ClassVar[OperandCount] = OperandCount(least=1)
    needs_shape: ClassVar[bool] = True
    dimensions: tuple[int, ...] = attribute("int_list")
    is_reverse: bool = attribute("bool", default=False)
    is_associative: bool | None = attribute("bool", default=None)
    num_carries: int | None = attribute("int", default=None)
    to_apply: str = attribute("computation")

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Called) -> None:
        carries = self.num_carries or 0
        self.require(0 <= carries <= len(operands), "C2", f"num_carries={carries}", at="num_carries")
        inputs, initial = operands[: len(operands) - carries], operands[len(operands) - carries :]
        self.require(len(self.dimensions) == 1, "C1", f"dimensions={list(self.dimensions)}", at="dimensions")
        axis = self.dimensions[0]
        for operand in inputs:
            self.require(
                operand.is_array and 0 <= axis < operand.rank,
                "C1",
                f"{operand} has no dimension {axis}",
                at="dimensions",
            )
        have = called(self.to_apply)
        takes = [*(i.with_dims(i.dims[:axis] + i.dims[axis + 1 :]) for i in inputs), *initial]
        self.require(
            len(have.parameters) == len(takes) and all(p.compatible(t) for p, t in zip(have.parameters, takes)),
            "C3",
            f"{self.to_apply} must take ({', '.join(map(str, takes))}), it is {signature(have)}",
            at="to_apply",
        )
        results, gives = shape.elements or (shape,), have.result.elements or (have.result,)
        self.require(
            len(results) == len(gives) and len(results) >= carries,
            "C4",
            f"{self.to_apply} gives {len(gives)} values, the text says {shape}",
            at="shape",
        )
        for wanted, result, given in zip(reversed(initial), reversed(results), reversed(gives)):
            self.require(
                wanted.compatible(result) and wanted.compatible(given),
                "C5",
                f"a carry starts as {wanted}, is given as {given} and ends as {result}",
                at="shape",
            )
        dimension_sizes = {operand.dims[axis] for operand in inputs}
        for result, given in zip(results[: len(results) - carries], gives):
            fits = result.is_array and axis < result.rank and given.is_array and given.dtype is result.dtype
            self.require(
                fits and result.dims[:axis] + result.dims[axis + 1 :] == given.dims,
                "C6",
                f"{result} is no array of {given} along dimension {axis}",
                at="shape",
            )
            dimension_sizes.add(result.dims[axis])
        self.require(
            len(dimension_sizes) <= 1,
            "C6",
            f"dimension {axis} has the dimension sizes {sorted(dimension_sizes)}",
            at="operands",
        )

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        axis, first = self.dimensions[0], len(operands) - (self.num_carries or 0)
        inputs, carries = operands[:first], operands[first:]
        results = run.shape.elements or (run.shape,)
        outputs = [np.zeros(shape.dims, shape.dtype.dtype) for shape in results[: len(results) - len(carries)]]
        order = range(self._dimension_size(run.shape, run.operand_shapes))
        for i in reversed(order) if self.is_reverse else order:
            found = run.call(self.to_apply, *(np.take(array, i, axis) for array in inputs), *carries)
            values = found if isinstance(found, tuple) else (found,)
            for output, value in zip(outputs, values):
                output[(slice(None),) * axis + (i,)] = value
            carries = values[len(outputs) :]
        return (*outputs, *carries) if run.shape.elements is not None else (*outputs, *carries)[0]

    def _dimension_size(self, shape: Shape, operands: Sequence[Shape]) -> int:
        """The number of steps; one where there is nothing to go along."""
        carries, axis = self.num_carries or 0, self.dimensions[0]
        results = shape.elements or (shape,)
        arrays = [*operands[: len(operands) - carries], *results[: len(results) - carries]]
        return arrays[0].dims[axis] if arrays else 0

    def expand(self, build: Build, instruction: Instruction) -> str:
        shape = instruction.shape.without_layout()
        if _is_scalar(build.called(self.to_apply)):
            op = _ScalarScan(**{spec.field: getattr(self, spec.field) for spec in self.attributes()})
            return build.add(op, *instruction.operands, shape=shape, name=instruction.name)
        return self._expand_to_loop(build, instruction)

    def _expand_to_loop(self, build: Build, instruction: Instruction) -> str:
        """A loop over the counter, the carries, the arrays that are read and those that are written."""
        axis, first = self.dimensions[0], len(instruction.operands) - (self.num_carries or 0)
        inputs, carries = instruction.operands[:first], instruction.operands[first:]
        shape = instruction.shape.without_layout()
        results = shape.elements or (shape,)
        arrays = results[: len(results) - len(carries)]
        count = self._dimension_size(shape, [build.shape(name) for name in instruction.operands])
        outputs = [build.constant(0, array.dtype, array.dims) for array in arrays]

        def step(inner: Build, state: Sequence[str]) -> Sequence[str]:
            counter, *values = state
            rest = [values.pop(0) for _ in carries]
            read, written = values[: len(inputs)], values[len(inputs) :]
            place = counter
            if self.is_reverse:
                place = inner.compute("subtract", inner.constant(count - 1, S64), counter)
            zero = inner.constant(0, S64)

            def starts(rank: int) -> list[str]:
                return [place if d == axis else zero for d in range(rank)]

            slices = []
            for array in read:
                dims = inner.shape(array).dims
                sizes = (*dims[:axis], 1, *dims[axis + 1 :])
                part = inner.add(DynamicSlice(dynamic_slice_sizes=sizes), array, *starts(len(dims)))
                slices.append(inner.reshape(part, dims[:axis] + dims[axis + 1 :]))
            found = inner.add(Call(to_apply=self.to_apply), *slices, *rest)
            given = [found]
            if inner.shape(found).elements is not None:
                given = [inner.element(found, k) for k in range(len(results))]
            following = []
            for array, value in zip(written, given):
                dims = inner.shape(array).dims
                row = inner.reshape(value, (*dims[:axis], 1, *dims[axis + 1 :]))
                following.append(inner.add(DynamicUpdateSlice(), array, row, *starts(len(dims))))
            counted = inner.compute("add", counter, inner.constant(1, S64))
            return [counted, *given[len(arrays) :], *read, *following]

        final = [*carries, *inputs, *outputs]
        if count:
            _, *final = build.loop(
                [build.constant(0, S64), *final],
                lambda inner, state: inner.compare("LT", state[0], inner.constant(count, S64)),
                step,
            )
        parts = [*final[len(carries) + len(inputs) :], *final[: len(carries)]]
        return build.join(*parts) if shape.elements is not None else parts[0]


class _ScalarScan(Scan):
    """A scan of vectors whose computation is code for scalars: one loop, whose carries are scalars."""

    lowering: ClassVar[Lowering] = Lowering.KERNEL

    def emit_kernel(self, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        first = len(operands) - (self.num_carries or 0)
        inputs, initial = operands[:first], operands[first:]
        outputs = results[: len(results) - len(initial)]
        arrays = (*inputs, *outputs)
        count = arrays[0].shape.dims[0] if arrays else 0
        if emit.tuning.on_grid and count and self._is_cumulative(emit.computation(self.to_apply)):
            self._emit_cumulative(emit, results, operands)
            return

        def step(index: Index, carries: tuple[Value, ...]) -> tuple[Value, ...]:
            place = [count - 1 - index[0] if self.is_reverse else index[0]]
            values = emit.apply(self.to_apply, *(array.load(place) for array in inputs), *carries)
            for output, value in zip(outputs, values):
                output.store(place, value)
            return values[len(outputs) :]

        last = emit.fold((count,), tuple(value.load(()) for value in initial), step)
        for result, value in zip(results[len(outputs) :], last):
            result.store((), value)

    def _is_cumulative(self, computation: Computation) -> bool:
        """Whether steps may be grouped, and give their carries as their only outputs, of the types of their inputs."""
        carries, root = self.num_carries or 0, computation.root_instruction
        types = [p.shape.dtype for p in computation.parameters]
        return (
            bool(self.is_associative)
            and carries > 0
            and types[:carries] == types[carries:]
            and root.operands[:carries] == root.operands[carries:]
        )

    def _emit_cumulative(self, emit: KernelEmitter, results: tuple[Buffer, ...], operands: Sequence[Buffer]) -> None:
        carries = self.num_carries or 0
        inputs, initial, outputs = operands[:carries], operands[carries:], results[:carries]
        count = inputs[0].shape.dims[0]

        def at(i: IndexLike) -> list[IndexLike]:
            return [count - 1 - i if self.is_reverse else i]

        def take(_: Index, i: IndexLike, values: tuple[Value, ...]) -> None:
            for output, value in zip(outputs, values):
                output.store(at(i), value)

        emit_grid_scan(
            emit,
            (),
            count,
            tuple(value.load(()) for value in initial),
            lambda _, i: tuple(array.load(at(i)) for array in inputs),
            lambda carried, values: emit.apply(self.to_apply, *values, *carried)[:carries],
            take,
        )
        for result, output in zip(results[carries:], outputs):
            result.store((), output.load(at(count - 1)))


def _is_scalar(computation: Computation) -> bool:
    """Whether all values are scalars, each made of others without calling anything."""
    root = computation.root_instruction
    return all(
        i.op.role.is_parameter
        or isinstance(i.op, Constant)
        or (i.op.elements.is_elementwise and not i.op.called_computations)
        for i in computation
        if i is not root or not isinstance(root.op, Tuple)
    ) and all(leaf.is_array and not leaf.rank for i in computation for leaf in i.shape.leaves())
