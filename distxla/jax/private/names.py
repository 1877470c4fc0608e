"""Every use of a private name of JAX or jaxlib but those of the other files of this folder.

Such names move from release to release. Each is looked up when it is used, at the places where jaxlib 0.6 and newer
have it; where none has it, the error names jaxlib's version.
"""

from __future__ import annotations

import importlib
import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from math import prod
from typing import Any, Final

from distxla.errors import ArgumentError, JaxError
from distxla.lazy_dataclass import dataclass
from distxla.machine.extras import is_there
from distxla.machine.packages import installed_version
from distxla.text.other_formats import MLIR_BYTECODE

EXTRA: Final = "pip install 'distxla[jax]'"
TESTED: Final = "0.6 to 0.12"
_XLA: Final = ("jaxlib._jax", "jaxlib.xla_extension")
_MLIR: Final = "jaxlib.mlir._mlir_libs"
_PLACES: Final = {
    **dict.fromkeys(("get_tfrt_cpu_client", "CompileOptions", "DeviceAssignment", "DeviceList", "mlir"), _XLA),
    **dict.fromkeys(("HloModule", "HloPrintOptions", "HloSharding", "XlaComputation"), ("jaxlib._hlo", *_XLA)),
    "hlo_module_from_text": ("jaxlib._hlo", *_XLA),
    "hlo_module_cost_analysis": _XLA,
    "register_dialects": (f"{_MLIR}._jax_mlir_ext", f"{_MLIR}.register_jax_dialects"),
    "trace_context": ("jax._src.config",),
}
_DIALECTS: Final = ("ir", "dialects.stablehlo", "dialects.chlo", "dialects.sdy")  # of jaxlib.mlir
_LAYOUT_ATTRIBUTES: Final = (b"layout_mode", b"memory_kind", b"xla_entry_computation_")
_MESH: Final = re.compile(r"\bsdy\.mesh @[^=]*= <(\[[^\]]*\])")
_AXIS_SIZE: Final = re.compile(r'"=(\d+)')


def jaxlib_version() -> str | None:
    """The version of the installed jaxlib, which is not imported; None where there is none."""
    return installed_version("jaxlib") if is_jaxlib_there() else None


def is_jaxlib_there() -> bool:
    """Whether a package jaxlib can be found; it is not imported."""
    return is_there("jaxlib")


def require_jaxlib(what: str) -> str:
    """The version of jaxlib; JaxError where there is none.  what: needs it, as in "partitioning"."""
    if not is_jaxlib_there():
        raise JaxError(f"{what} needs jaxlib, which is not installed: {EXTRA}")
    return installed_version("jaxlib") or "of an unknown version"


def private(name: str) -> Any:
    """The private name of jaxlib. JaxError where jaxlib is missing, can't be imported, or has it nowhere."""
    if not is_jaxlib_there():
        require_jaxlib(name)  # raises; the version takes half a millisecond
    for place in _PLACES[name]:
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name != place:
                raise _broken(require_jaxlib(name), error) from error
            continue
        except Exception as error:
            raise _broken(require_jaxlib(name), error) from error
        if hasattr(module, name):
            return getattr(module, name)
    raise JaxError(
        f"jaxlib {require_jaxlib(name)} has no {' or '.join(f'{p}.{name}' for p in _PLACES[name])}: {_advice()}"
    )


def jax_module(name: str) -> Any:
    """A private module of JAX. JaxError where jaxlib is missing, or the module can't be imported."""
    version = require_jaxlib("the plugin")
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise _broken(version, error) from error


def _broken(version: str, error: Exception) -> JaxError:
    return JaxError(f"jaxlib {version} cannot be imported: {type(error).__name__}: {error}")


def _advice() -> str:
    return f"the name has moved; distxla is tested with jaxlib {TESTED}"


@contextmanager
def expected_names() -> Iterator[None]:
    """A missing attribute, or a signature that has changed, is JaxError with the version."""
    try:
        yield
    except (AttributeError, TypeError) as error:
        raise JaxError(f"jaxlib {jaxlib_version()}: {error}: {_advice()}") from error


@dataclass(frozen=True)
class PartitionerOptions:
    """What XLA's compile options say to the partitioner.

    use_shardy: the partitioner of Shardy's annotations, not GSPMD's.  propagate_to_parameters, propagate_to_outputs:
    whether the partitioner may choose the shardings of parameters and results that have none: one value each, or one
    for all.  serialized: an xla.CompileOptionsProto to begin with, whose settings go before the others.
    keeps_empty: leave operations on empty arrays to the partitioner, which XLA's CPU compiler replaces before.
    has_whole_results: results of which the module says nothing are whole on every device.
    """

    partitions: int
    replicas: int
    use_shardy: bool
    propagate_to_parameters: tuple[bool, ...]
    propagate_to_outputs: tuple[bool, ...]
    serialized: bytes | None = None
    keeps_empty: bool = False
    has_whole_results: bool = False


def _compile_options(wanted: PartitionerOptions, dump_folder: str, passes: str) -> Any:
    import numpy as np

    make = private("CompileOptions")
    with expected_names():
        options = make() if wanted.serialized is None else make.ParseFromString(wanted.serialized)
        counts = options.num_replicas, options.num_partitions
        if wanted.serialized is not None and counts != (wanted.replicas, wanted.partitions):
            found = f"{counts[0]} replicas x {counts[1]} partitions"
            raise ArgumentError(f"compile_options are of {found}, expected {wanted.replicas} x {wanted.partitions}")
        build = options.executable_build_options
        if wanted.serialized is None:
            options.num_replicas = build.num_replicas = wanted.replicas
            options.num_partitions = build.num_partitions = wanted.partitions
            build.use_spmd_partitioning = True
            build.use_shardy_partitioner = wanted.use_shardy
            build.allow_spmd_sharding_propagation_to_parameters = list(wanted.propagate_to_parameters)
            build.allow_spmd_sharding_propagation_to_output = list(wanted.propagate_to_outputs)
        grid = np.arange(wanted.replicas * wanted.partitions).reshape(wanted.replicas, wanted.partitions)
        options.device_assignment = build.device_assignment = private("DeviceAssignment").create(grid)
        debug = build.debug_options
        debug.xla_dump_to = dump_folder
        debug.xla_dump_hlo_as_proto = True
        debug.xla_dump_hlo_pass_re = passes
        debug.xla_backend_optimization_level = 0
        debug.xla_llvm_disable_expensive_passes = True
        if wanted.keeps_empty:
            debug.xla_disable_hlo_passes = "zero_sized_hlo_elimination"
    return options


def private_devices(count: int) -> tuple[Any, ...]:
    """So many CPU devices of a client of their own, which JAX doesn't know."""
    get_client = private("get_tfrt_cpu_client")
    with expected_names():
        return tuple(get_client(asynchronous=True, num_devices=count).devices()[:count])


def compile_with_dumps(module: str | bytes, wanted: PartitionerOptions, dump_folder: str, passes: str) -> None:
    """Compile StableHLO for the devices of a private CPU client, whatever JAX's own backend is; blocks.

    dump_folder: there XLA writes HloProtos `*.before_optimizations.hlo.pb` and `*.after_PASS.before_PASS.hlo.pb` for
    each pass that the regular expression `passes` matches. Raises what XLA raises.
    """
    devices = private_devices(wanted.replicas * wanted.partitions)
    device_list = private("DeviceList")
    with expected_names():
        options = _compile_options(wanted, dump_folder, passes)
        client = devices[0].client
        chosen = device_list(devices)
        loads = hasattr(client, "compile_and_load")  # before jaxlib 0.7 `compile` does, on the devices of the options
        run: Callable[..., Any] = client.compile_and_load if loads else client.compile
    run(module, *([chosen] if loads else []), options)


@dataclass(frozen=True)
class HloDescription:
    """An HloModuleProto in words.

    text: HLO text with metadata and tables of stack frames; constants of more than ten elements are {...}.
    parameter_shapes, output_shapes: of the entry's parameters and of the leaves of its result, such as
    `f32[2,3]{1,0}`.  parameter_shardings, output_sharding: as HLO text has them, such as `{devices=[2,1]<=[2]}`; None
    where the partitioner has stated none.
    """

    text: str
    parameter_shapes: tuple[str, ...]
    output_shapes: tuple[str, ...]
    parameter_shardings: tuple[str, ...] | None
    output_sharding: str | None


def describe_hlo(proto: bytes) -> HloDescription:
    """What an HloModuleProto holds. JaxError where it holds none."""
    computation_type, sharding_type, options_type = map(private, ("XlaComputation", "HloSharding", "HloPrintOptions"))
    with expected_names():
        computation = computation_type(proto)
        module = computation.get_hlo_module()
        options = options_type()
        options.print_large_constants = False
        shape = computation.program_shape()
        parameters, output = module.spmd_parameters_shardings, module.spmd_output_sharding
        are_stated = bool(parameters) or not shape.parameter_shapes()
        return HloDescription(
            module.to_string(options),
            tuple(map(str, shape.parameter_shapes())),
            tuple(_leaves(shape.result_shape())),
            tuple(str(sharding_type.from_proto(p)) for p in parameters or ()) if are_stated else None,
            None if output is None else str(sharding_type.from_proto(output)),
        )


def _leaves(shape: Any) -> Iterator[str]:
    if shape.is_tuple():
        for element in shape.tuple_shapes():
            yield from _leaves(element)
    else:
        yield str(shape)


def stablehlo_of_text(text: str) -> bytes:
    """StableHLO (MLIR bytecode) of HLO text; raises what XLA's parser raises."""
    parse = private("hlo_module_from_text")
    with expected_names():
        return stablehlo_of_proto(parse(text).as_serialized_hlo_module_proto())


def stablehlo_of_proto(proto: bytes) -> bytes:
    """StableHLO (MLIR, text or bytecode) of an HloModuleProto; raises what XLA raises."""
    mlir, computation = private("mlir"), private("XlaComputation")
    with expected_names():
        if hasattr(mlir, "hlo_to_stablehlo"):
            return bytes(mlir.hlo_to_stablehlo(proto))
        return str(mlir.xla_computation_to_mlir_module(computation(proto))).encode()


@dataclass(frozen=True)
class LoweringFacts:
    """What a `jax.stages.Lowered` does not say in public.

    kept: which of the constants and arguments, counted together, are parameters of the module.  constants: those that
    come before the arguments.  tokens: number of ordered effects, each the token of a parameter and of a result, before
    all others.  parameter_types, result_types: JAX's abstract values.
    """

    kept: tuple[int, ...]
    constants: tuple[Any, ...]
    tokens: int
    parameter_types: tuple[Any, ...]
    result_types: tuple[Any, ...]


def lowering_facts(lowered: Any) -> LoweringFacts:
    """See LoweringFacts. JaxError where this version of JAX keeps them elsewhere."""
    with expected_names():
        computation = lowered._lowering
        found = computation.compile_args
        needed = "kept_var_idx", "ordered_effects", "global_in_avals", "global_out_avals"
        missing = [name for name in needed if name not in found]
        if missing:
            raise AttributeError(f"a lowering has no {missing[0]}")
        return LoweringFacts(
            tuple(sorted(found["kept_var_idx"])),
            tuple(getattr(computation, "const_args", ())),
            len(found["ordered_effects"]),
            tuple(found["global_in_avals"]),
            tuple(found["global_out_avals"]),
        )


def trace_context() -> Callable[[], object]:
    """A function that gives the settings of JAX on which a trace depends, such as x64 mode: hashable, in half a
    microsecond."""
    found: Callable[[], object] = private("trace_context")
    return found


def key_implementation(dtype: Any) -> str:
    """The name of the generator for which keys of this type are, as `jax.random.wrap_key_data` takes it."""
    with expected_names():
        return str(dtype._impl.name)


def host_callbacks(lowered: Any) -> Sequence[Callable[..., Any]]:
    """The functions that the callbacks of a `jax.stages.Lowered` call, by their numbers in the module."""
    require_jaxlib("a callback of JAX")
    with expected_names():
        arguments = lowered._lowering.compile_args
        if "host_callbacks" not in arguments:
            raise AttributeError("a lowering has no host_callbacks")
        return tuple(arguments["host_callbacks"] or ())


def is_buffer_callback(function: Callable[..., Any]) -> bool:
    """Whether a function of `host_callbacks` belongs to a `buffer_callback`: it takes a context and buffers."""
    return getattr(function, "__module__", None) == "jax._src.buffer_callback"


def proto_of_stablehlo(module: bytes) -> bytes:
    """The HloModuleProto of StableHLO text or MLIR bytecode; raises what XLA raises."""
    return bytes(stablehlo_converter()(module, False, False).as_serialized_hlo_module_proto())


def stablehlo_converter() -> Callable[..., Any]:
    """jaxlib's function from StableHLO text or MLIR bytecode, and whether arguments and results are tuples, to an
    XlaComputation."""
    mlir = private("mlir")
    with expected_names():
        found: Callable[..., Any] = mlir.mlir_module_to_xla_computation
    return found


def states_layouts_or_flags(module: bytes, options: bytes | None) -> bool:
    """Whether StableHLO or an xla.CompileOptionsProto may state layouts or memories of parameters and results, or the
    latter flags of XLA."""
    if any(name in module for name in _LAYOUT_ATTRIBUTES):
        return True
    if options is None:
        return False
    read = private("CompileOptions").ParseFromString
    with expected_names():
        found = read(options)
        of_result = found.executable_build_options.result_layout
        is_plain = not (found.parameter_is_tupled_arguments or found.argument_layouts or found.env_option_overrides)
        return not is_plain or of_result is not None


def counts_of_stablehlo(module: bytes) -> tuple[int | None, int | None]:
    """Partitions and replicas that StableHLO text or MLIR bytecode states, each None where it doesn't, and where its
    bytecode can't be read. JAX states one partition for a `shard_map` over an abstract mesh: the mesh's devices count.
    """
    if not module.startswith(MLIR_BYTECODE):
        found = [re.search(rb"\bmhlo\.num_%s\s*=\s*(\d+)" % what, module) for what in (b"partitions", b"replicas")]
        partitions, replicas = (int(one[1]) if one else None for one in found)
        return _at_least(partitions, _MESH.findall(module.decode(errors="replace"))), replicas
    with mlir_context() as context, expected_names():
        parsed = parsed_mlir(context, module)
        return (None, None) if parsed is None else _counts(parsed)


def _counts(module: Any) -> tuple[int | None, int | None]:
    """Of an MLIR module."""
    attributes = module.operation.attributes
    names = ("mhlo.num_partitions", "mhlo.num_replicas")
    partitions, replicas = (int(attributes[name].value) if name in attributes else None for name in names)
    operations = [operation.operation for operation in module.body.operations]
    meshes = [str(one.attributes["mesh"]) for one in operations if one.name == "sdy.mesh"]
    return _at_least(partitions, meshes), replicas


def _at_least(partitions: int | None, meshes: Sequence[str]) -> int | None:
    """The stated number of partitions, or the devices of the largest mesh."""
    sizes = [prod(int(size) for size in _AXIS_SIZE.findall(mesh)) for mesh in meshes]
    return max([*([] if partitions is None else [partitions]), *sizes], default=None)


@cache
def _jax_dialects() -> Any:
    """A registry of the dialects that JAX's modules may have, among them func, without which no text can be read."""
    register = private("register_dialects")
    with expected_names():
        registry = mlir_module("ir").DialectRegistry()
        register(registry)
        return registry


@contextmanager
def mlir_context() -> Iterator[Any]:
    """A context of MLIR for StableHLO, within which modules can be read."""
    ir, *dialects = map(mlir_module, _DIALECTS)
    with expected_names(), ir.Context() as context, ir.Location.unknown():
        context.allow_unregistered_dialects = True
        context.attach_diagnostic_handler(lambda _: True)  # else MLIR prints what it can't read
        context.append_dialect_registry(_jax_dialects())
        for dialect in dialects:
            dialect.register_dialect(context)
        yield context


def parsed_mlir(context: Any, module: bytes) -> Any:
    """The module of StableHLO text or MLIR bytecode; None where it can't be read."""
    parsed = None
    with suppress(Exception):  # it fails for Shardy's dialect, but has loaded that of portable artifacts by then
        parsed = mlir_module("dialects.stablehlo").deserialize_portable_artifact(context, module)
    with suppress(Exception):
        parsed = parsed or mlir_module("ir").Module.parse(module)
    return parsed


def mlir_module(name: str) -> Any:
    """A module of jaxlib.mlir; JaxError where it can't be imported."""
    try:
        return importlib.import_module(f"jaxlib.mlir.{name}")
    except ImportError as error:
        raise _broken(require_jaxlib(name), error) from error


def stablehlo_of_lowered(lowered: Any) -> bytes:
    """StableHLO (MLIR bytecode, with its source lines) of a jax.stages.Lowered. ArgumentError for anything else."""
    module = _mlir_of_lowered(lowered)
    data = io.BytesIO()
    with expected_names():
        module.operation.write_bytecode(data)
    return data.getvalue()


def counts_of_lowered(lowered: Any) -> tuple[int, int]:
    """Partitions and replicas of a jax.stages.Lowered, as `counts_of_stablehlo`. ArgumentError for anything else."""
    with expected_names():
        partitions, replicas = _counts(_mlir_of_lowered(lowered))
    return partitions or 1, replicas or 1


def _mlir_of_lowered(lowered: Any) -> Any:
    if not hasattr(lowered, "compiler_ir"):
        raise ArgumentError(f"expected a jax.stages.Lowered, a Module or StableHLO, found {type(lowered).__name__}")
    return lowered.compiler_ir("stablehlo")


def import_jaxlib() -> None:
    """Import what private names of jaxlib need; JaxError where it lacks one of them. Imports no JAX."""
    for name, places in _PLACES.items():
        if places[0].startswith("jaxlib."):
            private(name)
    for dialect in _DIALECTS:
        mlir_module(dialect)


@dataclass(frozen=True)
class CompileCounts:
    """What an xla.CompileOptionsProto says of devices.

    device_assignment: an xla.DeviceAssignmentProto; empty where the options leave it open.
    """

    replicas: int
    partitions: int
    device_assignment: bytes


def read_compile_options(options: bytes) -> CompileCounts:
    """The counts and the device assignment of an xla.CompileOptionsProto."""
    read = private("CompileOptions").ParseFromString
    with expected_names():
        found = read(options)
        assignment = found.device_assignment
        build = found.executable_build_options
        return CompileCounts(
            max(1, found.num_replicas, build.num_replicas),
            max(1, found.num_partitions, build.num_partitions),
            b"" if assignment is None else bytes(assignment.serialize()),
        )
