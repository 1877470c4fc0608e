"""HLO `custom-call`: a routine that HLO knows by name only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from distxla.ir.attribute import attribute
from distxla.ir.effects import Effects
from distxla.ir.instruction import Instruction
from distxla.ir.op import Lowering
from distxla.ir.op_traits import OpRole
from distxla.ir.shape import Called, Shape
from distxla.ir.window import ConvolutionDimensions, Window
from distxla.ops.call import Aliasing, check_aliasing
from distxla.ops.custom_calls.buffers import PIN, UNPIN
from distxla.ops.custom_calls.dynamic_padding import SLICE_TO_DYNAMIC
from distxla.ops.custom_calls.registry import call_obstacle, require_target
from distxla.ops.custom_calls.target import Call
from distxla.ops.support.emit import Buffer, KernelEmitter
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.registry import register

# rule -> attribute and its legal values
_WORDS = {
    "C3": (
        "api_version",
        (
            "API_VERSION_UNSPECIFIED",
            "API_VERSION_ORIGINAL",
            "API_VERSION_STATUS_RETURNING",
            "API_VERSION_STATUS_RETURNING_UNIFIED",
            "API_VERSION_TYPED_FFI",
        ),
    ),
    "C4": ("schedule", ("SCHEDULE_NONE", "SCHEDULE_LATEST", "SCHEDULE_EARLIEST")),
    "C5": ("padding_type", ("PADDING_INVALID", "PADDING_VALID", "PADDING_SAME")),
}
_ORDER: Final = "LayoutConstraint"  # the target that states an order of dimensions in memory


@register
class CustomCall(ExecutableOp):
    """Call a routine by name: one that comes with distxla, or one that the user has registered.

    Names:   each has its class in ops/custom_calls; `distxla.register_custom_call` and --custom-call add to them.
    Shapes:  whatever the text states.
    Errors:  C1 an empty target; C2 operand_layout_constraints that don't fit the operands; C3 no such api_version; C4
             no such schedule; C5 no such padding_type; aliasing as for fusion.
    Source:  StableHLO spec, "custom_call"; Operation Semantics, "CustomCall".
    """

    opcode: ClassVar[str] = "custom-call"
    role: ClassVar[OpRole] = OpRole(is_custom_call=True)
    mixes_precision: ClassVar[bool] = False
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

    @property
    def called_target(self) -> str:  # type: ignore[override]
        return self.custom_call_target

    @property
    def sets_dimension_sizes(self) -> bool:  # type: ignore[override]
        return self.custom_call_target == SLICE_TO_DYNAMIC

    def dynamic_result(self, shape: Shape, operands: Sequence[Shape], called: Called) -> Shape:
        """Of all routines one alone gives arrays of dynamic dimension sizes."""
        return Shape(shape.element_type, shape.dims, (True,) * shape.rank) if self.sets_dimension_sizes else shape

    def verify(self, shape: Shape, operands: Sequence[Shape], called: Called) -> None:
        self.require(self.custom_call_target, "C1", "the target has no name", at="custom_call_target")
        for rule, (attribute_, words) in _WORDS.items():
            word = getattr(self, attribute_)
            self.require(word in words, rule, f"{attribute_}={word} is none of {', '.join(words)}", at=attribute_)
        constraints = self.operand_layout_constraints
        if constraints is not None:
            is_order = self.custom_call_target == _ORDER  # XLA's partitioner leaves the global array's sizes in it
            self.require(
                len(constraints) == len(operands)
                and all(c.compatible(o) or (is_order and c.rank == o.rank) for c, o in zip(constraints, operands)),
                "C2",
                f"constrains ({', '.join(map(str, constraints))}), the operands are ({', '.join(map(str, operands))})",
                at="operand_layout_constraints",
            )
        if self.custom_call_target in (PIN, UNPIN):  # of these one side alone is a buffer
            shape, operands = shape.contents, [operand.contents for operand in operands]
        check_aliasing(self, self.output_to_operand_aliasing, shape, operands)

    def instruction_obstacle(self, instruction: Instruction, operands: Sequence[Shape]) -> str | None:
        return call_obstacle(Call(instruction, tuple(operands)))

    def evaluation_obstacle(self, instruction: Instruction, operands: Sequence[Shape]) -> str | None:
        return call_obstacle(Call(instruction, tuple(operands)))

    def code_annotations(self, instruction: Instruction) -> str | None:
        return instruction.backend_config

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        call = Call(run.instruction, run.operand_shapes)
        return require_target(call).evaluate(call, run, *operands)

    def emit_kernel(self, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        call = Call(emit.instruction, emit.operand_shapes)
        require_target(call).emit_kernel(call, emit, results, *operands)


class HostCall(CustomCall):
    """A custom-call of a Python routine: `BindCustomCalls` makes it for the code generator."""

    lowering: ClassVar[Lowering] = Lowering.HOST
