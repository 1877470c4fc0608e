"""Five sharded programs of eight devices with their arguments, and what XLA CPU computed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class ShardedProgram:
    """A folder: global.hlo before partitioning, partitioned.hlo after it, optimized.hlo as XLA scheduled it."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @cached_property
    def meta(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "meta.json").read_text()))

    @property
    def devices(self) -> int:
        return int(self.meta["devices"])

    @cached_property
    def arguments(self) -> list[list[Array]]:
        """arguments[d][k]."""
        return self._leaves("args.npz", "arg", self.meta["params"])

    @cached_property
    def expected(self) -> list[list[Array]]:
        """expected[d][k]: XLA's results."""
        return self._leaves("expected.npz", "out", self.meta["outputs"])

    def text(self, form: str) -> str:
        return (self.folder / f"{form}.hlo").read_text()

    def assert_results(self, outs: Any) -> None:
        """outs[d][k] is within the program's tolerance, which is relative to values above 1 and absolute below."""
        tolerance = self.meta["tol"]
        for d, leaves in enumerate(self.expected):
            assert len(outs[d]) == len(leaves)
            for k, wanted in enumerate(leaves):
                got = np.asarray(outs[d][k])
                assert got.dtype == wanted.dtype
                np.testing.assert_allclose(
                    got, wanted, rtol=tolerance, atol=tolerance, err_msg=f"{self.name}: leaf {k} on device {d}"
                )

    def _leaves(self, file: str, prefix: str, count: int) -> list[list[Array]]:
        with np.load(self.folder / file) as found:
            return [[found[f"{prefix}{k}@{d}"] for k in range(count)] for d in range(self.devices)]


PROGRAMS = [
    ShardedProgram(folder) for folder in sorted(Path(__file__).parent.iterdir()) if (folder / "meta.json").exists()
]
