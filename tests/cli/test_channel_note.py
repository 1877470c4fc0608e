"""A send and a recv of different channels that are paired all the same, and both commands say so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from distxla.cli.main import commands
from tests.channel_case import annotated

TEXT = f"""HloModule other_ids, num_partitions=2
ENTRY main {{
  x = f32[2] parameter(0)
  t = token[] after-all()
  s = (f32[2], u32[], token[]) send(x, t), channel_id=1, {annotated("{{0,1}}")}
  r = (f32[2], u32[], token[]) recv(t), channel_id=2, {annotated("{{0,1}}")}
  sd = token[] send-done(s), channel_id=1
  rd = (f32[2], token[]) recv-done(r), channel_id=2
  ROOT y = f32[2] get-tuple-element(rd), index=0
}}
"""


@pytest.mark.parametrize("command", [["check"], ["run", "--backend", "reference"]])
def test_the_pairing_is_noted(tmp_path: Path, command: list[str]) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(TEXT)
    note = (
        f"s ({path}:5:3) on channel 1 and r ({path}:6:3) on channel 2 are paired by their source-target pairs, in the "
        "order in which they are executed, as by XLA on GPUs: neither channel has another side"
    )
    result = CliRunner().invoke(commands, [*command, str(path)], catch_exceptions=False)
    assert result.exit_code == 0
    assert note in " ".join(result.output.split())
    data = json.loads(CliRunner().invoke(commands, [*command, "--json", str(path)], catch_exceptions=False).output)
    assert data["notes"] == [note]
    path.write_text(TEXT.replace("channel_id=2", "channel_id=1"))
    data = json.loads(CliRunner().invoke(commands, [*command, "--json", str(path)], catch_exceptions=False).output)
    assert data["notes"] == []


def test_what_might_have_been_meant_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(TEXT.replace(annotated("{{0,1}}"), annotated("{{1,0}}"), 1))
    result = CliRunner().invoke(commands, ["check", "--json", str(path)], catch_exceptions=False)
    assert result.exit_code == 3
    near = f"recv r ({path}:6:3) on channel 2 lacks its send, too, but it has the pairs {{{{0,1}}}}, s has {{{{1,0}}}}"
    assert json.loads(result.output)["diagnosis"]["hints"] == [near]
