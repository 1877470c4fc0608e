"""The work of rounds as data in the program, from which proxies plan: `Site.rounds`."""

from __future__ import annotations

import pytest

from distxla.program.work_table import COLUMNS, RAGGED_COLUMNS
from tests.collectives.transports.programs import ADD, RAGGED, collectives, compiled, entry

N = 20_000
V = f"f32[{N}]"
ALL = "replica_groups={{0,1,2,3}}"


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(
    ("name", "members", "element"),
    [
        ("all-reduce", [4], 4),
        ("all-reduce of pairs", [2], 4),
        ("all-reduce of ragged groups", [3], 4),  # a group of one device has no round with others
        ("all-reduce of two", [4], 4),
        ("reduce-scatter of columns", [4], 4),
        ("all-gather of pairs", [2], 0),
        ("all-to-all of tuples", [4], 0),
        ("broadcast", [4], 0),
    ],
)
def test_a_site_has_the_work_of_its_rounds(name, members, element):
    program = compiled(collectives(N)[name])
    (site,) = program.sites
    assert [work.members for work in site.rounds] == members
    (leaves,) = {(work.operands, work.results) for work in site.rounds}
    assert leaves == (len(program.parameter_leaves), len(program.result_leaves))
    for work in site.rounds:
        assert work.element == element
        assert bool(work.reduction) == (element > 0)
        assert {work.do_items, *filter(None, [work.reduction])} <= set(program.image.symbols)
        assert work.table[-1][COLUMNS.index("items_end")] == work.items
        assert not work.read


def test_groups_of_several_sizes_have_a_round_each():
    program = compiled(
        ADD.format(t="f32") + entry("all-reduce(x), replica_groups={{0,2},{1,3,4}}, to_apply=add", V, V), 5
    )
    (site,) = program.sites
    assert [work.members for work in site.rounds] == [2, 3]
    assert len({work.signature for work in site.rounds}) == 1
    assert len({work.do_items for work in site.rounds}) == 2


def test_more_leaves_than_a_slot_holds_take_several_rounds_of_different_signatures():
    count = 200
    names = [f"x{i}" for i in range(count)]
    lines = "".join(f" {name} = f32[4] parameter({i})\n" for i, name in enumerate(names))
    kind = f"({', '.join(['f32[4]'] * count)})"
    root = f" ROOT y = {kind} all-reduce({', '.join(names)}), {ALL}, to_apply=add }}\n"
    (site,) = compiled(ADD.format(t="f32") + "ENTRY e {\n" + lines + root).sites
    assert len(site.rounds) > 1
    assert sum(work.operands for work in site.rounds) == count
    assert len({work.signature for work in site.rounds}) == len(site.rounds)


def test_the_start_has_the_rounds_and_the_done_none():
    text = (
        ADD.format(t="f32")
        + f"ENTRY e {{ x = {V} parameter(0)\n s = {V} all-reduce-start(x), {ALL}, to_apply=add\n"
        + f" y = {V} multiply(x, x)\n d = {V} all-reduce-done(s)\n ROOT r = {V} add(d, y) }}\n"
    )
    rounds = {site.opcode: len(site.rounds) for site in compiled(text).sites}
    assert rounds == {"all-reduce-start": 1, "all-reduce-done": 0}


@pytest.mark.parametrize(("order", "is_reduced_as_it_arrives"), [("rank", True), ("tree", False), ("ring", False)])
def test_orders_but_that_of_the_group_need_all_operands(order, is_reduced_as_it_arrives):
    op = f"all-reduce(x), {ALL}, to_apply=add, reduction_order={order}"
    (site,) = compiled(ADD.format(t="f32") + entry(op, V, V)).sites
    (work,) = site.rounds
    assert bool(work.reduction) == is_reduced_as_it_arrives
    assert work.element == 4


def test_a_ragged_round_says_which_operands_its_items_read():
    rows = 50
    (site,) = compiled(RAGGED.replace("ROWS", str(rows))).sites
    (work,) = site.rounds
    assert len(work.table[0]) == len(RAGGED_COLUMNS)
    assert work.read == (4 * rows * 3, 0, 16, 16, 16, 0)
    assert (work.element, work.reduction) == (0, "")
