"""Frames between a JAX process and the owner: what is refused, and what comes back as it was sent."""

from __future__ import annotations

import json

import pytest

from distxla.errors import ClusterError
from distxla.jax.processes import messages
from distxla.jax.processes.facts import AttachedMemory, CompiledFacts, CompileRequest, LoadedFacts, PartitionRequest
from distxla.jax.processes.launches import LaunchSite
from distxla.wire.frame import FIELD_BYTES

FACTS = (
    AttachedMemory(12, 3, (4, 5), 6, 1 << 40, 1 << 30, 2, 64, (64, 4160)),
    CompileRequest(((0, 1), (2, 3)), (1,), (7,), ("nan",)),
    PartitionRequest(2, 1, True, (False,), (True, False), "00ff", True),
    CompiledFacts("ab", True, 0.5, 100, 3, (0, 1)),
    LoadedFacts(2, (4, 5), (64, 128), 0.25, ((4, "1/send", 4096),)),
)


@pytest.mark.parametrize("kind", messages.PROCESS_FRAMES.by_kind.values(), ids=lambda one: one.NAME)
def test_frames_come_back(kind) -> None:
    values = [2 ** (8 * {"u8": 1, "u32": 4, "u64": 8}[one.type]) - 1 for one in kind.fields()]
    found = kind(*values)
    assert messages.PROCESS_FRAMES.unpack(kind.KIND, found.pack().ljust(FIELD_BYTES, b"\0")) == found


def test_other_frames_are_refused() -> None:
    with pytest.raises(ClusterError, match="unknown kind 99"):
        messages.PROCESS_FRAMES.unpack(99, bytes(FIELD_BYTES))
    with pytest.raises(ClusterError, match="bytes behind its fields"):
        messages.PROCESS_FRAMES.unpack(messages.Drop.KIND, b"\1" * FIELD_BYTES)


def test_json_with_bytes_behind_it_comes_back() -> None:
    head, rest = messages.unpack_parts(b"".join(map(bytes, messages.pack_parts({"a": [1, "ä"]}, b"\0rest"))))
    assert (head, bytes(rest)) == ({"a": [1, "ä"]}, b"\0rest")


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"\1\0", "too short"),
        (b"\xff\xff\xff\xff{}", "states JSON of 4294967295 bytes"),
        (b"\2\0\0\0[]", "of the type list; expected dict"),
        (b"\1\0\0\0{", "not JSON"),
        (b"\2\0\0\0\xff\xff", "not JSON"),
        (b"\xa0\x86\1\0" + b"[" * 100_000, "not JSON: RecursionError"),
    ],
)
def test_other_payloads_are_refused(payload, said) -> None:
    with pytest.raises(ClusterError, match=said):
        messages.unpack_parts(payload)


@pytest.mark.parametrize("facts", FACTS, ids=lambda one: type(one).__name__)
def test_facts_come_back(facts) -> None:
    assert type(facts).of_json(json.loads(json.dumps(facts.to_json()))) == facts


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rows": 3}, "CompileRequest.rows: expected tuple"),
        ({"rows": [[-1]]}, "CompileRequest.rows: expected int, found '-1'"),
        ({"rows": [[True]]}, "expected int"),
        ({"rows": [[2**64]]}, "expected int"),
        ({"donated": ["0"]}, "CompileRequest.donated: expected int"),
        ({"other": 1}, "no field 'other'"),
        ({"rows": None}, "expected tuple"),
    ],
)
def test_other_facts_are_refused(change, said) -> None:
    with pytest.raises(ClusterError, match=said):
        CompileRequest.of_json(json.loads(json.dumps(FACTS[1].to_json() | change)))


def test_missing_facts_are_refused() -> None:
    with pytest.raises(ClusterError, match="the field rows is missing"):
        CompileRequest.of_json({})


def test_a_place_comes_back() -> None:
    site = LaunchSite("/home/ä/train.py", 47, "step")
    assert (LaunchSite.unpack(site.pack()), str(site)) == (site, "train.py:47 in step")
    named = LaunchSite("train.py", 47, "step", "loss")
    assert LaunchSite.unpack(named.pack()) == named
    assert LaunchSite.unpack(LaunchSite().pack()) == LaunchSite()


@pytest.mark.parametrize("payload", [b"", b"a\0b\0c", b"a\0001", b"a\0001\0c\0d\0e", b"a\0" + b"9" * 50 + b"\0c"])
def test_other_places_are_refused(payload) -> None:
    with pytest.raises(ClusterError, match="without a place"):
        LaunchSite.unpack(payload)
