"""Large constants travel as bytes: each bit arrives, of every element type, and no decimal text is made of them."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

import distxla as dx
import distxla.jax as dxj
from distxla.errors import InternalError
from distxla.ir.element_type import DATA_TYPES, F64, S32, ElementType
from distxla.ir.module import Module
from distxla.jax.partitioner.constants import constants_digest, module_with_constants, text_with_constants
from distxla.jax.partitioner.loading import load_module
from distxla.jax.private import names as private_names
from distxla.ops.constant import Constant

SIZE = 24  # larger than what text has in full


def bits(element: ElementType, seed: int = 0) -> np.ndarray:
    """Any bits, but for types that have fewer than a byte holds."""
    random = np.random.default_rng(seed)
    if element.name == "pred":
        return random.integers(0, 2, SIZE).astype(bool)
    if element.bits < 8:
        low = random.integers(0, 1 << element.bits, SIZE).astype(np.uint8)
        return low.view(element.dtype) if element.is_float else low.astype(np.int8).astype(element.dtype)
    found = random.integers(0, 256, SIZE * element.byte_size).astype(np.uint8).view(element.dtype)
    extremes = {"signed": [-1, 0, 1], "unsigned": [0, 1, 127, 128]}.get(element.kind, [])
    found[: len(extremes)] = extremes
    return found


def literals(module: Module) -> list[np.ndarray]:
    found = [i.op.literal.array for c in module.computations for i in c if isinstance(i.op, Constant)]
    assert all(array is not None for array in found)
    return [array for array in found if array is not None]


@pytest.fixture(scope="module")
def arrays() -> list[np.ndarray]:
    return [bits(element).reshape(2, 3, 4) for element in DATA_TYPES]


@pytest.fixture(scope="module")
def proto(arrays: list[np.ndarray]) -> bytes:
    """What XLA makes of a function that gives a constant of each element type."""
    jax = pytest.importorskip("jax")
    x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else importlib.import_module("jax.experimental").enable_x64
    with x64(True):
        lowered = jax.jit(lambda: [jax.numpy.asarray(array) for array in arrays]).lower()
    return private_names.proto_of_stablehlo(private_names.stablehlo_of_lowered(lowered))


def test_every_bit_of_every_type(arrays: list[np.ndarray], proto: bytes) -> None:
    text = private_names.describe_hlo(proto).text
    assert text.count("{...}") == len(arrays)
    for found in (module_with_constants(text, proto, "m"), dx.parse(text_with_constants(text, proto))):
        by_type = {array.dtype: array for array in literals(found)}
        for array in arrays:
            assert by_type[array.dtype].shape == array.shape
            assert by_type[array.dtype].tobytes() == array.tobytes(), array.dtype


def test_a_constant_that_is_not_there_is_our_own_fault(proto: bytes) -> None:
    with pytest.raises(InternalError, match="no value of the constant other"):
        module_with_constants("HloModule m\nENTRY e { ROOT other = f32[24] constant({...}) }", proto, "m")
    entry = dx.parse(private_names.describe_hlo(proto).text).entry_computation
    (name,) = [i.name for i in entry if not i.shape.is_tuple and i.shape.dtype is S32]
    with pytest.raises(InternalError, match=rf"the constant {name} of s32\[25\] has 24 elements"):
        module_with_constants(f"HloModule m\nENTRY e {{ ROOT {name} = s32[25] constant({{...}}) }}", proto, "m")


@pytest.mark.parametrize(
    "constant",
    [
        "s32[3,4]{0,1} constant({{1, -2, 3, 4}, {5, 6, -7, 8}, {9, 10, 11, 12}})",
        "u64[2,3,2]{1,0,2} constant({{{1, 2}, {3, 4}, {5, 6}}, {{7, 8}, {9, 10}, {11, 18446744073709551615}}})",
        "(s64[12], (f32[], pred[11])) constant(({0, 1, 2, 3, 4, 5, 6, 7, 8, -9223372036854775808, 10, 11}, (-0.0, "
        "{1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1})))",
    ],
)
def test_layouts_tuples_and_negative_numbers(constant: str) -> None:
    pytest.importorskip("jaxlib")
    text = f"HloModule m\nENTRY e {{ ROOT c = {constant} }}"
    proto = private_names.private("hlo_module_from_text")(text).as_serialized_hlo_module_proto()
    short = private_names.describe_hlo(proto).text
    assert "{...}" in short
    wanted = dx.parse(text).entry_computation.root_instruction.op
    for found in (module_with_constants(short, proto, "m"), dx.parse(text_with_constants(short, proto))):
        assert found.entry_computation.root_instruction.op == wanted


def test_the_digest_has_every_bit(proto: bytes) -> None:
    text = private_names.describe_hlo(proto).text
    wanted = bits(F64).tobytes()
    at = proto.index(wanted)
    changed = proto[:at] + wanted[:-1] + bytes([wanted[-1] ^ 1]) + proto[at + len(wanted) :]
    digests = [constants_digest(text, one) for one in (proto, changed, proto)]
    assert digests[0] == digests[2] != digests[1]


def test_partitioned_text_is_in_full_and_files_keep_their_constants(tmp_path: Path) -> None:
    jax = pytest.importorskip("jax")
    values = np.arange(100, dtype=np.float32).reshape(20, 5) / 7
    lowered = jax.jit(lambda x: x + values).lower(values)
    made = dxj.partition_module(private_names.stablehlo_of_lowered(lowered), partitions=1)
    assert "text" not in vars(made)  # which takes long
    (tmp_path / "m.mlir").write_text(lowered.as_text())
    for module in (dx.parse(made.text), made.module(), load_module(tmp_path / "m.mlir")):
        (found,) = literals(module)
        assert found.tobytes() == values.tobytes()
