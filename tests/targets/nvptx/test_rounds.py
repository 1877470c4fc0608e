"""Collectives between the memories of GPUs: the processor's bits, in every form of group and type."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
import pytest

from distxla.collectives.protocols.control_block import fixed_bytes
from distxla.collectives.transports.shared_memory import grid_items, permute_round
from distxla.compiler.compile import compile_module
from distxla.compiler.entry.grid_steps import GridSteps
from distxla.compiler.stages import emit
from distxla.errors import ArgumentError, OutOfMemoryError
from distxla.ir.counts import Counts
from distxla.program.options import CompileOptions
from distxla.targets.nvptx import load, placement
from distxla.targets.nvptx.driver.driver import Context, Driver
from distxla.targets.nvptx.driver.emulated.library import EmulatedGpu, EmulatedLibrary
from distxla.targets.nvptx.driver.errors import DriverError
from distxla.targets.nvptx.exported_blocks import ExportedBlock, ExportedBlocks, ExportedTable, size_class
from distxla.targets.nvptx.placement import communicates_on_gpu
from distxla.targets.nvptx.process_gpu import ProcessGpu
from distxla.text.parser import parse_module
from tests.collectives.executors import run_module
from tests.compiler.runner import run_devices
from tests.samples import in_turn
from tests.targets.nvptx.assembler import ARCHITECTURES, assemble, needs_assembler
from tests.targets.nvptx.rounds_cases import ADD, COLLECTIVES, DEVICES, arguments_of, module_of


@pytest.mark.sampled(one_in=9, first=("all-to-all-False",))
@pytest.mark.parametrize(("name", "apart"), in_turn(COLLECTIVES, [False, True]))
def test_rounds_give_the_processors_bits(name: str, *, apart: bool) -> None:
    text = module_of(name, apart=apart)
    compiled = compile_module(parse_module(text), Counts(DEVICES, 1), CompileOptions(target="nvptx"))
    assert all(site.on_device for site in compiled.sites)
    arguments = arguments_of(text)
    wanted, got = run_module("compiled", text, arguments, DEVICES), run_devices(compiled, arguments)
    for ours, theirs in zip(wanted, got, strict=True):
        assert [leaf.tobytes() for leaf in ours] == [leaf.tobytes() for leaf in theirs]


@pytest.mark.usefixtures("emulator")
@pytest.mark.sampled(one_in=8)
@pytest.mark.parametrize("name", [*COLLECTIVES][::2])
def test_several_gpus_share_the_work(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each member does a part of a round."""
    gpu = ProcessGpu(Driver(EmulatedLibrary()).context(0), "emulated", (12, 8), is_one_of_several=True)
    monkeypatch.setattr(load, "gpu_of", lambda *_: gpu)
    for apart in (False, True):
        text = module_of(name, apart=apart)
        arguments = arguments_of(text)
        wanted, got = (run_module(executor, text, arguments, DEVICES) for executor in ("compiled", "nvptx"))
        for ours, theirs in zip(wanted, got, strict=True):
            assert [leaf.tobytes() for leaf in ours] == [leaf.tobytes() for leaf in theirs]


SUM = "y = f32[300000] all-reduce(x), to_apply=add, reduction_order="
EMPTY = "(f32[301], f32[0])"
# further programs: the type of x, what follows it, the type of the result
PROGRAMS = {
    "an all-gather of a result that hosts share": (
        "f32[300000]",
        SUM + "tree  z = f32[1200000] all-gather(y), dimensions={0}  ROOT r = f32[1200000] add(z, z)",
    ),
    "a permute of a result that hosts share": (
        "f32[300000]",
        SUM + "ring  z = f32[300000] collective-permute(y), source_target_pairs={{0,1},{1,2},{2,3},{3,0}}"
        "  ROOT r = f32[300000] add(z, y)",
    ),
    "a large sum": ("f32[300000]", "y = f32[300000] all-reduce(x), to_apply=add  ROOT r = f32[300000] add(y, x)"),
    "a sum of several": (
        "f32[301]",
        "w = f32[301] multiply(x, x)  y = (f32[301], f32[301]) all-reduce(x, w), to_apply=add"
        "  a = f32[301] get-tuple-element(y), index=0  b = f32[301] get-tuple-element(y), index=1"
        "  ROOT r = f32[301] subtract(a, b)",
    ),
    "an all-to-all of several": (
        "f32[301]",
        "w = f32[301] multiply(x, x)  v = f32[301] negate(x)"
        "  y = (f32[301], f32[301], f32[301], f32[301]) all-to-all(x, w, v, w), replica_groups={{0,1,2,3}}"
        "  a = f32[301] get-tuple-element(y), index=0  b = f32[301] get-tuple-element(y), index=3"
        "  ROOT r = f32[301] subtract(a, b)",
    ),
    "groups of one": (
        "f32[301]",
        "y = f32[301] all-reduce(x), replica_groups={{0},{1},{2},{3}}, to_apply=add  ROOT r = f32[301] add(y, x)",
    ),
    **{
        f"an empty array in {opcode}": (
            "f32[301]",
            f"e = f32[0] slice(x), slice={{[0:0]}}  w = f32[0] negate(e)  y = {EMPTY} {opcode}(x, w), {how}"
            "  a = f32[301] get-tuple-element(y), index=0  ROOT r = f32[301] negate(a)",
        )
        for opcode, how in {
            "all-reduce": "to_apply=add",
            "collective-permute": "source_target_pairs={{0,1},{1,2}}",
            "collective-broadcast": "replica_groups={{2,0}}",
        }.items()
    },
}


@pytest.mark.sampled(one_in=18, first=("a permute of a result that hosts share",))
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_give_the_processors_bits(name: str) -> None:
    kind, rest = PROGRAMS[name]
    text = f"HloModule m, replica_count=4\n{ADD}\nENTRY e {{ p = {kind} parameter(0)  x = {kind} add(p, p)  {rest} }}"
    compiled = compile_module(parse_module(text), Counts(DEVICES, 1), CompileOptions(target="nvptx"))
    assert compiled.sites[-1].on_device
    arguments = arguments_of(text)
    wanted, got = (run_module(executor, text, arguments, DEVICES) for executor in ("compiled", "nvptx"))
    for ours, theirs in zip(wanted, got, strict=True):
        assert [leaf.tobytes() for leaf in ours] == [leaf.tobytes() for leaf in theirs]


@pytest.mark.exhaustive
@needs_assembler
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_rounds_assemble(architecture: str) -> None:
    for name in COLLECTIVES:
        module = parse_module(module_of(name))
        ptx = str(emit(module, "ptx", Counts(DEVICES, 1), gpu_architecture=architecture))
        assert ("round_" in ptx) is (name != "collective-permute")
        assert assemble(ptx, architecture).startswith(b"\x7fELF")


def test_small_rounds_are_the_hosts() -> None:
    """Their values may decide about a loop, and cost less to copy than a launch."""
    module = parse_module(module_of("all-reduce").replace("f32[6,35]", "f32[8,8]"))
    compiled = compile_module(module, Counts(4, 1), CompileOptions(target="nvptx"))
    assert [site.on_device for site in compiled.sites] == [False]


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("order", ["tree", "ring"])
def test_other_orders_are_the_hosts(order: str) -> None:
    text = module_of("all-reduce").replace("to_apply=add", f"to_apply=add, reduction_order={order}")
    arguments = arguments_of(text)
    assert np.array_equal(run_module("compiled", text, arguments, 4), run_module("nvptx", text, arguments, 4))


# what has to be waited for -> where the wait is
WAITS = {
    "the own kernels before a round": ("all-reduce", GridSteps, "emit_wait"),
    "the round's work before its end": ("all-reduce", grid_items, "emit_end"),
    "the own kernels before a permute": ("collective-permute", GridSteps, "emit_wait"),
    "a permute's copies before its end": ("collective-permute", permute_round, "emit_end"),
}


@pytest.mark.usefixtures("emulator")
@pytest.mark.parametrize("name", WAITS)
def test_a_missing_wait_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    collective, holder, wait = WAITS[name]
    monkeypatch.setattr(holder, wait, lambda *arguments: None)
    text = module_of(collective)
    arguments = arguments_of(text)
    wanted = run_module("compiled", text, arguments, 4)  # what others read depends on when the last one waits
    compiled = compile_module(parse_module(text), Counts(4, 1), CompileOptions(target="nvptx"))
    assert not all(np.array_equal(wanted, run_devices(compiled, arguments)) for _ in range(400))


def test_communication_by_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTXLA_GPU_COMMUNICATION", "host")
    compiled = compile_module(parse_module(module_of("all-reduce")), Counts(4, 1), CompileOptions(target="nvptx"))
    assert not any(site.on_device for site in compiled.sites)
    monkeypatch.setenv("DISTXLA_GPU_COMMUNICATION", "device")
    several = compile_module(
        parse_module(module_of("all-reduce")), Counts(4, 1), CompileOptions(target="nvptx", through_host=True)
    )
    assert not any(site.on_device for site in several.sites)


def test_an_unknown_way_to_communicate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTXLA_GPU_COMMUNICATION", "pigeon")
    with pytest.raises(ArgumentError, match="DISTXLA_GPU_COMMUNICATION='pigeon': expected device or host"):
        compile_module(parse_module(module_of("all-reduce")), Counts(4, 1), CompileOptions(target="nvptx"))


def test_nothing_is_copied_for_a_round() -> None:
    plan = str(emit(parse_module(module_of("all-reduce")), "buffers", Counts(4, 1), CompileOptions(target="nvptx")))
    steps = [line.split(":")[0] for line in plan.splitlines() if " <- " in line or line.startswith("copy ")]
    assert steps == [
        "copy parameter[0] to the device  for w.fusion",
        "kernel w.fusion (fusion)",
        "device communicate y (all-reduce)",
        "kernel v (fusion)",
        "copy result[0] to the host  for v",
        "copy result[1] to the host  for v",
    ]


# --- blocks that other devices use


MIB = 1 << 20


@pytest.fixture
def blocks() -> ExportedBlocks:
    return ExportedBlocks(Driver(EmulatedLibrary()).context(0))


@pytest.fixture
def table() -> Iterator[ExportedTable]:
    memory = ctypes.create_string_buffer(fixed_bytes(2))
    yield ExportedTable(ctypes.addressof(memory), 2, 1)
    del memory


def opened(blocks: ExportedBlocks, table: ExportedTable, size: int) -> ExportedBlock:
    """A block that another device has opened, and that its program does not need any more."""
    block = blocks.allocate(size)
    table.publish(block)
    assert table.find_to_open(block.number) is not None
    table.withdraw(block.number)
    blocks.give_back(block, is_opened=table.is_opened(block.number))
    return block


def test_a_block_that_others_have_opened_is_kept(blocks: ExportedBlocks, table: ExportedTable) -> None:
    """For the next program that it suffices for, and for which it is not far too large."""
    first = opened(blocks, table, 5 * MIB)
    assert first.size == 6 * MIB
    assert table.find_to_open(first.number) is None
    assert blocks.allocate(7 * MIB) is not first
    assert blocks.allocate(1) is not first
    assert blocks.allocate(4 * MIB) is first
    table.publish(first)
    found = table.find_to_open(first.number)
    assert found is not None
    assert blocks.open(*found) == first.address


def test_a_block_stays_opened(blocks: ExportedBlocks, table: ExportedTable) -> None:
    """Even if no device has opened it for its second program."""
    first = opened(blocks, table, 6 * MIB)
    assert blocks.allocate(6 * MIB) is first
    table.publish(first)
    blocks.give_back(first, is_opened=table.is_opened(first.number))
    assert blocks.allocate(6 * MIB) is first


def test_a_block_that_nobody_has_opened_is_freed(blocks: ExportedBlocks, table: ExportedTable) -> None:
    free = blocks.context.free_bytes()
    for size in range(1, 600):  # more than there are numbers
        block = blocks.allocate(size)
        table.publish(block)
        assert not table.is_opened(block.number)
        blocks.give_back(block, is_opened=table.is_opened(block.number))
    assert blocks.context.free_bytes() == free


def test_programs_that_grow_share_blocks(blocks: ExportedBlocks, table: ExportedTable) -> None:
    """And where all numbers are taken, a block serves that is far too large."""
    for size in range(1, 400):
        opened(blocks, table, size * MIB)
    assert blocks.allocate(1).size <= 4 * MIB


def test_sizes_of_blocks() -> None:
    sizes = [size_class(count * MIB) // MIB for count in range(1, 65)]
    assert sizes == sorted(sizes)
    assert all(count <= size <= max(2, 1.25 * count + 1) for count, size in enumerate(sizes, 1))
    assert len(set(sizes)) < 24


def test_too_little_memory_takes_an_idle_block(table: ExportedTable) -> None:
    small = ExportedBlocks(Driver(EmulatedLibrary([EmulatedGpu(memory_bytes=80 * MIB)])).context(0))
    large = opened(small, table, 64 * MIB)
    with pytest.raises(
        OutOfMemoryError, match=r"128 MiB are needed .*; 1 of 64 MiB in all are kept for other programs"
    ):
        small.allocate(128 * MIB)
    assert small.allocate(9 * MIB).size == 10 * MIB
    assert small.allocate(3 * MIB).size == 4 * MIB  # all that is free but for a page
    assert small.allocate(2 * MIB).size == 2 * MIB
    assert small.allocate(8 * MIB) is large


def test_a_block_that_nearly_fills_the_memory() -> None:
    nearly = ExportedBlocks(Driver(EmulatedLibrary([EmulatedGpu(memory_bytes=90 * MIB)])).context(0))
    assert size_class(85 * MIB) == 96 * MIB
    assert nearly.allocate(85 * MIB).size == 86 * MIB


def test_too_many_blocks(blocks: ExportedBlocks) -> None:
    for _ in range(256):
        blocks.allocate(1)
    with pytest.raises(DriverError, match="all 256 blocks of GPU memory are in use"):
        blocks.allocate(1)


def test_memory_that_cannot_be_shared(blocks: ExportedBlocks, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Context, address: int) -> bytes:
        raise self.error("cuIpcGetMemHandle", 999)

    monkeypatch.setattr(Context, "export", refuse)
    for _ in range(300):  # no number is lost
        with pytest.raises(DriverError, match=r"can't share memory with other processes: .*COMMUNICATION=host copies"):
            blocks.allocate(1)


def test_a_peer_whose_memory_cannot_be_opened(blocks: ExportedBlocks) -> None:
    """As where GPUs can't access one another; here the driver refuses what the process itself has allocated."""
    block = blocks.allocate(1)
    with pytest.raises(DriverError) as caught:
        blocks.open(0, block.address, block.handle)
    assert "can't open memory of another device's GPU: " in str(caught.value)
    assert "memory of this process can't be imported" in str(caught.value)
    assert "(DISTXLA_GPU_COMMUNICATION=host copies such data through the host's memory)" in str(caught.value)


@pytest.mark.parametrize(("has_peers", "expected"), [(True, True), (False, False)])
def test_gpus_that_cannot_access_one_another(
    monkeypatch: pytest.MonkeyPatch, *, has_peers: bool, expected: bool
) -> None:
    """Then the host's memory is used, unless the variable says something else."""
    gpus = [EmulatedGpu(has_peers=has_peers, number=number) for number in range(2)]
    monkeypatch.setattr(placement, "open_driver", lambda: Driver(EmulatedLibrary(gpus)))
    monkeypatch.delenv("DISTXLA_GPU_COMMUNICATION", raising=False)
    assert communicates_on_gpu() is expected
    monkeypatch.setenv("DISTXLA_GPU_COMMUNICATION", "device")
    assert communicates_on_gpu()
