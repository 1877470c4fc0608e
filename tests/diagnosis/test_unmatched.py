"""The diagnosis of a run that is refused because a send or a recv has no counterpart."""

from __future__ import annotations

import pytest

from distxla.cli.failures import json_of
from distxla.collectives.channels import module_transfers
from distxla.diagnosis.diagnose import refused
from distxla.errors import DeadlockError
from distxla.ir.counts import Counts
from distxla.text.parser import parse_module

PAIRS = 'frontend_attributes={{_xla_send_recv_source_target_pairs="{}"}}'
ONE_SIDED = f"""ENTRY main {{
  x = f32[4] parameter(0)
  t = token[] after-all()
  s = (f32[4], u32[], token[]) send(x, t), channel_id=1, {PAIRS.format("{{0,1}}")}
  sd = token[] send-done(s), channel_id=1
  r = (f32[4], u32[], token[]) recv(sd), channel_id=2, {PAIRS.format("{{1,0}}")}
  ROOT rd = (f32[4], token[]) recv-done(r), channel_id=2
}}
"""


def test_hints_name_the_ends_that_nearly_match_and_no_other_notes() -> None:
    with pytest.raises(DeadlockError) as caught:
        module_transfers([((0, 1), parse_module(ONE_SIDED, "m.hlo"))], Counts(2, 1))
    caught.value.add_note("in pass schedule")
    diagnosis = refused(caught.value)
    assert (diagnosis.kind, diagnosis.channel) == ("unmatched", 1)
    assert diagnosis.hints == (
        "recv r (m.hlo:6:3) on channel 2 lacks its send, too, but it has the pairs {{1,0}}, s has {{0,1}}",
    )
    assert json_of(caught.value)["diagnosis"] == diagnosis.as_json()
