"""XLA CPU with several host devices, in a process of its own that is asked over pipes.

`Xla` is the asking side. The other side is this file run as a program: one JSON object a line in, one out.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.side import Arguments


class Xla:
    """A context manager around the process. `compile` and `steps` block until the answer is there."""

    def __init__(self, devices: int) -> None:
        self.devices = devices

    def __enter__(self) -> Xla:
        environment = os.environ | {
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={self.devices}",
            "JAX_PLATFORMS": "cpu",
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.xla"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=Path(__file__).parent.parent,
        )
        self._ask({"do": "start"})
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def compile(self, text: str, arguments: Arguments) -> float:
        """See Side."""
        with tempfile.TemporaryDirectory() as folder:
            # equal arrays are written once
            arrays = {f"{k}": row for k, row in enumerate({id(row): row for row in arguments}.values())}
            numbers = {id(row): number for number, row in arrays.items()}
            file = f"{folder}/arguments.npz"
            np.savez(file, **{f"{n}.{k}": array for n, row in arrays.items() for k, array in enumerate(row)})
            rows = [[f"{numbers[id(row)]}.{k}" for k in range(len(row))] for row in arguments]
            return float(self._ask({"do": "compile", "text": text, "file": file, "rows": rows})["seconds"])

    def steps(self, count: int) -> list[float]:
        """See Side."""
        return [float(s) for s in self._ask({"do": "steps", "count": count})["seconds"]]

    def results(self, target: Path) -> None:
        """See Side."""
        self._ask({"do": "results", "target": str(target)})

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"XLA's process ended with status {self._process.wait()}")
        found = dict(json.loads(answer))
        if "error" in found:
            raise RuntimeError(f"XLA: {found['error']}")
        return found


def without_shardings(text: str) -> str:
    """A partitioned module states its parameters' shardings, which XLA would apply a second time."""
    text = re.sub(r", sharding=\{[^{}]*(\{[^{}]*\}[^{}]*)*\}", "", text)
    return re.sub(r", allow_spmd_sharding_propagation_to_(parameters|output)=\{[^}]*\}", "", text)


class _Program:
    """One compiled program with its arguments on their devices."""

    def __init__(self, text: str, file: str, rows: list[list[str]]) -> None:
        import jax
        from jax._src.lib import xla_client
        from jaxlib import _hlo, _jax

        devices = jax.devices()
        count = len(devices)
        begin = time.perf_counter()
        module = _hlo.hlo_module_from_text(without_shardings(text))
        portable = xla_client._xla.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto())
        options = xla_client.CompileOptions()
        options.num_replicas, options.num_partitions = 1, count
        options.device_assignment = xla_client.DeviceAssignment.create(np.arange(count).reshape(1, count))
        build = options.executable_build_options
        build.num_replicas, build.num_partitions = 1, count
        build.use_spmd_partitioning = True  # a partitioned module has nothing to partition, but XLA wants the flag
        build.use_shardy_partitioner = False
        build.device_assignment = options.device_assignment
        self.executable = devices[0].client.compile_and_load(portable, _jax.DeviceList(tuple(devices)), options)
        self.compile_s = time.perf_counter() - begin
        with np.load(file) as arrays:
            self.arguments = [self._place([arrays[key] for key in keys], devices) for keys in zip(*rows, strict=True)]

    def _place(self, arrays: list[Any], devices: Any) -> Any:
        import jax
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        mesh = Mesh(np.array(devices), ("d",))
        shards = [jax.device_put(array, device) for array, device in zip(arrays, devices, strict=True)]
        dims = shards[0].shape
        spec = PartitionSpec("d") if dims else PartitionSpec()
        whole = (dims[0] * len(devices), *dims[1:]) if dims else ()
        return jax.make_array_from_single_device_arrays(whole, NamedSharding(mesh, spec), shards)

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
            try:
                program = _Program(request["text"], request["file"], request["rows"])
                answer["seconds"] = program.compile_s
            except Exception as error:  # the asking side goes on with the next program
                answer["error"] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
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
