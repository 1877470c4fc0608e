"""HLO `replica-id` and `partition-id`: the device's own numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from distxla.ir.element_type import U32
from distxla.ir.op import Lowering
from distxla.ir.op_traits import OperandCount, OpRole, exactly
from distxla.ir.shape import Called, Shape
from distxla.lazy_dataclass import dataclass
from distxla.ops.support.emit import ArrayRef, Emitter, Index, Value
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.executable import ExecutableOp
from distxla.ops.support.registry import register


@dataclass(frozen=True, eq=False, repr=False)
class _DeviceId(ExecutableOp):
    role: ClassVar[OpRole] = OpRole(is_device_id=True)
    lowering: ClassVar[Lowering] = Lowering.ELEMENT
    operand_count: ClassVar[OperandCount] = exactly(0)

    def infer_shape(self, operands: Sequence[Shape], called: Called) -> Shape:
        return Shape(U32)


@register
class ReplicaId(_DeviceId):
    """The number of the replica that runs the instruction.

    Shapes:  () -> u32[].
    Source:  StableHLO spec, "replica_id".
    """

    opcode: ClassVar[str] = "replica-id"

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        return np.array(run.replica, np.uint32)

    def emit_element(self, emit: Emitter, shape: Shape, index: Index, *operands: ArrayRef) -> Value:
        return emit.replica_id()


@register
class PartitionId(_DeviceId):
    """The number of the partition that runs the instruction.

    Shapes:  () -> u32[].
    Source:  StableHLO spec, "partition_id".
    """

    opcode: ClassVar[str] = "partition-id"

    def evaluate(self, run: Evaluation, *operands: Any) -> Any:
        return np.array(run.partition, np.uint32)

    def emit_element(self, emit: Emitter, shape: Shape, index: Index, *operands: ArrayRef) -> Value:
        return emit.partition_id()
