"""A run of programs with channels, and pieces of the texts of such programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distxla.ir.module import Module
from distxla.text.parser import parse_module

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class ChannelCase:
    """programs: (devices, text).  arguments and results: leaves by device; None for a token."""

    name: str
    programs: tuple[tuple[Sequence[int], str], ...]
    arguments: Callable[[int], list[Any]]
    results: Callable[[int], list[Any]]
    replicas: int = 1
    partitions: int = 1

    @property
    def devices(self) -> int:
        return self.replicas * self.partitions

    def modules(self) -> list[tuple[tuple[int, ...], Module]]:
        return [
            (tuple(devices), parse_module(text, f"{self.name}.{k}.hlo"))
            for k, (devices, text) in enumerate(self.programs)
        ]

    def wrong(self, outs: dict[int, list[Any]]) -> list[str]:
        """What differs from `results`, bit for bit."""
        found = []
        for device, leaves in sorted(outs.items()):
            for k, (have, want) in enumerate(zip(leaves, self.results(device), strict=True)):
                if want is None:
                    continue
                have, want = np.asarray(have), np.asarray(want)
                if have.dtype != want.dtype or have.shape != want.shape or have.tobytes() != want.tobytes():
                    found.append(f"{self.name}: leaf {k} on device {device} is {have}, not {want}")
        return found


def annotated(pairs: str, **others: str) -> str:
    named = {"source_target_pairs": pairs} | others
    return "frontend_attributes={" + ",".join(f'_xla_send_recv_{k}="{v}"' for k, v in named.items()) + "}"


def permute(name: str, operand: str, shape: str, pairs: str, channel: str = "channel_id=0", **others: str) -> str:
    """recv, send, recv-done, send-done: what collective-permutes are decomposed into. The value is {name}."""
    rest = ", ".join(part for part in (channel, annotated(pairs, **others)) if part)
    done = f", {channel}" if channel else ""
    return f"""
  {name}.t = token[] after-all()
  {name}.r = ({shape}, u32[], token[]) recv({name}.t), {rest}
  {name}.s = ({shape}, u32[], token[]) send({operand}, {name}.t), {rest}, control-predecessors={{{name}.r}}
  {name}.rd = ({shape}, token[]) recv-done({name}.r){done}
  {name}.sd = token[] send-done({name}.s){done}, control-predecessors={{{name}.rd}}
  {name} = {shape} get-tuple-element({name}.rd), index=0"""


def ring(count: int) -> str:
    return "{" + ",".join(f"{{{d},{(d + 1) % count}}}" for d in range(count)) + "}"


def chain(count: int) -> str:
    return "{" + ",".join(f"{{{d},{d + 1}}}" for d in range(count - 1)) + "}"


def mine(device: int, size: int) -> Array:
    return np.arange(size, dtype=np.float32) + 1000 * device
