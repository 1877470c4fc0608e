"""Messages of protocol buffers: what two of them have in common."""

from __future__ import annotations

from itertools import permutations

import pytest

from distxla.jax.partitioner.protobuf import compile_options_key, varint


def message(number: int, *contents: bytes) -> bytes:
    content = b"".join(contents)
    return varint(number << 3 | 2) + varint(len(content)) + content


def entry(number: int, key: str, value: str) -> bytes:
    return message(number, message(1, key.encode()), message(2, value.encode()))


def options(*, debug: tuple[bytes, ...] = (), overrides: tuple[bytes, ...] = (), rest: bytes = b"") -> bytes:
    return rest + message(3, message(3, *debug)) + b"".join(overrides)


ENTRIES = (entry(500, "a", "1"), entry(500, "b", "2"), entry(357, "a", "1"))
OVERRIDES = (entry(7, "xla_a", "1"), entry(7, "xla_b", "2"), message(7, message(1, b"xla_c")))


def test_maps_are_equal_in_any_order() -> None:
    keys = {compile_options_key(options(debug=some)) for some in permutations(ENTRIES)}
    keys |= {compile_options_key(options(debug=ENTRIES, overrides=some)) for some in permutations(OVERRIDES)}
    assert len(keys) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (options(debug=(entry(500, "a", "1"),)), options(debug=(entry(500, "a", "2"),))),
        (options(debug=(entry(500, "a", "1"),)), options(debug=(entry(357, "a", "1"),))),
        (
            options(debug=(message(9, b"one"), message(9, b"two"))),
            options(debug=(message(9, b"two"), message(9, b"one"))),
        ),
        (options(rest=message(1, b"x") + message(1, b"y")), options(rest=message(1, b"y") + message(1, b"x"))),
        (options(rest=b"\x28\x01"), options(rest=b"\x28\x02")),
        (b"", message(3)),
        (message(3), message(3, message(3))),
    ],
)
def test_what_differs_keeps_its_own_key(one: bytes, other: bytes) -> None:
    assert compile_options_key(one) != compile_options_key(other)


def test_what_is_no_message_is_its_own_key() -> None:
    assert compile_options_key(b"\x1a\x05\x08") == b"\x1a\x05\x08"
