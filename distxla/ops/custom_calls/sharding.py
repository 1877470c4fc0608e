"""Custom-calls by which a program says how arrays are cut over partitions: GSPMD's and Shardy's.

A global module is turned into the module of one device before anything else looks at it
(passes/manual_partitions.py); what is left of these calls then either says nothing or needs a partitioner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distxla.ops.custom_calls.target import Call, Target, target

if TYPE_CHECKING:
    from distxla.ops.emit import Buffer, KernelEmitter
    from distxla.ops.evaluation import Evaluation

SHARDING = ("Sharding", "xla.sdy.FuncResultSharding")
BARRIER = "xla.sdy.PropagationBarrier"
GROUP = "xla.sdy.ShardingGroup"
GLOBAL_TO_LOCAL, LOCAL_TO_GLOBAL = "xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape"
FULL_TO_SHARD, SHARD_TO_FULL = "SPMDFullToShardShape", "SPMDShardToFullShape"
BOUNDARIES = (GLOBAL_TO_LOCAL, LOCAL_TO_GLOBAL, FULL_TO_SHARD, SHARD_TO_FULL)


@target(*SHARDING, BARRIER)
class Annotation(Target):
    """The operand itself; what the call says of its sharding must be true of a module of one device already.

    Source: XLA's SPMD partitioner and Shardy's export to HLO, which write these names.
    """

    def obstacle(self, call: Call) -> str | None:
        if len(call.operands) != 1 or not call.operands[0].compatible(call.shape):
            return f'custom-call of "{call.name}" from {", ".join(map(str, call.operands))} to {call.shape}'
        sharding = call.instruction.sharding
        axes = call.instruction.frontend_attribute("xla.sdy.sharding") or ""
        is_cut = sharding is not None and sharding.kind not in ("manual", "replicated", "unknown")
        if is_cut or '{"' in axes.replace(" ", ""):
            return (
                f'custom-call of "{call.name}" asks for a sharding of {call.shape}: that needs an SPMD partitioner; '
                "run the partitioned module, or write the computation as one manual region (shard_map)"
            )
        return None

    def evaluate(self, call: Call, run: Evaluation, *operands: Any) -> Any:
        return operands[0]

    def emit_kernel(self, call: Call, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        for result, operand in zip(results, operands, strict=True):
            emit.copy(result, operand)


@target(GROUP)
class ShardingGroup(Target):
    """Nothing: it tells a partitioner that arrays are to be cut alike."""

    def obstacle(self, call: Call) -> str | None:
        return f'custom-call of "{call.name}" with the result {call.shape}' if any(call.shape.leaves()) else None

    def evaluate(self, call: Call, run: Evaluation, *operands: Any) -> Any:
        return ()

    def emit_kernel(self, call: Call, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        return


@target(*BOUNDARIES)
class Boundary(Target):
    """The border of a manual region where it can't be: those of the entry computation are gone by now."""

    def obstacle(self, call: Call) -> str | None:
        return (
            f'custom-call of "{call.name}" inside of a loop, a branch or another manual region: only manual regions '
            "of the entry computation are executed, the rest needs an SPMD partitioner"
        )
