"""Generated arguments: repeatable, small, of every element type."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from distxla.cli.arguments import generate, read_arguments
from distxla.cli.programs import read_world
from distxla.ir.element_type import DATA_TYPES, ElementType
from distxla.ir.shape import Shape


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
    found = read_arguments(read_world([str(module)], None, None), str(tmp_path / "args.npz"), 0)
    assert found.generated_names() == ["arg1", "arg2@0"]
    assert [leaves[0].tolist() for leaves in found.by_device.values()] == [[1, 2], [1, 2]]
    assert found.by_device[0][1].tolist() == found.by_device[1][1].tolist()
    assert found.by_device[1][2].tolist() == [3, 4]
    assert found.by_device[0][2].tolist() != [3, 4]
