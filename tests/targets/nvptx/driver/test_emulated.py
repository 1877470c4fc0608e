"""Mistakes that a GPU may hide, and the emulated driver shows."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from distxla.targets.nvptx.driver.driver import Context
from distxla.targets.nvptx.driver.errors import DriverCallError, DriverError
from distxla.targets.nvptx.interfaces import driver as interface
from tests.targets.nvptx.driver.gpus import at, emulated, kernels_for

COUNT = 64
BYTES = 4 * COUNT


@pytest.fixture
def context() -> Iterator[Context]:
    with emulated().context(0) as made:
        yield made


def filled(context: Context, stream: int) -> int:
    address = context.allocate(BYTES)
    context.fill(address, 0, BYTES, stream)
    context.synchronise(stream)
    return address


def test_a_devices_context_is_one_for_all_who_retain_it() -> None:
    driver = emulated()
    with driver.context(0) as first:
        with driver.context(0) as second:
            assert second.handle == first.handle
        assert first.free_bytes() > 0


def test_a_missing_synchronisation_leaves_old_bytes(context: Context) -> None:
    stream, found = context.create_stream(), np.full(COUNT, 7, np.float32)
    address = filled(context, stream)
    context.copy_to_host(at(found), address, BYTES, stream)
    assert (found == 7).all()
    context.synchronise(stream)
    assert (found == 0).all()


def test_a_source_that_changes_before_the_copy(context: Context) -> None:
    stream, source, found = context.create_stream(), np.ones(COUNT, np.float32), np.zeros(COUNT, np.float32)
    address = filled(context, stream)
    context.copy_to_device(address, at(source), BYTES, stream)
    source[:] = 2
    context.copy_to_host(at(found), address, BYTES, stream)
    context.synchronise(stream)
    assert (found == 2).all()


def test_another_queue_is_not_waited_for(context: Context) -> None:
    first, second, found = context.create_stream(), context.create_stream(), np.ones(COUNT, np.float32)
    context.copy_to_host(at(found), filled(context, first), BYTES, first)
    context.synchronise(second)
    assert (found == 1).all()


def test_host_code_can_not_read_the_memory(context: Context) -> None:
    address = context.allocate(4096)
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        ctypes.string_at(address, 1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGSEGV


def test_a_kernel_out_of_bounds_ends_the_context(context: Context) -> None:
    stream = context.create_stream()
    address = filled(context, stream)
    function = context.load(kernels_for("emulated", context)).function("add_one")
    context.launch(function, (1, 1, 1), (COUNT + 1, 1, 1), [address], stream)
    for _ in range(2):
        with pytest.raises(DriverCallError, match=r"ILLEGAL_ADDRESS.*kernel add_one.*a read of 4 bytes"):
            context.synchronise(stream)
    with pytest.raises(DriverCallError, match="kernel add_one"):
        context.allocate(BYTES)


def test_host_memory_in_a_launch(context: Context) -> None:
    stream, values = context.create_stream(), np.zeros(COUNT, np.float32)
    function = context.load(kernels_for("emulated", context)).function("add_one")
    context.launch(function, (1, 1, 1), (COUNT, 1, 1), [at(values)], stream)
    with pytest.raises(DriverCallError, match=r"kernel add_one got 0x.*, which is in no memory of the GPU"):
        context.synchronise(stream)


def test_freed_memory(context: Context) -> None:
    stream = context.create_stream()
    address = filled(context, stream)
    context.free(address)
    with pytest.raises(DriverCallError, match="cuMemsetD8Async failed: CUDA_ERROR_INVALID_VALUE"):
        context.fill(address, 0, BYTES, stream)
    with pytest.raises(DriverCallError, match="cuMemFree_v2 failed: CUDA_ERROR_INVALID_VALUE"):
        context.free(address)
    function = context.load(kernels_for("emulated", context)).function("add_one")
    context.launch(function, (1, 1, 1), (COUNT, 1, 1), [address], stream)
    with pytest.raises(DriverCallError, match="which is in no memory of the GPU"):
        context.synchronise(stream)


def test_a_copy_past_the_end(context: Context) -> None:
    stream, values = context.create_stream(), np.zeros(COUNT + 1, np.float32)
    with pytest.raises(DriverCallError, match=r"260 bytes at 0x.* are not within one allocation"):
        context.copy_to_device(filled(context, stream), at(values), BYTES + 4, stream)


EXPORTER = """
import sys
from tests.targets.nvptx.driver.gpus import emulated
context = emulated().context(0)
address = context.allocate(256)
print(context.export(address).hex(), flush=True)
sys.stdin.readline()
context.free(address)
print("freed", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("end", ["freed", "killed"])
def test_memory_of_a_process_that_has_given_it_up(context: Context, end: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", EXPORTER], stdin=-1, stdout=-1, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        handle = bytes.fromhex(process.stdout.readline())
        address, stream, found = context.open_peer(handle), context.create_stream(), np.zeros(COUNT, np.float32)
        context.copy_to_host(at(found), address, BYTES, stream)
        context.synchronise(stream)
        context.copy_to_host(at(found), address, BYTES, stream)
        if end == "freed":
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "freed\n"
        else:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        with pytest.raises(DriverCallError, match="has freed it" if end == "freed" else "the process has ended"):
            context.synchronise(stream)
        with pytest.raises(DriverError):
            emulated().context(0).open_peer(handle)
    finally:
        process.kill()
        process.communicate()


def test_memory_of_the_own_process(context: Context) -> None:
    with pytest.raises(DriverCallError, match="memory of this process can't be imported"):
        context.open_peer(context.export(context.allocate(BYTES)))


def test_a_thread_without_a_context() -> None:
    driver, found = emulated(), []
    context = driver.context(0)
    stream = context.create_stream()

    def run() -> None:
        try:
            driver.call("cuStreamSynchronize", stream)
        except DriverCallError as error:
            found.append(error.number)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [interface.INVALID_CONTEXT]


def test_compiled_code_calls_the_same_functions(context: Context) -> None:
    """By address, with the types of the C interface."""
    stream, found = context.create_stream(), np.ones(COUNT, np.float32)
    address = filled(context, stream)
    kind = ctypes.CFUNCTYPE(ctypes.c_int, *interface.FUNCTIONS["cuMemcpyDtoHAsync_v2"])
    assert kind(context.address_of("cuMemcpyDtoHAsync_v2"))(at(found), address, BYTES, stream) == 0
    context.synchronise(stream)
    assert (found == 0).all()
