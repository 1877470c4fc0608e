"""Which GPU a device uses, of those that its process sees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from distxla.compiler.compile import compile_module
from distxla.ir.counts import Counts
from distxla.program.options import CompileOptions
from distxla.targets.local_rank import LocalRank
from distxla.targets.nvptx import load
from distxla.targets.nvptx.driver.choice import chosen, open_driver
from distxla.targets.nvptx.driver.driver import Driver
from distxla.targets.nvptx.driver.emulated.library import EmulatedGpu, EmulatedLibrary, visible_numbers
from distxla.targets.nvptx.driver.errors import DriverError
from distxla.targets.nvptx.interfaces import driver as interface
from distxla.targets.nvptx.load import ordinals
from distxla.text.parser import parse_module


@pytest.mark.parametrize(
    ("devices", "gpus", "per_gpu", "expected"),
    [
        (1, 1, None, [0]),
        (8, 1, None, [0] * 8),
        (2, 8, None, [0, 1]),
        (8, 8, None, list(range(8))),
        (8, 2, None, [0, 0, 0, 0, 1, 1, 1, 1]),
        (5, 2, None, [0, 0, 0, 1, 1]),
        (8, 3, None, [0, 0, 0, 1, 1, 1, 2, 2]),
        (4, 8, 2, [0, 0, 1, 1]),
        (3, 4, 1, [0, 1, 2]),
        (3, 1, 4, [0, 0, 0]),
    ],
)
def test_devices_share_gpus_in_blocks(devices: int, gpus: int, per_gpu: int | None, expected: list[int]) -> None:
    assert ordinals(LocalRank(0, devices, per_gpu), gpus) == expected


@pytest.mark.parametrize(("devices", "gpus", "found"), [(3, 1, "1 GPU,"), (5, 2, "2 GPUs,")])
def test_too_few_gpus_are_refused(devices: int, gpus: int, found: str) -> None:
    with pytest.raises(DriverError, match=rf"{devices} devices are on this machine, which has {found} and devices_per"):
        ordinals(LocalRank(0, devices, 2), gpus)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Lets programs load with another driver: `driver(gpu, gpu...)`."""

    def use(*gpus: EmulatedGpu) -> None:
        library = Driver(EmulatedLibrary(gpus))
        monkeypatch.setattr(load, "driver_named", lambda name: library)

    load.gpu_of.cache_clear()
    yield use
    load.gpu_of.cache_clear()


@pytest.fixture(scope="module")
def program() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DISTXLA_GPU_DRIVER", "emulated:2")
        text = "ENTRY main { x = f32[3] parameter(0)  ROOT y = f32[3] negate(x) }"
        return compile_module(parse_module(text), Counts(1, 1), CompileOptions(target="nvptx"))


@pytest.mark.parametrize(
    ("local", "expected"),
    [
        (LocalRank(), 0),
        (LocalRank(1, 2), 1),
        (LocalRank(3, 4), 1),
        (LocalRank(1, 4), 0),
        (LocalRank(per_gpu=4, given=True), 0),
    ],
)
def test_a_program_is_loaded_on_its_devices_gpu(driver: Any, program: Any, local: LocalRank, expected: int) -> None:
    driver(EmulatedGpu(), EmulatedGpu(number=1))
    image = load.load_image(program, local=local)
    assert load.gpu_of(program.grid.device_code.driver, local).context.gpu.ordinal == expected
    image.close()


@pytest.mark.parametrize(
    ("local", "sharing"),
    [(LocalRank(0, 2), 0), (LocalRank(0, 3), 2), (LocalRank(2, 3), 0), (LocalRank(per_gpu=4, given=True), 4)],
)
def test_a_gpu_in_exclusive_mode_takes_one_device(driver: Any, program: Any, local: LocalRank, sharing: int) -> None:
    alone = EmulatedGpu(mode=interface.EXCLUSIVE)
    driver(alone, alone)
    if not sharing:
        load.load_image(program, local=local).close()
        return
    with pytest.raises(DriverError, match=f"exclusive mode, which allows one process, and {sharing} are to use it"):
        load.load_image(program, local=local)


@pytest.mark.parametrize(
    ("visible", "numbers"),
    [(None, [0, 1, 2]), ("", []), ("-1", []), ("2, 0", [2, 0]), ("1,7,0", [1]), ("GPU-3", [])],
)
def test_visible_gpus_of_the_emulator(visible: str | None, numbers: list[int]) -> None:
    assert visible_numbers(3, visible) == numbers


def test_the_environment_says_how_many_gpus_are_emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTXLA_GPU_DRIVER", "emulated:3")
    assert len({gpu.uuid for gpu in open_driver().gpus()}) == 3
    for wrong in ("emulated:", "emulated:0", "emulated:x", "emulated3"):
        monkeypatch.setenv("DISTXLA_GPU_DRIVER", wrong)
        with pytest.raises(DriverError, match="expected emulated, emulated:N for N GPUs, or cuda"):
            chosen()
