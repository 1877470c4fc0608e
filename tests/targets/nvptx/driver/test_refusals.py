"""What can't be used is refused, and the message says what to change."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import cast

import pytest

from distxla.errors import OutOfMemoryError
from distxla.targets.nvptx.architectures import VERSIONS
from distxla.targets.nvptx.driver.choice import chosen, load_cuda, open_driver
from distxla.targets.nvptx.driver.driver import LEAST_VERSIONS
from distxla.targets.nvptx.driver.emulated.library import EmulatedGpu
from distxla.targets.nvptx.driver.errors import DriverError
from distxla.targets.nvptx.interfaces import driver as interface
from tests.targets.nvptx.driver.gpus import emulated


def test_no_library() -> None:
    def missing(name: str) -> ctypes.CDLL:
        return ctypes.CDLL(f"no-such-{name}")

    with pytest.raises(DriverError, match=r"libcuda.so.1 can't be loaded: .*no-such-libcuda.so.1.*NVIDIA's driver"):
        load_cuda(missing)


def test_a_library_without_a_function() -> None:
    with pytest.raises(DriverError, match=r"libcuda.so.1 has no function cuInit: the driver is too old"):
        load_cuda(lambda name: ctypes.CDLL(None))


def test_functions_get_their_types() -> None:
    """So ctypes passes addresses of 64 bits whole, and structures by value."""
    found = {name: SimpleNamespace() for name in interface.FUNCTIONS}
    library = load_cuda(lambda name: cast(ctypes.CDLL, SimpleNamespace(**found)))
    assert library.cuLaunchKernel.argtypes == interface.FUNCTIONS["cuLaunchKernel"]
    assert library.cuIpcOpenMemHandle_v2.argtypes[1] is interface.IpcHandle
    assert all(function.restype is ctypes.c_int for function in found.values())


def test_a_driver_that_is_too_old() -> None:
    driver = emulated(version=11040)
    assert driver.version == (11, 4)
    with pytest.raises(
        DriverError, match=r"supports CUDA 11.4; kernels for GPU 0 .*\(sm_90\) need a driver for CUDA 11.8"
    ):
        driver.context(0)
    assert emulated(EmulatedGpu(architecture=(8, 6)), version=11040).context(0).gpu.architecture == (8, 6)


def test_every_architecture_has_a_least_version() -> None:
    assert {f"sm_{major}{minor}" for major, minor in LEAST_VERSIONS} == set(VERSIONS)


def test_a_gpu_that_is_too_old() -> None:
    with pytest.raises(DriverError, match=r"GPU 0 \(an old one\) is sm_70; kernels are made for sm_75 on"):
        emulated(EmulatedGpu("an old one", architecture=(7, 0))).context(0)


def test_a_gpu_that_is_not_there() -> None:
    with pytest.raises(DriverError, match="no GPU 1: the driver lists 1"):
        emulated().context(1)


def test_an_arena_that_is_larger_than_free_memory() -> None:
    context = emulated(EmulatedGpu(memory_bytes=8 << 30)).context(0)
    context.allocate(6 << 30)
    with pytest.raises(OutOfMemoryError, match=r"4 GiB are needed on GPU 0 .*, which has 2 GiB of 8 GiB free"):
        context.allocate(4 << 30)


def test_exclusive_mode() -> None:
    driver = emulated(EmulatedGpu(mode=interface.EXCLUSIVE))
    assert driver.context(0, processes=1).gpu.exclusive
    with pytest.raises(DriverError, match=r"exclusive mode, which allows one process, and 8 are to use it.*nvidia-smi"):
        driver.context(0, processes=8)


def test_gpus_without_peer_access() -> None:
    driver = emulated(EmulatedGpu(), EmulatedGpu(has_peers=False))
    assert driver.can_access(1, 1)
    assert not driver.can_access(0, 1)


def test_the_emulator_is_never_chosen_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISTXLA_GPU_DRIVER", raising=False)
    assert chosen() == "cuda"
    monkeypatch.setenv("DISTXLA_GPU_DRIVER", "emulated")
    assert open_driver().gpus()[0].name == "an emulated GPU"
    monkeypatch.setenv("DISTXLA_GPU_DRIVER", "none")
    with pytest.raises(
        DriverError, match="DISTXLA_GPU_DRIVER='none': expected emulated, emulated:N for N GPUs, or cuda"
    ):
        open_driver()
