"""Whole programs of one device, compiled, against the reference: control flow, places, in-place results."""

from __future__ import annotations

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module
from tests.compiler.passes.equivalence import arguments
from tests.compiler.runner import Devices

SCATTER_INTO_ROWS = (
    "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"
)
ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"


def loop(state: str, elements: list[str], body: str, new: list[str], trips: int = 3) -> str:
    """A body and a condition over (s32[] counter, elements …), whose body gives `new` for the elements."""
    whole = f"(s32[], {state})"
    gtes = ""
    for k, (name, shape) in enumerate(map(str.split, elements)):
        gtes += f" {name} = {shape} get-tuple-element(s), index={k + 1}\n"
    return f"""body {{ s = {whole} parameter(0)
 i = s32[] get-tuple-element(s), index=0
 one = s32[] constant(1)
 j = s32[] add(i, one)
{gtes}
{body}
 ROOT t = {whole} tuple(j, {", ".join(new)}) }}
cond {{ s = {whole} parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] constant({trips})
 ROOT l = pred[] compare(i, n), direction=LT }}
"""


PROGRAMS = {
    "result is a parameter": "ENTRY e { ROOT x = f32[5] parameter(0) }",
    "result is a constant": "ENTRY e { ROOT c = f32[3] constant({1, 2, 3}) }",
    "one value twice, a parameter, a constant": """ENTRY e { x = f32[5] parameter(0)
 a = f32[5] negate(x)
 c = s32[2] constant({7, 8})
 ROOT r = (f32[5], f32[5], f32[5], s32[2]) tuple(a, x, a, c) }""",
    "nested tuples": """ENTRY e { p = (f32[5], (s32[], f32[2])) parameter(0)
 q = (s32[], f32[2]) get-tuple-element(p), index=1
 a = f32[2] get-tuple-element(q), index=1
 b = f32[2] negate(a)
 ROOT r = ((s32[], f32[2]), f32[2]) tuple(q, b) }""",
    "no elements": """ENTRY e { x = f32[0,3] parameter(0)
 a = f32[0,3] negate(x)
 ROOT r = (f32[0,3], f32[0,3]) tuple(a, x) }""",
    "empty tuple": "ENTRY e { x = f32[2] parameter(0)\n ROOT r = () tuple() }",
    "swap": loop("f32[4], f32[4]", ["x f32[4]", "y f32[4]"], "", ["y", "x"])
    + """ENTRY e { x = f32[4] parameter(0)
 y = f32[4] parameter(1)
 z = s32[] constant(0)
 i = (s32[], f32[4], f32[4]) tuple(z, x, y)
 ROOT w = (s32[], f32[4], f32[4]) while(i), condition=cond, body=body }""",
    "rotation with a computed value": loop(
        "f32[4], f32[4], f32[4]",
        ["x f32[4]", "y f32[4]", "q f32[4]"],
        " v = f32[4] subtract(x, q)",
        ["y", "q", "v"],
        5,
    )
    + """ENTRY e { x = f32[4] parameter(0)
 y = f32[4] parameter(1)
 z = s32[] constant(0)
 i = (s32[], f32[4], f32[4], f32[4]) tuple(z, x, y, x)
 ROOT w = (s32[], f32[4], f32[4], f32[4]) while(i), condition=cond, body=body }""",
    "one value in two leaves of the state": loop(
        "f32[4], f32[4]", ["x f32[4]", "y f32[4]"], " v = f32[4] subtract(x, y)", ["v", "v"]
    )
    + """ENTRY e { x = f32[4] parameter(0)
 n = f32[4] negate(x)
 z = s32[] constant(0)
 i = (s32[], f32[4], f32[4]) tuple(z, n, n)
 ROOT w = (s32[], f32[4], f32[4]) while(i), condition=cond, body=body }""",
    "invariant of the loop that is read afterwards": loop(
        "f32[4], f32[4]", ["x f32[4]", "y f32[4]"], " v = f32[4] add(x, y)", ["v", "y"]
    )
    + """ENTRY e { x = f32[4] parameter(0)
 n = f32[4] negate(x)
 z = s32[] constant(0)
 i = (s32[], f32[4], f32[4]) tuple(z, x, n)
 w = (s32[], f32[4], f32[4]) while(i), condition=cond, body=body
 a = f32[4] get-tuple-element(w), index=1
 b = f32[4] get-tuple-element(w), index=2
 c = f32[4] multiply(b, n)
 ROOT r = (f32[4], f32[4]) tuple(a, c) }""",
    "no iteration": loop("f32[4]", ["x f32[4]"], " v = f32[4] negate(x)", ["v"], 0)
    + """ENTRY e { x = f32[4] parameter(0)
 z = s32[] constant(0)
 i = (s32[], f32[4]) tuple(z, x)
 ROOT w = (s32[], f32[4]) while(i), condition=cond, body=body }""",
    "initial value is read after the loop": loop("f32[4]", ["x f32[4]"], " v = f32[4] add(x, x)", ["v"])
    + """ENTRY e { x = f32[4] parameter(0)
 n = f32[4] negate(x)
 z = s32[] constant(0)
 i = (s32[], f32[4]) tuple(z, n)
 w = (s32[], f32[4]) while(i), condition=cond, body=body
 a = f32[4] get-tuple-element(w), index=1
 ROOT r = f32[4] subtract(a, n) }""",
    "update in place, state read before": loop(
        "f32[8], f32[8]",
        ["x f32[8]", "y f32[8]"],
        """ k = f32[1] slice(x), slice={[1:2]}
 m = f32[1] negate(k)
 u = f32[8] dynamic-update-slice(x, m, i)
 y2 = f32[8] add(y, u)""",
        ["u", "y2"],
    )
    + """ENTRY e { x = f32[8] parameter(0)
 z = s32[] constant(0)
 i = (s32[], f32[8], f32[8]) tuple(z, x, x)
 ROOT w = (s32[], f32[8], f32[8]) while(i), condition=cond, body=body }""",
    "update in place, state read after": loop(
        "f32[8], f32[8]",
        ["x f32[8]", "y f32[8]"],
        """ k = f32[1] slice(y), slice={[1:2]}
 u = f32[8] dynamic-update-slice(x, k, i)
 y2 = f32[8] subtract(x, u)""",
        ["u", "y2"],
    )
    + """ENTRY e { x = f32[8] parameter(0)
 z = s32[] constant(0)
 i = (s32[], f32[8], f32[8]) tuple(z, x, x)
 ROOT w = (s32[], f32[8], f32[8]) while(i), condition=cond, body=body }""",
    "two updates of one value": """ENTRY e { x = f32[8] parameter(0)
 n = f32[8] negate(x)
 k = f32[2] constant({5, 6})
 i = s32[] constant(1)
 j = s32[] constant(4)
 a = f32[8] dynamic-update-slice(n, k, i)
 b = f32[8] dynamic-update-slice(n, k, j)
 c = f32[8] dynamic-update-slice(a, k, j)
 ROOT r = (f32[8], f32[8], f32[8]) tuple(b, c, x) }""",
    "the parameter itself is updated": """ENTRY e { x = f32[8] parameter(0)
 k = f32[2] constant({5, 6})
 i = s32[] constant(1)
 a = f32[8] dynamic-update-slice(x, k, i)
 ROOT r = (f32[8], f32[8]) tuple(a, x) }""",
    "loop in a loop": """ibody { s = (s32[], f32[4], f32[4]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 one = s32[] constant(1)
 j = s32[] add(i, one)
 x = f32[4] get-tuple-element(s), index=1
 y = f32[4] get-tuple-element(s), index=2
 v = f32[4] subtract(y, x)
 ROOT t = (s32[], f32[4], f32[4]) tuple(j, v, x) }
icond { s = (s32[], f32[4], f32[4]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] constant(3)
 ROOT l = pred[] compare(i, n), direction=LT }
"""
    + loop(
        "f32[4], f32[4]",
        ["x f32[4]", "y f32[4]"],
        """ z = s32[] constant(1)
 st = (s32[], f32[4], f32[4]) tuple(z, y, x)
 w = (s32[], f32[4], f32[4]) while(st), condition=icond, body=ibody
 a = f32[4] get-tuple-element(w), index=1
 b = f32[4] get-tuple-element(w), index=2
 c = f32[4] multiply(b, a)""",
        ["c", "b"],
    )
    + """ENTRY e { x = f32[4] parameter(0)
 y = f32[4] parameter(1)
 z = s32[] constant(0)
 i = (s32[], f32[4], f32[4]) tuple(z, x, y)
 ROOT w = (s32[], f32[4], f32[4]) while(i), condition=cond, body=body }""",
    "conditional by predicate": """yes { p = (f32[4], f32[4]) parameter(0)
 a = f32[4] get-tuple-element(p), index=0
 b = f32[4] get-tuple-element(p), index=1
 c = f32[4] subtract(a, b)
 ROOT r = (f32[4], f32[4], f32[4]) tuple(c, b, c) }
no { q = f32[4] parameter(0)
 k = f32[4] constant({1, 2, 3, 4})
 ROOT r = (f32[4], f32[4], f32[4]) tuple(q, k, q) }
ENTRY e { c = pred[] parameter(0)
 x = f32[4] parameter(1)
 n = f32[4] negate(x)
 t = (f32[4], f32[4]) tuple(x, n)
 ROOT r = (f32[4], f32[4], f32[4]) conditional(c, t, n), true_computation=yes, false_computation=no }""",
    "conditional by index in a loop": "zero { a = f32[4] parameter(0)\n ROOT r = f32[4] negate(a) }\n"
    "one { a = f32[4] parameter(0)\n ROOT r = f32[4] add(a, a) }\n"
    "two { ROOT a = f32[4] parameter(0) }\n"
    + loop(
        "f32[4]",
        ["x f32[4]"],
        """ m = s32[] constant(1)
 k = s32[] subtract(i, m)
 v = f32[4] conditional(k, x, x, x), branch_computations={zero, one, two}""",
        ["v"],
        6,
    )
    + """ENTRY e { x = f32[4] parameter(0)
 z = s32[] constant(0)
 i = (s32[], f32[4]) tuple(z, x)
 ROOT w = (s32[], f32[4]) while(i), condition=cond, body=body }""",
    "scatter into a dead value, and into one that lives": ADD
    + """ENTRY e { x = f32[6] parameter(0)
 n = f32[6] negate(x)
 k = s32[2,1] constant({{4}, {1}})
 u = f32[2] constant({10, 20})
 a = f32[6] scatter(n, k, u), DIMS, to_apply=add
 b = f32[6] scatter(x, k, u), DIMS, to_apply=add
 ROOT r = (f32[6], f32[6]) tuple(a, b) }""".replace("DIMS", SCATTER_INTO_ROWS),
    "all-reduce of one device, of a constant": ADD
    + """ENTRY e { x = f32[4] parameter(0)
 k = f32[4] constant({1, 2, 3, 4})
 a = f32[4] all-reduce(k), replica_groups={}, to_apply=add
 b = f32[4] all-reduce(x), replica_groups={}, to_apply=add
 ROOT r = f32[4] add(a, b) }""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_matches_the_reference(name):
    module = parse_module("HloModule m\n" + PROGRAMS[name], name)
    seeds = (0, 2) if "predicate" in name else (0,)  # which draw both truth values
    for seed in seeds:
        check(module, arguments(module, 1, seed))


def check(module, args):
    wanted = run_reference(module, args, Counts(1, 1))[0]
    program = compile_module(module, Counts(1, 1))
    devices = Devices(program)
    before = [np.array(a) for a in args[0]]
    for _ in range(2):  # nothing of the first run may matter to the second
        got = devices(args)[0]
        assert len(got) == len(wanted)
        for leaf, (a, b) in enumerate(zip(got, wanted, strict=True)):
            np.testing.assert_array_equal(a, b, err_msg=f"leaf {leaf}")
    devices.run()
    for leaf, (stored, offset) in enumerate(zip(before, devices.offsets[0], strict=True)):
        kept = devices.memories[0][offset : offset + stored.nbytes]
        assert kept == np.ascontiguousarray(stored).tobytes(), f"parameter leaf {leaf} was written"
    devices.close()
