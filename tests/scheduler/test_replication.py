"""Which results are surely the same on all devices, by HLO text: every kind of instruction that decides about it."""

from __future__ import annotations

import pytest

from distxla.compiler.passes.placements import declared_values, placements_of
from distxla.ir.counts import Counts
from distxla.scheduler.replication import UnsureResult, unsure_results
from distxla.text.parser import parse_module

ADD = "add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }\n"
LOOP = """
more { s = (s32[], f32[4]) parameter(0)  n = s32[] get-tuple-element(s), index=0  k = s32[] constant(3)
  ROOT c = pred[] compare(n, k), direction=LT }
body { s = (s32[], f32[4]) parameter(0)  n = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1  one = s32[] constant(1)  m = s32[] add(n, one)
  flipped = f32[4] negate(x)
  ROOT t = (s32[], f32[4]) tuple(m, flipped) }
"""
BRANCHES = """
yes { p = f32[4] parameter(0)  ROOT y = f32[4] negate(p) }
no { p = f32[4] parameter(0)  ROOT y = f32[4] sine(p) }
"""
GROUPS = "replica_groups={{0,1},{2,3}}, use_global_device_ids=true, channel_id=1"
ALL = "replica_groups={{0,1,2,3}}, use_global_device_ids=true, channel_id=1"


def unsure(lines: str, computations: str = "", result: str = "{replicated}") -> list[UnsureResult]:
    """w is whole everywhere, x is cut over 4 partitions."""
    text = f"""HloModule m, num_partitions=4
{ADD}{computations}
ENTRY main_spmd {{
  w = f32[4] parameter(0), sharding={{replicated}}
  x = f32[4] parameter(1), sharding={{devices=[4]<=[4]}}
  {lines.strip()}, sharding={result}
}}
"""
    module = parse_module(text)
    placements = placements_of(module, 4)
    values = declared_values(module, 4, placements.results)
    return unsure_results(module, Counts(1, 4), placements.parameters, placements.results, values)


SURE = {
    "parameter": ("ROOT y = f32[4] negate(w)", ""),
    "all-reduce": (f"ROOT y = f32[4] all-reduce(x), {ALL}, to_apply=add", ""),
    "all-gather": (f"ROOT y = f32[16] all-gather(x), {ALL}, dimensions={{0}}", ""),
    "sums of sums": (
        f"g = f32[4] all-reduce(x), {GROUPS}, to_apply=add\n"
        "  ROOT y = f32[4] all-reduce(g), replica_groups={{0,2},{1,3}}, use_global_device_ids=true, channel_id=2, "
        "to_apply=add",
        "",
    ),
    "asynchronous": (
        f"s = f32[4] all-reduce-start(x), {ALL}, to_apply=add\n  ROOT y = f32[4] all-reduce-done(s)",
        "",
    ),
    "gather in parts": (
        f"s = (f32[4], f32[16]) all-gather-start(x), {ALL}, dimensions={{0}}\n  ROOT y = f32[16] all-gather-done(s)",
        "",
    ),
    "loop": (
        "z = s32[] constant(0)\n  i = (s32[], f32[4]) tuple(z, w)\n"
        "  l = (s32[], f32[4]) while(i), condition=more, body=body\n  ROOT y = f32[4] get-tuple-element(l), index=1",
        LOOP,
    ),
    "table by the device's number": (
        "p = u32[] partition-id()\n  t = s32[4] constant({1,1,1,1})\n"
        "  e = s32[1] dynamic-slice(t, p), dynamic_slice_sizes={1}\n"
        "  s = s32[] reshape(e)\n  ROOT y = f32[1] dynamic-slice(w, s), dynamic_slice_sizes={1}",
        "",
    ),
    "branch": (
        "z = pred[] constant(true)\n  ROOT y = f32[4] conditional(z, w, w), true_computation=yes, false_computation=no",
        BRANCHES,
    ),
    "permute of the same": (
        "ROOT y = f32[4] collective-permute(w), source_target_pairs={{0,1},{1,2},{2,3},{3,0}}, channel_id=1",
        "",
    ),
    "random": (
        "k = u64[2] constant({1,2})\n  r = (u64[2], u32[4]) rng-bit-generator(k), algorithm=rng_threefry\n"
        "  ROOT y = u32[4] get-tuple-element(r), index=1",
        "",
    ),
}


@pytest.mark.parametrize("name", SURE)
def test_sure(name: str) -> None:
    lines, computations = SURE[name]
    assert not unsure(lines, computations)


UNSURE = {
    "own part": ("ROOT y = f32[4] negate(x)", "", "arg1", "y"),
    "sum in groups": (f"ROOT y = f32[4] all-reduce(x), {GROUPS}, to_apply=add", "", "arg1", "y"),
    "own sum": (
        "z = f32[] constant(0)\n  n = f32[4] negate(x)\n  s = f32[] reduce(n, z), dimensions={0}, to_apply=add\n"
        "  ROOT y = f32[] sine(s)",
        "",
        "arg1",
        "s",
    ),
    "number of the device": (
        "p = u32[] partition-id()\n  f = f32[] convert(p)\n  ROOT y = f32[] sine(f)",
        "",
        "p (partition-id)",
        "p",
    ),
    "behind a collective": (
        f"g = f32[4] all-reduce(x), {ALL}, to_apply=add\n  n = f32[4] sine(x)\n  ROOT y = f32[4] add(g, n)",
        "",
        "arg1",
        "n",
    ),
    "scattered": (
        f"ROOT y = f32[1] reduce-scatter(w), {ALL}, dimensions={{0}}, to_apply=add",
        "",
        "y (reduce-scatter)",
        "y",
    ),
    "permuted": (
        "ROOT y = f32[4] collective-permute(w), source_target_pairs={{0,1}}, channel_id=1",
        "",
        "y (collective-permute)",
        "y",
    ),
    "loop": (
        "z = s32[] constant(0)\n  i = (s32[], f32[4]) tuple(z, x)\n"
        "  l = (s32[], f32[4]) while(i), condition=more, body=body\n  ROOT y = f32[4] get-tuple-element(l), index=1",
        LOOP,
        "arg1",
        "flipped",
    ),
    "as often as the device's number": (
        "p = u32[] partition-id()\n  z = s32[] convert(p)\n  i = (s32[], f32[4]) tuple(z, w)\n"
        "  l = (s32[], f32[4]) while(i), condition=more, body=body\n  ROOT y = f32[4] get-tuple-element(l), index=1",
        LOOP,
        "p (partition-id)",
        "p",
    ),
    "branch by the device's number": (
        "p = u32[] partition-id()\n  n = u32[] constant(2)\n  z = pred[] compare(p, n), direction=LT\n"
        "  ROOT y = f32[4] conditional(z, w, w), true_computation=yes, false_computation=no",
        BRANCHES,
        "p (partition-id)",
        "p",
    ),
    "from the host": (
        "t = token[] after-all()\n  i = (f32[4], token[]) infeed(t)\n  ROOT y = f32[4] get-tuple-element(i), index=0",
        "",
        "i (infeed)",
        "i",
    ),
}


@pytest.mark.parametrize("name", UNSURE)
def test_unsure(name: str) -> None:
    lines, computations, cause, instruction = UNSURE[name]
    (found,) = unsure(lines, computations)
    assert found.cause.startswith(cause)
    assert found.instruction == instruction
    assert found.location is not None
    assert f"{instruction} = " in found.location.text
    assert found.as_json()["devices"] == [0, 1, 2, 3]


def test_groups_of_a_sharding_are_judged_by_themselves() -> None:
    """Cut in two over pairs of devices: each pair has the same."""
    result = "{devices=[2,2]<=[4] last_tile_dim_replicate}"
    lines = f"ROOT y = f32[4] all-reduce(x), {GROUPS}, to_apply=add"
    assert not unsure(lines, result=result)
    (found,) = unsure("ROOT y = f32[4] negate(x)", result=result)
    assert found.devices == (0, 1)


@pytest.mark.parametrize("argument", ["x", "known"])
def test_calls_that_double_thirty_times_are_computed_a_few_hundred_times(argument: str) -> None:
    levels = ["level0 { p = f32[4] parameter(0)  ROOT y = f32[4] negate(p) }\n"]
    for k in range(30):
        call = f"to_apply=level{k}"
        lines = f"p = f32[4] parameter(0)  a = f32[4] call(p), {call}  ROOT b = f32[4] call(a), {call}"
        levels.append(f"level{k + 1} {{ {lines} }}\n")
    lines = f"known = f32[4] constant({{1, 2, 3, 4}})\n  ROOT y = f32[4] call({argument}), to_apply=level30"
    found = unsure(lines, "".join(levels))
    assert [one.cause_instruction for one in found] == (["x"] if argument == "x" else [])


DECLARED = 'frontend_attributes={distxla.declared_sharding="{replicated}"}'
INSIDE = {
    "entry": (f"t = f32[4] sine(x), {DECLARED}\n  ROOT y = f32[4] add(t, x)", "", ["t"]),
    "sum": (f"t = f32[4] all-reduce(x), {ALL}, to_apply=add, {DECLARED}\n  ROOT y = f32[4] add(t, x)", "", []),
    "loop, from the second iteration on": (
        "z = s32[] constant(0)\n  i = (s32[], f32[4], f32[4]) tuple(z, w, x)\n"
        "  l = (s32[], f32[4], f32[4]) while(i), condition=more3, body=body3\n"
        "  ROOT y = f32[4] get-tuple-element(l), index=2",
        f"""
more3 {{ s = (s32[], f32[4], f32[4]) parameter(0)  n = s32[] get-tuple-element(s), index=0  k = s32[] constant(3)
  ROOT c = pred[] compare(n, k), direction=LT }}
body3 {{ s = (s32[], f32[4], f32[4]) parameter(0)  n = s32[] get-tuple-element(s), index=0
  a = f32[4] get-tuple-element(s), index=1  b = f32[4] get-tuple-element(s), index=2  one = s32[] constant(1)
  m = s32[] add(n, one)  same = f32[4] sine(a), {DECLARED}
  ROOT t = (s32[], f32[4], f32[4]) tuple(m, b, b) }}
""",
        ["same"],
    ),
    "branch": (
        "z = pred[] constant(true)\n"
        "  ROOT y = f32[4] conditional(z, x, x), true_computation=yes3, false_computation=no3",
        f"""
yes3 {{ p = f32[4] parameter(0)  q = f32[4] negate(p), {DECLARED}  ROOT y = f32[4] sine(q) }}
no3 {{ p = f32[4] parameter(0)  ROOT y = f32[4] sine(p) }}
""",
        ["q"],
    ),
    "the same cause twice": (
        f"t = f32[4] sine(x), {DECLARED}\n  u = f32[4] negate(t), {DECLARED}\n  ROOT y = f32[4] add(u, x)",
        "",
        ["t"],
    ),
}


@pytest.mark.parametrize("name", INSIDE)
def test_values_inside(name: str) -> None:
    lines, computations, values = INSIDE[name]
    found = unsure(lines, computations, "{devices=[4]<=[4]}")
    assert [(one.result, one.value, one.devices) for one in found] == [(None, v, (0, 1, 2, 3)) for v in values]
    for one in found:
        assert one.text.startswith(f"{one.value} is declared the same on devices 0-3, and isn't surely: it depends on ")
