"""The table of streams inside a loop: items of the host to one device and back, fed and taken by threads of Python."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from rich.table import Table

import distxla as dx
from bench.format import seconds

SIZES = {"4 B": 4, "4 KiB": 4 << 10, "64 KiB": 64 << 10, "1 MiB": 1 << 20, "16 MiB": 16 << 20}
BYTES_A_TURN = 256 << 20
MOST_ITEMS = 5000
KINDS = ("infeed", "outfeed")


@dataclass
class MeasuredStream:
    """Seconds of one item, by turn. kind: of KINDS.  bytes: of an item."""

    kind: str
    size: str
    bytes: int
    items_s: list[float] = field(default_factory=list)

    @property
    def least(self) -> float:
        """The least; others' work on the machine only ever adds to it."""
        return min(self.items_s)


def program(kind: str, count: int) -> str:
    """A loop of as many trips as the argument says that takes, or gives, `count` f32 each time."""
    item = f"f32[{count}]"
    feed = {
        "infeed": f"  f = ({item}, token[]) infeed(t)\n  x = {item} get-tuple-element(f), index=0",
        "outfeed": f"  o = token[] outfeed(v, t), outfeed_shape={item}\n  x = {item} copy(v)",
    }[kind]
    state = f"(s32[], s32[], {item})"
    return f"""HloModule {kind}
body {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=1
  v = {item} get-tuple-element(p), index=2
  t = token[] after-all()
{feed}
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT r = {state} tuple(j, n, x)
}}
again {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=1
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY main {{
  v = {item} parameter(0)
  n = s32[] parameter(1)
  z = s32[] constant(0)
  s = {state} tuple(z, n, v)
  w = {state} while(s), condition=again, body=body
  ROOT r = {item} get-tuple-element(w), index=2
}}
"""


def measure_streams(match: str, rounds: int) -> Iterator[MeasuredStream]:
    """Those whose "KIND, SIZE" has `match` in it."""
    wanted = [(kind, name) for kind in KINDS for name in SIZES if match in f"{kind}, {name}"]
    if not wanted:
        return
    with dx.Cluster() as cluster:
        for kind, name in wanted:
            yield _measure(cluster, MeasuredStream(kind, name, SIZES[name]), rounds)


def _measure(cluster: dx.Cluster, measured: MeasuredStream, rounds: int) -> MeasuredStream:
    value = np.zeros(measured.bytes // 4, np.float32)
    step = cluster.compile(dx.parse(program(measured.kind, value.size)))
    items = max(8, min(MOST_ITEMS, BYTES_A_TURN // measured.bytes))
    arguments = [value, np.int32(items)]

    def host() -> None:
        if measured.kind == "infeed":
            cluster.infeed(0).put_all(value for _ in range(items))
        else:
            for _ in range(items):
                cluster.outfeed(0).get()

    for _ in range(rounds + 1):
        thread = threading.Thread(target=host)
        begin = time.perf_counter()
        thread.start()
        step(arguments)
        thread.join()
        measured.items_s.append((time.perf_counter() - begin) / items)
    del measured.items_s[0]
    return measured


def stream_table(rows: list[MeasuredStream]) -> Table:
    table = Table(title="streams between the host and a device, inside a loop", title_justify="left")
    for head in ("stream", "item", "seconds an item", "GB/s"):
        table.add_column(head, justify="left" if head == "stream" else "right")
    for row in rows:
        table.add_row(row.kind, row.size, seconds(row.least), f"{row.bytes / row.least / 1e9:.2f}")
    return table
