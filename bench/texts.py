"""The table of texts: HLO text to a module, beside XLA's parser; each in a process of its own."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

from bench.format import number, seconds

SIZES = (30_000, 300_000)
LIMIT_S = 600
PARSERS = {
    "distxla": "from distxla.text.parser import parse_module as parse",
    "xla": "from jaxlib._hlo import hlo_module_from_text as parse",
}
# prints the processor's seconds, and by how many bytes the most memory of the process grew
SCRIPT = """
import json, resource, sys, time
{parser}
def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
parse("HloModule m\\nENTRY e {{\\n ROOT x = f32[] parameter(0)\\n}}\\n")
text = open(sys.argv[1]).read()
before, begin = most(), time.process_time()
module = parse(text)
print(json.dumps([time.process_time() - begin, most() - before]))
"""
LINES = (  # of each instruction by turns: i is the one before, j that before it
    "add(i, j)", "multiply(i, j)", "tanh(i)", "maximum(i, j)", "broadcast(c), dimensions={}", "negate(i)",
    "fusion(i, j), kind=kLoop, calls=fused", "subtract(i, j)",
    "dot(i, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "add(i, j)",
)  # fmt: skip
HEAD = """HloModule long

fused {
  p = f32[128,64]{1,0} parameter(0)
  q = f32[128,64]{1,0} parameter(1)
  ROOT r = f32[128,64]{1,0} add(p, q)
}

ENTRY e {
  c = f32[] constant(1)
  w = f32[64,64]{1,0} parameter(0)
  i0 = f32[128,64]{1,0} parameter(1)
  i1 = f32[128,64]{1,0} negate(i0)
"""


@dataclass
class MeasuredText:
    """By side, one value a round: processor's seconds, bytes of memory. mebibytes: of the text."""

    name: str
    mebibytes: float
    processor_s: dict[str, list[float]] = field(default_factory=dict)
    memory_bytes: dict[str, list[float]] = field(default_factory=dict)

    def ratio(self) -> float | None:
        if len(self.processor_s) < 2:
            return None
        return statistics.median(self.processor_s["distxla"]) / statistics.median(self.processor_s["xla"])


def long_text(instructions: int) -> str:
    """A module of so many instructions, as XLA prints them, with metadata."""
    lines = []
    for k in range(2, instructions):
        line = LINES[k % len(LINES)].replace("(i,", f"(i{k - 1},").replace("(i)", f"(i{k - 1})")
        line = line.replace(", j)", f", i{k - 2})")
        metadata = f'{{op_name="jit(f)/layer_{k % 97}/op_{k % 1000}" source_file="model.py" source_line={k % 500}}}'
        lines.append(f"  i{k} = f32[128,64]{{1,0}} {line}, metadata={metadata}\n")
    return f"{HEAD}{''.join(lines)}  ROOT last = f32[128,64]{{1,0}} negate(i{instructions - 1})\n}}\n"


def measure_texts(match: str, rounds: int, xla: bool) -> Iterator[MeasuredText]:
    """Both sides in turn."""
    for size in SIZES:
        name = f"{size} instructions"
        if match not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "long.hlo")
            file.write_text(long_text(size))
            measured = MeasuredText(name, file.stat().st_size / 2**20)
            for _ in range(rounds):
                for side in ("distxla", "xla") if xla else ("distxla",):
                    took, grew = parsed(side, file)
                    measured.processor_s.setdefault(side, []).append(took)
                    measured.memory_bytes.setdefault(side, []).append(grew)
        yield measured


def parsed(side: str, file: Path) -> tuple[float, float]:
    """The processor's seconds and the bytes that parsing the file takes."""
    command = [sys.executable, "-c", SCRIPT.format(parser=PARSERS[side]), str(file)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT_S)
    took, grew = json.loads(done.stdout)
    return took, grew


def text_table(rows: list[MeasuredText]) -> Table:
    table = Table(title="HLO text to a module: processor time, and memory")
    for column in ("module", "text", "distxla", "XLA", "ratio", "distxla's memory", "XLA's memory"):
        table.add_column(column, justify="left" if column == "module" else "right")
    for row in rows:
        times = [statistics.median(row.processor_s[s]) if s in row.processor_s else None for s in PARSERS]
        sizes = [statistics.median(row.memory_bytes[s]) if s in row.memory_bytes else None for s in PARSERS]
        memory = ["-" if size is None else f"{size / 2**20:.0f} MiB" for size in sizes]
        table.add_row(row.name, f"{row.mebibytes:.0f} MiB", *map(seconds, times), number(row.ratio()), *memory)
    return table
