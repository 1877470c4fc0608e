"""XLA's own SPMD partitioner: from a global module to the program of each partition.

jaxlib runs it, in a process of its own (partition_worker.py). What it made is kept in the cache of compiled programs.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Final

from distxla import clock
from distxla.compiler.cache_folder import CacheFolder, cache_folder, cache_limit
from distxla.compiler.passes.manual_partitions import shards_of
from distxla.errors import ArgumentError, PartitioningError, UnsupportedOpError
from distxla.ir.module import Module
from distxla.ir.sharding import Placement, Sharding
from distxla.ir.shards import GlobalArray
from distxla.jax.partitioner.constants import constants_digest, module_with_constants, text_with_constants
from distxla.jax.partitioner.partition_messages import Answer
from distxla.jax.partitioner.partition_server import SERVER
from distxla.jax.partitioner.partition_worker import described, is_stablehlo, partitioned_here
from distxla.jax.partitioner.partitioner_warnings import tell
from distxla.jax.partitioner.protobuf import compile_options_key
from distxla.jax.private.names import PartitionerOptions, require_jaxlib, stablehlo_converter, states_layouts_or_flags
from distxla.lazy_dataclass import dataclass, field
from distxla.text.lexer import Lexer
from distxla.text.other_formats import MLIR_BYTECODE
from distxla.text.sdy import UnreadableSharding
from distxla.text.shapes import parse_shape
from distxla.text.shardings import read_sharding

_EMPTY: Final = re.compile(r"\[(?:\d+,)*0[,\]]")  # dimension sizes
_FORMAT: Final = "partitioned 5"
_LAYOUT: Final = re.compile(r"(?P<dims>\[[^\[\]]+\])\{[\d,]+")
# custom-calls that XLA's passes for several partitions replace, and calls that it compiles apart
_OF_PARTITIONER: Final = re.compile(
    r'custom_call_target="(?:xla\.sdy\.(?!FuncResultSharding)|SPMD)|inlineable="xla_late"'
)
_LEFT_OUT: Final = re.compile(rb"\bconstant\([^\n\"]*\{\s*\.\.\.")  # in HLO text
# custom-calls whose operands' shardings functions of Python see, or give
_CALLS_OF_PYTHON: Final = {
    b"InspectSharding": "jax.debug.inspect_array_sharding",
    b"CustomSPMDPartitioning": "jax.experimental.custom_partitioning",
}


@dataclass(frozen=True)
class Partitioned:
    """A module after XLA's partitioner.

    short_text: HLO text of one partition's program, its header with the counts, and the source lines of the global
    module; large constants are {...}.  proto: the same as an HloModuleProto, with all constants.  parameter_shapes,
    output_shapes: the global arrays, of the entry's parameters and of its result's leaves, as HLO text has them
    (`f32[8,4]{1,0}`).  parameter_shardings, output_shardings: how each of them is cut, as HLO text has it
    (`{devices=[4,1]<=[4]}`, `{replicated}`).
    jaxlib: the version that partitioned.  seconds: that it took.  is_cached: whether it came from the cache on disk.
    warnings: what the partitioner warned of, in XLA's words.
    """

    short_text: str
    proto: bytes = field(repr=False)
    partitions: int
    replicas: int
    parameter_shapes: tuple[str, ...]
    output_shapes: tuple[str, ...]
    parameter_shardings: tuple[str, ...]
    output_shardings: tuple[str, ...]
    jaxlib: str
    seconds: float = field(compare=False)
    is_cached: bool = field(compare=False)
    warnings: tuple[str, ...] = ()

    @cached_property
    def text(self) -> str:
        """HLO text of one partition's program with all constants in full."""
        return text_with_constants(self.short_text, self.proto)

    def module(self, file: str = "<text>") -> Module:
        """One partition's program.  file: what messages call its text."""
        return module_with_constants(self.short_text, self.proto, file)

    @cached_property
    def fingerprint(self) -> str:
        """The same for equal programs, in whichever process."""
        return constants_digest(self.short_text, self.proto)

    @cached_property
    def parameters(self) -> tuple[GlobalArray, ...]:
        """The global arrays of the parameters, and how each is cut. UnsupportedOpError where that is not in equal
        parts."""
        return self._arrays("parameter", self.parameter_shapes, self.parameter_shardings)

    @cached_property
    def results(self) -> tuple[GlobalArray, ...]:
        """As `parameters`, of the result's leaves."""
        return self._arrays("result", self.output_shapes, self.output_shardings)

    def _arrays(self, what: str, shapes: Sequence[str], shardings: Sequence[str]) -> tuple[GlobalArray, ...]:
        return tuple(
            _global_array(f"{what} {k}", shape, sharding, self.partitions)
            for k, (shape, sharding) in enumerate(zip(shapes, shardings, strict=True))
        )


def partition_module(
    module: str | bytes,
    *,
    partitions: int,
    replicas: int = 1,
    use_shardy: bool | None = None,
    propagate_to_parameters: bool | Sequence[bool] = True,
    propagate_to_outputs: bool | Sequence[bool] = True,
    compile_options: bytes | None = None,
    calls_python: bool = False,
    begin: Callable[[], None] = lambda: None,
    by: Partitioner | None = None,
) -> Partitioned:
    """Partition a global module by XLA's SPMD partitioner; blocks, 0.03 s and more after jaxlib's import (0.3 s).

    module: StableHLO text, MLIR bytecode (a portable artifact, too), HLO text, or a serialised HloModuleProto.
    use_shardy: the partitioner that reads Shardy's annotations, not GSPMD's; by default where the module has some.
    propagate_to_parameters, propagate_to_outputs: whether it may choose shardings that the module leaves open, for all
    or for each.  compile_options: a serialised xla.CompileOptionsProto; its settings replace the three before.
    calls_python: whether the module is of JAX in this process. It may have addresses of functions then, which the
    partitioner calls: such a module is partitioned in this process, each time anew, and a failed check of XLA ends the
    process. One that needs no partitioner is converted in this process.
    begin: called where the cache has no such module, before it is partitioned.  by: partitions it then, by default
    `by_server`.

    Raises PartitioningError with XLA's message where it refuses the module or its process dies; UnsupportedOpError for
    such addresses without `calls_python`; JaxError where jaxlib is missing, broken or too different; ArgumentError;
    TimeLimitError.
    """
    if partitions < 1 or replicas < 1:
        raise ArgumentError(f"expected at least one partition and replica, found {partitions} and {replicas}")
    version = require_jaxlib("partitioning")
    data = module.encode() if isinstance(module, str) else bytes(module)
    is_text = b"..." in data and not data.startswith(MLIR_BYTECODE)
    if is_text and (left_out := _LEFT_OUT.search(data)):  # of a Module the caller has looked, with its place
        line = data.count(b"\n", 0, left_out.start()) + 1
        raise PartitioningError(
            f"line {line} leaves out a constant's values as {{...}}, for which XLA would take others"
        )
    options = PartitionerOptions(
        partitions,
        replicas,
        has_shardy(data) if use_shardy is None else use_shardy,
        _flags(propagate_to_parameters),
        _flags(propagate_to_outputs),
        compile_options,
    )
    if targets := [target for target in _CALLS_OF_PYTHON if target in data]:
        if not calls_python:
            raise _needs_python(targets[0])
        return _partitioned_by(partitioned_here, data, options, version)
    is_direct = calls_python and options.partitions == 1 and is_stablehlo(data)
    key = _key(data, options, version, is_direct)
    files = CacheFolder(cache_folder(), cache_limit())
    found = files.read_object(key, Partitioned)
    if found is not None:
        tell(found.warnings, found.short_text)
        return dataclasses.replace(found, is_cached=True)
    begin()
    made = _lowered_directly(data, options, version) if is_direct else None
    if made is None:
        made = (by or by_server)(data, options, is_direct)
    files.write_object(key, made)
    tell(made.warnings, made.short_text)
    return made


Partitioner = Callable[[bytes, PartitionerOptions, bool], Partitioned]
"""Takes a module, options, and whether it may be lowered without the partitioner where that has nothing to do."""


def by_server(data: bytes, options: PartitionerOptions, is_direct: bool) -> Partitioned:
    """What the partitioner of this process's own server makes of a module; see `partition_module`."""
    return _partitioned_by(SERVER.partition, data, options, require_jaxlib("partitioning"))


def by_server_once(data: bytes, options: PartitionerOptions, is_direct: bool) -> Partitioned:
    """As `by_server`, for another process, which has not found it in the cache: it may be there now, and is then."""
    key = _key(data, options, require_jaxlib("partitioning"), is_direct)
    files = CacheFolder(cache_folder(), cache_limit())
    found = files.read_object(key, Partitioned)
    if found is None:
        found = by_server(data, options, is_direct)
        files.write_object(key, found)
    return found


def _lowered_directly(data: bytes, options: PartitionerOptions, version: str) -> Partitioned | None:
    """StableHLO for one partition as HLO, without the partitioner; None where that has something to do.

    Annotations stay, which are identities on one device. Converted in this process, as JAX does for its own backends.
    """
    if states_layouts_or_flags(data, options.serialized):
        return None
    begin, convert = clock.now(), stablehlo_converter()
    try:
        computation = convert(data, False, False)
    except MemoryError:
        raise
    except Exception as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            raise  # of a signal's handler: XLA has no frames
        raise PartitioningError(f"XLA refuses the module: {error}") from error
    proto = bytes(computation.as_serialized_hlo_module_proto())
    found = described(proto)
    if _OF_PARTITIONER.search(found.text):
        return None
    header, newline, rest = found.text.partition("\n")
    text = _with_default_layouts(header) + newline + rest
    one = dataclasses.replace(found, text=text, parameter_shardings=None, output_sharding=None)
    results = tuple(map(_with_default_layouts, found.output_shapes))
    return _partitioned(Answer(proto, one, found.parameter_shapes, results), options, version, begin)


def _with_default_layouts(shapes: str) -> str:
    """`f32[2,3]{0,1}` -> `f32[2,3]{1,0}`: the root's layout is not the result's, which a caller chooses."""
    return _LAYOUT.sub(
        lambda one: one["dims"] + "{" + ",".join(map(str, reversed(range(one["dims"].count(",") + 1)))), shapes
    )


def _key(data: bytes, options: PartitionerOptions, version: str, is_direct: bool) -> str:
    """The name of the cache's entry: equal for equal modules and options, in whichever process. is_direct: whether it
    may be lowered without the partitioner, which leaves annotations."""
    given = options.serialized
    settings = None if given is None else compile_options_key(given)
    kind = repr((_FORMAT, version, is_direct, dataclasses.replace(options, serialized=settings)))
    return hashlib.sha256(kind.encode() + b"\0" + data).hexdigest()


def _partitioned_by(
    run: Callable[[bytes, PartitionerOptions], Answer], data: bytes, options: PartitionerOptions, version: str
) -> Partitioned:
    """What `run` makes of the module; it partitions once more where a result or parameter came out badly."""
    begin = clock.now()
    made = _partitioned(run(data, options), options, version, begin)
    if options.partitions > 1 and _is_empty_result_whole(made):
        with suppress(PartitioningError):  # where the partitioner can't cut an operation on empty arrays
            kept = dataclasses.replace(options, keeps_empty=True)
            made = _partitioned(run(data, kept), options, version, begin)
    if options.serialized is None and _is_result_on_one_device(made):  # else the caller's options place arrays
        whole = dataclasses.replace(options, has_whole_results=True)
        made = _partitioned(run(data, whole), whole, version, begin)
    return made


def _is_result_on_one_device(made: Partitioned) -> bool:
    """Whether the partitioner leaves a result where a callback has run."""
    return any(_sharding(text).placement is Placement.SINGLE for text in made.output_shardings)


def _is_empty_result_whole(made: Partitioned) -> bool:
    """Whether a result without elements is not cut: XLA of jaxlib 0.10 forgets its sharding, with the operation."""
    results = zip(made.output_shapes, made.output_shardings)
    return any(_EMPTY.search(shape) and sharding == "{replicated}" for shape, sharding in results)


def has_shardy(module: bytes) -> bool:
    """Whether the module has annotations of Shardy: as its dialect, or as the attributes that stand for it."""
    return b"sdy." in module or b"sdy\0" in module


def _needs_python(target: bytes) -> UnsupportedOpError:
    error = UnsupportedOpError(
        f"custom-call {target.decode()}: {_CALLS_OF_PYTHON[target]} needs a function of the process that has lowered "
        "the module"
    )
    error.add_note("hint: distxla.jax.compile and distxla.jax.partition take the result of `jax.jit(f).lower(...)`")
    return error


def _global_array(what: str, shape_text: str, sharding_text: str, partitions: int) -> GlobalArray:
    shape, sharding = parse_shape(shape_text).without_layout(), _sharding(sharding_text)
    try:
        shards = shards_of(sharding, shape.rank, partitions)
    except UnreadableSharding as error:
        raise UnsupportedOpError(f"{what} of the partitioned module, {shape}: {error}") from error
    if any(size % count for size, count in zip(shape.dims, shards.tiles, strict=True)):
        tiles = " x ".join(map(str, shards.tiles))
        raise UnsupportedOpError(f"{what} of the partitioned module: {shape} cannot be cut evenly into {tiles} parts")
    return GlobalArray(shape, shards)


def _sharding(text: str) -> Sharding:
    return read_sharding(Lexer(text))


def _flags(given: bool | Sequence[bool]) -> tuple[bool, ...]:
    return (given,) if isinstance(given, bool) else tuple(map(bool, given)) or (False,)


def _partitioned(answer: Answer, options: PartitionerOptions, version: str, begin: float) -> Partitioned:
    one = answer.partitioned
    parameters, outputs = len(one.parameter_shapes), len(one.output_shapes)
    if one.parameter_shardings is None or one.output_sharding is None:
        if options.partitions > 1:
            raise PartitioningError("XLA's partitioner does not say how parameters and results are cut")
        cut_parameters: tuple[str, ...] = ("{replicated}",) * parameters
        cut_outputs: tuple[str, ...] = ("{replicated}",) * outputs
    else:
        cut_parameters = one.parameter_shardings
        sharding = _sharding(one.output_sharding)
        elements = sharding.elements if sharding.kind == "tuple" else (sharding,) * outputs
        cut_outputs = tuple(element.text for element in elements)
    return Partitioned(
        _with_counts(one.text, options),
        answer.proto,
        options.partitions,
        options.replicas,
        answer.parameter_shapes,
        answer.output_shapes,
        cut_parameters,
        cut_outputs,
        version,
        clock.now() - begin,
        False,
        answer.warnings,
    )


def _with_counts(text: str, options: PartitionerOptions) -> str:
    """The text with the counts in its header, which a printed HloModuleProto lacks."""
    header, newline, rest = text.partition("\n")
    for name, count, least in (("replica_count", options.replicas, 2), ("num_partitions", options.partitions, 1)):
        if f" {name}=" not in header and count >= least:
            header += f", {name}={count}"
    return header + newline + rest


__all__ = ["Partitioned", "Partitioner", "by_server", "by_server_once", "has_shardy", "partition_module"]
