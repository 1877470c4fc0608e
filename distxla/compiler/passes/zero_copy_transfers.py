"""Makes large sends and recvs zero-copy where their done is in the same computation.

The operand and the receive buffer stay allocated until then.
"""

from __future__ import annotations

from typing import ClassVar

from distxla.collectives.channels import is_end, payload_of
from distxla.collectives.protocols.channel import may_be_zero_copy
from distxla.ir.computation import Computation
from distxla.ir.module import Module
from distxla.ir.op import Op
from distxla.lazy_dataclass import dataclass
from distxla.ops.channel import Recv, RecvDone, Send, SendDone, ZeroCopyRecv, ZeroCopyRecvDone, ZeroCopySend
from distxla.rewrites.step import Pass


@dataclass(frozen=True)
class ZeroCopyTransfers(Pass):
    """Marks sends and recvs whose one user is their done, in the same computation.

    Until the done the send's operand and the receive buffer are live, and the side that arrives second copies from one
    to the other. A context that travels through tuples and loops does not keep them: its value gets a bounce buffer.
    """

    name: ClassVar[str] = "zero-copy-transfers"

    def run(self, module: Module) -> Module:
        return module.with_computations([_marked(computation) for computation in module.computations])


def _marked(computation: Computation) -> Computation:
    changed: dict[str, Op] = {}
    for instruction in filter(is_end, computation):
        op, users = instruction.op, computation.users[instruction.name]
        if len(users) != 1 or instruction.name == computation.root or not may_be_zero_copy(payload_of(instruction)):
            continue
        done = computation[users[0]]
        if isinstance(op, Send) and isinstance(done.op, SendDone):
            changed[instruction.name] = ZeroCopySend(channel_id=op.channel_id)
        elif isinstance(op, Recv) and isinstance(done.op, RecvDone):
            changed[instruction.name] = ZeroCopyRecv(channel_id=op.channel_id)
            changed[done.name] = ZeroCopyRecvDone(channel_id=op.channel_id)
    if not changed:
        return computation
    instructions = tuple(i.replace(op=changed[i.name]) if i.name in changed else i for i in computation)
    return Computation(computation.name, instructions, computation.root, computation.execution_thread, computation.span)
