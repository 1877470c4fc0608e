"""Rules of arithmetic that hold bit for bit, NaN, infinities and signed zeros included."""

from __future__ import annotations

from typing import Any

import numpy as np

from distxla.compiler.passes.simplification_rules import SPREADING, RewriteSite, rule
from distxla.ir.instruction import Instruction
from distxla.ir.literal import Literal
from distxla.ir.op import Op
from distxla.ops.constant import Constant
from distxla.ops.support.registry import op_class

Outcome = Instruction | str | None


def _equals(value: Any, wanted: float) -> bool:
    """Whether a known scalar is `wanted`, the sign of zero included."""
    if value is None or isinstance(value, np.complexfloating):
        return False
    number = float(value)
    return number == wanted and bool(np.signbit(number)) == bool(np.signbit(wanted))


def _neutral(site: RewriteSite, number: int, for_floats: float, for_integers: int) -> bool:
    """Whether operand `number` is known to change nothing: floats and integers have a different neutral zero."""
    kind = site.shape.dtype
    if kind.is_float:
        return _equals(site.scalar(number), for_floats)
    return kind.is_integer and _equals(site.scalar(number), float(for_integers))


@rule(op_class("add"))
def _add(op: Op, site: RewriteSite) -> Outcome:
    """x + -0.0 is x for every x; x + 0.0 turns -0.0 into 0.0."""
    for number in (0, 1):
        if _neutral(site, number, -0.0, 0):
            return site.instruction.operands[1 - number]
    return None


@rule(op_class("subtract"))
def _subtract(op: Op, site: RewriteSite) -> Outcome:
    return site.instruction.operands[0] if _neutral(site, 1, 0.0, 0) else None


@rule(op_class("multiply"))
def _multiply(op: Op, site: RewriteSite) -> Outcome:
    for number in (0, 1):
        if _neutral(site, number, 1.0, 1):
            return site.instruction.operands[1 - number]
    return None


@rule(op_class("divide"))
def _divide(op: Op, site: RewriteSite) -> Outcome:
    """By one; by a power of two, whose reciprocal is exact, as a product."""
    if _neutral(site, 1, 1.0, 1):
        return site.instruction.operands[0]
    divisor = site.scalar(1)
    dtype = site.shape.dtype
    if divisor is None or dtype.name not in ("f32", "f64"):
        return None
    mantissa, _ = np.frexp(divisor)
    reciprocal = divisor.dtype.type(1) / divisor if divisor else divisor
    tiny = np.finfo(divisor.dtype).tiny
    if abs(mantissa) != 0.5 or not tiny <= abs(reciprocal) < np.inf:
        return None
    return site.instead(op_class("multiply")(), site.instruction.operands[0], _constant_like(site, 1, reciprocal))


def _constant_like(site: RewriteSite, number: int, value: Any) -> str:
    """An array of operand `number`'s shape full of `value`, built as that operand is."""
    chain = []
    found = site.operand(number)
    while isinstance(found.op, SPREADING):
        chain.append(found)
        found = site.operand_of(found)
    assert isinstance(found.op, Constant)
    literal = Literal.of(np.full(found.shape.dims, value), found.shape)
    name = site.rewriter.add(site.instruction, Constant(literal=literal), found.shape, ()).name
    for step in reversed(chain):
        name = site.rewriter.add(site.instruction, step.op, step.shape, (name,)).name
    return name


@rule(op_class("maximum"), op_class("minimum"), op_class("and"), op_class("or"))
def _idempotent(op: Op, site: RewriteSite) -> Outcome:
    first, second = site.instruction.operands
    return first if first == second else None


@rule(op_class("and"))
def _and_known(op: Op, site: RewriteSite) -> Outcome:
    """p and true is p; p and false is the constant."""
    return _known_predicate(site, keeps=True)


@rule(op_class("or"))
def _or_known(op: Op, site: RewriteSite) -> Outcome:
    """p or false is p; p or true is the constant."""
    return _known_predicate(site, keeps=False)


def _known_predicate(site: RewriteSite, *, keeps: bool) -> Outcome:
    """Where an operand is the constant `keeps`, the other one; where it is the other constant, that."""
    if site.shape.dtype.kind != "pred":
        return None
    for number in (0, 1):
        known = site.scalar(number)
        if known is not None:
            return site.instruction.operands[1 - number if bool(known) is keeps else number]
    return None


@rule(op_class("negate"), op_class("not"))
def _involution(op: Op, site: RewriteSite) -> Outcome:
    source = site.operand()
    return source.operands[0] if type(source.op) is type(op) else None
