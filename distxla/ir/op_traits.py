"""What an opcode's class declares about itself: one object for each kind of question. The defaults: an ordinary op.

    class Parameter(ExecutableOp):
        role: ClassVar[OpRole] = OpRole(is_parameter=True, given_by_caller=True)

A class that declares an object again states all of it: nothing is taken from its base's.
"""

from __future__ import annotations

from distxla.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class OperandCount:
    """How many operands the instruction may have. most: None for any number."""

    least: int = 0
    most: int | None = None

    def __str__(self) -> str:
        """As in `2`, `at least 1`, `0 to 1`."""
        if self.most is None:
            return f"at least {self.least}"
        return f"{self.least}" if self.least == self.most else f"{self.least} to {self.most}"

    def allows(self, count: int) -> bool:
        return self.least <= count and (self.most is None or count <= self.most)


def exactly(count: int) -> OperandCount:
    """Neither fewer operands nor more."""
    return OperandCount(count, count)


@dataclass(frozen=True, slots=True)
class OpRole:
    """What the instruction is for its computation. Asked by all that walk through computations.

    given_by_caller: the caller of the program gives the value (parameter, infeed).  is_device_id: the result is the
    device's own replica or partition id.
    """

    is_parameter: bool = False
    is_constant: bool = False
    given_by_caller: bool = False
    is_tuple: bool = False
    is_tuple_element: bool = False
    is_loop: bool = False
    is_conditional: bool = False
    is_custom_call: bool = False
    is_device_id: bool = False


@dataclass(frozen=True, slots=True)
class RoundRules:
    """How groups of devices execute the instruction together (CollectiveOp).

    Asked by the scheduler, by `differ`, and by passes on collectives.

    has_groups: in groups that each device is in, rather than by pairs.  same_for_all: all members of a group get the
    same results.  combines: each operand is handled for itself and gives one leaf of the result, so that equal ones can
    be merged into one round; not so in a collective-permute of slices.
    """

    has_groups: bool = False
    same_for_all: bool = False
    combines: bool = False


@dataclass(frozen=True, slots=True)
class TransferEnd:
    """One end of a point-to-point transfer, to and from the host included. Asked by the scheduler and by reports.

    starts: send, recv.  completes: send-done, recv-done.  sends: send, send-done.  receives: recv, recv-done.
    peer_action: the action of the other device that ends a wait.
    """

    starts: bool = False
    completes: bool = False
    sends: bool = False
    receives: bool = False
    peer_action: str = "execute its recv"


@dataclass(frozen=True, slots=True)
class StartDone:
    """The instruction's part in an asynchronous pair. Asked by the verifier, the scheduler, and the planner.

    starts_pair: the result may only be used by one instruction that completes it (all-reduce-start, copy-start …).
    completes: opcodes of which one must be the operand (all-reduce-done: all-reduce-start).  completes_indirectly: that
    operand may also come out of a tuple (a transfer that is carried round a loop).  starts_async, updates_async,
    completes_async: async-start, async-update, async-done.  owns_computations: no other instruction calls the
    computations that this one calls.
    """

    starts_pair: bool = False
    completes: tuple[str, ...] = ()
    completes_indirectly: bool = False
    starts_async: bool = False
    updates_async: bool = False
    completes_async: bool = False
    owns_computations: bool = False


@dataclass(frozen=True, slots=True)
class ElementRules:
    """How an element of the result is made. Asked by fusion, by what folds constants, and by `proofs`.

    is_elementwise: ELEMENT; result element i is made of the operands' elements i and of nothing else.  only_moves: each
    element of the result is one of an operand; None: so it is if the op is ELEMENT, but not is_elementwise.
    is_expensive: ELEMENT; one element costs far more than a load (transcendental functions); fusion never computes it
    twice.  is_sum: add.  keeps_larger: of two operands the larger one (maximum: True) or the smaller one (minimum:
    False).
    """

    is_elementwise: bool = False
    only_moves: bool | None = None
    is_expensive: bool = False
    is_sum: bool = False
    keeps_larger: bool | None = None


@dataclass(frozen=True, slots=True)
class InPlaceKernel:
    """Whose memory the result of a KERNEL may take over. Asked by the planner and the code generator.

    operand: its number; it may be taken if it has no later reader.  writes_only_a_part: the kernel then writes a part
    only, each element through the result's `store`.
    """

    operand: int | None = None
    writes_only_a_part: bool = False


__all__ = ["ElementRules", "InPlaceKernel", "OpRole", "RoundRules", "StartDone", "TransferEnd"]
