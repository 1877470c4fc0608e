"""XLA CPU with eight host devices, in a process of its own that is asked over pipes.

`Xla` is the asking side. The other side is this file run as a program: one JSON object a line in, one out.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

DEVICES = 8


class Xla:
    """A context manager around the process. `compile` and `steps` block until the answer is there."""

    def __enter__(self) -> Xla:
        environment = os.environ | {
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES}",
            "JAX_PLATFORMS": "cpu",
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._ask({"do": "start"})
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def compile(self, text: str, arguments: Path) -> float:
        """Make `text` the current program, with args.npz-style arguments. Seconds from text to a loaded executable."""
        return float(self._ask({"do": "compile", "text": text, "arguments": str(arguments)})["seconds"])

    def steps(self, count: int) -> list[float]:
        """Seconds of each of `count` runs of the current program."""
        return [float(s) for s in self._ask({"do": "steps", "count": count})["seconds"]]

    def results(self, target: Path) -> None:
        """Write the results of one run to an .npz file, keys as `distxla run --out`."""
        self._ask({"do": "results", "target": str(target)})

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"XLA's process ended with status {self._process.wait()}")
        return dict(json.loads(answer))


def without_shardings(text: str) -> str:
    """A partitioned module states its parameters' shardings, which XLA would apply a second time."""
    text = re.sub(r", sharding=\{[^{}]*(\{[^{}]*\}[^{}]*)*\}", "", text)
    return re.sub(r", allow_spmd_sharding_propagation_to_(parameters|output)=\{[^}]*\}", "", text)


class _Program:
    """One compiled program with its arguments on their devices."""

    def __init__(self, text: str, arguments: str) -> None:
        import jax
        from jax._src.lib import xla_client
        from jaxlib import _hlo, _jax

        devices = jax.devices()
        begin = time.perf_counter()
        module = _hlo.hlo_module_from_text(without_shardings(text))
        portable = xla_client._xla.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto())
        options = xla_client.CompileOptions()
        options.num_replicas, options.num_partitions = 1, DEVICES
        options.device_assignment = xla_client.DeviceAssignment.create(np.arange(DEVICES).reshape(1, DEVICES))
        build = options.executable_build_options
        build.num_replicas, build.num_partitions = 1, DEVICES
        build.use_spmd_partitioning = True  # a partitioned module has nothing to partition, but XLA wants the flag
        build.use_shardy_partitioner = False
        build.device_assignment = options.device_assignment
        self.executable = devices[0].client.compile_and_load(portable, _jax.DeviceList(tuple(devices)), options)
        self.compile_s = time.perf_counter() - begin
        self.arguments = list(self._place(arguments, devices))

    def _place(self, path: str, devices: Any) -> Any:
        import jax
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        mesh = Mesh(np.array(devices), ("d",))
        with np.load(path) as file:
            for k in range(len({key.partition("@")[0] for key in file.files})):
                shards = [jax.device_put(file[f"arg{k}@{d}"], devices[d]) for d in range(DEVICES)]
                dims = shards[0].shape
                spec = PartitionSpec("d") if dims else PartitionSpec()
                whole = (dims[0] * DEVICES, *dims[1:]) if dims else ()
                yield jax.make_array_from_single_device_arrays(whole, NamedSharding(mesh, spec), shards)

    def run(self) -> Any:
        """Leaves by device, ready."""
        leaves = self.executable.execute_sharded(self.arguments).disassemble_into_single_device_arrays()
        for shard in leaves[-1]:
            shard.block_until_ready()
        return leaves


def _serve() -> None:
    program: _Program | None = None
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {}
        if request["do"] == "start":
            import jax

            jax.devices()
        elif request["do"] == "compile":
            program = None
            program = _Program(request["text"], request["arguments"])
            answer["seconds"] = program.compile_s
        elif program is not None and request["do"] == "steps":
            times = []
            for _ in range(request["count"]):
                begin = time.perf_counter()
                program.run()
                times.append(time.perf_counter() - begin)
            answer["seconds"] = times
        elif program is not None and request["do"] == "results":
            leaves = program.run()
            np.savez(
                request["target"],
                **{f"out{k}@{d}": np.asarray(a) for k, leaf in enumerate(leaves) for d, a in enumerate(leaf)},
            )
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _serve()
