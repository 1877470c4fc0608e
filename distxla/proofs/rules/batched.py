"""Ops that compute something for each index of some dimensions, and need the others whole."""

from __future__ import annotations

from distxla.ir.instruction import Instruction
from distxla.ops.batch_norm import BatchNormGrad, BatchNormInference, BatchNormTraining
from distxla.ops.bitcast import Bitcast
from distxla.ops.cholesky import Cholesky
from distxla.ops.convert import BitcastConvert
from distxla.ops.fft import Fft
from distxla.ops.rng import RngBitGenerator
from distxla.ops.sort import Sort, TopK
from distxla.ops.triangular_solve import TriangularSolve
from distxla.proofs.relations import views
from distxla.proofs.relations.combining import Label
from distxla.proofs.relations.inference import Inference
from distxla.proofs.relations.relation import NoRule, Relation, Value
from distxla.proofs.rules.contractions import fingerprint
from distxla.proofs.rules.registry import rule


def _batched(
    inference: Inference, instruction: Instruction, operands: list[Relation], batch: set[int], key: object
) -> Value:
    """Dimensions `batch` of all operands and results go together; the others are whole."""
    given: list[tuple[Relation, tuple[Label, ...]]] = []
    whole: list[Label] = []
    for k, operand in enumerate(operands):
        labels = tuple(d if d in batch else ("operand", k, d) for d in range(len(operand.dims)))
        whole += [label for label in labels if not isinstance(label, int)]
        given.append((operand, labels))
    found = []
    for k, shape in enumerate(instruction.shape.leaves()):
        result: tuple[Label, ...] = tuple(d if d in batch else ("result", k, d) for d in range(shape.rank))
        made = {label: shape.dims[d] for d, label in enumerate(result) if not isinstance(label, int)}
        found.append(
            inference.structured((key, k), shape.dtype, given, result, shape.dims, whole=frozenset(whole), made=made)
        )
    return tuple(found) if instruction.shape.is_tuple else found[0]


@rule(Sort)
def sort(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    assert isinstance(instruction.op, Sort)
    op = instruction.op
    batch = set(range(len(operands[0].dims))) - {d % len(operands[0].dims) for d in op.dimensions}
    key = ("sort", op.is_stable, fingerprint(inference.module, op.to_apply))
    return _batched(inference, instruction, operands, batch, key)


@rule(TopK)
def top_k(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    batch = set(range(len(operands[0].dims) - 1))
    return _batched(inference, instruction, operands, batch, ("topk", *instruction.op._values()))


@rule(Cholesky, TriangularSolve)
def matrices(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    batch = set(range(len(operands[0].dims) - 2))
    return _batched(inference, instruction, operands, batch, (instruction.opcode, *instruction.op._values()))


@rule(Fft)
def fft(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    assert isinstance(instruction.op, Fft)
    batch = set(range(len(operands[0].dims) - len(instruction.op.fft_length)))
    return _batched(inference, instruction, operands, batch, ("fft", *instruction.op._values()))


@rule(RngBitGenerator, BatchNormGrad, BatchNormInference, BatchNormTraining)
def whole(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    """A function of operands that every device must have whole."""
    return _batched(inference, instruction, operands, set(), (instruction.opcode, *instruction.op._values()))


@rule(BitcastConvert)
def bitcast_convert(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    (operand,) = operands
    if operand.dims != instruction.shape.dims:
        raise NoRule("bits of elements of different widths")
    return inference.arithmetic.of_wholes(
        "bitcast-convert", instruction.shape.dtype, operands, operand.dims, "taken as bits"
    )


@rule(Bitcast)
def bitcast(inference: Inference, instruction: Instruction, operands: list[Value]) -> Value:
    """As XLA's layout assignment leaves it, where nothing moves in memory: a reshape or a transpose."""
    (operand,) = operands
    if operand.element_type is not instruction.shape.dtype or instruction.shape.layout is not None:
        raise NoRule("there is no rule for bitcasts of layouts")
    return views.reshaped(inference.space, operand, instruction.shape.dims)
