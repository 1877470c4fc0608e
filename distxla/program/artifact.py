"""The compiler's result for the runtime: one image for all devices that run the module."""

from __future__ import annotations

from collections.abc import Sequence

from distxla.collectives.protocols.channel import DIRECTORY_KEY
from distxla.ir.counts import Counts
from distxla.ir.element_type import ElementType
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.ir.stream_key import StreamKey
from distxla.lazy_dataclass import dataclass, field, replace
from distxla.location import Location
from distxla.program.channel_end import End
from distxla.program.image import Image
from distxla.program.options import InPlace
from distxla.program.watch_report import WatchReport
from distxla.program.work_table import RoundWork

NOTHING = Shape.tuple(())


@dataclass(frozen=True)
class HostRoutine:
    """The interface of a site that calls a routine of the replica: the custom-call target, the operands' shapes, the
    result's.

    interface: the api_version of a C function, "" for Python.  config: its attributes or opaque text.  aliases:
    (result, operand) of leaves at one address.
    """

    target: str
    operands: tuple[Shape, ...]
    result: Shape
    interface: str = ""
    config: str | None = None
    aliases: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class EnclosingLoop:
    """A while around a communicating instruction."""

    instruction: str
    computation: str
    location: Location | None


@dataclass(frozen=True)
class Site:
    """One instruction of the compiled program that goes through the context's table; reports name it.

    communicator: number of its communicator; -1 for a call of Python, described by `routine`.  item: the shape of one
    item that it gives to the host or takes from it.
    shares: results may live once for the group (abi: the results' table has a second half).
    facets: (name, text) of the facets that members of a round must agree on (collectives/signature.py), for reports.
    loops: around it, outermost first; the device's record counts the iterations (control_block.R_ITERATIONS).
    sends, receives, completes, peer_action: the op's properties (ir/op.py); completes: whether it completes another.
    rounds: that it begins, in every size of group of more than one device; for proxies.
    on_device: the arrays are in the memory of the kernels, and devices of other hosts can't take part.
    """

    index: int
    instruction: str
    opcode: str
    computation: str
    communicator: int
    location: Location | None
    routine: HostRoutine | None = None
    item: Shape | None = None
    shares: bool = False
    facets: tuple[tuple[str, str], ...] = ()
    loops: tuple[EnclosingLoop, ...] = ()
    sends: bool = False
    receives: bool = False
    completes: bool = False
    peer_action: str = ""
    rounds: tuple[RoundWork, ...] = field(default=(), repr=False)
    on_device: bool = False


@dataclass(frozen=True, slots=True)
class StepOrigin:
    """The instruction that a step computes, and where it comes from: an instruction of the module that was compiled,
    by computation and name, "" where none is known.

    kind: of the step: "kernel", "copy", "loop", "branch", "routine" for a computation that is called, or "call"
    of a function in the context's table.
    """

    instruction: str
    opcode: str
    computation: str = ""
    origin: str = ""
    kind: str = "kernel"


ANY_POINT = "*"  # among wanted points: all communicating instructions


@dataclass(frozen=True)
class InjectionPoint:
    """A step at which faults can be injected. names: of the instructions of the text that it executes."""

    names: tuple[str, ...]
    communicates: bool


@dataclass(frozen=True)
class CommunicatorSpec:
    """Ordered groups of flattened device ids that act together, and the bytes of shared state a group needs.

    state_bytes: by position in `groups`. Programs of one run that name the same `key` share the state.
    silent: devices whose operands go nowhere and that get zeros, each in a group of its own.
    pairs: (source, target) as flattened ids where members act in pairs; the groups are then those joined by pairs.
    stream: which stream between device and host it is; each device is then a group of its own.
    channel: the transfer attributes of a send or recv; each device is then a group of its own.
    common_key: replaces `key` between programs, whose lists of groups may differ elsewhere; "" if `key` does.
    """

    key: str
    groups: tuple[tuple[int, ...], ...]
    state_bytes: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...] = ()
    silent: tuple[int, ...] = ()
    stream: StreamKey | None = None
    channel: End | None = None
    common_key: str = ""

    @property
    def of_channels(self) -> bool:
        """Whether it is of sends and recvs or of their ends, not of rounds."""
        return self.channel is not None or self.key == DIRECTORY_KEY


@dataclass(frozen=True)
class SharedArena:
    """Memory that the members of a group have in common, on each host.

    groups: ordered groups of flattened device ids; each has `bytes` of its own.
    """

    groups: tuple[tuple[int, ...], ...]
    bytes: int


@dataclass(frozen=True)
class Launch:
    """One launch of the function `symbol` on a grid: `blocks` blocks of `threads` threads.

    blocks: the most that have work; a launch with fewer is right, too, since blocks walk on in steps of their number.
    """

    symbol: str
    blocks: int
    threads: int

    def __str__(self) -> str:
        return f"{self.symbol}<<<{self.blocks}, {self.threads}>>>"


@dataclass(frozen=True)
class ImportedKernel:
    """A kernel that the target runs itself. symbol: of the import.  operands: their shapes, tuples unflattened."""

    symbol: str
    instruction: Instruction
    operands: tuple[Shape, ...]


@dataclass(frozen=True)
class Factor:
    """Matrices of a MatrixProduct: where they are, and their strides in elements.

    array: the number among the kernel's operands and results; None: in the scratch memory.  offset: of the first
    element, in bytes.
    """

    element_type: ElementType
    array: int | None
    offset: int
    batch: int
    row: int
    column: int


@dataclass(frozen=True)
class MatrixProduct:
    """Launches of a kernel that a library may replace: c[i,m,n] = sum over k of a[i,m,k] * b[i,k,n].

    first, count: which launches, by their positions.  shape: batch, rows of c, columns of c, terms.  a, b: rows or
    columns have neighbours side by side; c: columns have.
    """

    first: int
    count: int
    shape: tuple[int, int, int, int]
    a: Factor
    b: Factor
    c: Factor


@dataclass(frozen=True)
class LaunchedKernel:
    """A kernel on a grid. launches: of which it consists, one after the other.  scratch_bytes: of working memory that
    they need together, which the target allocates.  products: what some of them compute, in their order."""

    launches: tuple[Launch, ...]
    scratch_bytes: int
    products: tuple[MatrixProduct, ...] = ()


@dataclass(frozen=True)
class GridCode:
    """What a target's loader needs for kernels on a grid; empty where there are none.

    launched: their launches are numbered in this order.  launching: name and opcode of the instruction of each step
    that launches some, by its number.  device_code: as the loader wants it.
    """

    launched: tuple[LaunchedKernel, ...] = ()
    launching: tuple[tuple[str, str], ...] = ()
    device_code: object = None


@dataclass(frozen=True)
class DebugTables:
    """What only the driver's reports and checks read: replicas get none.

    timings: seconds by stage.  steps: the meanings of the numbers in a device's record.  watch: where the program notes
    where NaN and Inf come from; None unless it was compiled for that.
    """

    timings: dict[str, float] = field(default_factory=dict)
    steps: tuple[StepOrigin, ...] = ()
    watch: WatchReport | None = None


@dataclass(frozen=True)
class CompiledProgram:
    """What the compiler makes of a module: code for all devices of a run, and what the runtime has to know of it.

    image: what replicas map.  target: by name, of the image.

    parameters and result: the entry's shapes; arguments and results travel as their leaves in depth-first order, padded
    to their bounds, and then the dimension sizes of their dynamic dimensions.
    arena_bytes: working memory a device needs.  shared: arenas of groups together, in the order of `Context.shared`.
    points: where faults can be injected, by number; none in a program that wasn't compiled for that.
    in_place: (result leaf, parameter leaf) that may have the same memory in a call, the argument's, which is lost then.
    copied: the results of these for which the program copies the parameter, where both have places of their own.
    kernels: those that the target runs itself.  module: with the computations that these call.
    assignment: of a program that is bound to devices of a larger run, those by its own flattened ids; else both are the
    same.
    """

    name: str
    image: Image = field(repr=False)
    counts: Counts
    target: str
    parameters: tuple[Shape, ...] = ()
    result: Shape = NOTHING
    arena_bytes: int = 0
    sites: tuple[Site, ...] = ()
    communicators: tuple[CommunicatorSpec, ...] = ()
    shared: tuple[SharedArena, ...] = ()
    points: tuple[InjectionPoint, ...] = ()
    in_place: InPlace = ()
    copied: tuple[int, ...] = ()
    kernels: tuple[ImportedKernel, ...] = field(default=(), repr=False)
    module: Module | None = field(default=None, repr=False)
    grid: GridCode = field(default=GridCode(), repr=False)
    debug: DebugTables = field(default_factory=DebugTables, repr=False)
    assignment: tuple[int, ...] | None = None

    def logical(self, device: int) -> int:
        """The program's flattened id of a device of the run that it runs on."""
        return device if self.assignment is None else self.assignment.index(device)

    def assigned(self, assignment: Sequence[int], device_count: int) -> CompiledProgram:
        """The same program, bound to devices of a run of `device_count`: what names devices here names those.

        assignment: the run's device for each of the program's flattened ids.
        """
        ids = tuple(assignment)
        everyone = (tuple(range(device_count)),)

        def of(devices: Sequence[int]) -> tuple[int, ...]:
            return tuple(ids[device] for device in devices)

        communicators = tuple(
            replace(
                spec,
                groups=everyone if spec.key == DIRECTORY_KEY else tuple(of(group) for group in spec.groups),
                pairs=tuple((ids[source], ids[target]) for source, target in spec.pairs),
                silent=of(spec.silent),
                # equal groups may be of different pairs, and must not share state then
                key=f"{spec.key} of {ids}" if spec.pairs else spec.key,
            )
            for spec in self.communicators
        )
        shared = tuple(replace(arena, groups=tuple(of(group) for group in arena.groups)) for arena in self.shared)
        return replace(self, communicators=communicators, shared=shared, assignment=ids)

    @property
    def parameter_sizes(self) -> tuple[tuple[int, int], ...]:
        """(leaf, dimension) of each dynamic dimension: its size is an s32[] argument behind the leaves."""
        return dynamic_dimensions(self.parameter_leaves)

    @property
    def result_sizes(self) -> tuple[tuple[int, int], ...]:
        """(leaf, dimension) of each dynamic dimension: its size is an s32[] result behind the leaves."""
        return dynamic_dimensions(self.result_leaves)

    @property
    def parameter_leaves(self) -> tuple[Shape, ...]:
        return tuple(leaf for p in self.parameters for leaf in p.leaves())

    @property
    def result_leaves(self) -> tuple[Shape, ...]:
        return tuple(self.result.leaves())


def dynamic_dimensions(leaves: Sequence[Shape]) -> tuple[tuple[int, int], ...]:
    """(leaf, dimension) of the dimensions whose sizes are known at run time only."""
    return tuple((k, d) for k, leaf in enumerate(leaves) for d, flag in enumerate(leaf.dynamic) if flag)
