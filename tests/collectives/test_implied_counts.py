"""Which counts groups, pairs and shardings imply: by hand, for modules whose header says none."""

from __future__ import annotations

import pytest

from distxla.collectives.implied_counts import implied_counts
from distxla.compiler.verify.world import verify_world
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.text.parser import parse_module

_ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b) }\n"


def _module(*lines: str) -> Module:
    body = "\n ".join(("x = f32[8] parameter(0)", *lines))
    return parse_module(f"HloModule m\n{_ADD}ENTRY e {{\n {body} }}", "m.hlo")


def _all_reduce(attributes: str, name: str = "r") -> str:
    return f"{name} = f32[8] all-reduce(x), {attributes}, to_apply=add"


_GLOBAL = "channel_id=1, use_global_device_ids=true"
_PAIRS = 'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,3}}"}'


def _transfer(channel: int) -> tuple[str, ...]:
    context = "(f32[8], u32[], token[])"
    return (
        "t = token[] after-all()",
        f"s = {context} send(x, t), channel_id={channel}, {_PAIRS}",
        f"r = {context} recv(t), channel_id={channel}, {_PAIRS}",
        f"sd = token[] send-done(s), channel_id={channel}",
        f"ROOT rd = (f32[8], token[]) recv-done(r), channel_id={channel}",
    )


CASES: dict[str, tuple[Module, tuple[int, int]]] = {
    "groups of replicas": (_module(_all_reduce("replica_groups={{0,3},{1,2}}")), (4, 1)),
    "groups of replicas that all partitions join": (
        _module(_all_reduce("channel_id=1, replica_groups={{0,1}}")),
        (2, 1),
    ),
    "flattened ids, meant as partitions": (_module(_all_reduce(f"{_GLOBAL}, replica_groups=[2,4]<=[8]")), (1, 8)),
    "flattened ids beside groups of replicas": (
        _module(_all_reduce(f"{_GLOBAL}, replica_groups=[2,4]<=[8]"), _all_reduce("replica_groups={{0,1}}", "q")),
        (2, 4),
    ),
    "flattened ids beside groups of partitions": (
        _module(
            _all_reduce(f"{_GLOBAL}, replica_groups=[2,4]<=[8]"),
            "a = f32[8] all-to-all(x), channel_id=2, replica_groups={{0,1}}, dimensions={0}",
        ),
        (4, 2),
    ),
    "groups of partitions": (
        _module("a = f32[8] all-to-all(x), channel_id=1, replica_groups={{0,1},{3,2}}, dimensions={0}"),
        (1, 4),
    ),
    "pairs of replicas": (_module("p = f32[8] collective-permute(x), source_target_pairs={{0,1},{1,5}}"), (6, 1)),
    "pairs of partitions": (
        _module("p = f32[8] collective-permute(x), channel_id=3, source_target_pairs={{0,1},{1,5}}"),
        (1, 6),
    ),
    "groups of replicas that hold all ids of the pairs": (
        _module(
            "p = f32[8] collective-permute(x), source_target_pairs={{0,1}}",
            _all_reduce("replica_groups={{0,1,2}}", "q"),
        ),
        (3, 1),
    ),
    "a broadcast that leaves ids out": (
        _module("b = f32[8] collective-broadcast(x), replica_groups={{2,4}}"),
        (5, 1),
    ),
    "everybody, by the dimension sizes of a gather": (
        _module("g = f32[40] all-gather(x), replica_groups={}, dimensions={0}"),
        (5, 1),
    ),
    "everybody, by the dimension sizes of a scatter": (
        _module("g = f32[2] reduce-scatter(x), replica_groups={}, dimensions={0}, to_apply=add"),
        (4, 1),
    ),
    "all partitions of two replicas, by the dimension sizes of a gather": (
        _module("g = f32[48] all-gather(x), channel_id=1, replica_groups={{0,1}}, dimensions={0}"),
        (2, 3),
    ),
    "pairs of transfers": (_module(*_transfer(0)), (4, 1)),
    "pairs of transfers on a channel": (_module(*_transfer(1)), (1, 4)),
    "a sharding beside groups of replicas": (
        parse_module(
            f"HloModule m\n{_ADD}ENTRY e {{ x = f32[8] parameter(0), sharding={{devices=[4]<=[4]}}\n"
            f" {_all_reduce('replica_groups={{0,1}}')} }}"
        ),
        (2, 4),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_counts_are_the_least_that_suit_everything(name: str) -> None:
    module, counts = CASES[name]
    assert implied_counts([module]) == counts


@pytest.mark.parametrize("name", [name for name in CASES if "sharding" not in name])
def test_a_run_with_these_counts_passes_the_verifier(name: str) -> None:
    module, (replicas, partitions) = CASES[name]
    verify_world([(range(replicas * partitions), module)], Counts(replicas, partitions))


def test_what_is_known_is_kept() -> None:
    module = _module(_all_reduce(f"{_GLOBAL}, replica_groups=[2,4]<=[8]"))
    assert implied_counts([module], replicas=2) == (2, 4)
    assert implied_counts([module], partitions=2) == (4, 2)
    assert implied_counts([module], partitions=3) is None


@pytest.mark.parametrize(
    "lines",
    [
        (_all_reduce("replica_groups={{0,1}}"), _all_reduce("replica_groups={{0,1,2}}", "q")),
        (_all_reduce("replica_groups={{0,1},{1,2}}"),),
        (_all_reduce("replica_groups={{0,2}}"),),
    ],
    ids=["contradictory groups", "an id twice", "an id that no group holds"],
)
def test_no_counts_suit_groups_that_are_wrong(lines: tuple[str, ...]) -> None:
    assert implied_counts([_module(*lines)]) is None


def test_several_programs_share_their_counts() -> None:
    one, other = (_module(_all_reduce(f"replica_groups={{{{{ids}}}}}")) for ids in ("0,1,2", "2,1,0"))
    assert implied_counts([one, other]) == (3, 1)


def test_nothing_is_implied_without_communication() -> None:
    assert implied_counts([_module("n = f32[8] negate(x)")]) is None
