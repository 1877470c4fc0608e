"""`Recorder`: the instructions of one computation as they are added, each checked when it is."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from inspect import signature
from typing import Any, Self, TypeAlias

from distxla.builder.accepted_values import ShapeLike, as_integer, as_literal, as_sequence, as_shape, as_word
from distxla.builder.blame import broken_rule
from distxla.builder.call_site import CallSite, call_site, shown
from distxla.builder.xla_op import OperandLike, XlaOp
from distxla.errors import HloSyntaxError, VerificationError
from distxla.ir.computation import Computation
from distxla.ir.counts import Counts
from distxla.ir.element_type import ELEMENT_TYPES, ElementType
from distxla.ir.instruction import Instruction, Metadata
from distxla.ir.literal import Literal
from distxla.ir.module import Module
from distxla.ir.op import Op, RuleViolation
from distxla.ir.shape import ProgramShape, Shape
from distxla.ir.sharding import Sharding
from distxla.ir.structure import Structure
from distxla.lazy_dataclass import dataclass, replace
from distxla.ops.constant import Constant
from distxla.ops.parameter import Parameter
from distxla.ops.support.collective import GroupedCollective
from distxla.ops.support.executable import CollectiveOp
from distxla.ops.support.one_device_groups import warn_of_one_device_groups
from distxla.ops.support.sharding_rules import check_sharding
from distxla.ops.tuple import Tuple
from distxla.text.lexer import Lexer
from distxla.text.shardings import read_sharding

# A computation: a result of `build`, a builder that is built now, or a Python function that is run once on parameters.
ComputationLike: TypeAlias = "Module | Recorder | Callable[..., Any]"

# Words that XLA's text does not take for names.
_KEYWORDS = frozenset(
    {
        *ELEMENT_TYPES,
        *("tuple", "true", "false", "inf", "nan", "HloModule", "ENTRY", "ROOT"),
        *("FileNames", "FunctionNames", "FileLocations", "StackFrames"),
        *("maximal", "replicated", "manual", "unknown", "unreduced"),
        *("last_tile_dim_replicate", "shard_as", "shard_like"),
    }
)
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.\-]")


class Names:
    """Names of HLO text, each given once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def unique(self, wanted: str) -> str:
        """`wanted`, made a legal name, or with a number behind it where that is taken."""
        name = stem = legal_name(wanted)
        while name in self._taken:
            self._next[stem] = self._next.get(stem, 0) + 1
            name = f"{stem}.{self._next[stem]}"
        self._taken.add(name)
        return name


def legal_name(wanted: str) -> str:
    """A name that HLO text takes: letters, digits, `_`, `.` and `-`, not beginning with a digit, and no keyword."""
    name = _NOT_IN_NAMES.sub("_", wanted) or "_"
    name = name if name[0].isalpha() or name[0] == "_" else f"_{name}"
    return f"{name}_" if name in _KEYWORDS else name


@dataclass(frozen=True)
class Annotations:
    """The metadata and attributes that every added instruction gets at the moment."""

    scope: str
    sharding: Sharding | None = None
    frontend_attributes: tuple[tuple[str, str], ...] = ()


class Recorder:
    """Common to the families of operations that make up `XlaBuilder`: adding, checking, annotating."""

    _aliases: Sequence[str] = ()
    _donors: Sequence[str] = ()

    def __init__(self, name: str, *, replica_count: int | None = None, num_partitions: int | None = None) -> None:
        self.name = legal_name(as_word(name, "name"))
        self.replica_count = replica_count
        self.num_partitions = num_partitions
        self._annotations = Annotations(self.name)
        self._instructions: list[Instruction] = []
        self._names = Names()
        self._parameters: dict[int, CallSite] = {}
        self._computations: dict[str, Computation] = {}
        self._computation_names = Names()
        self._computation_names.unique(self.name)
        self._imported: dict[int, tuple[Module, str]] = {}
        self._is_called = False  # by another computation, whose builder tells what is to be told
        self._shared: dict[Any, str] = {}
        for count, argument in ((replica_count, "replica_count"), (num_partitions, "num_partitions")):
            if count is not None and as_integer(count, argument) < 1:
                raise broken_rule(f"argument: {argument}={count} must be positive", argument)

    def create_sub_builder(self, name: str) -> Self:
        """A builder for a computation that this one will call."""
        inner = type(self)(name, replica_count=self.replica_count, num_partitions=self.num_partitions)
        inner._annotations = Annotations(f"{self._annotations.scope}/{inner.name}")
        inner._is_called = True
        return inner

    # --- instructions -----------------------------------------------------------------------------------------------

    def _add(
        self,
        op: Op,
        operands: Sequence[XlaOp] = (),
        shape: Shape | None = None,
        *,
        name: str | None = None,
        frontend_attributes: Sequence[tuple[str, str]] = (),
        backend_config: str | None = None,
    ) -> XlaOp:
        """Add an instruction after checking it.

        shape: the result's where the op cannot infer it.  Raises VerificationError at the caller's line.
        """
        for operand in operands:
            self._check_own(operand)
        site = call_site()
        shapes = [operand.shape for operand in operands]
        shape = self._verified(op, shapes, shape)
        annotations = self._annotations
        if annotations.sharding is not None:
            try:
                check_sharding(annotations.sharding, shape, self.num_partitions)
            except RuleViolation as violation:
                raise broken_rule(violation.message, violation.at) from None
        instruction = Instruction(
            self._names.unique(name or f"{op.opcode}.{len(self._instructions)}"),
            shape,
            op,
            tuple(operand.name for operand in operands),
            sharding=annotations.sharding,
            metadata=site.metadata(annotations.scope),
            frontend_attributes=tuple({**dict(annotations.frontend_attributes), **dict(frontend_attributes)}.items()),
            backend_config=backend_config,
        )
        self._instructions.append(instruction)
        if isinstance(op, Parameter):
            self._parameters[op.number] = site
        return self._result(instruction)

    @abstractmethod
    def _result(self, instruction: Instruction) -> XlaOp:
        """The value that represents an instruction's result."""

    def parameter(self, number: int, shape: ShapeLike, name: str | None = None) -> XlaOp:
        """Argument `number` of the computation, from 0; each number once."""
        which = as_integer(number, "number")
        if which in self._parameters:
            raise broken_rule(f"parameter.number: parameter {which} exists already", "number")
        wanted = f"p{which}" if name is None else as_word(name, "name")
        return self._add(Parameter(number=which), (), as_shape(shape), name=wanted)

    def _verified(self, op: Op, operands: Sequence[Shape], shape: Shape | None) -> Shape:
        """The result's shape once all rules of the op hold, those of its groups included where the counts are known."""
        if not op.operand_count.allows(len(operands)):
            raise broken_rule(f"{op.opcode}.operands: takes {op.operand_count} operands, has {len(operands)}")
        try:
            stated = shape
            if shape is None:
                shape = op.inferred_result(operands, self._called)
                if shape is None:
                    raise RuleViolation(f"{op.opcode}.shape: the result depends on the number of devices", "shape")
            if stated is not None or type(op).verify is not Op.verify:  # that one would only infer once more
                op.verify(shape, operands, self._called)
            if isinstance(op, CollectiveOp) and self.replica_count is not None and self.num_partitions is not None:
                groups = op.device_groups(Counts(self.replica_count, self.num_partitions))
                if isinstance(op, GroupedCollective):
                    for size in sorted({len(group) for group in groups}):
                        op.check_size(shape, operands, size)
        except RuleViolation as violation:
            raise broken_rule(violation.message, violation.at) from None
        return shape

    def _called(self, name: str) -> ProgramShape:
        return self._computations[name].program_shape

    # --- operands ---------------------------------------------------------------------------------------------------

    def _operand(self, value: OperandLike, like: ElementType | None = None) -> XlaOp:
        """An operand of this builder; anything else becomes a constant, numbers of Python of type `like`."""
        if isinstance(value, XlaOp):
            self._check_own(value)
            return value
        return self._constant(as_literal(value, None, like))

    def _operands(self, values: Sequence[OperandLike], argument: str) -> list[XlaOp]:
        """At least one operand, from a sequence of them."""
        if not as_sequence(values, argument):
            raise broken_rule(f"argument: {argument} must hold at least one operand", argument)
        return [self._operand(value) for value in values]

    def _value(self, value: Any) -> XlaOp:
        """Like `_operand`, but a tuple of Python becomes a tuple, and so does a list that holds operands."""
        if isinstance(value, tuple) or (isinstance(value, list) and any(isinstance(v, XlaOp) for v in value)):
            return self._add(Tuple(), [self._value(element) for element in value])
        return self._operand(value)

    def _constant(self, literal: Literal) -> XlaOp:
        return self._add(Constant(literal=literal), (), literal.shape)

    def _check_own(self, operand: XlaOp) -> None:
        if not isinstance(operand, XlaOp):
            raise broken_rule(f"operand: {shown(operand)} is no value of a builder", culprits=[operand])
        mine: object = self
        if operand.builder is not mine:
            raise broken_rule(
                f"operand: {operand.name} belongs to the builder {operand.builder.name}, not to {self.name}; pass it "
                "to the computation as an argument",
                culprits=[operand],
            )

    def _array(self, value: OperandLike, like: ElementType | None = None) -> XlaOp:
        """An operand that is an array."""
        operand = self._operand(value, like)
        if not operand.shape.is_array:
            raise broken_rule(f"operand: {operand.name} is {operand.shape}, not an array", culprits=[value])
        return operand

    # --- computations -----------------------------------------------------------------------------------------------

    def _computation(self, value: ComputationLike, parameters: Sequence[Shape], argument: str) -> str:
        """The name, in this module, of a computation that was given as an argument.

        parameters: shapes of a Python function's arguments.  The op that calls it checks its signature.
        """
        if isinstance(value, Module):
            return self._import(value)
        if isinstance(value, Recorder):
            if value is self:
                raise broken_rule(f"computation: {self.name} cannot call itself", argument)
            return self._import(value.build())
        if not callable(value):
            raise broken_rule(
                f"computation: {argument} must be a module, a builder or a function, not {shown(value)}", argument
            )
        return self._import(self._traced(value, parameters))

    def _traced(self, function: Callable[..., Any], parameters: Sequence[Shape]) -> Module:
        """The computation of a Python function on parameters of these shapes."""
        name = getattr(function, "__name__", type(function).__name__)
        inner = self.create_sub_builder("lambda" if name == "<lambda>" else name)
        with suppress(ValueError):  # where Python does not know the signature
            try:
                signature(function).bind(*parameters)
            except TypeError as error:
                raise broken_rule(
                    f"computation: {name} is called with {len(parameters)} arguments: {error}", culprits=[function]
                ) from None
        operands = [inner.parameter(k, shape.without_layout(), f"p{k}") for k, shape in enumerate(parameters)]
        return inner.build(inner._value(function(*operands)))

    def _import(self, module: Module) -> str:
        """Copy a module's computations into this one, once; the name of its entry here.

        Computations of scalars that do the same are shared: every sum of a program has one `add`.
        """
        if id(module) in self._imported:
            return self._imported[id(module)][1]
        key = shared_key(module)
        if key is not None and key in self._shared:
            return self._shared[key]
        names = {c.name: self._computation_names.unique(c.name) for c in module.computations}
        for computation in copied_computations(module, names):
            self._computations[computation.name] = computation
        entry = names[module.entry]
        self._imported[id(module)] = module, entry
        if key is not None:
            self._shared[key] = entry
        return entry

    # --- the module -------------------------------------------------------------------------------------------------

    def build(self, root: XlaOp | None = None) -> Module:
        """The module whose entry computes `root`, by default the value that was added last.

        Raises VerificationError where the parameters are not numbered from 0 without a gap. Gives a DistxlaWarning
        where a collective's groups have one device each; a count that isn't stated is 1. The builder can go on, and
        build again.
        """
        entry = self._computation_of(root)
        header = []
        for name, entries in (("input_output_alias", self._aliases), ("buffer_donor", self._donors)):
            if entries:
                header.append((name, "{ " + ", ".join(entries) + " }"))
        module = Module(
            self.name,
            (*self._computations.values(), entry),
            entry.name,
            replica_count=self.replica_count,
            num_partitions=self.num_partitions,
            header=tuple(header),
        )
        if not self._is_called:
            warn_of_one_device_groups(module, Counts(self.replica_count or 1, self.num_partitions or 1))
        return module

    def _computation_of(self, root: Any) -> Computation:
        if root is None and not self._instructions:
            raise broken_rule(f"build: {self.name} has no instructions")
        if root is not None and not isinstance(root, XlaOp):
            raise broken_rule(f"build: {root!r} is no value of a builder", "root")
        if root is not None:
            self._check_own(root)
        for due, number in enumerate(sorted(self._parameters)):
            if due != number:
                raise VerificationError(
                    f"parameter.number: the parameters of {self.name} must be numbered from 0 without a gap; "
                    f"{number} comes where {due} is due",
                    self._parameters[number].location(),
                )
        name = self._instructions[-1].name if root is None else root.name
        return Computation(self.name, tuple(self._instructions), name)

    # --- annotations ------------------------------------------------------------------------------------------------

    def set_sharding(self, sharding: str | Sharding | None) -> None:
        """The sharding of all instructions from here on: HLO text such as `{devices=[2,1]<=[2]}`; None for none."""
        self._annotations = replace(self._annotations, sharding=_as_sharding(sharding))

    def clear_sharding(self) -> None:
        """No sharding from here on."""
        self.set_sharding(None)

    def set_frontend_attributes(self, attributes: Mapping[str, str]) -> None:
        """The frontend attributes of all instructions from here on; {} for none."""
        if not isinstance(attributes, Mapping):
            raise broken_rule(f"argument: attributes must be a mapping, not {shown(attributes)}", "attributes")
        items = tuple((as_word(key, "attributes"), as_word(value, "attributes")) for key, value in attributes.items())
        self._annotations = replace(self._annotations, frontend_attributes=items)

    def sharding(self, sharding: str | Sharding | None) -> AbstractContextManager[None]:
        """`with builder.sharding("{replicated}"):` annotates the instructions that are added inside."""
        return self._annotated(sharding=_as_sharding(sharding))

    def frontend_attributes(self, **attributes: str) -> AbstractContextManager[None]:
        """Adds to the frontend attributes of the instructions that are added inside."""
        return self._annotated(
            frontend_attributes=tuple({**dict(self._annotations.frontend_attributes), **attributes}.items())
        )

    def name_scope(self, name: str) -> AbstractContextManager[None]:
        """The instructions that are added inside have `.../name/method` as their op_name."""
        return self._annotated(scope=f"{self._annotations.scope}/{name}")

    @contextmanager
    def _annotated(self, **changes: Any) -> Iterator[None]:
        before = {name: getattr(self._annotations, name) for name in changes}
        self._annotations = replace(self._annotations, **changes)
        try:
            yield
        finally:
            self._annotations = replace(self._annotations, **before)


def _as_sharding(value: str | Sharding | None) -> Sharding | None:
    if not isinstance(value, str):
        return value
    lexer = Lexer(value)
    try:
        sharding = read_sharding(lexer)
        if not lexer.at_end():
            raise lexer.expected("the end of the sharding")
    except HloSyntaxError as error:
        raise broken_rule(f"sharding: {value!r} is none: {error.message}", "sharding") from None
    return sharding


def copied_computations(module: Module, names: Mapping[str, str]) -> Iterator[Computation]:
    """The module's computations, called ones first, under new names; metadata no longer needs the module's tables."""
    for computation in module.computations:
        instructions = tuple(
            instruction.replace(
                op=instruction.op.rename_computations(names.__getitem__),
                metadata=_resolved(module, instruction.metadata),
            )
            for instruction in computation
        )
        yield Computation(names[computation.name], instructions, computation.root, computation.execution_thread)


def _resolved(module: Module, metadata: Metadata | None) -> Metadata | None:
    """The file and the line in place of a reference to the module's stack frames."""
    if metadata is None or metadata.get("stack_frame_id") is None:
        return metadata
    fields = [(key, value) for key, value in metadata.fields if key != "stack_frame_id"]
    tables = module.frames
    frame = dict(tables.stack_frames).get(metadata.get("stack_frame_id"))
    row = dict(tables.file_locations).get(frame.file_location_id) if frame is not None else None
    file = dict(tables.file_names).get(row.file_name_id) if row is not None else None
    if row is not None and file is not None:
        fields += [("source_file", file), ("source_line", row.line)]
    return Metadata(tuple(fields))


def shared_key(module: Module) -> Hashable | None:
    """Equal for computations of scalars that differ in names and places only; None for any other computation."""
    computation = module.entry_computation
    scalars = all(leaf.is_array and leaf.rank == 0 for i in computation for leaf in i.shape.leaves())
    if not scalars or any(i.op.called_computations or i.sharding or i.frontend_attributes for i in computation):
        return None
    return Structure(module).key(computation)
