"""Custom-calls of XLA's typed FFI: C handlers in the replicas and in the reference, attributes, states, errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distxla as dx
from distxla.ir.counts import Counts
from distxla.ops.custom_calls import user
from distxla.ops.custom_calls.ffi.attributes import Typed, read_attributes
from distxla.ops.custom_calls.ffi.config import ConfigError
from distxla.oracle.lockstep import run_reference
from distxla.runtime.cluster import Cluster
from tests.runtime.ffi_library import build

FFI = "api_version=API_VERSION_TYPED_FFI"
CONFIG = '{scale = 2.5 : f32, offsets = array<i64: 1, 2, 3>, label = "hello", inner = {flag = true}}'
AFFINE = f"""HloModule affine, replica_count=2
ENTRY main {{
  x = f32[2,3] parameter(0)
  ROOT y = f32[2,3] custom-call(x), custom_call_target="affine", {FFI}, backend_config={CONFIG}
}}
"""
SIMPLE = f"""HloModule simple, replica_count=2
ENTRY main {{
  x = f32[4] parameter(0)
  ROOT y = f32[4] custom-call(x), custom_call_target="TARGET", {FFI}
}}
"""
X = np.arange(4, dtype=np.float32)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("handlers"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(2) as opened:
        yield opened


@pytest.fixture(autouse=True)
def registrations_end_with_the_test() -> Iterator[None]:
    yield
    user.registered.clear()


def simple(target: str, *more: str) -> dx.Module:
    text = SIMPLE.replace("TARGET", target)
    return dx.parse(text.replace(FFI, ", ".join([FFI, *more])), "simple.hlo")


def on_reference(module: dx.Module, *args: Any) -> Any:
    return run_reference(module, [list(args)] * 2, Counts(2, 1))[0]


@pytest.mark.cluster
def test_a_handler_gets_buffers_and_attributes(cluster: Cluster, library: Path) -> None:
    dx.register_custom_call("affine", library=library)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    module = dx.parse(AFFINE)
    outs = cluster.compile(module)([x])
    for device in range(2):
        np.testing.assert_array_equal(np.asarray(outs[device][0]), 2.5 * x + 6 + device)
    np.testing.assert_array_equal(on_reference(module, x)[0], 2.5 * x + 6)


@pytest.mark.cluster
def test_an_error_names_the_instruction(cluster: Cluster, library: Path) -> None:
    dx.register_custom_call("checked", library=library)
    step = cluster.compile(simple("checked"))
    np.testing.assert_array_equal(np.asarray(step([X])[1][0]), X)
    with pytest.raises(dx.ExecutionError, match='y on device 1: "checked" returned INVALID_ARGUMENT: a negative') as e:
        step([[X], [-1 - X]])
    assert e.value.location is not None
    assert (e.value.location.file, e.value.location.line) == ("simple.hlo", 4)
    np.testing.assert_array_equal(np.asarray(step([X])[1][0]), X)
    with pytest.raises(dx.ExecutionError, match='"checked" returned INVALID_ARGUMENT: a negative number'):
        on_reference(simple("checked"), -1 - X)


@pytest.mark.cluster
def test_a_state_lives_as_long_as_the_program(cluster: Cluster, library: Path) -> None:
    dx.register_custom_call("count", library=library, stages={"instantiate": "make_counter"})
    text = f"""HloModule counts, replica_count=2
ENTRY main {{
  a = s32[] custom-call(), custom_call_target="count", {FFI}, custom_call_has_side_effect=true
  b = s32[] custom-call(), custom_call_target="count", {FFI}, custom_call_has_side_effect=true
  ROOT r = (s32[], s32[]) tuple(a, b)
}}
"""
    step = cluster.compile(dx.parse(text))
    for number in range(1, 4):
        assert [int(np.asarray(leaf)) for leaf in step()[0]] == [number, number]
    again = cluster.compile(dx.parse(text))
    assert [int(np.asarray(leaf)) for leaf in again()[0]] == [1, 1]


@pytest.mark.cluster
def test_an_operand_may_be_the_result(cluster: Cluster, library: Path) -> None:
    dx.register_custom_call("add_one", library=library)
    module = simple("add_one", "output_to_operand_aliasing={{}: (0, {})}")
    np.testing.assert_array_equal(np.asarray(cluster.compile(module)([X])[0][0]), X + 1)
    np.testing.assert_array_equal(on_reference(module, X)[0], X + 1)


@pytest.mark.cluster
def test_a_handler_may_return_a_future(cluster: Cluster, library: Path) -> None:
    dx.register_custom_call("later", library=library)
    step = cluster.compile(simple("later"))
    for _ in range(3):
        np.testing.assert_array_equal(np.asarray(step([X])[0][0]), 2 * X)
    with pytest.raises(dx.ExecutionError, match='"later" returned INVALID_ARGUMENT: negative, found later'):
        step([-1 - X])
    np.testing.assert_array_equal(on_reference(simple("later"), X)[0], 2 * X)


@pytest.mark.cluster
def test_other_versions_and_registrations_are_refused(cluster: Cluster, library: Path) -> None:
    dx.register_custom_call("of_the_future", library=library)
    with pytest.raises(dx.ArgumentError, match=r"is of version 7.1 of XLA.s FFI, expected 0.0 to 0.5"):
        cluster.compile(simple("of_the_future"))([X])
    with pytest.raises(dx.ArgumentError, match="stage 'start' is none of instantiate, prepare, initialize"):
        dx.register_custom_call("count", library=library, stages={"start": "make_counter"})
    with pytest.raises(dx.ArgumentError, match="has no symbol 'missing'"):
        dx.register_custom_call("count", library=library, stages={"prepare": "missing"})
    dx.register_custom_call("checked", library=library)
    text = f"""HloModule layouts, replica_count=2
ENTRY main {{
  x = f32[2,2] parameter(0)
  ROOT y = f32[2,2]{{0,1}} custom-call(x), custom_call_target="checked", {FFI}
}}
"""
    with pytest.raises(dx.UnsupportedOpError, match="takes an array that is not row-major"):
        cluster.compile(dx.parse(text))
    with pytest.raises(dx.UnsupportedOpError, match="backend_config has a list"):
        cluster.compile(simple("checked", "backend_config={a = [1, 2]}"))


STATUS_SOURCE = r"""
#include <stddef.h>
#include <string.h>
typedef struct XlaCustomCallStatus XlaCustomCallStatus;
void XlaCustomCallStatusSetFailure(XlaCustomCallStatus *, const char *, size_t);
void XlaCustomCallStatusSetSuccess(XlaCustomCallStatus *);

void halve(float *out, const float **in, XlaCustomCallStatus *status) {
  if (in[0][0] < 0) { XlaCustomCallStatusSetFailure(status, "a negative number", 17); return; }
  for (int i = 0; i < 4; i++) out[i] = in[0][i] / 2;
  XlaCustomCallStatusSetSuccess(status);
}

void unified(void **out, const float **in, const char *opaque, size_t size, XlaCustomCallStatus *status) {
  if (size != 5 || memcmp(opaque, "hello", 5)) XlaCustomCallStatusSetFailure(status, opaque, size);
  for (int i = 0; i < 4; i++) ((float *)out[0])[i] = ((float *)out[1])[i] = 3 * in[0][i];
}
"""


@pytest.mark.cluster
def test_status_returning_functions(cluster: Cluster, tmp_path: Path) -> None:
    library = build(tmp_path, STATUS_SOURCE)
    dx.register_custom_call("halve", library=library)
    dx.register_custom_call("unified", library=library)
    halve = dx.parse(SIMPLE.replace("TARGET", "halve").replace("TYPED_FFI", "STATUS_RETURNING"))
    step = cluster.compile(halve)
    np.testing.assert_array_equal(np.asarray(step([X])[1][0]), X / 2)
    np.testing.assert_array_equal(on_reference(halve, X)[0], X / 2)
    for run in (lambda: step([-1 - X]), lambda: on_reference(halve, -1 - X)):
        with pytest.raises(dx.ExecutionError, match='"halve" failed: a negative number'):
            run()
    np.testing.assert_array_equal(np.asarray(step([X])[1][0]), X / 2)
    text = """HloModule unified, replica_count=2
ENTRY main {
  x = f32[4] parameter(0)
  ROOT y = (f32[4], f32[4]) custom-call(x), custom_call_target="unified", backend_config="hello",
    api_version=API_VERSION_STATUS_RETURNING_UNIFIED
}
"""
    for leaf in cluster.compile(dx.parse(text))([X])[0]:
        np.testing.assert_array_equal(np.asarray(leaf), 3 * X)
    with pytest.raises(dx.ExecutionError, match='"unified" failed: other'):
        cluster.compile(dx.parse(text.replace("hello", "other")))([X])
    (tmp_path / "own").mkdir()
    own = build(
        tmp_path / "own",
        STATUS_SOURCE + "void XlaCustomCallStatusSetFailure(XlaCustomCallStatus *s, const char *m, size_t n) {}",
    )
    dx.register_custom_call("halve", library=own)
    with pytest.raises(dx.ArgumentError, match="brings a XlaCustomCallStatusSetFailure of its own"):
        cluster.compile(halve)([X])


def test_attributes_keep_their_types() -> None:
    text = (
        '{a = 1 : i32, b = 2 : ui8, c = true, d = 1.5 : f64, e = array<f32: 1.0, 2.5>, f = "x\\"y", '
        "g = {h = 3 : i64}, "
        "i = dense<[1, 2]> : tensor<2xi16>, j = dense<0> : tensor<3xi32>, k, l = 4, m = 0.5, "
        "n = array<i1: true, false>}"
    )
    assert read_attributes(text) == {
        "a": Typed("s32", [1]),
        "b": Typed("u8", [2]),
        "c": Typed("pred", [True]),
        "d": Typed("f64", [1.5]),
        "e": Typed("f32", [1.0, 2.5], is_array=True),
        "f": 'x"y',
        "g": {"h": Typed("s64", [3])},
        "i": Typed("s16", [1, 2], is_array=True),
        "j": Typed("s32", [0, 0, 0], is_array=True),
        "k": Typed("pred", [True]),
        "l": Typed("s64", [4]),
        "m": Typed("f64", [0.5]),
        "n": Typed("pred", [True, False], is_array=True),
    }
    assert read_attributes(None) == {}
    for bad in ("words", "{a = 1 : q7}", "{a = dense<[1, 2]> : tensor<3xi32>}", "{a = [1]}"):
        with pytest.raises(ConfigError):
            read_attributes(bad)
