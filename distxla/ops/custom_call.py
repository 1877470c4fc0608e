"""HLO `custom-call`: a routine that HLO knows by name only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from distxla.ir.shape import ProgramShape, Shape
from distxla.ir.window import ConvolutionDimensions, Window
from distxla.ops.attribute import attribute
from distxla.ops.call import Aliasing, check_aliasing
from distxla.ops.effects import Effects
from distxla.ops.evaluation import Evaluation
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register
from distxla.ops.sort import TopK

if TYPE_CHECKING:
    from distxla.ops.emit import Buffer, KernelEmitter


@register
class CustomCall(Op):
    """Call a routine by name; of all routines "TopK" alone is executed.

    TopK:    what XLA CPU makes of `topk`: the largest elements and their indices.
    Shapes:  whatever the text states.
    Errors:  C1 an empty target; C2 operand_layout_constraints that don't fit the operands; aliasing as for fusion.
    Source:  StableHLO spec, "custom_call"; Operation Semantics, "CustomCall".
    """

    opcode: ClassVar[str] = "custom-call"
    effects: ClassVar[Effects] = Effects.CUSTOM
    lowering: ClassVar[Lowering] = Lowering.KERNEL
    needs_shape: ClassVar[bool] = True
    window: Window = attribute("window", default=Window())
    dim_labels: ConvolutionDimensions | None = attribute("dim_labels", default=None)
    feature_group_count: int = attribute("int", default=1)
    batch_group_count: int = attribute("int", default=1)
    operand_precision: tuple[str, ...] = attribute("precision", default=())
    padding_type: str = attribute("word", default="PADDING_INVALID")
    to_apply: str | None = attribute("computation", default=None)
    called_computations_list: tuple[str, ...] = attribute("computation_list", default=(), text="called_computations")
    custom_call_target: str = attribute("string")
    operand_layout_constraints: tuple[Shape, ...] | None = attribute("shape_list", default=None)
    custom_call_has_side_effect: bool = attribute("bool", default=False)
    literal: str | None = attribute("raw", default=None)
    output_to_operand_aliasing: Aliasing = attribute("aliasing", default=())
    schedule: str = attribute("word", default="SCHEDULE_NONE")
    api_version: str = attribute("word", default="API_VERSION_ORIGINAL")

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Callable[[str], ProgramShape]) -> None:
        self.require(self.custom_call_target, "C1", "the target has no name", at="custom_call_target")
        constraints = self.operand_layout_constraints
        if constraints is not None:
            self.require(
                len(constraints) == len(operands) and all(c.compatible(o) for c, o in zip(constraints, operands)),
                "C2",
                f"constrains ({', '.join(map(str, constraints))}), the operands are ({', '.join(map(str, operands))})",
                at="operand_layout_constraints",
            )
        check_aliasing(self, self.output_to_operand_aliasing, shape, operands)

    def obstacle(self, shape: Shape, operands: Sequence[Shape]) -> str | None:
        top_k = self._top_k(shape, operands)
        if top_k is None:
            return f'this version cannot execute custom-call of "{self.custom_call_target}"'
        return top_k.obstacle(shape, operands)

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        return self._executed(run.shape, run.operand_shapes).evaluate(run, *operands)

    def emit_kernel(self, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        shape = Shape.tuple([result.shape for result in results])
        self._executed(shape, [operand.shape for operand in operands]).emit_kernel(emit, results, *operands)

    def _executed(self, shape: Shape, operands: Sequence[Shape]) -> TopK:
        top_k = self._top_k(shape, operands)
        if top_k is None:
            raise self.unsupported()
        return top_k

    def _top_k(self, shape: Shape, operands: Sequence[Shape]) -> TopK | None:
        """The op that the target "TopK" stands for; None for other targets and for shapes that are not its."""
        if self.custom_call_target != "TopK" or len(operands) != 1 or not operands[0].is_array or not operands[0].rank:
            return None
        values = shape.elements[0] if shape.elements else shape
        k = values.dims[-1] if values.is_array and values.rank else -1
        if not 0 <= k <= operands[0].dims[-1]:
            return None
        top_k = TopK(k=k)
        return top_k if top_k.infer_shape(operands, _calls_nothing).compatible(shape) else None


def _calls_nothing(name: str) -> ProgramShape:
    raise KeyError(name)
