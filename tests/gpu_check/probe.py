"""Measures contexts, launches and copies, and whether processes can share the GPU's memory."""

from __future__ import annotations

import ctypes
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from distxla.machine.byte_counts import amount
from distxla.targets.nvptx.architectures import newest_for
from distxla.targets.nvptx.code import code_for
from distxla.targets.nvptx.driver.choice import driver_named
from distxla.targets.nvptx.driver.driver import Context

EMPTY = """
target triple = "nvptx64-nvidia-cuda"
define ptx_kernel void @empty(ptr %x) {
  ret void
}
"""
LARGE = 1 << 28  # bytes
ROUNDS = 200
WAIT = """
from distxla.targets.nvptx.driver.choice import driver_named
context = driver_named("cuda").context(0)
print(flush=True)
input()
"""
PEER = """
import sys
from distxla.targets.nvptx.driver.choice import driver_named
import ctypes
context = driver_named("cuda").context(0)
stream = context.create_stream()
address = context.open_peer(bytes.fromhex(sys.argv[1]))
found = (ctypes.c_ubyte * 16)()
context.copy_to_host(ctypes.addressof(found), address, 16, stream)
context.synchronise(stream)
context.fill(address, 7, 16, stream)
context.synchronise(stream)
context.close_peer(address)
print(bytes(found).hex())
"""


def main() -> int:
    driver = driver_named("cuda")
    for gpu in driver.gpus():
        print(f"{gpu}: sm_{gpu.architecture[0]}{gpu.architecture[1]}, {amount(gpu.memory_bytes)}")
    print(f"driver: CUDA {driver.version[0]}.{driver.version[1]}")
    begin = time.perf_counter()
    with driver.context(0) as context:
        print(f"a context: {1e3 * (time.perf_counter() - begin):.0f} ms")
        before = context.free_bytes()
        with_another = _free_beside_another(context)
        print(f"memory of a context: {amount(before - with_another)}")
        _launches(context)
        _copies(context)
        return _peers(context)


def _free_beside_another(context: Context) -> int:
    """What is free while another process has a context."""
    wait = (
        "from distxla.targets.nvptx.driver.choice import driver_named as d; c = d('cuda').context(0); print(); input()"
    )
    with subprocess.Popen([sys.executable, "-c", wait], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        free = context.free_bytes()
        process.communicate(b"\n")
    return free


def _launches(context: Context) -> None:
    code = code_for(newest_for(context.gpu.architecture))
    module = context.load(code.emit_assembly(code.parse(EMPTY)).encode())
    function, stream = module.function("empty"), context.create_stream()
    place = context.allocate(256)

    def many() -> None:
        for _ in range(100):
            context.launch(function, (1, 1, 1), (32, 1, 1), [place], stream)
        context.synchronise(stream)

    def one() -> None:
        context.launch(function, (1, 1, 1), (32, 1, 1), [place], stream)
        context.synchronise(stream)

    print(f"launches one after the other, from Python: {1e4 * _seconds(many):.2f} µs each")
    print(f"a launch and the wait for it, from Python: {1e6 * _seconds(one):.1f} µs")
    context.free(place)
    context.destroy_stream(stream)


def _copies(context: Context) -> None:
    stream = context.create_stream()
    first, second = context.allocate(LARGE), context.allocate(LARGE)
    host = ctypes.create_string_buffer(LARGE)
    at = ctypes.addressof(host)
    kinds: dict[str, tuple[int, Callable[[], None]]] = {
        "from the host, pageable": (1, lambda: context.copy_to_device(first, at, LARGE, stream)),
        "to the host, pageable": (1, lambda: context.copy_to_host(at, first, LARGE, stream)),
        "on the GPU, read and written": (2, lambda: context.copy(second, first, LARGE, stream)),
    }
    for name, (passes, copy) in kinds.items():

        def run(copy: Callable[[], None] = copy) -> None:
            copy()
            context.synchronise(stream)

        print(f"copies {name}: {passes * LARGE / _seconds(run, 20) / 1e9:.1f} GB/s")
    context.free(first)
    context.free(second)
    context.destroy_stream(stream)


def _peers(context: Context) -> int:
    """Memory of this process that another one reads and writes."""
    stream, address = context.create_stream(), context.allocate(4096)
    context.fill(address, 3, 4096, stream)
    context.synchronise(stream)
    handle = context.export(address).hex()
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", PEER, handle], capture_output=True, text=True)
    found = (ctypes.c_ubyte * 16)()
    context.copy_to_host(ctypes.addressof(found), address, 16, stream)
    context.synchronise(stream)
    works = done.stdout.strip() == "03" * 16 and bytes(found) == b"\7" * 16
    why = "" if works else f": {done.stderr.strip().splitlines()[-1:]}"
    print(f"memory between processes: {'works' if works else 'fails'}{why}, {time.perf_counter() - begin:.1f} s")
    return 0 if works else 1


def _seconds(run: Callable[[], None], rounds: int = ROUNDS) -> float:
    """The median, after a warm-up."""
    times = []
    for _ in range(rounds + 3):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[3:])


if __name__ == "__main__":
    sys.exit(main())
