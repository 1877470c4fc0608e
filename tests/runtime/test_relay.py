"""Groups over several hosts: the same bits as on one host, whoever lives where; and what ends a run that goes wrong."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from distxla.codegen.abi import Status
from distxla.codegen.program import CompiledProgram
from distxla.collectives import control_block
from distxla.errors import ClusterError

from distxla.runtime.compiler import compile_module
from distxla.runtime.relay.relay import Relay
from distxla.text.parser import parse_module
from tests.codegen.runner import Devices
from tests.runtime.relayed import Hosts

TWO, ONE_AND_THREE, THREE_HOSTS = [[0, 1], [2, 3]], [[0], [1, 2, 3]], [[0], [1, 2], [3]]
INTERLEAVED = [[0, 2], [1, 3]]
PLACEMENTS = [TWO, ONE_AND_THREE, THREE_HOSTS, INTERLEAVED]
HEADER = "HloModule m, replica_count={devices}\n"
ADD = "add {{ a = {t}[] parameter(0)\n b = {t}[] parameter(1)\n ROOT r = {t}[] add(a, b) }}\n"


def compiled(text: str, devices: int = 4) -> CompiledProgram:
    return compile_module(parse_module(HEADER.format(devices=devices) + text, "<test>"), replicas=devices, partitions=1)


def on_one_host(program: CompiledProgram, args: Sequence[Sequence[Any]]) -> list[list[np.ndarray[Any, Any]]]:
    devices = Devices(program)
    try:
        return devices(args)
    finally:
        devices.close()


def arguments(program: CompiledProgram, devices: int = 4) -> list[list[np.ndarray[Any, Any]]]:
    """Random bits that are no NaNs, different on every device."""
    found = []
    for device in range(devices):
        rng = np.random.default_rng(device)
        row = []
        for leaf in program.parameter_leaves:
            if leaf.dtype.is_float or leaf.dtype.is_complex:
                row.append(rng.standard_normal(leaf.dims).astype(leaf.dtype.dtype))
            else:
                row.append(rng.integers(0, 2 if leaf.dtype.name == "pred" else 7, leaf.dims).astype(leaf.dtype.dtype))
        found.append(row)
    return found


def hold_together(program: CompiledProgram, placement: Sequence[Sequence[int]], repeat: int = 2) -> None:
    """Several runs over these hosts give the bits that one host gives."""
    devices = sum(map(len, placement))
    args = arguments(program, devices)
    want = on_one_host(program, args)
    with Hosts(placement, program) as hosts:
        for _ in range(repeat):
            outs = hosts.run(args)
            assert not hosts.failures
            for device in range(devices):
                for found, expected in zip(outs[device], want[device], strict=True):
                    assert found.tobytes() == expected.tobytes(), f"device {device}"


def entry(op: str, operand: str, result: str) -> str:
    return f"ENTRY e {{ x = {operand} parameter(0)\n ROOT y = {result} {op} }}\n"


def collectives(n: int) -> dict[str, str]:
    """One instruction each; n: elements of the largest dimension, a multiple of 4."""
    all_, pairs = "replica_groups={{0,1,2,3}}", "replica_groups={{3,1},{0,2}}"
    v, w = f"f32[{n}]", f"f32[4,{n // 4}]"
    t = f"f32[3,{n}]"
    return {
        "all-reduce": ADD.format(t="f32") + entry(f"all-reduce(x), {all_}, to_apply=add", v, v),
        "all-reduce in odd order": ADD.format(t="f32")
        + entry("all-reduce(x), replica_groups={{2,0,3,1}}, to_apply=add", v, v),
        "all-reduce of pairs": ADD.format(t="f32") + entry(f"all-reduce(x), {pairs}, to_apply=add", v, v),
        "all-reduce of ragged groups": ADD.format(t="f32")
        + entry("all-reduce(x), replica_groups={{0,2,3},{1}}, to_apply=add", v, v),
        "all-reduce of two": ADD.format(t="f32")
        + f"ENTRY e {{ x = {v} parameter(0)\n z = f32[7] parameter(1)\n"
        + f" ROOT y = ({v}, f32[7]) all-reduce(x, z), {all_}, to_apply=add }}\n",
        "all-gather": entry(f"all-gather(x), {all_}, dimensions={{0}}", v, f"f32[{4 * n}]"),
        "all-gather of columns": entry(f"all-gather(x), {all_}, dimensions={{1}}", t, f"f32[3,{4 * n}]"),
        "all-gather of pairs": entry(f"all-gather(x), {pairs}, dimensions={{0}}", v, f"f32[{2 * n}]"),
        "reduce-scatter": ADD.format(t="f32")
        + entry(f"reduce-scatter(x), {all_}, dimensions={{0}}, to_apply=add", v, f"f32[{n // 4}]"),
        "reduce-scatter of columns": ADD.format(t="f32")
        + entry(f"reduce-scatter(x), {all_}, dimensions={{1}}, to_apply=add", t, f"f32[3,{n // 4}]"),
        "all-to-all": entry(f"all-to-all(x), {all_}, dimensions={{0}}", v, v),
        "all-to-all of columns": entry(f"all-to-all(x), {all_}, dimensions={{1}}", t, t),
        "all-to-all of tuples": f"ENTRY e {{ a = {v} parameter(0)\n b = {v} parameter(1)\n c = {v} parameter(2)\n"
        + f" d = {v} parameter(3)\n ROOT y = ({v}, {v}, {v}, {v}) all-to-all(a, b, c, d), {all_} }}\n",
        "broadcast": entry("collective-broadcast(x), replica_groups={{2,0,1,3}}", w, w),
        "broadcast of pairs": entry(f"collective-broadcast(x), {pairs}", w, w),
    }


@pytest.fixture(scope="module", params=[16, 20_000, 300_000], ids=["eager", "pieces", "many pieces"])
def programs(request: pytest.FixtureRequest) -> dict[str, CompiledProgram]:
    return {name: compiled(text) for name, text in collectives(request.param).items()}


@pytest.mark.parametrize("placement", PLACEMENTS, ids=str)
@pytest.mark.parametrize("name", list(collectives(16)))
def test_the_same_bits_as_on_one_host(programs, name, placement):
    hold_together(programs[name], placement)


LOOP = """c { p = (s32[], V) parameter(0)
 i = s32[] get-tuple-element(p), index=0
 m = s32[] constant(11)
 ROOT l = pred[] compare(i, m), direction=LT }
b { p = (s32[], V) parameter(0)
 i = s32[] get-tuple-element(p), index=0
 v = V get-tuple-element(p), index=1
 one = s32[] constant(1)
 j = s32[] add(i, one)
 w = V collective-permute(v), RING
 a = V add(w, v)
 ROOT t = (s32[], V) tuple(j, a) }
ENTRY e { x = V parameter(0)
 z = s32[] constant(0)
 t = (s32[], V) tuple(z, x)
 w = (s32[], V) while(t), condition=c, body=b
 ROOT y = V get-tuple-element(w), index=1 }
"""


def permutes(n: int) -> dict[str, str]:
    v = f"f32[{n}]"
    ring = "source_target_pairs={{0,1},{1,2},{2,3},{3,0}}"
    both = f"ENTRY e {{ x = {v} parameter(0)\n z = s8[11] parameter(1)\n"
    return {
        "ring": entry(f"collective-permute(x), {ring}", v, v),
        "some": entry("collective-permute(x), source_target_pairs={{3,0},{0,2},{1,1}}", v, v),
        "two operands": both + f" ROOT y = ({v}, s8[11]) collective-permute(x, z), {ring} }}\n",
        "in a loop": LOOP.replace("V", v).replace("RING", ring),
        "started": f"ENTRY e {{ x = {v} parameter(0)\n s = ({v}, {v}) collective-permute-start(x), {ring}\n"
        f" y = {v} multiply(x, x)\n d = {v} collective-permute-done(s)\n ROOT r = {v} add(d, y) }}\n",
    }


@pytest.mark.parametrize("placement", [TWO, ONE_AND_THREE, THREE_HOSTS, INTERLEAVED], ids=str)
@pytest.mark.parametrize("n", [5, 50_000, 400_000])
@pytest.mark.parametrize("name", list(permutes(5)))
def test_permutes_give_the_same_bits(name, n, placement):
    hold_together(compiled(permutes(n)[name]), placement)
