"""Sums of products and other reductions."""

from __future__ import annotations

from collections.abc import Hashable
from math import prod

import numpy as np

from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.window import Window, WindowDimension
from distxla.ops.convolution import Convolution
from distxla.ops.copy import Copy
from distxla.ops.custom_calls.annotation import ANNOTATIONS
from distxla.ops.dot import Dot
from distxla.ops.elementwise_binary import ElementwiseBinary
from distxla.ops.reduce import Reduce
from distxla.ops.reduce_window import ReduceWindow
from distxla.ops.select_and_scatter import SelectAndScatter
from distxla.ops.support.registry import op_class
from distxla.proofs.relations import views
from distxla.proofs.relations.combining import IDEMPOTENT, Label
from distxla.proofs.relations.inference import Inference
from distxla.proofs.relations.relation import NoRule, Relation, Value
from distxla.proofs.rules.registry import rule


def reducer(module: Module, name: str) -> str | None:
    """The opcode of a computation of two scalars that applies one op to them; of truth values `and` and `or`.

    Copies count for nothing.
    """
    body = module[name]
    root = body.root_instruction
    while isinstance(root.op, Copy) or root.op.called_target in ANNOTATIONS:
        root = body[root.operands[0]]
    names = {p.name for p in body.parameters}
    if not isinstance(root.op, ElementwiseBinary) or len(names) != 2 or set(root.operands) != names:
        return None
    if root.shape.dtype.kind == "pred":
        return {"add": "or", "maximum": "or", "multiply": "and", "minimum": "and"}.get(root.opcode, root.opcode)
    return root.opcode


def fingerprint(module: Module, name: str) -> Hashable:
    """Equal for computations that do the same in the same way."""
    body = module[name]
    number = {i.name: k for k, i in enumerate(body)}
    lines = [
        (
            i.opcode,
            tuple(v for v in i.op._values() if v not in i.op.called_computations),
            tuple(fingerprint(module, c) for c in i.op.called_computations),
            str(i.shape.without_layout()),
            tuple(number[o] for o in i.operands),
        )
        for i in body
    ]
    return (*lines, number[body.root])


@rule(Dot)
def dot(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    assert isinstance(instruction.op, Dot)
    left, right = operands
    dims = instruction.op.dimensions
    lhs: list[Label] = [("l", d) for d in range(len(left.dims))]
    rhs: list[Label] = [("r", d) for d in range(len(right.dims))]
    for a, b in (*zip(dims.lhs_batch, dims.rhs_batch), *zip(dims.lhs_contracting, dims.rhs_contracting)):
        rhs[b] = lhs[a]
    result = (
        *(lhs[d] for d in dims.lhs_batch),
        *(lhs[d] for d in dims.lhs_free(len(lhs))),
        *(rhs[d] for d in dims.rhs_free(len(rhs))),
    )
    given = sorted(((left, tuple(lhs)), (right, tuple(rhs))), key=lambda item: item[0].term.number)
    return inference.structured(
        "dot", instruction.shape.dtype, given, result, instruction.shape.dims, linear=(0, 1), kind="add"
    )


@rule(Reduce)
def reduce(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    assert isinstance(instruction.op, Reduce)
    op, half = instruction.op, len(operands) // 2
    kind = reducer(inference.module, op.to_apply)
    if half > 1 or kind not in ("add", *IDEMPOTENT):
        return _reduced_whole(inference, instruction, operands, ("reduce", fingerprint(inference.module, op.to_apply)))
    operand, initial = operands
    labels = tuple(range(len(operand.dims)))
    result = tuple(d for d in labels if d not in op.dimensions)
    arithmetic, dims = inference.arithmetic, instruction.shape.dims
    if not any(operand.lines_along(d) for d in op.dimensions) and _is_neutral(inference, instruction, initial, kind):
        return _repeated(operand, op.dimensions, dims, kind)
    if kind == "add":
        found = inference.structured(
            "reduce", instruction.shape.dtype, [(operand, labels)], result, dims, linear=(0,), kind=kind
        )
        return arithmetic.sum([(1, found), (1, initial.changed(dims=dims))], dims) if not initial.is_zero else found
    found = _extreme(inference, instruction, operand, labels, result, kind)
    if _is_neutral(inference, instruction, initial, kind):
        return found
    return arithmetic.extreme(kind, found, initial.changed(dims=dims), dims)


def _repeated(operand: Relation, dimensions: tuple[int, ...], dims: tuple[int, ...], kind: str) -> Relation:
    """A reduction along dimensions that repeat a value."""
    kept = [d for d in range(len(operand.dims)) if d not in dimensions]
    found = views.renamed(operand, kept.index, dims)
    if kind != "add" or operand.is_zero:
        return found
    return found.changed(scale=found.scale * prod(operand.dims[d] for d in dimensions))


def _extreme(
    inference: Inference,
    instruction: Instruction,
    operand: Relation,
    labels: tuple[int, ...],
    result: tuple[int, ...],
    kind: str,
) -> Relation:
    parts = operand.parts
    if parts is not None and parts.kind != kind:
        operand, parts = inference.doubted(operand, f"{parts.described()} is reduced by {kind}"), None
    bare = operand.changed(parts=None)
    scale = bare.scale if operand.element_type.is_float else 0  # of integers multiples wrap
    if scale > 0:
        bare = bare.changed(scale=1)
    found = inference.structured(
        "reduce", instruction.shape.dtype, [(bare, labels)], result, instruction.shape.dims, kind=kind
    )
    if scale > 0:
        found = found.changed(scale=found.scale * scale)
    if parts is None:
        return found
    columns = frozenset(
        tuple(a * b for a, b in zip(one, other, strict=True))
        for one in parts.columns
        for other in inference.space.columns(found)
    )
    return inference.space.with_columns(found, kind, columns)


def _is_neutral(inference: Inference, instruction: Instruction, initial: Relation, kind: str) -> bool:
    element_type = instruction.shape.dtype
    if kind == "add":
        return initial.is_zero
    neutral = op_class(kind)().neutral_value(element_type) if kind in ("maximum", "minimum") else kind == "and"
    if neutral is None:
        return False
    wanted = inference.space.splat(np.array(neutral).astype(element_type.dtype), element_type, initial.dims)
    return wanted.term is initial.term and wanted.axes == initial.axes and wanted.scale == initial.scale


def _reduced_whole(inference: Inference, instruction: Instruction, operands: list[Value], key: Hashable) -> Value:
    """A reduction of which only the dimensions that stay may be cut."""
    assert isinstance(instruction.op, Reduce)
    half = len(operands) // 2
    labels = tuple(("reduced", d) if d in instruction.op.dimensions else d for d in range(len(operands[0].dims)))
    given = [(o, labels) for o in operands[:half]] + [(o, ()) for o in operands[half:]]
    result = tuple(label for label in labels if isinstance(label, int))
    whole = frozenset(label for label in labels if not isinstance(label, int))
    shapes = list(instruction.shape.leaves())
    found = tuple(
        inference.structured((key, k), shape.dtype, given, result, shape.dims, whole=whole)
        for k, shape in enumerate(shapes)
    )
    return found if instruction.shape.is_tuple else found[0]


# --- windows ---------------------------------------------------------------------------------------------------------


def _is_trivial(d: WindowDimension) -> bool:
    return (d.size, d.stride, d.padding_low, d.padding_high, d.base_dilation) == (1, 1, 0, 0, 1)


def _window_labels(window: Window, dims: tuple[int, ...]) -> tuple[tuple[Label, ...], tuple[Label, ...]]:
    """Labels of an array and of its windows: the same one where a window is one element."""
    array = tuple(d if _is_trivial(w) else ("array", d) for d, w in enumerate(window.dimensions))
    windows = tuple(d if _is_trivial(w) else ("windows", d) for d, w in enumerate(window.dimensions))
    assert len(array) == len(dims)
    return array, windows


@rule(ReduceWindow)
def reduce_window(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    assert isinstance(instruction.op, ReduceWindow)
    op, half = instruction.op, len(operands) // 2
    kind = reducer(inference.module, op.to_apply)
    array, windows = _window_labels(op.window, operands[0].dims)
    key = ("reduce-window", op.window, kind or fingerprint(inference.module, op.to_apply))
    shapes = list(instruction.shape.leaves())
    made = {label: n for label, n in zip(windows, shapes[0].dims) if not isinstance(label, int)}
    whole = frozenset(label for label in array if not isinstance(label, int))
    is_sum = half == 1 and kind == "add" and operands[1].is_zero
    given = [(o, array) for o in operands[:half]] + [(o, ()) for o in operands[half:]]
    found = tuple(
        inference.structured(
            (key, k), shape.dtype, given, windows, shape.dims, whole=whole, made=made, linear=(0,) if is_sum else ()
        )
        for k, shape in enumerate(shapes)
    )
    return found if instruction.shape.is_tuple else found[0]


@rule(SelectAndScatter)
def select_and_scatter(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    assert isinstance(instruction.op, SelectAndScatter)
    op = instruction.op
    array, windows = _window_labels(op.window, operands[0].dims)
    module = inference.module
    key = ("select-and-scatter", op.window, fingerprint(module, op.select), fingerprint(module, op.scatter))
    result: tuple[Label, ...] = tuple(
        label if isinstance(label, int) else ("result", k) for k, label in enumerate(array)
    )
    made: dict[Label, int] = {
        label: n for label, n in zip(result, instruction.shape.dims) if not isinstance(label, int)
    }
    whole = frozenset(label for label in (*array, *windows) if not isinstance(label, int))
    is_sum = reducer(module, op.scatter) == "add" and operands[2].is_zero
    given = [(operands[0], array), (operands[1], windows), (operands[2], ())]
    return inference.structured(
        key,
        instruction.shape.dtype,
        given,
        result,
        instruction.shape.dims,
        whole=whole,
        made=made,
        linear=(1,) if is_sum else (),
    )


@rule(Convolution)
def convolution(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    """Batch and features as in a product, unless they are grouped; dimensions under the window must be whole."""
    assert isinstance(instruction.op, Convolution)
    op, labels = instruction.op, instruction.op.dim_labels
    by_feature, by_batch = op.feature_group_count > 1, op.batch_group_count > 1
    lhs: dict[int, Label] = {labels.input_batch: "batch", labels.input_feature: "input feature"}
    rhs: dict[int, Label] = {
        labels.kernel_input_feature: "input feature",
        labels.kernel_output_feature: "output feature",
    }
    out: dict[int, Label] = {labels.output_batch: "batch", labels.output_feature: "output feature"}
    whole: set[Label] = set()
    if by_feature:
        lhs[labels.input_feature], rhs[labels.kernel_input_feature] = "features in groups", "features of a group"
        whole |= {"features in groups", "features of a group"}
    if by_batch:
        lhs[labels.input_batch], out[labels.output_batch] = "batch in groups", "batch of a group"
        whole.add("batch in groups")
    if by_feature or by_batch:
        rhs[labels.kernel_output_feature], out[labels.output_feature] = "kernel's features", "features of groups"
        whole.add("kernel's features")
    for k, (i, j, o) in enumerate(zip(labels.input_spatial, labels.kernel_spatial, labels.output_spatial)):
        lhs[i], rhs[j], out[o] = ("input", k), ("kernel", k), ("output", k)
        whole |= {("input", k), ("kernel", k)}
    shape = instruction.shape
    result = tuple(out[d] for d in range(shape.rank))
    made = {label: shape.dims[d] for d, label in sorted(out.items()) if label not in ("batch", "output feature")}
    key = ("convolution", op.window, op.feature_group_count, op.batch_group_count)
    given = [(operand, tuple(names[d] for d in range(len(names)))) for operand, names in zip(operands, (lhs, rhs))]
    if any(len(names) != len(o.dims) for o, names in given):
        raise NoRule("dimensions without a label")
    return inference.structured(
        key, shape.dtype, given, result, shape.dims, linear=(0, 1), kind="add", whole=frozenset(whole), made=made
    )


__all__ = ["fingerprint", "reducer"]
