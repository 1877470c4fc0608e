"""Whether a module is the program of each device, or still has to be partitioned.

A front end's module computes with whole (global) arrays and says by shardings how a partitioner is to cut them. Run
unchanged, every device would compute all of it on arrays of its own. XLA's SPMD partitioner leaves some shardings in
its output, as a record of where the arrays came from; docs/guide/annotations.md has the rules that tell them apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from distxla.compiler.passes.manual_partitions import PerDevice, has_manual_regions, per_device
from distxla.compiler.verify.verifier import verify_module
from distxla.errors import HloSyntaxError, UnsupportedOpError
from distxla.ir.effects import Effects
from distxla.ir.instruction import Instruction
from distxla.ir.mesh import Mesh
from distxla.ir.module import Module
from distxla.ir.names import is_of_partitioner
from distxla.ir.replica_groups import GroupMode
from distxla.ir.sharding import Placement, Sharding
from distxla.lazy_dataclass import dataclass
from distxla.ops.device_id import PartitionId
from distxla.ops.domain import Domain
from distxla.ops.support.executable import CollectiveOp
from distxla.text.sdy import SHARDING_ATTRIBUTE, UnreadableSharding, read_meshes, read_shardings
from distxla.text.shardings import parse_domain

HOW_TO: Final = (
    "give it what XLA's partitioner makes of the module: in JAX jax.jit(f).lower(*args).compile().as_text(), elsewhere "
    "the file *after_spmd-partitioning* that XLA_FLAGS='--xla_dump_to=DIR --xla_dump_large_constants "
    "--xla_dump_hlo_pass_re=spmd-partitioning' writes; or compute in one manual region (JAX's shard_map); see "
    "docs/guide/annotations.md and docs/guide/dumps.md"
)
# A device can act on these without a partitioner: where the shapes are those of one device they are right already.
_NO_PARTITIONER: Final = frozenset({Placement.OPEN, Placement.WHOLE, Placement.OWN})


@dataclass(frozen=True)
class _Annotation:
    """An instruction and the part of its annotation that asks for a partitioner.  at: the attribute."""

    instruction: Instruction
    sharding: Sharding
    at: str

    @property
    def devices(self) -> int:
        """How many the annotation speaks of; a sum over devices that it doesn't name is over several."""
        return max(self.sharding.device_count, 2 if self.sharding.kind == "unreduced" else 1)

    @property
    def is_shardy(self) -> bool:
        return self.at == "frontend_attributes"


def device_program(module: Module, partitions: int | None = None) -> PerDevice | None:
    """The per-device form of a global module with manual regions; None for a module that each device runs as it is.

    partitions: how many the run has, where that is given; a header's count goes before it. On one partition every
    annotation is true already. Where nothing says it, it is as many as the annotations speak of.
    Raises UnsupportedOpError, located at the first annotation, for a module that needs a partitioner; VerificationError
    where a global module breaks a rule.
    """
    if has_manual_regions(module):
        verify_module(module)
        whole = per_device(module, partitions)
        if whole is not None:
            _require_nothing_left(whole.module)
        return whole
    if (module.num_partitions or partitions) != 1 and not is_partitioned(module):
        found = list(_annotations(module))
        count = module.num_partitions or partitions or max((a.devices for a in found), default=1)
        if found and count > 1 and not _is_partitioned(module, found):
            verify_module(module)
            raise _refusal(module, found[0], count)
    return None


def is_partitioned(module: Module) -> bool:
    """Whether XLA's partitioner has made the module, by the name of its entry computation."""
    return is_of_partitioner(module.entry)


def partition_count(module: Module, partitions: int | None = None) -> int:
    """For how many partitions a global module is: the header's count, else `partitions`, else as many as its meshes
    and annotations speak of."""
    if given := module.num_partitions or partitions:
        return given
    found = [1]
    with suppress(UnreadableSharding):
        found += [mesh.size for mesh in read_meshes(dict(module.header).get("frontend_attributes", "")).values()]
    with suppress(UnsupportedOpError):
        found += [annotation.devices for annotation in _annotations(module)]
    return max(found)


def _require_nothing_left(module: Module) -> None:
    """The regions that were converted have no sharding any more; any that is left would be cut once more."""
    found = next(_annotations(module), None)
    if found is not None:
        raise _refusal(module, found, module.num_partitions or 1)


def _refusal(module: Module, found: _Annotation, partitions: int) -> UnsupportedOpError:
    i = found.instruction
    placement = found.sharding.placement.value
    return UnsupportedOpError(
        f"{i.name} ({i.opcode}) is {placement}, {found.sharding.text}, but the module has not been partitioned: each "
        f"of {partitions} partitions would compute all of it on arrays of its own. It needs an SPMD partitioner, which "
        f"distxla itself is not; {HOW_TO}",
        module.locate(i, found.at),
    )


def _annotations(module: Module) -> Iterator[_Annotation]:
    """The annotations that ask for a partitioner, in the order of the text."""
    meshes: dict[str, Mesh] | None = None
    for computation in module.reached():
        for i in computation:
            if i.sharding is not None:
                yield from _asking(i, i.sharding, "sharding")
            if isinstance(i.op, Domain):
                yield from (a for sharding in _borders(module, i) for a in _asking(i, sharding, "domain"))
            text = i.frontend_attribute(SHARDING_ATTRIBUTE) if i.frontend_attributes else None
            if text is not None:
                try:
                    if meshes is None:
                        meshes = read_meshes(dict(module.header).get("frontend_attributes", ""))
                    shardings = read_shardings(text, meshes)
                except UnreadableSharding as error:
                    where = module.locate(i, "frontend_attributes")
                    raise UnsupportedOpError(f"{i.name} ({i.opcode}): {SHARDING_ATTRIBUTE}: {error}", where) from error
                yield from (a for sharding in shardings for a in _asking(i, sharding, "frontend_attributes"))


def _asking(i: Instruction, sharding: Sharding, at: str) -> Iterator[_Annotation]:
    for part in sharding.elements if sharding.kind == "tuple" else (sharding,):
        if part.placement not in _NO_PARTITIONER:
            yield _Annotation(i, part, at)


def _borders(module: Module, domain: Instruction) -> tuple[Sharding, ...]:
    assert isinstance(domain.op, Domain)
    try:
        return parse_domain(domain.op.domain)
    except HloSyntaxError as error:
        message = f"{domain.name} (domain): {error.message}"
        raise UnsupportedOpError(message, module.locate(domain, "domain")) from error


def _is_partitioned(module: Module, found: list[_Annotation]) -> bool:
    """Whether partitions communicate, and shardings are only where XLA's partitioner leaves them.

    It leaves them at the entry's parameters and at instructions that communicate with the host or another device; the
    entry's root may have one, too, from another author. Shardy's attributes are gone before it begins.
    """
    entry = module.entry_computation
    for annotation in found:
        i = annotation.instruction
        is_boundary = entry.by_name.get(i.name) is i and (i.op.role.is_parameter or i.name == entry.root)
        if annotation.is_shardy or not (is_boundary or i.op.effects in (Effects.FEED, Effects.CHANNEL)):
            return False
    return any(_communicates(i) for computation in module.reached() for i in computation)


def _communicates(i: Instruction) -> bool:
    """Whether the instruction tells partitions apart, or lets them act together, as only a per-device program can."""
    if i.op.effects is Effects.CHANNEL:
        return i.op.is_device_transfer
    if isinstance(i.op, CollectiveOp) and i.op.group_mode is GroupMode.CROSS_REPLICA:
        return False
    return isinstance(i.op, CollectiveOp | PartitionId) and i.sharding is None
