"""JAX's callbacks: custom-calls of functions in the Python process that lowered the program."""

from __future__ import annotations

from typing import Final

from distxla.ops.custom_calls.target import Call, CustomCallTarget, target

FILLING: Final = "xla_buffer_python_cpu_callback"  # its function fills the arrays of the results
# those whose configuration has the function's number
BY_NUMBER: Final = ("xla_ffi_python_cpu_callback", "xla_ffi_partitioned_python_cpu_callback", FILLING)
_ADDRESS: Final = "an older JAX names its function by an address in that process; lower it with jax 0.6 or newer"
CALLBACKS: Final = {
    "xla_python_cpu_callback": _ADDRESS,
    "xla_ffi_python_gpu_callback": "it was lowered for GPUs; lower it for the platform cpu",
    "xla_ffi_partitioned_python_gpu_callback": "it was lowered for GPUs; lower it for the platform cpu",
    "xla_python_gpu_callback": "it was lowered for GPUs; lower it for the platform cpu",
    "xla_buffer_python_gpu_callback": "it was lowered for GPUs; lower it for the platform cpu",
    "xla_buffer_python_gpu_callback_cmd_buffer": "it was lowered for GPUs; lower it for the platform cpu",
}


@target(*BY_NUMBER, *CALLBACKS)
class HostCallback(CustomCallTarget):
    """A function of the process that lowered the program; `Cluster.compile(module, host_calls=…)` has it run there."""

    def obstacle(self, call: Call) -> str | None:
        why = CALLBACKS.get(call.name)
        if why is not None:
            return f'custom-call of "{call.name}" calls a Python function: {why}'
        return (
            f'custom-call of "{call.name}" calls a function of the Python process that lowered the program, which this '
            "command doesn't have: Cluster.compile(module, host_calls={number: function}) runs it on the driver, and "
            "distxla.jax does so by itself"
        )
