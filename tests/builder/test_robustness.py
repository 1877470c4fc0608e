"""Whatever stands where an argument is due, the answer is a value or a located error."""

from __future__ import annotations

import inspect
import random
from typing import Any

import numpy as np
import pytest

import distxla as dx
from distxla.compiler.verify.verifier import verify_module
from distxla.text.parser import parse_module
from distxla.text.printer import print_module

METHODS = sorted(
    name
    for name in dir(dx.XlaBuilder)
    if name[0].isalpha() and callable(getattr(dx.XlaBuilder, name)) and name != "build"
)


def operands(b: dx.XlaBuilder) -> list[Any]:
    vector = b.parameter(1, "s32[4]")
    return [
        b.parameter(0, "f32[4,6]"),
        vector,
        b.parameter(2, "(f32[2], (s32[], pred[3]))"),
        b.parameter(3, "s32[]"),
        b.parameter(4, "c64[2,4,4]"),
        b.parameter(5, "pred[]"),
        b.create_token(),
        b.set_dimension_size(vector, 2, 0),
        dx.XlaBuilder("other").parameter(0, "f32[]"),
        dx.XlaBuilder("empty"),
        b,
    ]


def anything(b: dx.XlaBuilder) -> list[Any]:
    values = operands(b)
    x, n = values[:2]
    return [
        *values, None, 0, 1, -1, 2, 1.5, 10**30, float("nan"), True, "x", "f32[2]", "f32[2,<=3]", "token[]", "same",
        "s32", "bf01_oi01->bf01", [], [0], [1, 0], [[0, 1], [2, 3]], [[]], (), (x, n), [x, n], [x], (x, x), [(0, 0, 0)],
        [(0, 1), (1, 2)], [2, 3], [-1], {}, object(), np.zeros(3), np.float32(1), np.zeros((4, 6), np.float32),
        np.array([1, 2]), lambda p: p, lambda p: p[0], lambda p, q: p + q, lambda p, q: p < q,
    ]  # fmt: skip


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("name", METHODS)
def test_any_arguments(name: str) -> None:
    choose = random.Random(name)
    for _ in range(6):
        b = dx.XlaBuilder("any", **choose.choice([{}, {"replica_count": 4, "num_partitions": 1}]))
        pool = anything(b)
        positional, named = [], {}
        for parameter in inspect.signature(getattr(b, name)).parameters.values():
            optional = parameter.default is not parameter.empty
            if parameter.kind is parameter.KEYWORD_ONLY and not optional:
                named[parameter.name] = choose.choice(pool)
            elif parameter.kind is parameter.VAR_POSITIONAL:
                positional += choose.choices(pool, k=choose.randrange(3))
            elif parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
                if optional and choose.random() < 0.4:
                    break
                positional.append(choose.choice(pool))
        try:
            getattr(b, name)(*positional, **named)
        except (dx.VerificationError, IndexError) as error:  # an index out of range is Python's own
            location = getattr(error, "location", None)
            located = location is not None and location.file == __file__
            indexes = name == "basic_index" or any(callable(p) for p in positional)
            if not located and not (indexes and isinstance(error, IndexError)):
                raise
        module = b.build()
        verify_module(module)
        assert parse_module(print_module(module)) == module
