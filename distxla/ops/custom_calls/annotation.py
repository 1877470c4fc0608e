"""Custom-calls that annotate an array: with its sharding over partitions, in GSPMD's and Shardy's words, with its
memory space, or with the order of its dimensions.

A global module is turned into the module of one device before anything else looks at it, or refused where it needs a
partitioner (compiler/passes/partitioning.py); the remaining ones of these calls then say nothing of the values.
"""

from __future__ import annotations

from typing import Any, ClassVar

from distxla.ops.custom_calls.target import Call, CustomCallTarget, target
from distxla.ops.support.emit import Buffer, KernelEmitter
from distxla.ops.support.evaluation import Evaluation

SHARDING = ("Sharding", "xla.sdy.FuncResultSharding")
BARRIER = "xla.sdy.PropagationBarrier"
GROUP = "xla.sdy.ShardingGroup"
GLOBAL_TO_LOCAL, LOCAL_TO_GLOBAL = "xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape"
FULL_TO_SHARD, SHARD_TO_FULL = "SPMDFullToShardShape", "SPMDShardToFullShape"
SHARD_BARRIERS = ("ShardBarrierFrom", "ShardBarrierTo")
BOUNDARIES = (GLOBAL_TO_LOCAL, LOCAL_TO_GLOBAL, FULL_TO_SHARD, SHARD_TO_FULL)


# MoveTo…, PinTo… and annotate_device_placement name a memory, LayoutConstraint an order of dimensions in memory.
PLACES = (
    "MoveToHost",
    "MoveToDevice",
    "PinToDevice",
    "PinToDeviceSram",
    "annotate_device_placement",
    "LayoutConstraint",
)


ANNOTATIONS = (*SHARDING, BARRIER, *SHARD_BARRIERS, *PLACES)


@target(*ANNOTATIONS)
class Annotation(CustomCallTarget):
    """The operand itself. The annotation is its sharding, the end of sharding propagation, or its memory space.

    A sharding that asks for a partitioner has been looked at before (compiler/passes/partitioning.py). A device here
    has one memory, in which arrays are row-major.
    Source: XLA's SPMD partitioner, its host offloader and Shardy's export to HLO, which write these names.
    """

    takes_dynamic: ClassVar[bool] = True

    def obstacle(self, call: Call) -> str | None:
        if len(call.operands) != 1 or not call.operands[0].compatible(call.shape):
            return f'custom-call of "{call.name}" from {", ".join(map(str, call.operands))} to {call.shape}'
        return None

    def evaluate(self, call: Call, run: Evaluation, *operands: Any) -> Any:
        return operands[0]

    def emit_kernel(self, call: Call, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        for result, operand in zip(results, operands, strict=True):
            emit.copy(result, operand)


@target(GROUP)
class ShardingGroup(CustomCallTarget):
    """Nothing: it tells a partitioner to cut several arrays in the same way."""

    def obstacle(self, call: Call) -> str | None:
        return f'custom-call of "{call.name}" with the result {call.shape}' if any(call.shape.leaves()) else None

    def evaluate(self, call: Call, run: Evaluation, *operands: Any) -> Any:
        return ()

    def emit_kernel(self, call: Call, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        return


@target(*BOUNDARIES)
class Boundary(CustomCallTarget):
    """The border of a manual region where it can't be: those of the entry computation are gone by now."""

    def obstacle(self, call: Call) -> str | None:
        return (
            f'custom-call of "{call.name}" inside of a loop, a branch or another manual region: only manual regions '
            "of the entry computation are executed, the rest needs an SPMD partitioner"
        )
