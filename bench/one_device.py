"""One side of the table of kernels in a process of its own, on one processor: distxla's compiled code, or XLA CPU.

`OneDevice` is the asking side. The other side is this module run as a program with the side's name: one JSON object a
line in, one out. Both sides run on the same processor, in turn, so that neither has more than one thread at work, and
what is counted is the processor's time, to which other work on the machine adds little.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from distxla.ir.counts import Counts

SAMPLES = 1000
WARM_UP = "HloModule warm_up\n\nENTRY main {\n  x = f32[9] parameter(0)\n  ROOT y = f32[9] add(x, x)\n}\n"


class OneDevice:
    """A context manager around the process. `compile`, `steps` and `samples` block until the answer is there."""

    def __init__(self, side: str) -> None:
        self.side = side

    def __enter__(self) -> OneDevice:
        environment = os.environ | {
            "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
            "JAX_PLATFORMS": "cpu",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "OPENBLAS_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.one_device", self.side],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=Path(__file__).parent.parent,
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def compile(self, text: str, integers: int, floats: tuple[float, float]) -> float:
        """Make `text` the current program, with arguments of those ranges. Processor seconds until it is loaded."""
        return float(self._ask({"do": "compile", "text": text, "integers": integers, "floats": floats})["seconds"])

    def steps(self, count: int) -> list[float]:
        """Processor seconds of each of `count` runs; arguments and results stay on the device."""
        return [float(s) for s in self._ask({"do": "steps", "count": count})["seconds"]]

    def samples(self) -> list[list[float]]:
        """Some elements of every result of one run."""
        return list(self._ask({"do": "samples"})["samples"])

    def forget(self) -> None:
        """Free the current program."""
        self._ask({"do": "forget"})

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the {self.side} process ended with status {self._process.wait()}")
        found = dict(json.loads(answer))
        if "error" in found:
            raise RuntimeError(f"{self.side}: {found['error']}")
        return found


class Program(Protocol):
    """A compiled program with its arguments in place."""

    def run(self) -> None: ...
    def results(self) -> list[np.ndarray[Any, Any]]: ...
    def close(self) -> None: ...


class _Ours:
    def __init__(self, text: str) -> None:
        from distxla.compiler.compile import compile_module
        from distxla.text.parser import parse_module
        from tests.compiler.runner import Devices

        begin = time.process_time()
        self.program = compile_module(parse_module(text), Counts(1, 1))
        self.devices = Devices(self.program)
        self.compile_s = time.process_time() - begin
        self._context = ctypes.addressof(self.devices.contexts[0])

    def load(self, arguments: list[np.ndarray[Any, Any]]) -> None:
        self.devices.store([arguments])

    def run(self) -> None:
        status = self.devices.entry(self._context)
        assert status == 0, f"status {status}"

    def results(self) -> list[np.ndarray[Any, Any]]:
        return self.devices.results(0)

    def close(self) -> None:
        self.devices.close()


class XlaProgram:
    def __init__(self, text: str) -> None:
        import jax
        from jax._src.lib import xla_client
        from jaxlib import _hlo, _jax

        device = jax.devices()[0]
        begin = time.process_time()
        module = _hlo.hlo_module_from_text(text)
        portable = xla_client._xla.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto())
        options = xla_client.CompileOptions()
        self.executable = device.client.compile_and_load(portable, _jax.DeviceList((device,)), options)
        self.compile_s = time.process_time() - begin
        self.device = device

    def load(self, arguments: list[np.ndarray[Any, Any]]) -> None:
        import jax

        with jax.enable_x64(True):
            self.arguments = [jax.device_put(a, self.device) for a in arguments]

    def run(self) -> None:
        for leaf in self.executable.execute(self.arguments):
            leaf.block_until_ready()

    def results(self) -> list[np.ndarray[Any, Any]]:
        return [np.asarray(leaf) for leaf in self.executable.execute(self.arguments)]

    def close(self) -> None:
        del self.executable, self.arguments


def arguments(text: str, integers: int, floats: tuple[float, float]) -> list[np.ndarray[Any, Any]]:
    """Values for the parameters of a module: the same for both sides."""
    from distxla.text.parser import parse_module

    found = []
    for number, parameter in enumerate(parse_module(text).entry_computation.parameters):
        shape = parameter.shape
        generator = np.random.default_rng([number, zlib.crc32(text.encode())])
        if shape.dtype.is_float:
            values = generator.random(shape.dims, np.float32) * np.float32(floats[1] - floats[0]) + np.float32(
                floats[0]
            )
        else:
            values = generator.integers(0, min(integers, 2 ** (shape.dtype.bits - 1)), shape.dims)
        found.append(np.asarray(values).astype(shape.dtype.dtype))
    return found


def _samples(results: list[np.ndarray[Any, Any]]) -> list[list[float]]:
    flat = [result.reshape(-1) for result in results]
    return [part[:: max(1, part.size // SAMPLES)].astype(np.float64).tolist() for part in flat]


def _serve(side: str) -> None:
    program: Any = None
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    make = {"distxla": _Ours, "xla": XlaProgram}[side]
    make(WARM_UP)  # what is loaded and started once is no kernel's
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {}
        try:
            if request["do"] == "compile":
                program = None
                program = make(request["text"])
                program.load(arguments(request["text"], request["integers"], tuple(request["floats"])))
                program.run()
                answer["seconds"] = program.compile_s
            elif request["do"] == "steps":
                times = []
                for _ in range(request["count"]):
                    begin = time.process_time()
                    program.run()
                    times.append(time.process_time() - begin)
                answer["seconds"] = times
            elif request["do"] == "samples":
                answer["samples"] = _samples(program.results())
            elif request["do"] == "forget":
                if program is not None:
                    program.close()
                program = None
                gc.collect()
        except Exception as error:  # the asking side reports it and goes on with the next program
            answer["error"] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1])
