"""Compiled sends and recvs in threads over shared memory: every case, repeated, and with devices that come late."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from distxla.collectives.protocols import channel as channel_words
from distxla.compiler.compile import compile_module, optimised
from distxla.compiler.plan.buffers import Copy
from distxla.compiler.plan.plan_program import plan
from distxla.ir.counts import Counts
from distxla.ir.shape import Shape
from distxla.program.artifact import CompiledProgram
from distxla.text.parser import parse_module
from tests.channel_case import ChannelCase, mine, ring
from tests.channel_programs import CASES, counted_ring, pipelined, pipelined_text
from tests.collectives.matrix_executors import DelayedDevices
from tests.compiler.runner import Devices

ONE_PROGRAM = [case for case in CASES if len(case.programs) == 1]


def compiled(case: ChannelCase) -> CompiledProgram:
    ((_, module),) = case.modules()
    return compile_module(module, Counts(case.replicas, case.partitions))


def check(case: ChannelCase, devices: Devices) -> None:
    outs = devices([case.arguments(device) for device in range(case.devices)])
    assert not case.wrong(dict(enumerate(outs)))


@pytest.mark.sampled(one_in=16)
@pytest.mark.parametrize("case", ONE_PROGRAM, ids=lambda case: case.name)
def test_values_arrive(case: ChannelCase) -> None:
    program = compiled(case)
    devices = Devices(program)
    for _ in range(3):
        check(case, devices)
    devices.close()
    for seed in range(3):
        late = DelayedDevices(program, seed, 0.002)
        check(case, late)
        late.close()


LATE = [pipelined(3, 5, 4), pipelined(3, 5, 20_000), counted_ring(3, 12, 20_000)]


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("case", LATE, ids=lambda case: case.name)
def test_late_devices_change_nothing(case: ChannelCase) -> None:
    program = compiled(case)
    for seed in range(12):
        devices = DelayedDevices(program, seed, 0.004)
        for _ in range(2):
            check(case, devices)
        devices.close()


@pytest.mark.parametrize("size", [1, 9000])
def test_a_thousand_rounds(size: int) -> None:
    case = counted_ring(4, 1000, size)
    devices = Devices(compiled(case))
    check(case, devices)
    check(case, devices)
    devices.close()


def test_more_recvs_than_the_ring_has_places_may_be_in_flight() -> None:
    """The last one's place can't be posted: a send-done that comes first must not copy to where nothing is meant."""
    size, count = 20_000, channel_words.RING + 1
    shape, context = f"f32[{size}]", f"(f32[{size}], u32[], token[])"
    pairs = "frontend_attributes={_xla_send_recv_source_target_pairs={{0,1}}}"
    lines = ["x = " + shape + " parameter(0)", "t = token[] after-all()"]
    for k in range(count):
        lines += [f"m{k} = f32[] constant({k})", f"n{k} = {shape} broadcast(m{k}), dimensions={{}}"]
        lines += [f"x{k} = {shape} add(x, n{k})", f"s{k} = {context} send(x{k}, t), {pairs}"]
    lines += [f"r{k} = {context} recv(t), {pairs}" for k in range(count)]
    done = [f"d{k} = ({shape}, token[]) recv-done(r{k})" for k in range(count)]
    lines += [*done[:-1], *(f"e{k} = token[] send-done(s{k})" for k in range(count)), done[-1]]
    lines += [f"y{k} = {shape} get-tuple-element(d{k}), index=0" for k in range(count)]
    names = ", ".join(f"y{k}" for k in range(count))
    root = f"ROOT r = ({', '.join([shape] * (count + 1))}) tuple({names}, x)"
    program = compile_module(parse_module("ENTRY main {\n  " + "\n  ".join([*lines, root]) + "\n}"), Counts(2, 1))
    for seed in range(10):
        devices = DelayedDevices(program, seed, 0.004)
        outs = devices([[mine(0, size)], [mine(1, size)]])
        for device in range(2):
            np.testing.assert_array_equal(outs[device][count], mine(device, size))
        for k in range(count):
            np.testing.assert_array_equal(outs[1][k], mine(0, size) + np.float32(k))
        devices.close()


def test_a_bound_of_transfers_may_be_in_flight() -> None:
    """A device sends RING values before anybody receives one, for values of all ways to travel."""
    for size in (1, 20_000):
        shape, context = f"f32[{size}]", f"(f32[{size}], u32[], token[])"
        pairs = "frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,0}}}"
        lines = ["x = " + shape + " parameter(0)", "t = token[] after-all()"]
        for k in range(channel_words.RING):
            lines.append(f"m{k} = f32[] constant({k})")
            lines.append(f"n{k} = {shape} broadcast(m{k}), dimensions={{}}")
            lines.append(f"x{k} = {shape} add(x, n{k})")
            lines.append(f"s{k} = {context} send(x{k}, t), {pairs}")
        for k in range(channel_words.RING):
            lines.append(f"r{k} = {context} recv(t), {pairs}")
            lines.append(f"d{k} = ({shape}, token[]) recv-done(r{k})")
            lines.append(f"y{k} = {shape} get-tuple-element(d{k}), index=0")
            lines.append(f"e{k} = token[] send-done(s{k})")
        names = ", ".join(f"y{k}" for k in range(channel_words.RING))
        root = f"ROOT r = ({', '.join([shape] * channel_words.RING)}) tuple({names})"
        module = parse_module("ENTRY main {\n  " + "\n  ".join([*lines, root]) + "\n}")
        devices = Devices(compile_module(module, Counts(2, 1)))
        for _ in range(2):
            outs = devices([[mine(d, size)] for d in range(2)])
            for d in range(2):
                for k in range(channel_words.RING):
                    assert np.array_equal(outs[d][k], mine(1 - d, size) + np.float32(k))
        devices.close()


TYPES = ["pred", "s4", "u8", "s16", "u64", "f16", "bf16", "f8e4m3fn", "f64", "c128"]


@pytest.mark.sampled(one_in=12)
@pytest.mark.parametrize("kind", TYPES)
def test_every_type_travels(kind: str) -> None:
    for size in (0, 5, 40_000):
        shape = f"{kind}[{size}]"
        pairs = "frontend_attributes={_xla_send_recv_source_target_pairs={{0,1}}}"
        text = f"""
ENTRY main {{
  x = {shape} parameter(0)
  t = token[] after-all()
  r = ({shape}, u32[], token[]) recv(t), {pairs}
  s = ({shape}, u32[], token[]) send(x, t), {pairs}
  rd = ({shape}, token[]) recv-done(r)
  sd = token[] send-done(s)
  ROOT y = {shape} get-tuple-element(rd), index=0
}}"""
        module = parse_module(text)
        (leaf,) = module.entry_computation.parameters[0].shape.leaves()
        values = np.random.default_rng(size).integers(0, 2, size).astype(leaf.dtype.dtype)
        devices = Devices(compile_module(module, Counts(2, 1)))
        outs = devices([[values], [values * 0 if kind != "pred" else values]])
        assert outs[1][0].tobytes() == values.tobytes()
        assert not np.frombuffer(outs[0][0].tobytes(), np.uint8).any()
        devices.close()


def test_large_values_are_copied_once_where_contexts_stay() -> None:
    """Where they travel they wait in a bounce buffer; their loop's state is not copied for them."""
    local = optimised(parse_module(CASES[2].programs[0][1]))
    assert {type(i.op).__name__ for c in local.computations for i in c} >= {
        "ZeroCopySend",
        "ZeroCopyRecv",
        "ZeroCopyRecvDone",
    }
    travelling = optimised(parse_module(pipelined_text(2, 3, 9000, ring(2))))
    assert not {type(i.op).__name__ for c in travelling.computations for i in c} & {"ZeroCopySend", "ZeroCopyRecv"}
    found: Any = plan(travelling, Counts(2, 1))
    large = [step for step in found.walk() if isinstance(step, Copy) and step.source.size == 36_000]
    assert len(large) <= 3  # the loop's v and sum; four contexts have as large a part


def test_zero_copy_depends_on_size_and_leaves() -> None:
    large = Shape.tuple(tuple(parse_leaf("f32[9000]") for _ in range(channel_words.MOST_LEAVES)))
    assert channel_words.may_be_zero_copy(large)
    assert not channel_words.may_be_zero_copy(Shape.tuple((*(large.elements or ()), parse_leaf("f32[1]"))))
    assert not channel_words.may_be_zero_copy(parse_leaf("f32[8192]"))
    assert channel_words.may_be_zero_copy(parse_leaf("f32[8193]"))


def parse_leaf(text: str) -> Shape:
    return parse_module(f"ENTRY main {{ ROOT x = {text} parameter(0) }}").entry_computation.root_instruction.shape
