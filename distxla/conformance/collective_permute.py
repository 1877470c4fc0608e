"""collective-permute: who sends to whom, element types, shapes."""

from __future__ import annotations

from collections.abc import Iterator

from distxla.conformance.case import Case
from distxla.conformance.groups import Groups
from distxla.conformance.program_text import Collective, case_of
from distxla.conformance.values import bits
from distxla.ir.element_type import DATA_TYPES, F8E8M0FNU, F32, S8
from distxla.ir.shape import Shape


def _sends(name: str, replicas: int, partitions: int, pairs: str, *, partition_ids: bool = False) -> Groups:
    """With channel_id the ids are partitions', else replicas'."""
    channel = "channel_id=1, " if partition_ids else ""
    return Groups(name, replicas, partitions, f"{channel}source_target_pairs={pairs}", 0)


RING = _sends("ring", 4, 1, "{{0,1},{1,2},{2,3},{3,0}}")
PERMUTES = (
    RING,
    _sends("reversed-ring", 4, 1, "{{0,3},{3,2},{2,1},{1,0}}"),
    _sends("chain", 4, 1, "{{0,1},{1,2},{2,3}}"),  # nobody sends to 0, which gets zeros
    _sends("one-pair", 4, 1, "{{2,0}}"),
    _sends("swap", 4, 1, "{{0,1},{1,0},{2,3},{3,2}}"),
    _sends("self", 4, 1, "{{0,0},{1,1},{2,2},{3,3}}"),
    _sends("self-and-others", 4, 1, "{{0,0},{1,2},{2,1}}"),
    _sends("unordered", 4, 1, "{{3,1},{0,2},{2,0}}"),
    _sends("none", 4, 1, "{}"),
    _sends("one-device", 1, 1, "{{0,0}}"),
    _sends("one-device-none", 1, 1, "{}"),
    _sends("eight", 8, 1, "{{0,3},{1,4},{2,5},{3,6},{4,7},{5,0},{6,1},{7,2}}"),
    _sends("cross-replica", 3, 2, "{{0,1},{1,2}}"),
    _sends("partitions", 1, 4, "{{0,1},{1,2},{2,3},{3,0}}", partition_ids=True),
    _sends("partition-chain", 1, 4, "{{3,2},{2,1}}", partition_ids=True),
    _sends("cross-partition", 2, 3, "{{0,2},{2,1}}", partition_ids=True),
)
SHAPES = (
    ("rank-0", (Shape(F32),)),
    ("rank-1", (Shape(F32, (5,)),)),
    ("empty", (Shape(F32, (0, 3)),)),
    ("large", (Shape(F32, (20_011,)),)),
    ("variadic", (Shape(F32, (2, 3)), Shape(F32))),
    ("variadic-of-two-types", (Shape(F32, (2,)), Shape(S8, (1, 3)))),
)


def of(sends: Groups, *operands: Shape) -> Collective:
    """The permute of some operands."""
    return Collective("collective-permute", operands, operands, sends.attributes)


def cases() -> Iterator[Case]:
    """All of this file."""
    for sends in PERMUTES:
        yield case_of(f"collective-permute/{sends.name}/f32/rank-2", sends, of(sends, Shape(F32, (2, 3))), bits)
    chain = PERMUTES[2]
    for kind in DATA_TYPES:
        if kind is not F32 and kind.name != "f8e8m0fnu":  # which has no zero
            yield case_of(f"collective-permute/chain/{kind}/rank-2", chain, of(chain, Shape(kind, (2, 3))), bits)
    yield case_of("collective-permute/ring/f8e8m0fnu/rank-2", RING, of(RING, Shape(F8E8M0FNU, (2, 3))), bits)
    for what, operands in SHAPES:
        yield case_of(f"collective-permute/chain/f32/{what}", chain, of(chain, *operands), bits)
