"""A random program by both sides in this process, and where their results differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from distxla.compiler.compile import compile_module
from distxla.compiler.verify.verifier import verify_module
from distxla.ir.counts import Counts
from distxla.ir.element_type import element_type
from distxla.oracle.lockstep import run_reference
from distxla.program.options import CompileOptions
from distxla.text.parser import parse_module
from distxla.text.printer import print_module
from tests.compiler.runner import run_devices
from tests.executable import require_executable
from tests.fuzz.xla.exact_values import Value
from tests.fuzz.xla.program import RandomProgram
from tests.fuzz.xla.regrouped import regrouped
from tests.tolerances import ulps_between

Array = np.ndarray[Any, Any]
REGROUPED = "regrouped: "  # how a line begins about that form of a program
OPTIMISED_EVERY = 8  # programs that XLA compiles as it does by default; the others take it a third of the time


class XlaRefusal(Exception):
    """XLA does not compile or run a program."""


def by_xla(program: RandomProgram) -> list[list[Array]]:
    """Results by device and leaf; the process has as many forced devices as the program needs."""
    import jax
    from jax._src.lib import xla_client
    from jaxlib import _hlo, _jax

    count = program.devices
    devices = jax.devices("cpu")[:count]
    module = _hlo.hlo_module_from_text(program.text)
    portable = xla_client._xla.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto())
    options = xla_client.CompileOptions()
    counts = program.replicas, program.partitions
    options.device_assignment = xla_client.DeviceAssignment.create(np.arange(count).reshape(counts))
    build = options.executable_build_options
    build.device_assignment = options.device_assignment
    for one in (options, build):
        one.num_replicas, one.num_partitions = counts
    if program.partitions > 1:
        build.use_spmd_partitioning = True  # there is nothing to partition, but XLA wants the flag
        build.use_shardy_partitioner = False
    if program.seed % OPTIMISED_EVERY:
        build.debug_options.xla_backend_optimization_level = 0
    executable = devices[0].client.compile_and_load(portable, _jax.DeviceList(tuple(devices)), options)
    rows = program.arguments()
    with jax.enable_x64(True):
        if count == 1:
            outs = executable.execute([jax.device_put(array, devices[0]) for array in rows[0]])
            return [[np.asarray(out) for out in outs]]
        arguments = [_placed(arrays, devices) for arrays in zip(*rows, strict=True)]
        leaves = executable.execute_sharded(arguments).disassemble_into_single_device_arrays()
    return [[np.asarray(leaf[device]) for leaf in leaves] for device in range(count)]


def _placed(arrays: tuple[Array, ...], devices: Any) -> Any:
    """One array of which every device has the part that it was given."""
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    shards = [jax.device_put(array, device) for array, device in zip(arrays, devices, strict=True)]
    dims = shards[0].shape
    whole = (dims[0] * len(shards), *dims[1:]) if dims else ()
    sharding = NamedSharding(Mesh(np.array(devices), ("d",)), PartitionSpec("d") if dims else PartitionSpec())
    return jax.make_array_from_single_device_arrays(whole, sharding, shards)


def text_of(program: RandomProgram, *, is_regrouped: bool) -> str:
    """is_regrouped: with its instructions in other computations."""
    return print_module(regrouped(parse_module(program.text), program.seed)) if is_regrouped else program.text


def by_distxla(program: RandomProgram, target: str | None = None, *, is_regrouped: bool = False) -> list[list[Array]]:
    """is_regrouped: of the program with its instructions in other computations."""
    name = "regrouped" if is_regrouped else "random"
    module = parse_module(text_of(program, is_regrouped=is_regrouped), f"{name}_{program.seed}.hlo")
    verify_module(module)
    require_executable(module)
    compiled = compile_module(module, Counts(program.replicas, program.partitions), CompileOptions(target=target))
    return run_devices(compiled, program.arguments())


def by_reference(program: RandomProgram) -> list[list[Array]]:
    found = run_reference(parse_module(program.text), program.arguments(), Counts(program.replicas, program.partitions))
    return [[leaf for leaf in leaves if leaf is not None] for leaves in found]


def differences(program: RandomProgram, got: list[list[Array]], wanted: list[list[Array]]) -> list[str]:
    """A line for each leaf on each device that differs from XLA's."""
    found = []
    for device in range(program.devices):
        for k, value in enumerate(program.results):
            ours, theirs = got[device][k], wanted[device][k]
            if text := _difference(value, ours, theirs):
                found.append(f"out{k} on device {device}, {value.name} = {value.shape}: {text}")
    return found


def _difference(value: Value, got: Array, wanted: Array) -> str | None:
    dtype = element_type(value.element).dtype
    if (got.shape, wanted.shape, got.dtype, wanted.dtype) != (value.dims, value.dims, dtype, dtype):
        return f"{got.dtype}{list(got.shape)} instead of {wanted.dtype}{list(wanted.shape)}"
    if value.ulps is None or not (element_type(value.element).is_float):
        with np.errstate(all="ignore"):
            wrong = np.asarray((got != wanted) & ~((got != got) & (wanted != wanted)))
    else:
        with np.errstate(all="ignore"):
            wrong = np.asarray(ulps_between(got, wanted) > value.ulps)
    if not wrong.any():
        return None
    at = tuple(int(n) for n in np.argwhere(wrong)[0]) if wrong.ndim else ()
    return f"{int(wrong.sum())} of {wrong.size} elements differ; at {list(at)} {got[at]!r}, XLA gives {wanted[at]!r}"


def check(seed: int, progress: Callable[[str], None] = lambda side: None, target: str | None = None) -> str | None:
    """What is wrong with the program of this seed; None where both sides agree. progress: called
    with the side that runs next.  target: that distxla compiles for, this processor by default.

    XlaRefusal where XLA does not take the program.
    """
    program = RandomProgram(seed)
    progress("XLA")
    try:
        wanted = by_xla(program)
    except Exception as error:
        raise XlaRefusal(f"{type(error).__name__}: {str(error).splitlines()[0]}") from error
    progress("distxla")
    off: list[str] = []
    for is_regrouped in (False, True):
        try:
            got = by_distxla(program, target, is_regrouped=is_regrouped)
        except Exception as error:
            return f"{REGROUPED * is_regrouped}{type(error).__name__}: {error}"
        off = [f"{REGROUPED * is_regrouped}{line}" for line in differences(program, got, wanted)]
        if off:
            break
    if not off:
        return None
    try:
        also = differences(program, by_reference(program), wanted)
    except Exception as error:
        also = [f"{type(error).__name__}: {error}"]
    return "\n".join([*off, "the reference says the same" if also == off else "the reference:", *also])
