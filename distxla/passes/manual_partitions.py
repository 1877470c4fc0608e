"""From a global module, as a front end writes it, to the module that every partition runs.

That is possible where all the computing is done in manual regions (JAX's shard_map): outside of them arrays are only
handed on. Anything else needs a partitioner, which distxla is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from distxla.errors import UnsupportedOpError
from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.ir.sharding import Sharding
from distxla.ir.shards import GlobalArray, Shards
from distxla.ops.copy import Copy
from distxla.ops.custom_call import CustomCall
from distxla.ops.custom_calls.sharding import (
    BARRIER,
    BOUNDARIES,
    FULL_TO_SHARD,
    GLOBAL_TO_LOCAL,
    GROUP,
    LOCAL_TO_GLOBAL,
    SHARD_TO_FULL,
    SHARDING,
)
from distxla.ops.op import CollectiveOp, Lowering
from distxla.ops.reshape import Reshape
from distxla.ops.tuple import Tuple
from distxla.passes.dead_code import DeadCode
from distxla.passes.inline_calls import InlineCalls
from distxla.passes.rewriter import Rewriter
from distxla.text.sdy import (
    Mesh,
    UnreadableSharding,
    read_manual_axes,
    read_meshes,
    read_named_sharding,
    read_shardings,
)

State = Shards | None  # of a leaf: how the global array is cut; None for a value that each partition has for itself


@dataclass(frozen=True)
class PerDevice:
    """module: what every partition runs, num_partitions set.  parameters, results: the global arrays by leaf."""

    module: Module
    parameters: tuple[GlobalArray, ...]
    results: tuple[GlobalArray, ...]


def per_device(module: Module, partitions: int | None = None) -> PerDevice | None:
    """The per-device form of a verified global module; None for a module without manual regions in its entry.

    partitions: where the header doesn't say it; without either it is the size of the mesh or of the shardings.
    Raises UnsupportedOpError, located, for what would need a partitioner, and for uneven shardings and those that are
    neither replicated nor cut.
    """
    if not has_manual_regions(module):
        return None
    holders = {c.name for c in module.computations if any(_target(i) in BOUNDARIES for i in c)}
    if holders != {module.entry}:
        module = InlineCalls().run(module)
        if not any(_target(i) in BOUNDARIES for i in module.entry_computation):
            return None
    return _Partitioner(DeadCode().run(module), partitions).run()


def has_manual_regions(module: Module) -> bool:
    """Whether anything in the module marks the border of a manual region."""
    return any(_target(i) in BOUNDARIES for c in module.computations for i in c)


def _target(instruction: Instruction) -> str:
    op = instruction.op
    return op.custom_call_target if isinstance(op, CustomCall) else ""


class _Partitioner:
    def __init__(self, module: Module, partitions: int | None) -> None:
        self.module = module
        self.entry = module.entry_computation
        self.meshes: dict[str, Mesh] = {}
        try:
            self.meshes = read_meshes(dict(module.header).get("frontend_attributes", ""))
        except UnreadableSharding as error:
            raise UnsupportedOpError(str(error)) from error
        self.partitions = module.num_partitions or partitions or self.size()
        self.states: dict[str, list[State]] = {}
        self.rewriter = Rewriter(self.entry)

    def size(self) -> int:
        """The number of partitions as shardings and meshes tell it."""
        found = [mesh.size for mesh in self.meshes.values()]
        for i in self.entry:
            elements = (i.sharding, *i.sharding.elements) if i.sharding is not None else ()
            found += [len(s.devices) for s in elements]
        return max(found, default=1)

    def run(self) -> PerDevice:
        for old in self.entry:
            try:
                self.states[old.name] = self.instruction(old, self.rewriter.current(old))
            except UnreadableSharding as error:
                raise self.refused(old, f"{error} cannot be executed", "sharding") from error
        root = self.entry.root_instruction
        results = []
        wanted = self.stated(root, root.sharding)
        for shape, state, want in zip(root.shape.leaves(), self.states[root.name], wanted, strict=True):
            if state is None:
                raise self.refused(root, "the result leaves its manual region without becoming global")
            if want is not None and want != state:
                raise self.refused(root, "the result would have to be resharded")
            results.append(GlobalArray(shape.without_layout(), state))
        parameters = [
            GlobalArray(shape.without_layout(), state)
            for p in self.entry.parameters
            for shape, state in zip(p.shape.leaves(), self.states[p.name], strict=True)
            if state is not None
        ]
        finished = self.rewriter.finish()
        unannotated = tuple(i.replace(sharding=None) if i.sharding is not None else i for i in finished)
        entry = Computation(finished.name, unannotated, finished.root, finished.execution_thread, finished.span)
        computations = tuple(entry if c.name == entry.name else c for c in self.module.computations)
        module = self.module.replace(computations=computations, num_partitions=self.partitions, entry_layout=None)
        return PerDevice(module, tuple(parameters), tuple(results))

    def refused(self, instruction: Instruction, why: str, at: str = "opcode") -> UnsupportedOpError:
        where = self.module.locate(instruction, at)
        return UnsupportedOpError(f"{instruction.name} ({instruction.opcode}) in a global module: {why}", where)

    # --- instructions -----------------------------------------------------------------------------------------------

    def instruction(self, old: Instruction, new: Instruction) -> list[State]:
        """Add the per-device form of an instruction; how its leaves are cut."""
        name = _target(old)
        operands = [self.states[o] for o in old.operands]
        if old.op.is_parameter:
            states = self.parameter(old)
            self.rewriter.keep(new.replace(shape=self.shard_shape(old, states)))
            return states
        if name in (GLOBAL_TO_LOCAL, FULL_TO_SHARD):
            return self.enter(old, new, operands)
        if name in (LOCAL_TO_GLOBAL, SHARD_TO_FULL):
            return self.leave(old, new, operands)
        if name in (*SHARDING, BARRIER):
            self.require_stated(old, operands[0])
            self.rewriter.forward(old.name, new.operands[0])
            return operands[0]
        if name == GROUP:
            self.rewriter.keep(new)
            return []
        states = self.computed(old, operands)
        self.rewriter.keep(new.replace(shape=self.shard_shape(old, states)))
        return states

    def parameter(self, parameter: Instruction) -> list[State]:
        """What its annotation says, else what its first user does with it, else the whole on every device."""
        stated = self.stated(parameter, parameter.sharding)
        if all(s is not None for s in stated):
            return stated
        if parameter.shape.is_array:
            pending = [parameter.name]
            for i in self.entry:
                if not any(o in pending for o in i.operands):
                    continue
                name = _target(i)
                if name == GLOBAL_TO_LOCAL:
                    shardings = self.listed(i, "xla.sdy.in_shardings", len(i.operands))
                    return [shardings[i.operands.index(next(o for o in i.operands if o in pending))]]
                if name in SHARDING:
                    if (wanted := self.stated(i, i.sharding)) != [None]:
                        return wanted
                    pending.append(i.name)
        return [s or Shards.whole(leaf.rank, self.partitions) for s, leaf in zip(stated, parameter.shape.leaves())]

    def enter(self, old: Instruction, new: Instruction, operands: list[list[State]]) -> list[State]:
        """Global arrays become each partition's own shards."""
        if _target(old) == GLOBAL_TO_LOCAL:
            self.require_manual(old)
            for have, want in zip(operands, self.listed(old, "xla.sdy.in_shardings", len(operands)), strict=True):
                if have != [want]:
                    raise self.refused(old, "an operand would have to be resharded")
        self.same_shards(old, [s for leaves in operands for s in leaves], old.operands, local=old.shape)
        self.hand_on(old, new)
        return [None for _ in old.shape.leaves()]

    def leave(self, old: Instruction, new: Instruction, operands: list[list[State]]) -> list[State]:
        """Each partition's own shards become global arrays."""
        states: list[State]
        if _target(old) == LOCAL_TO_GLOBAL:
            self.require_manual(old)
            states = list(self.listed(old, "xla.sdy.out_shardings", len(operands)))
        else:
            states = self.stated(old, old.sharding)
            if any(s is None for s in states):
                raise self.refused(old, "it does not say how its result is sharded")
        if any(s is not None for leaves in operands for s in leaves):
            raise self.refused(old, "its operand is no value of a manual region")
        local = self.shard_shape(old, states)
        found = [leaf for o in old.operands for leaf in self.rewriter[self.rewriter.resolve(o)].shape.leaves()]
        if [leaf.without_layout() for leaf in found] != [leaf.without_layout() for leaf in local.leaves()]:
            raise self.refused(old, f"shards of {local} are due, the operands are {', '.join(map(str, found))}")
        self.hand_on(old, new)
        return states

    def hand_on(self, old: Instruction, new: Instruction) -> None:
        """The operands as the result: itself where there is one, a tuple of several."""
        if not old.shape.is_tuple:
            self.rewriter.forward(old.name, new.operands[0])
            return
        shapes = tuple(self.rewriter[o].shape for o in new.operands)
        self.rewriter.keep(
            Instruction(
                old.name, Shape.tuple(shapes), Tuple(), new.operands, metadata=old.metadata, span=old.span,
                attribute_spans=old.attribute_spans,
            )
        )  # fmt: skip

    def computed(self, old: Instruction, operands: list[list[State]]) -> list[State]:
        """Any other instruction: outside of manual regions it may not see shards."""
        op = old.op
        if op.lowering is Lowering.ALIAS:
            return list(op.result_leaves([o.shape for o in self.entry.operands(old)], operands))
        leaves = [s for states in operands for s in states]
        result = list(old.shape.leaves())
        if not any(s is not None and not s.is_whole for s in leaves):
            is_local = bool(leaves) and any(s is None for s in leaves)
            if not is_local and isinstance(op, CollectiveOp):
                raise self.refused(old, "a collective outside of a manual region")
            return [None if is_local else Shards.whole(leaf.rank, self.partitions) for leaf in result]
        dims = {leaf.dims for o in self.entry.operands(old) for leaf in o.shape.leaves()} | {r.dims for r in result}
        is_same = op.is_elementwise or isinstance(op, Copy | Reshape)
        if is_same and len(dims) == 1 and len(set(leaves)) == 1:
            return [leaves[0]] * len(result)
        raise self.refused(
            old,
            "it computes with sharded arrays outside of a manual region, which needs an SPMD partitioner; run the "
            "partitioned module instead",
        )

    # --- shardings --------------------------------------------------------------------------------------------------

    def require_manual(self, call: Instruction) -> None:
        """All axes of the mesh must be manual: what is left to a partitioner, nobody would do."""
        axes = read_manual_axes(call.frontend_attribute("xla.sdy.manual_axes") or "")
        for mesh in self.meshes.values():
            names = {name for name, size in mesh.axes if size > 1}
            if names & axes and names - axes:
                raise self.refused(call, f"only the mesh axes {', '.join(sorted(axes))} are manual")

    def require_stated(self, call: Instruction, have: list[State]) -> None:
        """A sharding that is asked for must be the one that is there."""
        if call.sharding is not None and call.sharding.kind == "manual":
            if any(s is not None for s in have):
                raise self.refused(call, "a global array is called manual")
            return
        for want, state in zip(self.stated(call, call.sharding), have, strict=True):
            if want is not None and want != state:
                raise self.refused(call, "its operand would have to be resharded")

    def same_shards(self, call: Instruction, states: Sequence[State], operands: tuple[str, ...], local: Shape) -> None:
        """The shapes that the text gives to shards must be those of the operands' shards."""
        if any(s is None for s in states):
            raise self.refused(call, "its operand is no global array")
        have = [leaf for o in operands for leaf in self.rewriter[self.rewriter.resolve(o)].shape.leaves()]
        want = list(local.leaves())
        if [s.without_layout() for s in have] != [s.without_layout() for s in want]:
            raise self.refused(call, f"the shards are {', '.join(map(str, have))}, the text says {local}")

    def stated(self, instruction: Instruction, sharding: Sharding | None) -> list[State]:
        """How the instruction says that its leaves are cut; None where it says nothing."""
        leaves = list(instruction.shape.leaves())
        own = instruction.frontend_attribute("xla.sdy.sharding")
        if own is not None and self.meshes:
            found = read_shardings(own, self.meshes, self.partitions)
            if len(found) == len(leaves):
                return list(found)
        if sharding is None or sharding.kind == "unknown":
            return [None] * len(leaves)
        parts = list(sharding.elements) if sharding.kind == "tuple" else [sharding] * len(leaves)
        if len(parts) != len(leaves):
            raise UnreadableSharding(f"a sharding of {len(parts)} parts for {len(leaves)} arrays")
        return [shards_of(part, leaf.rank, self.partitions) for part, leaf in zip(parts, leaves, strict=True)]

    def listed(self, call: Instruction, key: str, count: int) -> list[Shards]:
        try:
            found = read_shardings(call.frontend_attribute(key) or "", self.meshes, self.partitions)
        except UnreadableSharding as error:
            raise self.refused(call, f"{error} cannot be executed", "frontend_attributes") from error
        if len(found) != count:
            raise UnreadableSharding(f"{key} with {len(found)} shardings for {count} arrays")
        return found

    def shard_shape(self, instruction: Instruction, states: Sequence[State]) -> Shape:
        """The instruction's shape with the leaves' shard extents."""
        stream = iter(states)

        def cut(shape: Shape) -> Shape:
            if shape.elements is not None:
                return Shape.tuple(tuple(map(cut, shape.elements)))
            state = next(stream)
            if state is None or not shape.is_array or state.is_whole:
                return shape
            if len(state.tiles) != shape.rank:
                raise UnreadableSharding(f"a sharding of {len(state.tiles)} dimensions for {shape}")
            if any(extent % count for extent, count in zip(shape.dims, state.tiles, strict=True)):
                tiles = " x ".join(map(str, state.tiles))
                raise self.refused(instruction, f"{shape} cannot be cut evenly into {tiles} parts")
            return shape.with_dims(state.shard_dims(shape.dims))

        return cut(instruction.shape)


def shards_of(sharding: Sharding, rank: int, partitions: int) -> Shards:
    """How HLO's sharding cuts an array. UnreadableSharding for those that neither replicate nor cut."""
    if sharding.kind == "replicated":
        return Shards.whole(rank, partitions)
    if sharding.kind == "mesh":
        return read_named_sharding(sharding.text, partitions)
    if sharding.kind != "devices" or any(kind != "replicated" for kind in sharding.last_tile_dims):
        raise UnreadableSharding(f"the sharding {sharding.text}")
    extra = len(sharding.last_tile_dims) + (1 if sharding.replicate_on_last else 0)
    if len(sharding.tile_dims) != rank + extra:
        raise UnreadableSharding(f"the sharding {sharding.text} of an array of rank {rank}")
    if sorted(sharding.devices) != list(range(partitions)):
        raise UnreadableSharding(f"the sharding {sharding.text} over {partitions} partitions")
    places: list[tuple[int, ...]] = [()] * partitions
    for device, place in zip(sharding.devices, product(*map(range, sharding.tile_dims)), strict=True):
        places[device] = place[:rank]
    return Shards(sharding.tile_dims[:rank], tuple(places))
