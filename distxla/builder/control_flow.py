"""Operations that run computations, and routines that are not HLO."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from distxla.builder.accepted_values import ShapeLike, as_flag, as_integer, as_sequence, as_shape, as_word
from distxla.builder.blame import broken_rule
from distxla.builder.recorder import ComputationLike
from distxla.builder.tuples import Tuples
from distxla.builder.xla_op import OperandLike, XlaOp
from distxla.ir.element_type import PRED, S32
from distxla.ops.call import Call
from distxla.ops.control_flow import Conditional, While
from distxla.ops.custom_calls.custom_call import CustomCall


class ControlFlow(Tuples):
    """Pages Call, CompositeCall, Conditional, While, CustomCall.

    A tuple of Python where a value is due is a tuple of the program.
    """

    def call(self, computation: ComputationLike, *args: Any) -> XlaOp:
        """The computation's result for `args`."""
        values = [self._value(arg) for arg in args]
        name = self._computation(computation, [value.shape for value in values], "computation")
        return self._add(Call(to_apply=name), values)

    def composite_call(
        self,
        computation: ComputationLike,
        *args: Any,
        name: str,
        composite_attributes: str | None = None,
        version: int = 0,
    ) -> XlaOp:
        """`call` of an operation with a public name `name`; the computation is its decomposition.

        composite_attributes: MLIR's text of a dictionary, `{n = 1 : i32}`.
        """
        values = [self._value(arg) for arg in args]
        if not as_word(name, "name"):
            raise broken_rule("composite-call.name: a composite needs a name", "name")
        if as_integer(version, "version") < 0:
            raise broken_rule(f"composite-call.version: {version} is negative", "version")
        attributes = [("composite.name", name), ("composite.version", str(version))]
        if composite_attributes is not None:
            given = as_word(composite_attributes, "composite_attributes")
            attributes.insert(0, ("composite.attributes", given))
        called = self._computation(computation, [value.shape for value in values], "computation")
        return self._add(Call(to_apply=called, is_composite=True), values, frontend_attributes=attributes)

    def while_(self, condition: ComputationLike, body: ComputationLike, init: Any) -> XlaOp:
        """`body` on a value, from `init` on, as long as `condition` holds of it; both take one argument."""
        value = self._value(init)
        op = While(
            condition=self._computation(condition, [value.shape], "condition"),
            body=self._computation(body, [value.shape], "body"),
        )
        return self._add(op, [value])

    # the one implementation takes the first three arguments for whichever form they are of
    @overload
    def conditional(
        self,
        pred: OperandLike,
        true_operand: Any,
        true_computation: ComputationLike,
        false_operand: Any,
        false_computation: ComputationLike,
    ) -> XlaOp: ...
    @overload
    def conditional(
        self, branch_index: OperandLike, branch_computations: Sequence[ComputationLike], branch_operands: Sequence[Any]
    ) -> XlaOp: ...
    def conditional(  # type: ignore[misc]
        self,
        pred: Any = None,
        true_operand: Any = None,
        true_computation: Any = None,
        false_operand: Any = None,
        false_computation: Any = None,
        *,
        branch_index: Any = None,
        branch_computations: Any = None,
        branch_operands: Any = None,
    ) -> XlaOp:
        """One of several computations, each on an operand of its own; they give the same shape.

        pred: true_computation or false_computation.  branch_index: s32[]; out of range it is the last branch.
        """
        if false_computation is not None:
            return self._by_predicate(pred, true_operand, true_computation, false_operand, false_computation)
        given = [value for value in (pred, true_operand, true_computation) if value is not None]
        # Errors show the arguments under the names of this form.
        pred = true_operand = true_computation = None
        names = [branch_index, branch_computations, branch_operands]
        branch_index, branch_computations, branch_operands = (
            given.pop(0) if value is None and given else value for value in names
        )
        if branch_index is None or branch_computations is None or branch_operands is None:
            raise broken_rule(
                "conditional.C1: it takes a predicate and two branches, or an index, branches and operands"
            )
        return self._by_index(branch_index, branch_computations, branch_operands)

    def _by_predicate(
        self,
        pred: OperandLike,
        true_operand: Any,
        true_computation: ComputationLike,
        false_operand: Any,
        false_computation: ComputationLike,
    ) -> XlaOp:
        values = [self._value(true_operand), self._value(false_operand)]
        op = Conditional(
            true_computation=self._computation(true_computation, [values[0].shape], "true_computation"),
            false_computation=self._computation(false_computation, [values[1].shape], "false_computation"),
        )
        return self._add(op, [self._array(pred, PRED), *values])

    def _by_index(
        self, branch_index: OperandLike, branch_computations: Sequence[ComputationLike], branch_operands: Sequence[Any]
    ) -> XlaOp:
        for given, argument in ((branch_computations, "branch_computations"), (branch_operands, "branch_operands")):
            as_sequence(given, argument)
        if len(branch_computations) != len(branch_operands):
            raise broken_rule(
                f"conditional.C1: {len(branch_computations)} branches and operands for {len(branch_operands)}",
                "branch_operands",
            )
        values = [self._value(operand) for operand in branch_operands]
        names = [
            self._computation(branch, [value.shape], "branch_computations")
            for branch, value in zip(branch_computations, values, strict=True)
        ]
        return self._add(Conditional(branch_computations=tuple(names)), [self._array(branch_index, S32), *values])

    def custom_call(
        self,
        target_name: str,
        args: Sequence[Any],
        shape: ShapeLike,
        *,
        opaque: str | None = None,
        has_side_effect: bool = False,
        api_version: str = "API_VERSION_ORIGINAL",
        output_operand_aliasing: Sequence[Any] = (),
    ) -> XlaOp:
        """The result of the routine `target_name` for `args`.

        opaque: text that the routine gets.  output_operand_aliasing: (output index, operand, operand index) of results
        that take over the memory of operands.
        """
        op = CustomCall(
            custom_call_target=as_word(target_name, "target_name"),
            custom_call_has_side_effect=as_flag(has_side_effect, "has_side_effect"),
            api_version=as_word(api_version, "api_version"),
            output_to_operand_aliasing=tuple(output_operand_aliasing),
        )
        return self._add(
            op, [self._value(arg) for arg in as_sequence(args, "args")], as_shape(shape), backend_config=opaque
        )
