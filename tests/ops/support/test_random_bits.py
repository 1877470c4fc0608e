"""`rng-bit-generator`: published blocks, XLA's arrays, compiled code against `evaluate`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from distxla.errors import UnsupportedOpError
from distxla.ops.support import random_bits
from distxla.text.parser import parse_module
from tests.executable import require_executable
from tests.ops.case import Array, Case, array
from tests.ops.program_case import evaluated
from tests.ops.structured_case import StructuredCase, assert_compiled_agrees

ONES = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("key", "counter", "block"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((ONES, ONES), (ONES, ONES), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
        ((0, 0), (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ONES, ONES), (ONES, ONES, ONES, ONES), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ],
)
def test_blocks_are_the_published_ones(key: tuple[int, ...], counter: tuple[int, ...], block: tuple[int, ...]) -> None:
    k, c = ([np.array([word], np.uint32) for word in words] for words in (key, counter))
    rounds: Any = random_bits.threefry if len(counter) == 2 else random_bits.philox
    assert [int(word[0]) for word in rounds(k, c)] == list(block)


@pytest.mark.parametrize(
    ("algorithm", "first", "state"),
    [
        ("rng_three_fry", [43444564, 2150618427, 3979645651, 3745730563, 1672743891, 4240503393, 2109414752], [1, 22]),
        ("rng_default", [2100602697, 2847456232, 2074354647, 800269529, 1828267006, 3135207875, 3972719319], [1, 11]),
    ],
)
def test_arrays_are_those_of_xla(algorithm: str, first: list[int], state: list[int]) -> None:
    case = StructuredCase(
        f"(u64[2], u32[5,7]) rng-bit-generator(@), algorithm={algorithm}",
        ("u64[2]",),
        arguments={0: np.array([1, 2], np.uint64)},
    )
    for following, bits in (case.evaluated(), case.compiled()):
        assert np.asarray(following).tolist() == state
        assert np.asarray(bits)[0].tolist() == first


# The second counter wraps within the array.
STATES = ([1, 2], [2**63 + 5, 2**64 - 3])
SHAPES = (
    "u32[]",
    "u32[1]",
    "u32[5,7]",
    "u32[4,6]",
    "u32[5,5,3]",
    "u64[5,7]",
    "u8[6,7,4]",
    "u16[9]",
    "s32[3,4]",
    "s8[7]",
    "u4[9]",
    "s4[3,3]",
    "s2[5]",
    "f32[3,3]",
    "f64[5]",
    "bf16[7]",
    "f8e5m2[6]",
    "f4e2m1fn[5]",
)
CASES = [
    StructuredCase(
        f"(u64[{len(state)}], {shape}) rng-bit-generator(@), algorithm={algorithm}",
        (f"u64[{len(state)}]",),
        arguments={0: np.array(state, np.uint64)},
    )
    for algorithm, extra in (("rng_three_fry", []), ("rng_philox", []), ("rng_philox", [7]), ("rng_default", []))
    for state in ([*words, *extra] for words in STATES)
    for shape in (*SHAPES, "u32[0]", "u64[3,0]")
]


@pytest.mark.sampled(one_in=8)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_compiled_agrees_with_evaluate(case: StructuredCase) -> None:
    for got, want in zip(case.compiled(), case.evaluated(), strict=True):
        assert (got.dtype, got.shape, got.tobytes()) == (want.dtype, want.shape, want.tobytes())


def test_the_bits_alone() -> None:
    assert_compiled_agrees(StructuredCase("u32[7] rng-bit-generator(@), algorithm=rng_philox", ("u64[3]",)))


@pytest.mark.parametrize("algorithm", ["rng_three_fry", "rng_philox"])
# JAX generates no others
@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("shape", [s for s in SHAPES if s[0] == "u" and s[1] != "4"])
def test_evaluate_agrees_with_xla(algorithm: str, shape: str) -> None:
    jax = pytest.importorskip("jax")
    wanted = parse_module(f"ENTRY e {{\n  ROOT p = {shape} parameter(0)\n}}").entry_computation.root_instruction.shape
    chosen = getattr(jax.lax.RandomAlgorithm, algorithm.upper())
    for words in STATES:
        state: Array = np.array(words, np.uint64)
        with jax.enable_x64(True):
            following, bits = jax.lax.rng_bit_generator(state, wanted.dims, wanted.dtype.dtype, algorithm=chosen)
        case = StructuredCase(
            f"(u64[2], {shape}) rng-bit-generator(@), algorithm={algorithm}", ("u64[2]",), arguments={0: state}
        )
        for got, xla in zip(case.evaluated(), (following, bits), strict=True):
            np.testing.assert_array_equal(got, np.asarray(xla))


@pytest.mark.parametrize("algorithm", ["rng_three_fry", "rng_default"])
@pytest.mark.filterwarnings("ignore")
def test_bits_of_other_types_are_those_of_xla(algorithm: str) -> None:
    pytest.importorskip("jax")
    from tests.ops.xla_cpu import run_by_xla

    shapes = ["s8[7]", "s16[9]", "s32[3,4]", "s64[5]", "u4[9]", "f16[7]", "bf16[3,3]", "f32[5]", "f64[2,3]"]
    lines = [f"  r{k} = (u64[2], {s}) rng-bit-generator(p), algorithm={algorithm}" for k, s in enumerate(shapes)]
    lines += [f"  b{k} = {s} get-tuple-element(r{k}), index=1" for k, s in enumerate(shapes)]
    names = ", ".join(f"b{k}" for k in range(len(shapes)))
    root = f"  ROOT r = ({', '.join(shapes)}) tuple({names})"
    text = "\n".join(["HloModule bits", "ENTRY main {", "  p = u64[2] parameter(0)", *lines, root, "}", ""])
    state = np.array([2**63 + 5, 2**64 - 3], np.uint64)
    for ours, theirs in zip(evaluated(text, state), run_by_xla(text, [state]), strict=True):
        assert ours.tobytes() == theirs.tobytes()  # XLA calls all of them unsigned


@pytest.mark.parametrize(
    ("state", "bits", "algorithm", "why"),
    [
        (array("u64", 3), array("u32", 4), "rng_three_fry", "from a state u64[2]"),
        (array("u32", 4), array("u32", 4), "rng_default", "from a state u64[2] or u64[3]"),
        (array("u64", 2), array("c64", 4), "rng_default", "integers or floats, not as c64"),
        (array("u64", 2), array("pred", 4), "rng_philox", "integers or floats, not as pred"),
    ],
)
def test_what_is_not_executed_says_so(state: object, bits: object, algorithm: str, why: str) -> None:
    case = Case("rng-bit-generator", (state,), {"algorithm": algorithm}, bits)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedOpError, match=why.replace("[", r"\[")):
        require_executable(case.module())
