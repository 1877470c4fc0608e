"""Collectives whose groups have one device each: every device gets its own operand back, which is rarely meant.

The usual reason is that the ids of the groups are replicas, of which there is one, while the devices are partitions.
Two kinds are meant, and no warning is given for them: groups along mesh axes (`mesh['data'=4,'model'=1] {'model'}`),
and groups that are written out in programs of JAX or of XLA's partitioner, where an axis of size 1 gives such groups.
"""

from __future__ import annotations

import re
from weakref import WeakValueDictionary

from distxla.caller_warning import warn_caller
from distxla.ir.counts import Counts
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.names import is_of_partitioner
from distxla.ir.op import RuleViolation
from distxla.ir.replica_groups import GroupMode, ReplicaGroups
from distxla.lazy_dataclass import dataclass
from distxla.location import Location
from distxla.ops.support.executable import CollectiveOp

MOST_LISTED = 8  # devices that a hint lists
_OF_JAX = re.compile(r"p?jit_|pmap_|pmap\(|p?jit\(")
_told: WeakValueDictionary[int, Module] = WeakValueDictionary()  # by id: comparing modules costs more than reading them


@dataclass(frozen=True)
class OneDeviceGroups:
    """The collectives of a module whose groups have one device each. first: the first one.  others: how many more."""

    module: Module
    first: Instruction
    others: int
    counts: Counts

    @property
    def location(self) -> Location | None:
        """Of the first one."""
        return self.module.locate(self.first)

    @property
    def message(self) -> str:
        """What is found, where, and what to change."""
        return self.text(f"{self.first.name} ({self.location})" if self.location else self.first.name)

    def text(self, name: str | None = None) -> str:
        """The same without the place. name: what the first one is called."""
        more = f"; so do {self.others} more" if self.others > 1 else "; so does 1 more" if self.others else ""
        return (
            f"{name or self.first.name} has groups of one device each among {self.counts.devices} devices, "
            f"so every device gets its own operand back{more}. {self._hint()}"
        )

    def _hint(self) -> str:
        op = self.first.op
        assert isinstance(op, CollectiveOp)
        if op.group_mode is GroupMode.CROSS_REPLICA and self.counts.replicas == 1:
            why = "Without channel_id the ids of its groups are replicas, of which there is one"
            if not hasattr(op, "use_global_device_ids"):
                return f"{why}: with channel_id=1 they are partitions"
            beside = f"use_global_device_ids={'True' if self._is_built else 'true'} and {self._all}"
            return f"{why}: channel_id=1 joins the partitions; {beside} beside it name devices one by one"
        if op.group_mode is GroupMode.CROSS_PARTITION and self.counts.partitions == 1:
            why = "With channel_id the ids of its groups are partitions, of which there is one"
            return f"{why}: without it they are replicas"
        if not op.round.has_groups:
            return "Each of its source_target_pairs names one device twice"
        return f"Each of its groups names one id: {self._all} would join all devices"

    @property
    def _is_built(self) -> bool:
        """Whether the module comes from XlaBuilder, whose arguments the hint then names."""
        return self.module.source is None

    @property
    def _all(self) -> str:
        """The groups that join all devices, as a text or a script has them."""
        count = self.counts.devices
        listed = "[[" + ", ".join(map(str, range(count))) + "]]" if self._is_built else f"[1,{count}]<=[{count}]"
        return f"replica_groups={listed if count <= MOST_LISTED else f'[1,{count}]<=[{count}]'}"


def one_device_groups(module: Module, counts: Counts) -> OneDeviceGroups | None:
    """The collectives of a verified module whose groups have one device each; None where there are none, or where that
    is meant."""
    if counts.devices < 2:
        return None
    found = [
        instruction
        for computation in module.reached()
        for instruction in computation
        if _is_alone(instruction, counts) and not _is_meant(module, instruction)
    ]
    return OneDeviceGroups(module, found[0], len(found) - 1, counts) if found else None


def first_warning(module: Module, counts: Counts, *, executed: Module | None = None) -> OneDeviceGroups | None:
    """The same for the first question about a module, later None: a user is told once.

    executed: what the devices run, where that is another module.
    """
    if _told.get(id(module)) is module:
        return None
    found = one_device_groups(module if executed is None else executed, counts)
    if found is not None:
        _told[id(module)] = module
    return found


def warn_of_one_device_groups(module: Module, counts: Counts, *, executed: Module | None = None) -> None:
    """Give a DistxlaWarning for the line of the caller's program, once for each module; arguments as above."""
    found = first_warning(module, counts, executed=executed)
    if found is not None:
        warn_caller(found.message)


def _is_alone(instruction: Instruction, counts: Counts) -> bool:
    op = instruction.op
    if not isinstance(op, CollectiveOp) or op.start_done.completes:
        return False
    if not op.round.has_groups:
        pairs = getattr(op, "source_target_pairs", ())
        return bool(pairs) and all(source == target for source, target in pairs)
    if any(len(group) > 1 for group in _groups(op).groups):
        return False
    try:
        return all(len(group) == 1 for group in op.device_groups(counts))
    except RuleViolation:  # groups for other counts than these
        return False


def _is_meant(module: Module, instruction: Instruction) -> bool:
    """Whether groups of one device are what the program's author wrote down, or an axis of size 1."""
    op = instruction.op
    if op.round.has_groups:
        groups = _groups(op)
        if groups.mesh is not None:
            return True
        if groups.is_empty:
            return False
    metadata = instruction.metadata
    op_name = str(metadata.op_name or "") if metadata is not None else ""
    is_of_jax = _OF_JAX.match(module.name) is not None or _OF_JAX.match(op_name) is not None
    return is_of_jax or is_of_partitioner(module.entry)


def _groups(op: object) -> ReplicaGroups:
    found = getattr(op, "replica_groups", None)
    return found if isinstance(found, ReplicaGroups) else ReplicaGroups()


__all__ = ["OneDeviceGroups", "first_warning", "one_device_groups", "warn_of_one_device_groups"]
