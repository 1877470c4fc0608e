"""What communicates: groups, bytes and executions, worked out by hand for each program."""

from __future__ import annotations

import pytest

from distxla.compiler.verify.verifier import verify_module
from distxla.ir.counts import Counts
from distxla.scheduler.communication_table import CommunicationRow, communication_table
from distxla.text.parser import parse_module

SUM = "sum { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"
PAIRS = '_xla_send_recv_source_target_pairs="{{0,1},{1,2}}"'


def rows(body: str, replicas: int = 1, partitions: int = 4) -> list[CommunicationRow]:
    module = parse_module(f"HloModule m\n{SUM}{body}")
    verify_module(module, replicas, partitions)
    return communication_table([(range(replicas * partitions), module)], Counts(replicas, partitions))


def entry(line: str, after: str = "") -> str:
    """A program whose second line is the one in question, on x of 32 bytes."""
    return f"ENTRY main {{ x = f32[8] parameter(0)\n {line}\n {after} }}\n"


# instruction; groups, bytes that a device gives, how many give some, bytes in all; on 1 replica x 4 partitions
GROUPS = [
    ("ROOT y = f32[8] all-reduce(x), to_apply=sum, channel_id=1, use_global_device_ids=true, "
     "replica_groups={{0,1,2,3}}",
     "{0-3}", 32, 4, 128),
    ("ROOT y = f32[8] all-reduce(x), to_apply=sum, channel_id=1, use_global_device_ids=true, replica_groups=[2,2]<=[4]",
     "{0-1},{2-3}", 32, 4, 128),
    ("ROOT y = f32[8] all-reduce(x), to_apply=sum, channel_id=1, use_global_device_ids=true, "
     "replica_groups=mesh['data'=2,'model'=2] {'data'}",
     "'data' of mesh['data'=2,'model'=2]", 32, 4, 128),
    ("ROOT y = f32[8] all-reduce(x), to_apply=sum, channel_id=1, use_global_device_ids=true, "
     "replica_groups={{0,2},{3,1}}",
     "{0,2},{3,1}", 32, 4, 128),
    ("ROOT y = f32[16] all-gather(x), dimensions={0}, channel_id=1, use_global_device_ids=true, "
     "replica_groups={{0,1},{2,3}}",
     "{0-1},{2-3}", 32, 4, 128),
    ("ROOT y = f32[8] collective-broadcast(x), channel_id=1, replica_groups={{0,1},{2,3}}", "{0-1},{2-3}", 32, 2, 64),
    ("ROOT y = f32[8] collective-permute(x), channel_id=1, source_target_pairs={{0,1},{1,2},{2,3}}",
     "0 to 1, 1 to 2, 2 to 3", 32, 3, 96),
    ("ROOT y = f32[8] all-reduce(x), to_apply=sum", "{0},{1},{2},{3}", 32, 0, 0),
]  # fmt: skip


@pytest.mark.parametrize(("line", "groups", "size", "givers", "in_all"), GROUPS, ids=[line[1] for line in GROUPS])
def test_groups_and_bytes(line: str, groups: str, size: int, givers: int, in_all: int) -> None:
    (row,) = rows(entry(line))
    assert (row.instruction, row.groups, row.byte_count, row.givers) == ("y", groups, size, givers)
    assert (row.trips, row.byte_count_in_all) == (1, in_all)


def test_replicas_and_partitions_are_flattened() -> None:
    (row,) = rows(entry("ROOT y = f32[8] all-reduce(x), to_apply=sum"), 2, 2)
    assert row.groups == "{0,2},{1,3}"


def test_of_pairs_that_begin_and_end_the_begin_stands_for_both() -> None:
    pair = entry(
        "s = f32[8] all-reduce-start(x), to_apply=sum, channel_id=1, use_global_device_ids=true, "
        "replica_groups={{0,1,2,3}}",
        "ROOT y = f32[8] all-reduce-done(s)",
    )
    assert [(row.instruction, row.kind) for row in rows(pair)] == [("s", "all-reduce")]
    called = (
        "begun { p = f32[8] parameter(0)\n ROOT g = f32[16] all-gather(p), dimensions={0}, channel_id=1, "
        "use_global_device_ids=true, replica_groups={{0,1},{2,3}} }\n"
    )
    begun = entry("s = ((f32[8]), f32[16]) async-start(x), calls=begun", "ROOT y = f32[16] async-done(s)")
    (row,) = rows(called + begun)
    assert (row.instruction, row.kind, row.byte_count_in_all) == ("s", "all-gather", 128)


def test_a_transfer_has_a_row_for_each_side_and_its_bytes_once() -> None:
    attributes = f"channel_id=1, frontend_attributes={{{PAIRS}}}"
    send, recv = rows(
        "ENTRY main { x = f32[8] parameter(0)\n t = token[] after-all()\n"
        f" s = (f32[8], u32[], token[]) send(x, t), {attributes}\n"
        f" r = (f32[8], u32[], token[]) recv(t), {attributes}\n"
        " sd = token[] send-done(s), channel_id=1\n rd = (f32[8], token[]) recv-done(r), channel_id=1\n"
        " ROOT y = f32[8] get-tuple-element(rd), index=0 }\n"
    )
    assert (send.kind, send.channel, send.groups) == ("send", 1, "0 to 1, 1 to 2")
    assert (send.byte_count, send.givers, send.trips, send.byte_count_in_all) == (32, 2, 1, 64)
    assert (recv.kind, recv.byte_count, recv.givers, recv.byte_count_in_all) == ("recv", 0, 0, 0)


def test_feeds_are_between_a_device_and_the_host() -> None:
    given, taken = rows(
        "ENTRY main { t = token[] after-all()\n f = (f32[8], token[]) infeed(t)\n"
        " y = f32[8] get-tuple-element(f), index=0\n ROOT o = token[] outfeed(y, t), outfeed_shape=f32[8] }\n"
    )
    assert (given.kind, given.groups, given.byte_count) == ("infeed", "host", 0)
    assert (taken.kind, taken.groups, taken.byte_count, taken.byte_count_in_all) == ("outfeed", "host", 32, 128)


LOOP = """
below {{ s = (s32[], f32[8], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=2
  ROOT c = pred[] compare(i, {bound}), direction=LT }}
around {{ s = (s32[], f32[8], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[8] get-tuple-element(s), index=1
  y = f32[8] {action}
  n = s32[] get-tuple-element(s), index=2
  ROOT r = (s32[], f32[8], s32[]) tuple(j, y, n) }}
"""
REDUCE = "all-reduce(x), to_apply=sum, channel_id=1, use_global_device_ids=true, replica_groups={{0,1,2,3}}"
BEGIN = """ENTRY main {{ x = f32[8] parameter(0)
  given = s32[] parameter(1)
  zero = s32[] constant(0)
  n = s32[] {count}
  s = (s32[], f32[8], s32[]) tuple(zero, x, n)
  w = (s32[], f32[8], s32[]) while(s), condition=below, body=around{config}
  ROOT y = f32[8] get-tuple-element(w), index=1 }}
"""
TRIPS = [
    ("constant(7)", "", 7),
    ("copy(given)", "", None),
    ("copy(given)", ', backend_config={"known_trip_count":{"n":"5"}}', 5),
    ("constant(0)", "", 0),
]


@pytest.mark.parametrize(("count", "config", "trips"), TRIPS, ids=["counted", "given", "stated", "never"])
def test_trip_counts_of_loops(count: str, config: str, trips: int | None) -> None:
    (row,) = rows(LOOP.format(bound="n", action=REDUCE) + BEGIN.format(count=count, config=config))
    assert row.trips == trips
    assert row.byte_count_in_all == (None if trips is None else 128 * trips)


def test_loops_in_loops_multiply() -> None:
    inner = """
below2 { s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  m = s32[] constant(3)
  ROOT c = pred[] compare(i, m), direction=LT }
around2 { s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[8] get-tuple-element(s), index=1
  y = f32[8] REDUCE
  ROOT r = (s32[], f32[8]) tuple(j, y) }
twice { x = f32[8] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[8]) tuple(zero, x)
  w = (s32[], f32[8]) while(s), condition=below2, body=around2
  v = (s32[], f32[8]) while(w), condition=below2, body=around2
  ROOT y = f32[8] get-tuple-element(v), index=1 }
""".replace("REDUCE", REDUCE)
    (row,) = rows(inner + LOOP.format(bound="n", action="call(x), to_apply=twice") + BEGIN.format(
        count="constant(7)", config=""
    ))  # fmt: skip
    # the second loop of `twice` begins where the first one ended, at 3: its count comes from values that only a run has
    assert row.trips is None


BRANCHES = """
with { x = f32[8] parameter(0)
  ROOT y = f32[8] REDUCE }
without { ROOT x = f32[8] parameter(0) }
""".replace("REDUCE", "all-reduce(x), to_apply=sum, channel_id=1, use_global_device_ids=true, replica_groups=GROUPS")
CHOOSE = """ENTRY main { x = f32[8] parameter(0)
  given = pred[] parameter(1)
  id = u32[] partition-id()
  two = u32[] constant(2)
  low = pred[] compare(id, two), direction=LT
  true = pred[] constant(true)
  ROOT y = f32[8] conditional(CHOICE, x, x), true_computation=with, false_computation=without }
"""


@pytest.mark.parametrize(
    ("choice", "groups", "trips", "in_all"),
    [
        ("true", "{{0,1,2,3}}", 1, 128),
        ("given", "{{0,1,2,3}}", None, None),
        ("low", "{{0,1},{2},{3}}", None, 64),  # devices 2 and 3 never execute it
    ],
)
def test_branches_count_where_the_choice_is_known(choice: str, groups: str, trips: int | None, in_all: int) -> None:
    choose = CHOOSE.replace("CHOICE", choice)
    (row,) = rows(BRANCHES.replace("GROUPS", groups) + choose)
    assert (row.trips, row.byte_count_in_all) == (trips, in_all)


def test_calls_that_double_thirty_times_are_counted_at_once() -> None:
    calls = ["f0 { x = f32[8] parameter(0)\n ROOT y = f32[8] " + REDUCE + " }\n"]
    for k in range(1, 31):
        calls.append(
            f"f{k} {{ x = f32[8] parameter(0)\n a = f32[8] call(x), to_apply=f{k - 1}\n"
            f" ROOT b = f32[8] call(a), to_apply=f{k - 1} }}\n"
        )
    (row,) = rows("".join(calls) + entry("ROOT y = f32[8] call(x), to_apply=f30"))
    assert row.trips == 2**30


def test_programs_of_several_count_their_own_devices() -> None:
    text = "replica_groups={{0,1,2,3}}, use_global_device_ids=true, channel_id=1, to_apply=sum"
    module = parse_module(f"HloModule m\n{SUM}" + entry(f"ROOT y = f32[8] all-reduce(x), {text}"))
    other = parse_module(f"HloModule o\n{SUM}" + entry(f"ROOT z = f32[8] all-reduce(x), {text}"))
    one, two = communication_table([(range(3), module), ((3,), other)], Counts(1, 4))
    assert (one.program, one.givers, one.byte_count_in_all) == (0, 3, 96)
    assert (two.program, two.givers, two.byte_count_in_all) == (1, 1, 32)


def test_the_users_line_comes_from_metadata() -> None:
    line = f'ROOT y = f32[8] {REDUCE}, metadata={{op_name="jit(f)/psum" source_file="train.py" source_line=12}}'
    (row,) = rows(entry(line))
    assert row.as_json() == {
        "instruction": "y",
        "kind": "all-reduce",
        "groups": "{0-3}",
        "channel": 1,
        "bytes": 32,
        "devices": 4,
        "trips": 1,
        "bytes_in_all": 128,
        "source": "train.py:12",
        "location": "<string>:6:7",
    }


def test_validation_bounds_say_which_executions_transfer() -> None:
    """Of the five executions in a loop the pair 0 to 1 transfers in those from 1 to 3; 1 to 2 in all."""
    body = """
below { s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT }
around { s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[8] get-tuple-element(s), index=1
  t = token[] after-all()
  r = (f32[8], u32[], token[]) recv(t), ATTRIBUTES
  s1 = (f32[8], u32[], token[]) send(x, t), ATTRIBUTES
  rd = (f32[8], token[]) recv-done(r), channel_id=1
  sd = token[] send-done(s1), channel_id=1
  y = f32[8] get-tuple-element(rd), index=0
  ROOT n = (s32[], f32[8]) tuple(j, y) }
ENTRY main { x = f32[8] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[8]) tuple(zero, x)
  w = (s32[], f32[8]) while(s), condition=below, body=around
  ROOT y = f32[8] get-tuple-element(w), index=1 }
"""
    bounds = '_xla_send_recv_validation="{{1,3},{0,9}}"'
    attributes = f"channel_id=1, frontend_attributes={{{PAIRS}, {bounds}}}"
    recv, send = rows(body.replace("ATTRIBUTES", attributes), partitions=3)
    assert (send.trips, send.givers, send.byte_count_in_all) == (5, 2, 32 * (3 + 5))
    assert (recv.trips, recv.byte_count_in_all) == (5, 0)


def test_of_a_sliced_permute_the_slices_count() -> None:
    (row,) = rows("""ENTRY main { input = f32[6,4] parameter(0)
  output = f32[5,7] parameter(1)
  a = s32[] parameter(2)
  from = (s32[], s32[]) tuple(a, a)
  ROOT r = f32[5,7] collective-permute(input, output, from, from), source_target_pairs={{0,1},{1,0}}, channel_id=1,
    slice_sizes={{2,3}} }
""")
    assert (row.byte_count, row.givers, row.byte_count_in_all) == (24, 2, 48)


def test_of_a_ragged_exchange_the_input_counts() -> None:
    operands = "".join(f" t{k} = s32[4] parameter({k})\n" for k in range(2, 6))
    (row,) = rows(
        "ENTRY main { input = f32[6,2] parameter(0)\n output = f32[8,2] parameter(1)\n" + operands +
        " ROOT r = f32[8,2] ragged-all-to-all(input, output, t2, t3, t4, t5), replica_groups={}, channel_id=1 }\n"
    )  # fmt: skip
    assert (row.groups, row.byte_count, row.byte_count_in_all) == ("{0-3}", 48, 192)


def test_of_a_kernel_that_communicates_only_the_kernel_knows() -> None:
    config = '{"custom_call_config":{"has_communication":true}}'
    (row,) = rows(entry(
        f'ROOT y = f32[8] custom-call(x), custom_call_target="tpu_custom_call", backend_config={config}'
    ))  # fmt: skip
    assert (row.kind, row.groups, row.trips) == ("custom-call", "only its kernel says", 1)
    assert (row.byte_count, row.byte_count_in_all) == (None, None)
