"""HLO texts to begin with, and changes that keep them close to HLO."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache

from tests.mutated import mutated
from tests.runtime.random_modules import RandomModule
from tests.text.snippets import ALL

RANDOM_SEEDS = range(8)
LARGEST_SEED = 4096


def seeds() -> Iterator[bytes]:
    """A text for each feature of the grammar and each opcode, and some with loops, branches and collectives."""
    yield from (text.encode() for text in ALL.values())
    for seed in RANDOM_SEEDS:
        data = RandomModule(seed, 2, pairs=bool(seed % 2)).text.encode()
        if len(data) <= LARGEST_SEED:
            yield data


@cache
def _lines() -> list[str]:
    return sorted({line for text in ALL.values() for line in text.splitlines() if line.strip()})


def mutate(data: bytes, choose: random.Random) -> bytes | None:
    """Another number, dimension size, type, opcode or attribute; a line or a piece of another module; or None."""
    kind = choose.random()
    if kind < 0.25:
        return None
    text = data.decode(errors="surrogateescape")
    if kind < 0.8:
        text = mutated(text, choose)
    elif kind < 0.9:
        lines = text.splitlines(keepends=True)
        lines.insert(choose.randint(0, len(lines)), choose.choice(_lines()) + "\n")
        text = "".join(lines)
    else:
        piece = choose.choice(_lines())
        begin, at = choose.randrange(len(piece)), choose.randint(0, len(text))
        text = text[:at] + piece[begin : begin + choose.randint(1, 30)] + text[at + choose.choice([0, 0, 1, 5, 20]) :]
    return text.encode(errors="surrogateescape")
