"""From a global module, as a front end writes it, to the module that every partition runs.

That is possible where the computing is done in manual regions (JAX's shard_map): outside of them arrays are only passed
on, computed whole by every device, or element by element. Anything else needs a partitioner, which distxla is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from distxla.compiler.passes.dead_code import DeadCode
from distxla.compiler.passes.inline_calls import InlineCalls
from distxla.errors import UnsupportedOpError
from distxla.ir.computation import Computation
from distxla.ir.element_type import S32, U32
from distxla.ir.instruction import Instruction
from distxla.ir.literal import Literal
from distxla.ir.mesh import Mesh
from distxla.ir.module import Module
from distxla.ir.op import Lowering
from distxla.ir.shape import Shape
from distxla.ir.sharding import DECLARED_SHARDING, Placement, Sharding
from distxla.ir.shards import GlobalArray, Shards
from distxla.lazy_dataclass import dataclass
from distxla.ops.constant import Constant
from distxla.ops.convert import Convert
from distxla.ops.copy import Copy
from distxla.ops.custom_calls.annotation import (
    ANNOTATIONS,
    BOUNDARIES,
    FULL_TO_SHARD,
    GLOBAL_TO_LOCAL,
    GROUP,
    LOCAL_TO_GLOBAL,
    SHARD_TO_FULL,
)
from distxla.ops.device_id import PartitionId
from distxla.ops.dynamic_slice import DynamicSlice
from distxla.ops.reshape import Reshape
from distxla.ops.support.rewriter import Rewriter
from distxla.ops.tuple import Tuple
from distxla.text.sdy import (
    IN_SHARDINGS,
    OUT_SHARDINGS,
    SHARDING_ATTRIBUTE,
    UnreadableSharding,
    read_manual_axes,
    read_meshes,
    read_shardings,
)

State = Shards | None  # of a leaf: how the global array is cut; None for a value that each partition has for itself


@dataclass(frozen=True)
class PerDevice:
    """module: the program of every partition, num_partitions set.  parameters, results: the global arrays by leaf."""

    module: Module
    parameters: tuple[GlobalArray, ...]
    results: tuple[GlobalArray, ...]


def per_device(module: Module, partitions: int | None = None) -> PerDevice | None:
    """The per-device form of a verified global module; None for a module without manual regions in its entry.

    partitions: where the header doesn't say it; without either it is the size of the mesh or of the shardings.
    Raises UnsupportedOpError, located, for modules that need a partitioner, and for uneven shardings and those that are
    neither replicated nor cut.
    """
    if not has_manual_regions(module):
        return None
    holders = {c.name for c in module.computations if any(i.op.called_target in BOUNDARIES for i in c)}
    if holders != {module.entry}:
        module = InlineCalls().run(module)
        if not any(i.op.called_target in BOUNDARIES for i in module.entry_computation):
            return None
    return _Partitioner(DeadCode().run(module), partitions).run()


def has_manual_regions(module: Module) -> bool:
    """Whether anything in the module marks the border of a manual region."""
    return any(i.op.called_target in BOUNDARIES for c in module.computations for i in c)


def _unannotated(i: Instruction) -> Instruction:
    """The instruction without its shardings, which are true by now."""
    attributes = tuple((key, value) for key, value in i.frontend_attributes if key != SHARDING_ATTRIBUTE)
    if i.sharding is None and len(attributes) == len(i.frontend_attributes):
        return i
    return i.replace(sharding=None, frontend_attributes=attributes)


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
        self.declared: dict[str, Shards] = {}  # of values that leave a manual region

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
                raise self.refused(old, str(error), "sharding") from error
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
        unannotated = tuple(self.stating(_unannotated(i)) for i in finished)
        entry = Computation(finished.name, unannotated, finished.root, finished.execution_thread, finished.span)
        computations = tuple(entry if c.name == entry.name else c for c in self.module.computations)
        module = self.module.replace(computations=computations, num_partitions=self.partitions, entry_layout=None)
        return PerDevice(module, tuple(parameters), tuple(results))

    def stating(self, i: Instruction) -> Instruction:
        """With how the value is cut of which it is a part, where that was said at the border of a manual region."""
        shards = self.declared.get(i.name)
        if shards is None:
            return i
        return i.replace(frontend_attributes=(*i.frontend_attributes, (DECLARED_SHARDING, shards.text)))

    def refused(self, instruction: Instruction, why: str, at: str = "opcode") -> UnsupportedOpError:
        where = self.module.locate(instruction, at)
        return UnsupportedOpError(f"{instruction.name} ({instruction.opcode}) in a global module: {why}", where)

    # --- instructions -----------------------------------------------------------------------------------------------

    def instruction(self, old: Instruction, new: Instruction) -> list[State]:
        """Add the per-device form of an instruction; how its leaves are cut."""
        name = old.op.called_target
        operands = [self.states[o] for o in old.operands]
        if old.op.role.is_parameter:
            states = self.parameter(old)
            self.rewriter.keep(new.replace(shape=self.shard_shape(old, states)))
            return states
        if name in (*ANNOTATIONS, FULL_TO_SHARD, SHARD_TO_FULL) and len(operands) != 1:
            raise self.refused(old, f"it takes one operand, has {len(operands)}")
        if name in (GLOBAL_TO_LOCAL, FULL_TO_SHARD):
            return self.enter(old, new, operands)
        if name in (LOCAL_TO_GLOBAL, SHARD_TO_FULL):
            return self.leave(old, new, operands)
        if name in ANNOTATIONS:
            return self.annotated(old, new, operands[0])
        if name == GROUP:
            if any(old.shape.leaves()):
                raise self.refused(old, f"it has a result, {old.shape}")
            self.rewriter.keep(new)
            return []
        return self.computed(old, new, operands)

    def cut(self, origin: Instruction, name: str, shards: Shards) -> str:
        """Add instructions that cut a partition's shard out of an array that every partition holds whole; its name."""
        whole = self.rewriter[name].shape.without_layout()
        if not whole.is_array or whole.is_dynamic or whole.rank != len(shards.tiles):
            raise self.refused(origin, f"{whole} cannot be cut in {len(shards.tiles)} dimensions")
        sizes = shards.shard_dims(whole.dims)
        if any(dimension_size % count for dimension_size, count in zip(whole.dims, shards.tiles, strict=True)):
            raise self.refused(origin, f"{whole} cannot be cut evenly")
        add, index = self.rewriter.add, Shape(S32)
        number = add(origin, Convert(), index, (add(origin, PartitionId(), Shape(U32), ()).name,)).name
        starts = []
        for d, size in enumerate(sizes):
            table = Literal.of([place[d] * size for place in shards.places], Shape(S32, (self.partitions,)))
            all_starts = add(origin, Constant(literal=table), table.shape, ()).name
            one = add(origin, DynamicSlice(dynamic_slice_sizes=(1,)), Shape(S32, (1,)), (all_starts, number)).name
            starts.append(add(origin, Reshape(), index, (one,)).name)
        shard = DynamicSlice(dynamic_slice_sizes=sizes)
        return add(origin, shard, whole.with_dims(sizes), (name, *starts)).name

    def fitted(self, old: Instruction, name: str, have: State, want: State) -> str:
        """The array cut as it is wanted; refused where that would move data between partitions."""
        if want is None or have == want:
            return name
        if have is None or not have.is_whole:
            raise self.refused(old, "its operand would have to be resharded")
        return self.cut(old, name, want)

    def parameter(self, parameter: Instruction) -> list[State]:
        """The sharding of its annotation, else that of its first user, else the whole on every device."""
        stated = self.stated(parameter, parameter.sharding)
        if all(s is not None for s in stated):
            return stated
        if parameter.shape.is_array:
            pending = [parameter.name]
            for i in self.entry:
                if not any(o in pending for o in i.operands):
                    continue
                name = i.op.called_target
                if name == GLOBAL_TO_LOCAL:
                    shardings = self.listed(i, IN_SHARDINGS, len(i.operands))
                    return [shardings[i.operands.index(next(o for o in i.operands if o in pending))]]
                if name in ANNOTATIONS:
                    if (wanted := self.stated(i, i.sharding)) != [None]:
                        return wanted
                    pending.append(i.name)
        return [s or Shards.whole(leaf.rank, self.partitions) for s, leaf in zip(stated, parameter.shape.leaves())]

    def enter(self, old: Instruction, new: Instruction, operands: list[list[State]]) -> list[State]:
        """Global arrays become each partition's own shards."""
        if old.op.called_target == GLOBAL_TO_LOCAL:
            self.require_manual(old)
            shardings = self.listed(old, IN_SHARDINGS, len(operands))
            names = []
            for name, have, want in zip(new.operands, operands, shardings, strict=True):
                if len(have) != 1 or have[0] is None:
                    raise self.refused(old, "its operand is no global array")
                names.append(self.fitted(old, name, have[0], want))
            new = new.replace(operands=tuple(names))
        elif any(s is None for leaves in operands for s in leaves):
            raise self.refused(old, "its operand is no global array")
        self.require_shards(old, new, old.shape)
        self.hand_on(old, new)
        return [None for _ in old.shape.leaves()]

    def leave(self, old: Instruction, new: Instruction, operands: list[list[State]]) -> list[State]:
        """Each partition's own shards become global arrays."""
        states: list[State]
        if old.op.called_target == LOCAL_TO_GLOBAL:
            self.require_manual(old)
            states = list(self.listed(old, OUT_SHARDINGS, len(operands)))
        else:
            states = self.stated(old, old.sharding)
            if any(s is None for s in states):
                raise self.refused(old, "it does not say how its result is sharded")
        if len(states) != len(list(old.shape.leaves())):
            raise self.refused(old, f"it has {len(states)} operands for a result {old.shape}")
        if any(s is not None and not s.is_whole for leaves in operands for s in leaves):
            raise self.refused(old, "its operand is no value of a manual region")
        self.require_shards(old, new, self.shard_shape(old, states))
        for operand, state in zip(new.operands, states):
            if state is not None and self.rewriter[operand].shape.is_array:
                self.declared.setdefault(operand, state)
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

    def computed(self, old: Instruction, new: Instruction, operands: list[list[State]]) -> list[State]:
        """Any other instruction: outside of manual regions it may see shards only to treat each element for itself."""
        op = old.op
        states: list[State]
        if op.lowering is Lowering.ALIAS:
            states = list(op.result_leaves([o.shape for o in self.entry.operands(old)], operands))
            self.rewriter.keep(new.replace(shape=self.shard_shape(old, states)))
            return states
        leaves = [s for each in operands for s in each]
        result = list(old.shape.leaves())
        cuts = {s for s in leaves if s is not None and not s.is_whole}
        if not cuts:
            is_local = op.is_collective or op.role.is_device_id or any(s is None for s in leaves)
            self.rewriter.keep(new)
            return [None if is_local else Shards.whole(leaf.rank, self.partitions) for leaf in result]
        dims = {leaf.dims for o in self.entry.operands(old) for leaf in o.shape.leaves()} | {r.dims for r in result}
        is_same = op.elements.is_elementwise or isinstance(op, Copy | Reshape)
        if is_same and len(dims) == 1 and len(cuts) == 1 and None not in leaves:
            (cut,) = cuts
            names = tuple(
                self.cut(new, name, cut) if state != cut else name
                for name, (state,) in zip(new.operands, operands, strict=True)
            )
            states = [cut] * len(result)
            self.rewriter.keep(new.replace(operands=names, shape=self.shard_shape(old, states)))
            return states
        raise self.refused(
            old,
            "it computes with sharded arrays outside of a manual region, which needs an SPMD partitioner; run the "
            "partitioned module instead",
        )

    # --- shardings --------------------------------------------------------------------------------------------------

    def require_manual(self, call: Instruction) -> None:
        """All axes of the mesh must be manual: the others would need a partitioner."""
        axes = read_manual_axes(call.frontend_attribute("xla.sdy.manual_axes") or "")
        for mesh in self.meshes.values():
            names = {name for name, size in mesh.axes if size > 1}
            if names & axes and names - axes:
                raise self.refused(call, f"only the mesh axes {', '.join(sorted(axes))} are manual")

    def annotated(self, old: Instruction, new: Instruction, have: list[State]) -> list[State]:
        """A call that says how its operand is cut, or is to be."""
        operand = self.entry[old.operands[0]].shape
        if not operand.compatible(old.shape):
            raise self.refused(old, f"its operand is {operand}, its result {old.shape}")
        if old.sharding is not None and old.sharding.kind == "manual":
            if any(s is not None and not s.is_whole for s in have):
                raise self.refused(old, "a global array is called manual")
            self.rewriter.forward(old.name, new.operands[0])
            return have
        wanted = self.stated(old, old.sharding)
        if len(have) != 1:
            if any(want is not None and want != state for want, state in zip(wanted, have, strict=True)):
                raise self.refused(old, "its operand would have to be resharded")
            self.rewriter.forward(old.name, new.operands[0])
            return have
        self.rewriter.forward(old.name, self.fitted(old, new.operands[0], have[0], wanted[0]))
        return [wanted[0] or have[0]]

    def require_shards(self, old: Instruction, new: Instruction, local: Shape) -> None:
        """The operands that are now must have the shapes that the text gives to shards."""
        have = [leaf.without_layout() for o in new.operands for leaf in self.rewriter[o].shape.leaves()]
        if have != [leaf.without_layout() for leaf in local.leaves()]:
            raise self.refused(old, f"shards of {local} are due, the operands are {', '.join(map(str, have))}")

    def stated(self, instruction: Instruction, sharding: Sharding | None) -> list[State]:
        """How the instruction says that its leaves are cut; None where it says nothing."""
        try:
            return self.read(instruction, sharding)
        except UnreadableSharding as error:
            raise self.refused(instruction, str(error), "sharding") from error

    def read(self, instruction: Instruction, sharding: Sharding | None) -> list[State]:
        """`stated`, raising UnreadableSharding."""
        leaves = list(instruction.shape.leaves())
        own = instruction.frontend_attribute(SHARDING_ATTRIBUTE)
        if own is not None and self.meshes:
            found = read_shardings(own, self.meshes)
            if len(found) == len(leaves):
                return [shards_of(one, leaf.rank, self.partitions) for one, leaf in zip(found, leaves, strict=True)]
        if sharding is None or sharding.kind == "unknown":
            return [None] * len(leaves)
        parts = list(sharding.elements) if sharding.kind == "tuple" else [sharding] * len(leaves)
        if len(parts) != len(leaves):
            raise UnreadableSharding(f"a sharding of {len(parts)} parts for {len(leaves)} arrays")
        return [shards_of(part, leaf.rank, self.partitions) for part, leaf in zip(parts, leaves, strict=True)]

    def listed(self, call: Instruction, key: str, count: int) -> list[Shards]:
        try:
            shardings = read_shardings(call.frontend_attribute(key) or "", self.meshes)
            found = [shards_of(sharding, len(sharding.tiles), self.partitions) for sharding in shardings]
        except UnreadableSharding as error:
            raise self.refused(call, str(error), "frontend_attributes") from error
        if len(found) != count:
            raise UnreadableSharding(f"{key} with {len(found)} shardings for {count} arrays")
        return found

    def shard_shape(self, instruction: Instruction, states: Sequence[State]) -> Shape:
        """The instruction's shape with the leaves' shard dimension sizes."""
        stream = iter(states)

        def cut(shape: Shape) -> Shape:
            if shape.elements is not None:
                return Shape.tuple(tuple(map(cut, shape.elements)))
            state = next(stream)
            if state is None or not shape.is_array:
                return shape
            if len(state.tiles) != shape.rank:
                raise UnreadableSharding(f"a sharding of {len(state.tiles)} dimensions for {shape}")
            if state.is_whole:
                return shape
            if shape.is_dynamic:
                raise self.refused(instruction, f"the dynamic shape {shape} cannot be cut")
            if any(dimension_size % count for dimension_size, count in zip(shape.dims, state.tiles, strict=True)):
                tiles = " x ".join(map(str, state.tiles))
                raise self.refused(instruction, f"{shape} cannot be cut evenly into {tiles} parts")
            return shape.with_dims(state.shard_dims(shape.dims))

        return cut(instruction.shape)


def shards_of(sharding: Sharding, rank: int, partitions: int) -> Shards:
    """How a sharding cuts an array. UnreadableSharding for those that neither replicate nor cut."""
    if sharding.placement is Placement.WHOLE:
        return Shards.whole(rank, partitions)
    if sharding.placement is not Placement.TILED or any(kind != "replicated" for kind in sharding.last_tile_dims):
        raise UnreadableSharding(f"the sharding {sharding.text} cannot be executed")
    if len(sharding.tiles) != rank:
        raise UnreadableSharding(f"the sharding {sharding.text} is none of an array of rank {rank}")
    if sorted(sharding.devices) != list(range(partitions)):
        size = len(sharding.devices)
        raise UnreadableSharding(
            f"the sharding {sharding.text} is over {size} devices where there are {partitions} partitions"
        )
    places: list[tuple[int, ...]] = [()] * partitions
    for device, place in zip(sharding.devices, product(*map(range, sharding.tile_dims)), strict=True):
        places[device] = place[:rank]
    return Shards(sharding.tiles, tuple(places))
