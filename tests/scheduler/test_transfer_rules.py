"""Notes on what XLA's compiler for GPUs refuses in scheduled programs."""

from __future__ import annotations

import pytest

from distxla.scheduler.simulation.transfer_rules import notes
from distxla.text.parser import parse_module
from tests.deadlock_programs import SUM, alone, recv, recv_done, reduce, send, send_done

ONE, TWO, BACK, BOTH = "{{0,1}}", "{{1,2}}", "{{1,0}}", "{{0,1},{1,0}}"
DONES = [recv_done("rd", "c", 1), send_done("sd", "s", 1), "ROOT r = f32[4] get-tuple-element(rd), index=0"]
SECOND = [recv_done("rd2", "c2", 1), send_done("sd2", "s2", 1)]

CASES: list[tuple[str, list[str], list[str]]] = [
    ("a pair at a time", [recv("c", 1, ONE), send("s", 1, ONE), *DONES], []),
    ("a cycle", [recv("c", 1, BOTH), send("s", 1, BOTH), *DONES],
     ["XLA for GPUs refuses c (n.hlo:10:3): its pairs form a cycle"]),
    ("two recvs of a chain",
     [recv("c", 1, ONE), recv("c2", 1, TWO), send("s", 1, ONE), send("s2", 1, TWO), *SECOND, *DONES], []),
    ("two recvs that share a pair",
     [recv("c", 1, ONE), recv("c2", 1, ONE), send("s", 1, ONE), send("s2", 1, ONE), *SECOND, *DONES],
     ["XLA for GPUs refuses c2 (n.hlo:11:3): it shares pairs with c (n.hlo:10:3) before it"]),
    ("two recvs that form a cycle",
     [recv("c", 1, ONE), recv("c2", 1, BACK), send("s", 1, ONE), send("s2", 1, BACK), *SECOND, *DONES],
     ["XLA for GPUs refuses c2 (n.hlo:11:3): together with c (n.hlo:10:3) before it its pairs form a cycle"]),
    ("a collective between", [recv("c", 1, ONE), reduce("a", "x"), send("s", 1, ONE), *DONES],
     ["XLA for GPUs refuses a (n.hlo:11:3): it stands between c (n.hlo:10:3) and its send"]),
    ("another pair's half",
     [recv("c", 1, ONE), send("s2", 1, TWO), recv("c2", 1, TWO), send("s", 1, ONE), *SECOND, *DONES],
     ["XLA for GPUs refuses s2 (n.hlo:11:3): its pairs are not those of c (n.hlo:10:3) before it"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "lines", "expected"), CASES, ids=[case[0] for case in CASES])
def test_notes(name: str, lines: list[str], expected: list[str]) -> None:
    text = SUM.lstrip() + "\n" + alone("\n".join(lines))
    scheduled = parse_module("HloModule m, is_scheduled=true\n" + text, "n.hlo")
    assert list(notes(scheduled)) == expected
    assert list(notes(parse_module("HloModule m\n" + text, "n.hlo"))) == []
