"""What test_swapped_state.py shares with other tests."""

from __future__ import annotations

LESS = """less {{ s = ({types}) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] get-tuple-element(s), index=1
 ROOT l = pred[] compare(i, n), direction=LT }}
"""

LEAVES = """ s = ({types}) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] get-tuple-element(s), index=1
 one = s32[] constant(1)
 j = s32[] add(i, one)
 a = f32[8,8] get-tuple-element(s), index=2
 b = f32[8,8] get-tuple-element(s), index=3
"""

TYPES = "s32[], s32[], f32[8,8], f32[8,8]"


def module(body: str, after: str, more: str = "") -> str:
    """A loop of n trips over two arrays. body: computes c and d.  after: uses them, and is the program's result."""
    return (
        "HloModule m\n"
        + LESS.format(types=TYPES)
        + more
        + "body {\n"
        + LEAVES.format(types=TYPES)
        + body
        + f"\n ROOT t = ({TYPES}) tuple(j, n, c, d) }}\n"
        + f"""ENTRY e {{ a0 = f32[8,8] parameter(0)
 b0 = f32[8,8] parameter(1)
 n = s32[] parameter(2)
 zero = s32[] constant(0)
 s = ({TYPES}) tuple(zero, n, a0, b0)
 w = ({TYPES}) while(s), condition=less, body=body
 c = f32[8,8] get-tuple-element(w), index=2
 d = f32[8,8] get-tuple-element(w), index=3
{after} }}
"""
    )


TURN = " c = f32[8,8] transpose(a), dimensions={1,0}\n q = f32[8,8] dot(a, b), lhs_contracting_dims={1}, "
TURN += "rhs_contracting_dims={0}\n r = f32[8,8] tanh(q)\n"

BOTH = " ROOT r = (f32[8,8], f32[8,8]) tuple(c, d)"

INNER = (
    LESS.format(types=TYPES).replace("less", "less2")
    + "inner {\n"
    + LEAVES.format(types=TYPES)
    + TURN
    + f" d = f32[8,8] transpose(r), dimensions={{1,0}}\n ROOT t = ({TYPES}) tuple(j, n, d, c) }}\n"
)

BODIES = {
    "each leaf its own": (TURN + " d = f32[8,8] transpose(r), dimensions={1,0}", ""),
    "one leaf becomes the other": (TURN + " d = f32[8,8] copy(a)", ""),
    "leaves change places": (
        " c = f32[8,8] transpose(b), dimensions={1,0}\n d = f32[8,8] transpose(a), dimensions={1,0}",
        "",
    ),
    "one value in both leaves": (TURN + " d = f32[8,8] reverse(r), dimensions={0}\n e = f32[8,8] add(c, d)", ""),
    "in place beside it": (
        TURN + " u = f32[1,8] slice(r), slice={[0:1],[0:8]}\n zero = s32[] constant(0)\n"
        " d = f32[8,8] dynamic-update-slice(b, u, zero, zero)",
        "",
    ),
    "a loop within": (
        f" zero = s32[] constant(0)\n three = s32[] constant(3)\n s2 = ({TYPES}) tuple(zero, three, a, b)\n"
        f" w2 = ({TYPES}) while(s2), condition=less2, body=inner\n c2 = f32[8,8] get-tuple-element(w2), index=2\n"
        " d = f32[8,8] get-tuple-element(w2), index=3\n c = f32[8,8] transpose(c2), dimensions={1,0}",
        INNER,
    ),
    "branches": (
        " two = s32[] constant(2)\n side = s32[] remainder(i, two)\n p = (f32[8,8], f32[8,8]) tuple(a, b)\n"
        " k = (f32[8,8], f32[8,8]) conditional(side, p, p), branch_computations={left, right}\n"
        " c = f32[8,8] get-tuple-element(k), index=0\n d = f32[8,8] get-tuple-element(k), index=1",
        "left { p = (f32[8,8], f32[8,8]) parameter(0)\n a = f32[8,8] get-tuple-element(p), index=0\n"
        " b = f32[8,8] get-tuple-element(p), index=1\n c = f32[8,8] transpose(b), dimensions={1,0}\n"
        " ROOT t = (f32[8,8], f32[8,8]) tuple(c, a) }\n"
        "right { p = (f32[8,8], f32[8,8]) parameter(0)\n a = f32[8,8] get-tuple-element(p), index=0\n"
        " b = f32[8,8] get-tuple-element(p), index=1\n c = f32[8,8] reverse(a), dimensions={1}\n"
        " d = f32[8,8] add(b, c)\n ROOT t = (f32[8,8], f32[8,8]) tuple(d, c) }\n",
    ),
}
