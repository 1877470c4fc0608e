"""Runs the cases of `distxla conformance` on XLA's CPU backend: what connects any executor looks like this.

    distxla conformance --batch -- python examples/conformance/xla_cpu.py          # one process for all cases
    distxla conformance -- python examples/conformance/xla_cpu.py                  # MODULE ARGS OUT: one for each

Needs JAX (0.12 is tried), whose client compiles and runs HLO; nothing of distxla. A line of stdin is the three paths,
with tabs between; the answer is a line on stdout, `ok` or `error: REASON`.
"""

import os
import re
import sys

MOST_DEVICES = 8
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={MOST_DEVICES}"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["JAX_ENABLE_X64"] = "1"

# JAX reads the environment when it is imported
import jax  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402
from jaxlib import _hlo, _jax, xla_client  # noqa: E402


def counts(text):
    """Replicas and partitions: the module's header has both."""
    header = text.partition("\n")[0]
    return tuple(int(re.search(rf"{name}=(\d+)", header)[1]) for name in ("replica_count", "num_partitions"))


def compiled(text, module, replicas, partitions):
    devices = jax.devices("cpu")[: replicas * partitions]
    program = xla_client._xla.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto())
    assignment = xla_client.DeviceAssignment.create(np.arange(len(devices)).reshape(replicas, partitions))
    options = xla_client.CompileOptions()
    build = options.executable_build_options
    for each in (options, build):
        each.num_replicas, each.num_partitions, each.device_assignment = replicas, partitions, assignment
    if partitions > 1:
        build.use_spmd_partitioning = True  # there is nothing to partition, but XLA asks for it
        build.use_shardy_partitioner = False
    return devices[0].client.compile_and_load(program, _jax.DeviceList(tuple(devices)), options), devices


def parameter_types(module):
    shapes = _hlo.XlaComputation(module.as_serialized_hlo_module_proto()).program_shape().parameter_shapes()
    return [np.dtype(shape.element_type()) for shape in shapes]


def as_values(array, dtype):
    """Types that NumPy lacks lie in the file as the bits; s4 and u4 with zeros above, s4 is sign-extended in memory."""
    if array.dtype == dtype:
        return array
    if dtype.name in ("int2", "int4"):
        half = 1 << int(dtype.name[3:]) - 1
        return ((array.astype(np.int8) ^ half) - half).astype(dtype)
    return array.astype(dtype) if dtype.name.startswith("uint") else array.view(dtype)


def as_bits(array):
    """The other way round."""
    name = array.dtype.name
    if name in ("int2", "int4", "uint2", "uint4"):
        return array.astype(np.int8).view(np.uint8) & ((1 << int(name[-1])) - 1)
    is_numpys = array.dtype.kind in "biufc" and array.dtype.isbuiltin == 1
    return array if is_numpys else np.ascontiguousarray(array).view(f"uint{8 * array.itemsize}").reshape(array.shape)


def placed(shards, devices):
    """One array of JAX of which every device has its own part."""
    on_devices = [jax.device_put(shard, device) for shard, device in zip(shards, devices)]
    sizes = shards[0].shape
    sharding = NamedSharding(Mesh(np.array(devices), ("d",)), PartitionSpec("d") if sizes else PartitionSpec())
    whole = (sizes[0] * len(devices), *sizes[1:]) if sizes else ()
    return jax.make_array_from_single_device_arrays(whole, sharding, on_devices)


def run(module_path, args_path, out_path):
    with open(module_path) as file:
        text = file.read()
    replicas, partitions = counts(text)
    module = _hlo.hlo_module_from_text(text)
    executable, devices = compiled(text, module, replicas, partitions)
    with np.load(args_path) as file:
        arguments = [
            placed([as_values(file[f"arg{k}@{d}"], dtype) for d in range(len(devices))], devices)
            for k, dtype in enumerate(parameter_types(module))
        ]
    leaves = executable.execute_sharded(arguments).disassemble_into_single_device_arrays()
    outs = {f"out{k}@{d}": as_bits(np.asarray(a)) for k, leaf in enumerate(leaves) for d, a in enumerate(leaf)}
    np.savez(out_path, **outs)


def serve():
    for line in sys.stdin:
        try:
            run(*line.rstrip("\n").split("\t"))
            print("ok", flush=True)
        except Exception as error:  # goes on with the next case
            lines = str(error).splitlines() or [""]
            print(f"error: {type(error).__name__}: {lines[0]}", flush=True)


if __name__ == "__main__":
    run(*sys.argv[1:4]) if len(sys.argv) > 1 else serve()
