"""What test_host_calls.py shares with other tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

PYTHON = (
    'custom_call_target="xla_ffi_python_cpu_callback", api_version=API_VERSION_TYPED_FFI, '
    "custom_call_has_side_effect=true, backend_config={index = %d : ui64}"
)

# a call without results, one with a result, one that is ordered by a token, and a named one
CALLS = f"""HloModule calls, num_partitions=2
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}}
ENTRY main {{
  before = token[] parameter(0)
  x = f32[2,3] parameter(1)
  told = () custom-call(x), {PYTHON % 0}
  y = (f32[2,3]{{0,1}}) custom-call(x), {PYTHON % 1}
  v = f32[2,3] get-tuple-element(y), index=0
  both = (token[], f32[], s32[2]) custom-call(before, v), {PYTHON % 2}
  s = f32[] get-tuple-element(both), index=1
  r = f32[] all-reduce(s), channel_id=1, replica_groups={{{{0,1}}}}, use_global_device_ids=true, to_apply=add
  named = f32[] custom-call(r), custom_call_target="halved"
  after = token[] get-tuple-element(both), index=0
  i = s32[2] get-tuple-element(both), index=2
  ROOT all = (token[], f32[2,3], f32[], s32[2]) tuple(after, v, named, i)
}}
"""


class Calls:
    """The functions of CALLS, and what they were given."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []  # function, device

    def functions(self, **others: Callable[..., Any]) -> dict[int | str, Callable[..., Any]]:
        found: dict[int | str, Callable[..., Any]] = {0: self.told, 1: self.sine, 2: self.both, "halved": self.halved}
        return found | {int(key.removeprefix("f")): function for key, function in others.items()}

    def told(self, x: Any, *, device: int) -> None:
        assert x.dtype == np.float32
        assert x.tolist() == given(device).tolist()
        self.seen.append((0, device))

    def sine(self, x: Any, *, device: int) -> tuple[Any]:
        self.seen.append((1, device))
        return (np.sin(x),)

    def both(self, token: None, v: Any, *, device: int) -> tuple[Any, ...]:
        assert token is None
        self.seen.append((2, device))
        return None, v.sum(dtype=np.float32), np.array([device, 7], np.int32)

    def halved(self, r: Any) -> Any:
        return r / np.float32(2)


def given(device: int) -> Any:
    return np.arange(6, dtype=np.float32).reshape(2, 3) + device


ARGS = [[None, given(device)] for device in range(2)]


def check_results(outs: Any) -> None:
    half = sum(np.sin(given(d)).sum(dtype=np.float32) for d in range(2)) / np.float32(2)
    for device, row in enumerate(outs):
        np.testing.assert_array_equal(np.asarray(row[1]), np.sin(given(device)))
        assert np.asarray(row[2]) == half
        assert np.asarray(row[3]).tolist() == [device, 7]
