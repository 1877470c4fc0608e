"""Partitioned programs, made up: two devices, one function `scaled`."""

from __future__ import annotations

from typing import Any

from distxla.jax.partitioner.partitioning import Partitioned
from distxla.jax.processes.program_text import ProgramText
from distxla.lazy_dataclass import replace
from distxla.text.parser import parse_module

SCALED = """HloModule jit_scaled, entry_computation_layout={(f32[4]{0})->f32[]}, num_partitions=2

FileNames
1 "/home/me/w2.py"

FunctionNames
1 "scaled"
2 "total"

FileLocations
1 {file_name_id=1 function_name_id=1 line=12 end_line=12 column=8 end_column=9}
2 {file_name_id=1 function_name_id=2 line=13 end_line=13 column=8 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}


%region (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b), metadata={op_name="jit(scaled)/sum" stack_frame_id=2}
}

ENTRY %main (param: f32[4]) -> f32[] {
  %param = f32[4]{0} parameter(0), metadata={op_name="x"}
  %constant.0 = f32[] constant(2)
  %broadcast.1 = f32[4]{0} broadcast(%constant.0), dimensions={}
  %multiply.2 = f32[4]{0} multiply(%param, %broadcast.1), metadata={op_name="jit(scaled)/mul" stack_frame_id=1}
  %zero = f32[] constant(0)
  %reduce.3 = f32[] reduce(%multiply.2, %zero), dimensions={0}, to_apply=%region, metadata={stack_frame_id=2}
  ROOT %all-reduce.4 = f32[] all-reduce(%reduce.3), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%region, metadata={stack_frame_id=2}
}
"""  # noqa: E501


def program(text: str = SCALED, number: int = 1, **changes: Any) -> ProgramText:
    """changes: of fields of ProgramText, or of Partitioned."""
    partitioned = Partitioned(
        text, b"", 2, 1, ("f32[8]{0}",), ("f32[]",), ("{devices=[2]<=[2]}",), ("{replicated}",), "0.10.2", 0.0, False
    )
    own = {name: value for name, value in changes.items() if name in ProgramText.__dataclass_fields__}
    partitioned = replace(partitioned, **{name: value for name, value in changes.items() if name not in own})
    module = parse_module(text)
    given: dict[str, Any] = {"module": module, "rows": [[0, 1]], "donated": frozenset(), "name": module.name, **own}
    return ProgramText(number, partitioned=partitioned, **given)


def edited(*edits: tuple[str, str]) -> str:
    """The text with each of these once, or more often, replaced."""
    text = SCALED
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return text
