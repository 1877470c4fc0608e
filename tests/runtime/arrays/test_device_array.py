"""A DeviceArray can be used as a NumPy array; without any replica."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from distxla.errors import ClusterError
from distxla.ir.element_type import BF16, S32, element_type_of
from distxla.ir.shape import Shape
from distxla.machine.heap import Heap
from distxla.machine.segments import Segment
from distxla.runtime.arrays.device_array import DeviceArray

SIZE = 1 << 20
Array = np.ndarray[Any, Any]


class Elsewhere:
    """A device's memory on another host: what is read is a copy."""

    size = SIZE

    def __init__(self, segment: Segment) -> None:
        self._segment = segment

    def read(self, offset: int, size: int) -> Array:
        found = self._segment.read(offset, size).copy()
        found.flags.writeable = False
        return found

    def write(self, offset: int, data: Array) -> None:
        self._segment.write(offset, data)


class Device:
    """Memory of device 3, and arrays in it."""

    def __init__(self) -> None:
        self.segment = Segment.create("test", SIZE)
        self.heap = Heap(SIZE, [self.segment])

    def put(self, value: Any, *, elsewhere: bool = False) -> DeviceArray:
        array = np.asarray(value)
        block = self.heap.allocate(array.nbytes)
        self.segment.write(block.offset, np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        memory = Elsewhere(self.segment) if elsewhere else self.segment
        return DeviceArray(memory, block, block.offset, 3, Shape(element_type_of(array.dtype), array.shape))


@pytest.fixture
def device() -> Iterator[Device]:
    made = Device()
    yield made
    made.segment.close()


F32 = np.arange(6, dtype=np.float32).reshape(2, 3)
KINDS = [
    F32,
    np.array([True, False, True]),
    np.array([1.5, -2.0], ml_dtypes.bfloat16),
    np.array([[-8, 7]], ml_dtypes.int4),
    np.array([1 + 2j, -0.5j], np.complex64),
    np.array(3.5),
    np.array(7, np.uint8),
    np.empty((0, 4), np.float16),
]
kinds = pytest.mark.parametrize("value", KINDS, ids=lambda v: str(element_type_of(v.dtype)))


def same(found: Any, wanted: Any) -> None:
    """Equal to the last bit, type included."""
    assert type(found) is type(wanted)
    assert np.asarray(found).dtype == np.asarray(wanted).dtype
    assert np.shape(found) == np.shape(wanted)
    assert np.asarray(found).tobytes() == np.asarray(wanted).tobytes()


@kinds
def test_it_states_what_numpy_states(device: Device, value: Array) -> None:
    array = device.put(value)
    for name in ("shape", "ndim", "size", "dtype", "itemsize", "nbytes"):
        assert getattr(array, name) == getattr(value, name), name
    assert (array.shape, array.device, str(array.hlo_shape.dtype)) == (value.shape, 3, str(array.hlo_shape.dtype))


def test_sizes_of_dynamic_dimensions_are_those_of_the_run(device: Device) -> None:
    sizes = device.put(np.int32(2))
    whole = device.put(F32)
    shape = Shape(whole.hlo_shape.element_type, (2, 3), (False, True))
    array = DeviceArray(device.segment, whole._block, whole.offset, 3, shape, ((1, sizes.offset),))
    assert (array.shape, array.size, array.nbytes, len(array)) == ((2, 2), 4, 16, 2)
    with pytest.warns(DeprecationWarning, match="DeviceArray.shape"):
        assert array.extents == array.shape
    same(np.asarray(array), F32[:, :2].copy())
    same(array + 1, F32[:, :2] + 1)
    same(np.from_dlpack(array).copy(), F32[:, :2].copy())
    assert repr(array).endswith("f32[2,<=3], device=3)")


# What Python and NumPy do with an array, each compared with what they do with NumPy's
USES: dict[str, Callable[[Any], Any]] = {
    "row": lambda x: x[1],
    "element": lambda x: x[1, 2],
    "slice": lambda x: x[:, ::2],
    "mask": lambda x: x[x > 2],
    "new axis": lambda x: x[..., None],
    "rows": lambda x: [row.sum() for row in x],
    "length": len,
    "contains": lambda x: (4 in x, 9 in x),
    "reversed rows": lambda x: next(reversed(x)),
    "add": lambda x: x + 1,
    "add to a number": lambda x: 2.5 - x,
    "add a scalar of NumPy": lambda x: np.float64(2) * x,
    "to an array": lambda x: np.ones((2, 3), np.int16) / x[:, :],
    "array on the left": lambda x: np.ones(3, np.float16) + x,
    "array on the right": lambda x: x // np.array([1, 2, 3]),
    "power": lambda x: x**2 % 5,
    "matmul": lambda x: x @ F32.T,
    "matmul on the right": lambda x: F32.T @ x,
    "negative": lambda x: (-x, +x, abs(x - 3)),
    "divmod": lambda x: divmod(x, 2)[1],
    "compare": lambda x: (x < 2, x <= 2, x == 2, x != 2, x >= 2, x > 2),
    "compare with an array": lambda x: np.asarray(F32) == x,
    "compare with a text": lambda x: x == "f",
    "ufunc": np.exp,
    "reduce": lambda x: np.add.reduce(x, axis=1),
    "accumulate": lambda x: np.maximum.accumulate(x),
    "sum": np.sum,
    "where": lambda x: np.add(x, 1, where=x > 2, out=np.zeros((2, 3), np.float32)),
    "concatenate": lambda x: np.concatenate([x, x]),
    "stack": lambda x: np.stack([x, F32]),
    "array of arrays": lambda x: np.array([x, x]),
    "allclose": lambda x: np.allclose(x, F32),
    "method": lambda x: x.mean(axis=0),
    "transposed": lambda x: x.T,
    "reshape": lambda x: x.reshape(3, 2).astype(np.int64),
    "list": lambda x: x.tolist(),
    "unpacking": lambda x: [*x][1],
    "format": lambda x: f"{x}",
    "print": str,
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_numpy_gives_the_same(device: Device, use: str, elsewhere: bool) -> None:
    found, wanted = USES[use](device.put(F32, elsewhere=elsewhere)), USES[use](F32)
    for a, b in zip(*((x if isinstance(x, tuple | list) else [x]) for x in (found, wanted)), strict=True):
        same(a, b)


def test_arrays_of_two_devices_go_together(device: Device) -> None:
    a, b = device.put(F32), device.put(F32 + 1)
    same(a + b, F32 + F32 + 1)
    same(np.maximum(a, b), F32 + 1)
    same(a == b, np.zeros((2, 3), bool))


def test_types_that_numpy_lacks_compute_too(device: Device) -> None:
    value = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    array = device.put(value)
    same(array + array, value + value)
    same(array * np.float32(2), value * np.float32(2))
    assert f"{array[0]:.3f}" == "1.500"
    assert f"{device.put(value[1]):+.2f}" == "-2.00"
    assert float(device.put(value[1])) == -2.0


SCALARS: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "int": int,
    "complex": complex,
    "bool": bool,
    "not": operator.not_,
    "format": lambda x: f"{x:.3f}",
    "format by width": lambda x: f"{x:>9.2e}|{x}",
    "print": str,
    "item": lambda x: x.item(),
    "all of it": lambda x: x[()],
}


@pytest.mark.parametrize("use", SCALARS)
@pytest.mark.parametrize(
    "value", [np.array(2.94025, np.float32), np.array(-3, np.int32), np.array(0.0), np.array(True)]
)
def test_scalars_are_numbers(device: Device, use: str, value: Array) -> None:
    same(SCALARS[use](device.put(value)), SCALARS[use](value))


def test_an_integer_scalar_is_an_index(device: Device) -> None:
    two = device.put(np.int32(2))
    assert ("abc"[two], list(range(two)), F32[0, two]) == ("c", [0, 1], 2.0)  # type: ignore[call-overload]


REFUSED: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "truth of several": (bool, ValueError, "more than one element is ambiguous"),
    "float of several": (float, TypeError, "only .* scalars"),
    "index of floats": (operator.index, TypeError, "only integer scalar arrays"),
    "format of several": (lambda x: f"{x:.3f}", TypeError, "unsupported format string"),
    "length of a scalar": (lambda x: len(x[0:1].sum()), TypeError, "has no len"),
    "hash": (hash, TypeError, "unhashable"),
    "element written": (lambda x: operator.setitem(x, 0, 1), TypeError, "does not support item assignment"),
    "row written": (lambda x: operator.setitem(x[0], 0, 1), ValueError, "read-only"),
    "in place": (lambda x: operator.iadd(x, 1), TypeError, r"never written: .* x = x \+ 1"),
    "out": (lambda x: np.add(1, 1, out=x), TypeError, "never written"),
    "method in place": (lambda x: x.sort(), ValueError, "read-only"),
    "made writable": (lambda x: np.asarray(x).setflags(write=True), ValueError, "WRITEABLE"),
    "misspelt": (lambda x: x.shpae, AttributeError, "a DeviceArray has no attribute 'shpae'"),
}


@pytest.mark.parametrize("use", REFUSED)
def test_what_cannot_be_is_refused(device: Device, use: str) -> None:
    function, error, text = REFUSED[use]
    with pytest.raises(error, match=text):
        function(device.put(F32))


def test_a_scalar_has_no_length(device: Device) -> None:
    scalar = device.put(np.float32(1))
    with pytest.raises(TypeError, match="without dimensions"):
        len(scalar)
    with pytest.raises(TypeError, match="0-d"):
        iter(scalar)


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])
def test_copy_says_whether_memory_is_shared(device: Device, elsewhere: bool) -> None:
    array = device.put(F32, elsewhere=elsewhere)
    assert not np.asarray(array).flags.writeable
    assert np.array(array).flags.writeable
    assert np.asarray(array, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match=r"f32\[2,3\].* without a copy"):
        np.array(array, np.float64, copy=False)
    if elsewhere:
        with pytest.raises(ValueError, match=r"on device 3, on another host, cannot be seen without a copy"):
            np.array(array, copy=False)
    else:
        assert np.shares_memory(np.array(array, copy=False), device.segment.bytes)
        assert not np.shares_memory(np.array(array), device.segment.bytes)


# --- copies, pickles, DLPack


@kinds
def test_a_copy_is_the_array_and_a_pickle_its_values(device: Device, value: Array) -> None:
    array = device.put(value)
    held = {"w": [array], "step": 1}
    assert copy.copy(array) is array
    assert copy.deepcopy(held)["w"][0] is array  # type: ignore[index]
    for protocol in (2, pickle.HIGHEST_PROTOCOL):
        loaded = pickle.loads(pickle.dumps(held, protocol))["w"][0]
        same(loaded, value)
        assert loaded.flags.writeable


@kinds
def test_numpy_takes_it_by_dlpack_without_a_copy(device: Device, value: Array) -> None:
    array = device.put(value)
    assert array.__dlpack_device__() == (1, 0)
    if value.dtype.isbuiltin != 1:
        return  # NumPy has no such type: see below
    taken = np.from_dlpack(array)
    same(taken, value)
    assert not taken.flags.writeable
    assert np.shares_memory(taken, np.asarray(array)) or not value.size
    assert np.from_dlpack(array, copy=True).flags.writeable


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float32", "int8", "bool", "complex64"])
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 2)], ids=str)
def test_jax_takes_it_by_dlpack(device: Device, name: str, shape: tuple[int, ...]) -> None:
    jax = pytest.importorskip("jax")
    value = (np.arange(np.prod(shape)) % 5 - 2).reshape(shape).astype(getattr(ml_dtypes, name, None) or name)
    array = device.put(value)
    try:
        taken = jax.dlpack.from_dlpack(array)
    except BufferError:  # a JAX of the older protocol, which has no such type
        assert name.startswith("float8")
        return
    same(np.asarray(taken), value)


def test_dlpack_names_the_types_of_its_own(device: Device) -> None:
    """As a consumer of version 1.1 finds them in the capsule: code, bits, lanes; and what no version holds."""
    from distxla.runtime.arrays.dlpack import Tensor, VersionedTensor, pointer_of

    array = device.put(np.array([1.5, -2.0], ml_dtypes.float8_e5m2))
    capsule = array.__dlpack__(max_version=(1, 1))
    found = VersionedTensor.from_address(pointer_of(capsule, b"dltensor_versioned"))
    tensor = found.tensor
    assert (found.version.major, found.version.minor, found.flags & 1) == (1, 1, 1)
    assert (tensor.data, tensor.ndim, tensor.code, tensor.bits, tensor.lanes) == (
        device.segment.address + array.offset,
        *(1, 12, 8, 1),
    )
    with pytest.raises(
        BufferError, match=r"f8e5m2 cannot be given by DLPack: for this type it begins with version 1\.1"
    ):
        array.__dlpack__()
    older = device.put(np.array([1.5, -2.0], ml_dtypes.bfloat16)).__dlpack__()
    tensor = Tensor.from_address(pointer_of(older, b"dltensor"))
    assert (tensor.ndim, tensor.code, tensor.bits, tensor.lanes) == (1, 4, 16, 1)
    for narrow in (ml_dtypes.int4, ml_dtypes.float4_e2m1fn):
        with pytest.raises(BufferError, match="packs its values otherwise"):
            device.put(np.ones(2, narrow)).__dlpack__(max_version=(1, 1))


def test_dlpack_refuses_what_cannot_be(device: Device) -> None:
    with pytest.raises(BufferError, match=r"on the CPU, device \(1, 0\); found dl_device=\(2, 0\)"):
        device.put(F32).__dlpack__(dl_device=(2, 0))
    elsewhere = device.put(F32, elsewhere=True)
    with pytest.raises(BufferError, match="on another host"):
        np.from_dlpack(elsewhere, copy=False)
    same(np.from_dlpack(elsewhere).copy(), F32)


TAKEN: dict[str, Callable[[DeviceArray], Any]] = {
    "view": np.asarray,
    "row": lambda x: x[1],
    "iterator": iter,
    "transposed": lambda x: x.T,
    "dlpack": np.from_dlpack,
    "capsule": lambda x: x.__dlpack__(max_version=(1, 0)),
    "older capsule": lambda x: x.__dlpack__(),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_was_taken_keeps_the_memory(device: Device, name: str) -> None:
    taken = TAKEN[name](device.put(F32))
    assert device.heap.used > 0
    device.segment.close()  # as a cluster does that is closed
    if isinstance(taken, np.ndarray):
        assert float(taken.sum()) in (15.0, 12.0)
    del taken
    assert device.heap.used == 0


def test_a_token_has_no_elements(device: Device) -> None:
    block = device.heap.allocate(0)
    token = DeviceArray(device.segment, block, block.offset, 1, Shape.token())
    assert (repr(token), str(token), token.ndim) == ("DeviceArray(token[], device=1)", "token[]", 0)
    for use in (np.asarray, float, lambda x: x + 1, lambda x: x.__dlpack__()):
        with pytest.raises(TypeError, match=r"token\[\] has no elements"):
            use(token)


# --- as text

TEXTS = [
    (np.float32(2.5), "DeviceArray(2.5, f32[], device=3)"),
    (np.array([1, 2, 3], np.int32), "DeviceArray([1, 2, 3], s32[3], device=3)"),
    (F32, "DeviceArray([[0., 1., 2.],\n             [3., 4., 5.]], f32[2,3], device=3)"),
    (np.array([0.5], ml_dtypes.bfloat16), "DeviceArray([0.5], bf16[1], device=3)"),
    (np.empty((0, 2), bool), "DeviceArray([], pred[0,2], device=3)"),
    (np.arange(9999), "DeviceArray([   0,    1,    2, ..., 9996, 9997, 9998], s64[9999], device=3)"),
    (np.arange(0.125, 5), "DeviceArray([0.125, 1.125, 2.125, 3.125, 4.125], f64[5], device=3)"),
    (
        np.arange(0.125, 7),
        "DeviceArray([0.125, 1.125, 2.125, 3.125, 4.125, 5.125, 6.125],\n            f64[7], device=3)",
    ),
]


@pytest.mark.parametrize(("value", "text"), TEXTS, ids=lambda v: "" if isinstance(v, str) else str(v.dtype))
def test_the_repr_shows_the_values(device: Device, value: Any, text: str) -> None:
    assert repr(device.put(value)) == text


def test_the_repr_fetches_what_is_small_and_can_be_fetched(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = (device.put(np.zeros(n, np.int8), elsewhere=True) for n in (2, 1 << 17))
    assert repr(small) == "DeviceArray([0, 0], s8[2], device=3)"
    assert repr(large) == "DeviceArray(s8[131072], device=3)"

    def closed(self: Elsewhere, offset: int, size: int) -> Array:
        raise ClusterError("the cluster is closed")

    monkeypatch.setattr(Elsewhere, "read", closed)
    assert repr(small) == "DeviceArray(s8[2], device=3)"
    with pytest.raises(ClusterError, match="closed"):
        str(small)


def test_its_names_are_public_ones(device: Device) -> None:
    names = dir(device.put(F32))
    assert {"shape", "device", "hlo_shape", "extents", "sum", "T", "tolist"} <= set(names)
    assert not [name for name in names if name.startswith("_")]
    assert "offset" not in names


def test_hlo_shape_is_the_type_as_the_program_states_it(device: Device) -> None:
    array = device.put(np.zeros((2, 1), np.int32))
    assert array.hlo_shape == Shape(S32, (2, 1))
    assert device.put(np.zeros(2, ml_dtypes.bfloat16)).hlo_shape.dtype is BF16
