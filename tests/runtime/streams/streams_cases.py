"""What test_streams.py shares with other tests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

F32 = np.float32

MEET = """HloModule meet, replica_count=2
add { a = f32[2] parameter(0)
  b = f32[2] parameter(1)
  ROOT s = f32[2] add(a, b) }
ENTRY main {
  t = token[] after-all()
  f = (f32[2], token[]) infeed(t)
  v = f32[2] get-tuple-element(f), index=0
  u = token[] get-tuple-element(f), index=1
  r = f32[2] all-reduce(v), replica_groups={}, to_apply=add
  ROOT o = token[] outfeed(r, u), outfeed_shape=f32[2]
}
""".replace("f32[2] parameter", "f32[] parameter").replace("s = f32[2] add", "s = f32[] add")


def item(n: float) -> np.ndarray[Any, Any]:
    return np.full(4, n, F32)


class Beside:
    """A function in another thread; `result` waits for it and gives what came of it, the exception included."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._found: Any = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._found = self._function()
        except BaseException as error:
            self._found = error

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> Any:
        self._thread.join(30)
        assert not self._thread.is_alive()
        return self._found
