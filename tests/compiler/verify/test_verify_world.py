"""The verifier of a run: programs that go together, and every rule that they may break, with its place."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from distxla.compiler.verify.world import verify_world
from distxla.errors import CollectiveMismatchError, VerificationError
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.text.parser import parse_module

ADD = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[] add(a, b)\n}\n"


def program(name: str, body: str, header: str = "", before: str = ADD) -> Module:
    text = f"HloModule {name}{header}\n{before}ENTRY main {{\n  x = f32[4] parameter(0)\n{body}\n}}\n"
    return parse_module(text, f"{name}.hlo")


def reducing(name: str, groups: str) -> Module:
    return program(name, f"  ROOT s = f32[4] all-reduce(x), replica_groups={groups}, to_apply=add")


def inside(name: str, opcode: str) -> Module:
    """The all-reduce of everybody in a loop or a branch, and none elsewhere."""
    once = "once {\n  p = f32[4] parameter(0)\n  ROOT s = f32[4] all-reduce(p), replica_groups={}, to_apply=add\n}\n"
    if opcode == "while":
        before = "go {\n  p = f32[4] parameter(0)\n  ROOT n = pred[] constant(false)\n}\n"
        body = "  ROOT w = f32[4] while(x), condition=go, body=once"
    else:
        before = "same {\n  ROOT p = f32[4] parameter(0)\n}\n"
        body = "  c = pred[] constant(true)\n"
        body += "  ROOT w = f32[4] conditional(c, x, x), true_computation=once, false_computation=same"
    return program(name, body, before=ADD + once + before)


def two_rounds(name: str, first: str, second: str) -> Module:
    dims = {"x": 4, "y": 8}
    body = "  y = f32[8] concatenate(x, x), dimensions={0}\n"
    body += f"  s = f32[{dims[first]}] all-reduce({first}), to_apply=add\n"
    return program(name, f"{body}  ROOT t = f32[{dims[second]}] all-reduce({second}), to_apply=add")


EVERYBODY = reducing("everybody", "{}")
HALVES = reducing("halves", "{{0,1},{2,3}}")
ALONE = program("alone", "  ROOT n = f32[4] negate(x)")
RING = "{{0,1},{1,2},{2,3},{3,0}}"


def permuting(name: str, pairs: str) -> Module:
    return program(name, f"  ROOT p = f32[4] collective-permute(x), source_target_pairs={pairs}")


ALRIGHT: dict[str, list[tuple[Sequence[int], Module]]] = {
    "one program everywhere": [(range(4), EVERYBODY)],
    "one program, groups": [(range(4), HALVES)],
    "two programs that join": [((0, 1), EVERYBODY), ((2, 3), reducing("other", "{}"))],
    "two programs with groups of their own": [((0, 1), HALVES), ((2, 3), HALVES)],
    "a program on a part whose groups lie there": [((2, 3), HALVES)],
    "beside one that has none": [((0, 1), HALVES), ((2, 3), ALONE)],
    "no communication on a part": [((1,), ALONE)],
    "in another order of the text": [
        ((0, 1), program("ab", "  a = f32[4] all-reduce(x), to_apply=add\n  ROOT b = f32[8] all-gather(a), "
                               "replica_groups={{0,1},{2,3}}, dimensions={0}")),
        ((2, 3), EVERYBODY),
    ],
    "a loop may run none of its rounds": [((0, 1), inside("loop", "while")), ((2, 3), ALONE)],
    "so may a branch": [((0, 1), inside("branch", "conditional")), ((2, 3), EVERYBODY)],
    "permutes of two programs": [((0, 1), permuting("a", RING)), ((2, 3), permuting("b", RING))],
    "permutes among the program's own": [((0, 1), permuting("a", "{{0,1}}")), ((2, 3), ALONE)],
}  # fmt: skip


@pytest.mark.parametrize("programs", ALRIGHT.values(), ids=ALRIGHT)
def test_programs_that_go_together(programs: list[tuple[Sequence[int], Module]]) -> None:
    verify_world(programs, Counts(4, 1))


BROKEN: dict[str, tuple[list[tuple[Sequence[int], Module]], str]] = {
    "a module for others": (
        [(range(4), program("eight", "  ROOT n = f32[4] negate(x)", ", num_partitions=8"))],
        "eight.hlo:1:18: verify: world.counts: eight says num_partitions=8, the run has 1",
    ),
    "a group with idle devices": (
        [((0, 1), EVERYBODY)],
        "everybody.hlo:9:34: verify: world.devices: s joins devices 0, 1, 2, 3, but no program runs on 2, 3",
    ),
    "a pair with an idle device": (
        [((0, 1, 2), permuting("ring", RING))],
        "ring.hlo:9:42: verify: world.devices: p joins devices 0, 1, 2, 3, but no program runs on 3",
    ),
    "also in a branch": (
        [((0, 1), inside("branch", "conditional"))],
        "branch.hlo:9:34: verify: world.devices: s joins devices 0, 1, 2, 3, but no program runs on 2, 3",
    ),
    "one has the collective, the other none": (
        [((0, 1), EVERYBODY), ((2, 3), ALONE)],
        "everybody.hlo:9:34: mismatch: s joins devices 0, 1, 2, 3, but alone, which runs on 2, 3, "
        "has no collective of that group",
    ),
    "the same devices in another order": (
        [((0, 1), EVERYBODY), ((2, 3), reducing("turned", "{{3,2,1,0}}"))],
        "everybody.hlo:9:34: mismatch: s joins devices 0, 1, 2, 3, but turned, which runs on 2, 3, "
        "has no collective of that group",
    ),
    "of other shapes": (
        [
            ((0, 1), EVERYBODY),
            ((2, 3), program("wide", "  y = f32[8] concatenate(x, x), dimensions={0}\n"
                                     "  ROOT t = f32[8] all-reduce(y), to_apply=add")),
        ],
        "everybody.hlo:9:8: mismatch: s joins devices 0, 1, 2, 3, but what wide has there is t "
        "(wide.hlo:10:8); they differ in operands: f32[4] and f32[8]",
    ),
    "once and twice": (
        [
            ((0, 1), EVERYBODY),
            ((2, 3), program("twice", "  y = f32[4] all-reduce(x), to_apply=add\n"
                                      "  ROOT t = f32[4] all-reduce(y), to_apply=add")),
        ],
        "twice.hlo:9:3: mismatch: y joins devices 0, 1, 2, 3, but everybody has 1 collective(s) of "
        "that group, twice has 2",
    ),
    "in another order": (
        [((0, 1), two_rounds("here", "x", "y")), ((2, 3), two_rounds("there", "y", "x"))],
        "here.hlo:10:3: mismatch: s is round 1 of devices 0, 1, 2, 3 in here, in there it is s "
        "(there.hlo:10:3); they differ in operands: f32[4] and f32[8]",
    ),
    "an id that doesn't exist": (
        [(range(4), reducing("far", "{{0,1,2,3,4}}"))],
        "far.hlo:9:34: verify: all-reduce.C5: the groups must hold each id of 0..3 once (cross-replica groups of 4 "
        "replicas x 1 partitions), they hold [0, 1, 2, 3, 4]",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("programs", "message"), BROKEN.values(), ids=BROKEN)
def test_programs_that_do_not(programs: list[tuple[Sequence[int], Module]], message: str) -> None:
    kind = CollectiveMismatchError if ": mismatch: " in message else VerificationError
    with pytest.raises(kind) as caught:
        verify_world(programs, Counts(4, 1))
    assert str(caught.value).splitlines()[0] == message
    assert "^" in str(caught.value).splitlines()[2]
