"""Generated arguments: repeatable, small, of every element type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distxla.cli.arguments import read_arguments
from distxla.cli.generated_values import generate
from distxla.cli.programs import read_world
from distxla.errors import ArgumentError
from distxla.ir.counts import Counts
from distxla.ir.element_type import DATA_TYPES, ElementType
from distxla.ir.shape import Shape
from distxla.oracle.lockstep import run_reference


@pytest.mark.parametrize("element", DATA_TYPES, ids=str)
@pytest.mark.parametrize("dims", [(), (0,), (3, 5)])
def test_values_are_small_and_repeatable(element: ElementType, dims: tuple[int, ...]) -> None:
    shape = Shape(element, dims)
    array = generate(shape, 1, 2, 3)
    assert array.dtype == element.dtype
    assert array.shape == dims
    assert array.tobytes() == generate(shape, 1, 2, 3).tobytes()
    wide = np.abs(array.astype(np.complex128))
    assert np.all(wide <= 8)
    if element.is_integer:
        assert np.all(array.astype(np.int64) >= 0)


def test_devices_and_seeds_get_values_of_their_own() -> None:
    shape = Shape(DATA_TYPES[-1], ())
    shape = Shape(next(t for t in DATA_TYPES if t.name == "f32"), (16,))
    seen = {generate(shape, seed, leaf, device).tobytes() for seed in (0, 1) for leaf in (0, 1) for device in (0, 1)}
    assert len(seen) == 8


def test_the_file_wins_and_replicated_parameters_are_the_same_everywhere(tmp_path: Path) -> None:
    module = tmp_path / "m.hlo"
    module.write_text("""HloModule m, num_partitions=2
ENTRY main {
  a = f32[2] parameter(0)
  b = f32[2] parameter(1), sharding={replicated}
  c = f32[2] parameter(2)
  ROOT t = (f32[2]) tuple(a)
}
""")
    np.savez(tmp_path / "args.npz", arg0=np.array([1, 2], np.float32), **{"arg2@1": np.array([3, 4], np.float32)})
    found = read_arguments(read_world([str(module)], None, None), str(tmp_path / "args.npz"), 0, generate_missing=True)
    assert found.generated_names() == ["arg1", "arg2@0"]
    assert [leaves[0].tolist() for leaves in found.by_device.values()] == [[1, 2], [1, 2]]
    assert found.by_device[0][1].tolist() == found.by_device[1][1].tolist()
    assert found.by_device[1][2].tolist() == [3, 4]
    assert found.by_device[0][2].tolist() != [3, 4]


# --- constants that a text leaves out

ELIDED = """HloModule elided
half (x: f32[4]) -> f32[4] {
  x = f32[4] parameter(0)
  few = f32[4] constant({...})
  ROOT y = f32[4] add(x, few)
}
ENTRY main {
  given = f32[4] constant({1, 2, 3, 4})
  pair = (s32[], bf16[2,2], f32[3]) constant((7, {{1, ...}, {...}}, {...}))
  sum = f32[4] call(given), to_apply=half
  ROOT r = (f32[4], (s32[], bf16[2,2], f32[3]), f32[4]) tuple(sum, pair, given)
}
"""


def results(module: Path, seed: int) -> list[Any]:
    (program,) = read_world([str(module)], None, None, seed).programs
    assert program.generated == ("few", "pair")
    return run_reference(program.module, [[]], Counts(1, 1))[0]


def test_constants_are_generated_from_the_seed(tmp_path: Path) -> None:
    module = tmp_path / "elided.hlo"
    module.write_text(ELIDED)
    added, kept, drawn, more, given = results(module, 1)
    assert (kept, given.tolist()) == (7, [1, 2, 3, 4])
    for array in (added - given, drawn, more):
        assert len(np.unique(array)) == array.size
        assert np.all(np.abs(array.astype(np.float32)) <= 1)
    assert (added - given)[:3].tolist() != more.tolist()
    assert [a.tobytes() for a in results(module, 1)] == [a.tobytes() for a in (added, kept, drawn, more, given)]
    assert results(module, 2)[2].tobytes() != drawn.tobytes()


def test_a_text_with_all_values_stays_as_it_is(tmp_path: Path) -> None:
    module = tmp_path / "whole.hlo"
    module.write_text("ENTRY main { ROOT c = f32[2] constant({1, 2}) }")
    assert read_world([str(module)], None, None, 0).programs[0].generated == ()
    module.write_text(ELIDED)
    assert read_world([str(module)], None, None).programs[0].generated == ()


# --- what a file lacks

PARTITIONED = """HloModule m, num_partitions=4
ENTRY main_spmd {
  w = f32[2] parameter(0), sharding={replicated}
  x = f32[2,6] parameter(1), sharding={devices=[4,1]<=[4]}
  y = f32[2,3] parameter(2), sharding={devices=[2,2]<=[2,2]T(1,0)}
  z = (s32[], f32[4]) parameter(3)
  ROOT r = f32[2] negate(w)
}
"""
F32 = np.float32
WHOLE = {"arg0": np.zeros(2, F32), "arg3": np.int32(1), "arg4": np.zeros(4, F32)}
PARTS = {"arg1": np.zeros((2, 6), F32), "arg2": np.zeros((2, 3), F32)}


def refused(tmp_path: Path, arrays: dict[str, Any], text: str = PARTITIONED) -> tuple[str, list[str]]:
    """Message and notes for a file of these arrays."""
    (tmp_path / "m.hlo").write_text(text)
    np.savez(tmp_path / "args.npz", **arrays)
    with pytest.raises(ArgumentError) as caught:
        read_arguments(read_world([str(tmp_path / "m.hlo")], None, None), str(tmp_path / "args.npz"), 0)
    return caught.value.message.replace(str(tmp_path) + "/", ""), getattr(caught.value, "__notes__", [])


GENERATE = "hint: --generate makes random values for what --args lacks"


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {k: a for k, a in (WHOLE | PARTS).items() if k != "arg1"},
            "args.npz lacks arg1, the argument x of f32[2,6] on devices 0-3",
        ),
        (
            {**WHOLE, "arg2": PARTS["arg2"], **{f"arg1@{d}": PARTS["arg1"] for d in (0, 2)}},
            "args.npz lacks arg1@1,3, the argument x of f32[2,6] on devices 1, 3",
        ),
        (
            {"arg0": WHOLE["arg0"]} | PARTS,
            "args.npz lacks arg3, the argument z{0} of s32[] on devices 0-3; "
            "arg4, the argument z{1} of f32[4] on devices 0-3",
        ),
        (
            {},
            "args.npz lacks arg0, the argument w of f32[2] on devices 0-3; arg1, the argument x of f32[2,6] on devices "
            "0-3; arg2, the argument y of f32[2,3] on devices 0-3, and 2 more",
        ),
    ],
)
def test_what_a_file_lacks_is_not_invented(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    assert refused(tmp_path, arrays) == (message, [GENERATE])


def test_of_a_single_device_no_device_is_named(tmp_path: Path) -> None:
    text = "HloModule m\nENTRY main {\n  x = f32[2] parameter(0)\n  ROOT r = f32[2] negate(x)\n}\n"
    assert refused(tmp_path, {}, text) == ("args.npz lacks arg0, the argument x of f32[2]", [GENERATE])


def test_without_a_file_all_arguments_are_generated(tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(PARTITIONED)
    found = read_arguments(read_world([str(tmp_path / "m.hlo")], None, None), None, 0)
    assert found.generated_names() == ["arg0", "arg1", "arg2", "arg3", "arg4"]


def test_a_scalar_of_a_global_module_is_generated_as_a_scalar(tmp_path: Path) -> None:
    pytest.importorskip("jaxlib")
    (tmp_path / "m.hlo").write_text(
        "HloModule m, num_partitions=2\nENTRY main {\n  x = f32[4] parameter(0), sharding={devices=[2]<=[2]}\n"
        "  s = f32[] parameter(1)\n  b = f32[4] broadcast(s), dimensions={}\n  ROOT r = f32[4] add(x, b)\n}\n"
    )
    found = read_arguments(read_world([str(tmp_path / "m.hlo")], None, None), None, 0)
    assert [[array.shape for array in row] for row in found.by_device.values()] == [[(2,), ()]] * 2


# --- arrays that are whole where a part is wanted


@pytest.mark.parametrize(
    ("arrays", "message", "hint"),
    [
        (
            {"arg1": np.zeros((8, 6), F32)},
            "args.npz: arg1 has sizes [8, 6], a device's part x has [2, 6] (f32[2,6])",
            "give each device its part: arg1@d is part d of np.split(whole, 4, axis=0), "
            "by the sharding {devices=[4,1]<=[4]}",
        ),
        (
            {"arg2": np.zeros((4, 6), F32)},
            "args.npz: arg2 has sizes [4, 6], a device's part y has [2, 3] (f32[2,3])",
            "give each device its part: arg2@0 is whole[0:2, 0:3], arg2@1 is whole[2:4, 0:3], "
            "arg2@2 is whole[0:2, 3:6] and so on to arg2@3, by the sharding {devices=[2,2]<=[2,2]T(1,0)}",
        ),
        (
            {"arg4": np.zeros(16, F32)},
            "args.npz: arg4 has sizes [16], a device's part z{1} has [4] (f32[4])",
            "it looks whole: give each device its part, from arg4@0 to arg4@3",
        ),
    ],
)
def test_a_whole_array_is_told_from_a_wrong_one(
    tmp_path: Path, arrays: dict[str, Any], message: str, hint: str
) -> None:
    assert refused(tmp_path, WHOLE | PARTS | arrays) == (message, [f"hint: {hint}"])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"arg1": np.zeros((8, 5), F32)}, "args.npz: arg1 has sizes [8, 5], the program's are [2, 6] (f32[2,6])"),
        ({"arg0": np.zeros(8, F32)}, "args.npz: arg0 has sizes [8], the program's are [2] (f32[2])"),
        ({"arg4": np.zeros(15, F32)}, "args.npz: arg4 has sizes [15], the program's are [4] (f32[4])"),
    ],
)
def test_other_sizes_are_just_wrong(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    assert refused(tmp_path, WHOLE | PARTS | arrays) == (message, [])


def test_the_parts_that_the_hint_names_are_those_of_the_sharding() -> None:
    """np.split and slices as written give what the sharding gives."""
    from distxla.compiler.passes.manual_partitions import shards_of
    from distxla.text.parser import parse_module

    x, y = (p.sharding for p in parse_module(PARTITIONED).entry_computation.parameters[1:3])
    assert x is not None
    assert y is not None
    whole = np.arange(48).reshape(8, 6)
    for d in range(4):
        np.testing.assert_array_equal(shards_of(x, 2, 4).split(whole, d), np.split(whole, 4, axis=0)[d])
    whole = np.arange(24).reshape(4, 6)
    for d, index in enumerate((np.s_[0:2, 0:3], np.s_[2:4, 0:3], np.s_[0:2, 3:6])):
        np.testing.assert_array_equal(shards_of(y, 2, 4).split(whole, d), whole[index])


GLOBAL_SIZES = """HloModule m, num_partitions=2

ENTRY main {
  x = f32[8,4] parameter(0), sharding={devices=[2,1]<=[2]}
  s = f32[4,4] custom-call(x), custom_call_target="SPMDFullToShardShape", sharding={manual}
  n = f32[4,4] negate(s)
  ROOT r = f32[8,4] custom-call(n), custom_call_target="SPMDShardToFullShape", sharding={devices=[2,1]<=[2]}
}
"""


def test_an_array_of_a_global_module_is_the_whole_or_a_part(tmp_path: Path) -> None:
    message, _ = refused(tmp_path, {"arg0": np.zeros((3, 4), F32)}, GLOBAL_SIZES)
    assert message == ("args.npz: arg0 has sizes [3, 4]; x is f32[8,4] as a whole, or f32[4,4] as the part arg0@0")
    message, _ = refused(tmp_path, {}, GLOBAL_SIZES)
    assert message == "args.npz lacks arg0, the argument x of f32[8,4] on devices 0, 1"
