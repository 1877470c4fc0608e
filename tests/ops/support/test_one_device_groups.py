"""Which collectives are told to join no devices, where, with which hint, and how often."""

from __future__ import annotations

import warnings

import pytest

import distxla as dx
from distxla.caller_warning import warn_caller
from distxla.ir.counts import Counts
from distxla.ops.support.one_device_groups import first_warning, one_device_groups
from distxla.text.parser import parse_module

ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"
TWO = "replica_count=2"
EACH = "channel_id=1, use_global_device_ids=true, replica_groups={{0},{1},{2},{3}}"
MESH = "channel_id=1, use_global_device_ids=true, replica_groups=mesh['data'=4,'model'=1] {'model'}"


def program(line: str, name: str = "m", entry: str = "main", counts: str = "num_partitions=4") -> dx.Module:
    return parse_module(f"HloModule {name}, {counts}\n{ADD}ENTRY {entry} {{ x = f32[8] parameter(0)\n {line} }}\n", "t")


def reduced(attributes: str, **others: str) -> dx.Module:
    return program(f"ROOT y = f32[8] all-reduce(x), to_apply=add, {attributes}".rstrip(", "), **others)


PERMUTED = "ROOT y = f32[8] collective-permute(x), channel_id=1, source_target_pairs="
TOLD = {
    "without groups": (
        reduced(""), 1, 4,
        "Without channel_id the ids of its groups are replicas, of which there is one: channel_id=1 joins the "
        "partitions; use_global_device_ids=true and replica_groups=[1,4]<=[4] beside it name devices one by one",
    ),
    "a replica's own group": (reduced("replica_groups={{0}}"), 1, 4, "Without channel_id"),
    "each device": (reduced(EACH), 1, 4, "Each of its groups names one id: replica_groups=[1,4]<=[4] would join all"),
    "each replica": (reduced("replica_groups={{0},{1}}", counts=TWO), 2, 1, "Each of its groups names"),
    "partitions where replicas are": (
        program("ROOT y = f32[8] collective-broadcast(x), channel_id=1, replica_groups={{0}}", counts=TWO), 2, 1,
        "With channel_id the ids of its groups are partitions, of which there is one: without it they are replicas",
    ),
    "no device id there is": (
        program("ROOT y = f32[8] all-to-all(x), dimensions={0}, replica_groups={}"), 1, 4,
        "are replicas, of which there is one: with channel_id=1 they are partitions",
    ),
    "to themselves": (
        program(PERMUTED + "{{0,0},{1,1}}"), 1, 4, "Each of its source_target_pairs names one device twice",
    ),
    "a start": (
        program("s = f32[8] all-reduce-start(x), to_apply=add\n ROOT y = f32[8] all-reduce-done(s)"), 1, 4,
        "Without channel_id",
    ),
}  # fmt: skip
MEANT = {
    "joins partitions": (reduced("channel_id=1"), 1, 4),
    "joins replicas": (reduced("", counts="replica_count=4"), 4, 1),
    "one device in all": (reduced("", counts="replica_count=1"), 1, 1),
    "some alone": (reduced("channel_id=1, use_global_device_ids=true, replica_groups={{0,1},{2},{3}}"), 1, 4),
    "a mesh axis of size 1": (reduced(MESH), 1, 4),
    "written by JAX": (reduced(EACH, name="jit_step"), 1, 4),
    "written by pmap": (reduced(EACH, name="pmap_step"), 1, 4),
    "named by JAX": (reduced(f'{EACH}, metadata={{op_name="jit(step)/psum"}}'), 1, 4),
    "of the partitioner": (reduced(EACH, entry="main_spmd"), 1, 4),
    "permuted by JAX": (program(PERMUTED + "{{0,0},{1,1},{2,2},{3,3}}", name="jit_step"), 1, 4),
    "nothing is sent": (program(PERMUTED + "{}"), 1, 4),
    "one pair joins two": (program(PERMUTED + "{{0,0},{1,2}}"), 1, 4),
}


@pytest.mark.parametrize(("module", "replicas", "partitions", "hint"), TOLD.values(), ids=TOLD)
def test_what_is_told(module: dx.Module, replicas: int, partitions: int, hint: str) -> None:
    found = one_device_groups(module, Counts(replicas, partitions))
    assert found is not None
    assert found.others == 0
    assert hint in found.message
    name = "s" if found.first.name == "s" else "y"
    assert found.message.startswith(f"{name} (t:{found.location.line if found.location else 0}:"), found.message
    assert f"has groups of one device each among {replicas * partitions} devices, so every device" in found.message


@pytest.mark.parametrize(("module", "replicas", "partitions"), MEANT.values(), ids=MEANT)
def test_what_is_not_told(module: dx.Module, replicas: int, partitions: int) -> None:
    assert one_device_groups(module, Counts(replicas, partitions)) is None


def test_jax_is_told_of_groups_that_it_does_not_write_out() -> None:
    assert one_device_groups(reduced("", name="jit_step"), Counts(1, 4)) is not None


def test_the_first_one_is_named_and_the_others_are_counted() -> None:
    lines = "y = f32[8] all-reduce(x), to_apply=add\n z = f32[8] all-reduce(y), to_apply=add\n"
    module = program(f"{lines} ROOT w = f32[8] all-reduce(z), to_apply=add")
    found = one_device_groups(module, Counts(1, 4))
    assert found is not None
    assert (found.first.name, found.others) == ("y", 2)
    assert "its own operand back; so do 2 more. " in found.message


def test_a_module_is_told_once() -> None:
    module, other = reduced(""), reduced("")
    assert first_warning(module, Counts(1, 4)) is not None
    assert first_warning(module, Counts(1, 4)) is None
    assert first_warning(other, Counts(1, 4)) is not None  # equal, but another one


def built(b: dx.XlaBuilder, **attributes: object) -> dx.XlaOp:
    return b.all_reduce(b.parameter(0, "f32[8]", "x"), lambda p, q: p + q, **attributes)  # type: ignore[arg-type]


def test_build_warns_at_the_callers_line_with_the_builders_arguments() -> None:
    b = dx.XlaBuilder("sum", num_partitions=4)
    root = built(b)
    message = r"^all-reduce\.1 \(.*test_one_device_groups\.py:\d+:1\) has groups"
    with pytest.warns(dx.DistxlaWarning, match=message) as told:
        module = b.build(root)
    (warning,) = told
    assert warning.filename == __file__
    assert "use_global_device_ids=True and replica_groups=[[0, 1, 2, 3]] beside it" in str(warning.message)
    assert first_warning(module, Counts(1, 4)) is None


def test_build_is_silent_where_devices_are_joined_or_not_known() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for counts, attributes in (
            ({"num_partitions": 4}, {"channel_id": 1}),
            ({"num_partitions": 4, "replica_count": 2}, {}),
            ({}, {}),
            ({"replica_count": 4}, {}),
        ):
            b = dx.XlaBuilder("sum", **counts)
            b.build(built(b, **attributes))


def test_a_computation_is_told_with_the_program_that_calls_it() -> None:
    b = dx.XlaBuilder("main", num_partitions=4)
    inner = b.create_sub_builder("body")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        body = inner.build(built(inner))
    root = b.call(body, b.parameter(0, "f32[8]", "x"))
    with pytest.warns(dx.DistxlaWarning, match="among 4 devices") as told:
        b.build(root)
    assert len(told) == 1


def test_a_warning_that_is_an_error_is_raised() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", dx.DistxlaWarning)
        with pytest.raises(dx.DistxlaWarning, match=r"^careful$"):
            warn_caller("careful")


@pytest.mark.cluster
@pytest.mark.devices(2)
def test_compile_warns_once_for_a_module(cluster: dx.Cluster) -> None:
    module = parse_module(f"HloModule m\n{ADD}ENTRY main {{ x = f32[8] parameter(0)\n "
                          "ROOT y = f32[8] all-reduce(x), to_apply=add, replica_groups={{0}} }\n")  # fmt: skip
    with pytest.warns(dx.DistxlaWarning, match="among 2 devices") as told:
        cluster.compile(module)
    assert [warning.filename for warning in told] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cluster.compile(module)
