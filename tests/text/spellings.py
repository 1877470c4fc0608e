"""Spellings that XLA's parser takes beside the usual one: each with the usual spelling of the same module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.text.snippets import ADD, body


@dataclass(frozen=True)
class Spelling:
    """text: as somebody may bring it.  usual: the same module as older parsers read it.

    arguments, results: the leaves of a run, where the program has results worth comparing.  since: a jaxlib whose
    parser takes the text, where the oldest supported one does not; (1, 0) where none of them takes it.
    """

    text: str
    usual: str
    arguments: tuple[Any, ...] = ()
    results: tuple[Any, ...] = ()
    since: tuple[int, int] = (0, 0)


X, Y = np.array([1.0, 2.0, 3.0], np.float32), np.array([10.0, 20.0, 40.0], np.float32)
_PARAMETERS = ("x = f32[3] parameter(0)", "y = f32[3] parameter(1)")
_BOTH = (
    "both { a = f32[3] parameter(0)\n b = f32[3] parameter(1)\n d = f32[3] subtract(a, b)\n"
    " ROOT t = (f32[3], f32[3]) tuple(d, b) }\n"
)
_NESTED = "t = (f32[3], (f32[3], f32[3])) parameter(0)"

ELEMENTS = {
    "elements of a call": Spelling(
        body(
            *_PARAMETERS,
            "c = (f32[3], f32[3]) call(x, y), to_apply=both",
            "ROOT r = f32[3] subtract(%c#0, %c#1)",
            before=_BOTH,
        ),
        body(
            *_PARAMETERS,
            "c = (f32[3], f32[3]) call(x, y), to_apply=both",
            "c_0 = f32[3] get-tuple-element(c), index=0",
            "c_1 = f32[3] get-tuple-element(c), index=1",
            "ROOT r = f32[3] subtract(c_0, c_1)",
            before=_BOTH,
        ),
        (X, Y),
        (X - 2 * Y,),
        since=(0, 12),
    ),
    "an element of a parameter used twice": Spelling(
        body(
            "t = (f32[3], f32[3]) parameter(0)", "a = f32[3] add(t#1, t#1)", "ROOT r = f32[3] subtract(a, f32[3] t#1)"
        ),
        body(
            "t = (f32[3], f32[3]) parameter(0)",
            "t_1 = f32[3] get-tuple-element(t), index=1",
            "a = f32[3] add(t_1, t_1)",
            "ROOT r = f32[3] subtract(a, t_1)",
        ),
        (X, Y),
        (Y,),
        since=(0, 12),
    ),
    "an element of an element": Spelling(
        body(_NESTED, "ROOT r = f32[3] subtract(%t#1#0, %t # 0)"),
        body(
            _NESTED,
            "t_1 = (f32[3], f32[3]) get-tuple-element(t), index=1",
            "t_1_0 = f32[3] get-tuple-element(t_1), index=0",
            "t_0 = f32[3] get-tuple-element(t), index=0",
            "ROOT r = f32[3] subtract(t_1_0, t_0)",
        ),
        (X, Y, X),
        (Y - X,),
        since=(0, 12),
    ),
    "an element that is a tuple": Spelling(
        body(_NESTED, "ROOT r = f32[3] get-tuple-element(t#1), index=1"),
        body(
            _NESTED,
            "t_1 = (f32[3], f32[3]) get-tuple-element(t), index=1",
            "ROOT r = f32[3] get-tuple-element(t_1), index=1",
        ),
        (X, Y, Y + X),
        (Y + X,),
        since=(0, 12),
    ),
    "elements of a loop's state": Spelling(
        body(
            "x = f32[3] parameter(0)",
            "i = s32[] constant(0)",
            "s = (s32[], f32[3]) tuple(i, x)",
            "w = (s32[], f32[3]) while(s), condition=less, body=step",
            "ROOT r = f32[3] negate(%w#1)",
            before="step { p = (s32[], f32[3]) parameter(0)\n one = s32[] constant(1)\n n = s32[] add(%p#0, one)\n"
            " v = f32[3] add(%p#1, %p#1)\n ROOT t = (s32[], f32[3]) tuple(n, v) }\n"
            "less { p = (s32[], f32[3]) parameter(0)\n four = s32[] constant(4)\n"
            " ROOT c = pred[] compare(%p#0, four), direction=LT }\n",
        ),
        body(
            "x = f32[3] parameter(0)",
            "i = s32[] constant(0)",
            "s = (s32[], f32[3]) tuple(i, x)",
            "w = (s32[], f32[3]) while(s), condition=less, body=step",
            "w_1 = f32[3] get-tuple-element(w), index=1",
            "ROOT r = f32[3] negate(w_1)",
            before="step { p = (s32[], f32[3]) parameter(0)\n one = s32[] constant(1)\n"
            " p_0 = s32[] get-tuple-element(p), index=0\n n = s32[] add(p_0, one)\n"
            " p_1 = f32[3] get-tuple-element(p), index=1\n v = f32[3] add(p_1, p_1)\n"
            " ROOT t = (s32[], f32[3]) tuple(n, v) }\n"
            "less { p = (s32[], f32[3]) parameter(0)\n four = s32[] constant(4)\n"
            " p_0.1 = s32[] get-tuple-element(p), index=0\n ROOT c = pred[] compare(p_0.1, four), direction=LT }\n",
        ),
        (X,),
        (-16 * X,),
        since=(0, 12),
    ),
}

OPERANDS = {
    "shapes without names between operands": Spelling(
        body(*_PARAMETERS, "ROOT r = f32[3] subtract(f32[3] x, f32[3], y)"),
        body(*_PARAMETERS, "ROOT r = f32[3] subtract(x, y)"),
        (X, Y),
        (X - Y,),
    ),
    "a shape without a name first": Spelling(
        body(*_PARAMETERS, "ROOT r = f32[3] subtract(f32[3]{0} , x, /*index=1*/ y)"),
        body(*_PARAMETERS, "ROOT r = f32[3] subtract(x, y)"),
    ),
    "a single instruction of shapes": Spelling(
        "r = f32[3] subtract(f32[3] a, f32[3])",
        "HloModule module_entry\nENTRY entry { a = f32[3] parameter(0)\n _1 = f32[3] parameter(1)\n"
        " ROOT r = f32[3] subtract(a, _1) }",
        (X, Y),
        (X - Y,),
    ),
}

_KEYS = np.array([-0.0, np.nan, 1.0], np.float32)
_ZEROS = np.array([0.0, 1.0, np.nan], np.float32)

# what newer versions of XLA write of an attribute that older ones write otherwise, or not at all
ATTRIBUTES = {
    "a total order": Spelling(
        body(*_PARAMETERS, "ROOT r = pred[3] compare(x, y), direction=LT, order=TOTAL"),
        body(*_PARAMETERS, "ROOT r = pred[3] compare(x, y), direction=LT, type=TOTALORDER"),
        (_KEYS, _ZEROS),
        (np.array([True, False, True]),),
        since=(0, 12),
    ),
    "the order of IEEE 754": Spelling(
        body(*_PARAMETERS, "ROOT r = pred[3] compare(x, y), order=PARTIAL, direction=LT"),
        body(*_PARAMETERS, "ROOT r = pred[3] compare(x, y), direction=LT, type=FLOAT"),
        (_KEYS, _ZEROS),
        (np.array([False, False, False]),),
        since=(0, 12),
    ),
    "a total order of integers": Spelling(
        body("x = s8[3] parameter(0)", "ROOT r = pred[3] compare(x, x), direction=GE, order=TOTAL"),
        body("x = s8[3] parameter(0)", "ROOT r = pred[3] compare(x, x), direction=GE, type=TOTALORDER"),
        (np.array([-1, 0, 1], np.int8),),
        (np.array([True, True, True]),),
        since=(0, 12),
    ),
    "a stable topk": Spelling(
        body(_PARAMETERS[0], "ROOT r = (f32[2], s32[2]) topk(x), k=2, largest=true, is_stable=true"),
        body(_PARAMETERS[0], "ROOT r = (f32[2], s32[2]) topk(x), k=2, largest=true"),
        (X,),
        (X[[2, 1]], np.array([2, 1], np.int32)),
        since=(0, 12),
    ),
    "a root that is the group's first member": Spelling(
        body(
            _PARAMETERS[0],
            "ROOT r = f32[3] collective-broadcast(x), replica_groups={{0}}, has_dynamic_root=false",
        ),
        body(_PARAMETERS[0], "ROOT r = f32[3] collective-broadcast(x), replica_groups={{0}}"),
        (X,),
        (X,),
        since=(0, 12),
    ),
}

_NEGATED = ("x = f32[3] parameter(0)", "ROOT r = f32[3] negate(x)")
_USUAL = body(*_NEGATED)

HEADERS = {
    "colon after the module's name": Spelling(body(*_NEGATED, header="HloModule m:"), _USUAL, (X,), (-X,)),
    "colons after computations": Spelling(
        "HloModule m\n\nwork: { x = f32[3] parameter(0)\n ROOT r = f32[3] negate(x) }\n\n"
        "ENTRY e: {\n x = f32[3] parameter(0)\n ROOT r = f32[3] call(x), to_apply=work\n}",
        "HloModule m\n\nwork { x = f32[3] parameter(0)\n ROOT r = f32[3] negate(x) }\n\n"
        "ENTRY e {\n x = f32[3] parameter(0)\n ROOT r = f32[3] call(x), to_apply=work\n}",
        (X,),
        (-X,),
    ),
    "colon and attributes": Spelling(
        body(*_NEGATED, header="HloModule m:, is_scheduled=true"),
        body(*_NEGATED, header="HloModule m, is_scheduled=true"),
    ),
    "tables without rows": Spelling(
        body(*_NEGATED, header="HloModule m\n\nFileNames\n\nFunctionNames\n\nFileLocations\n\nStackFrames\n"),
        _USUAL,
        (X,),
        (-X,),
        since=(0, 12),
    ),
    "no partitions, no replicas": Spelling(
        body(*_NEGATED, header="HloModule m, replica_count=0, num_partitions=0"), _USUAL, (X,), (-X,)
    ),
    "signature without colons": Spelling(
        "HloModule m\n\nENTRY e (x f32[3], %y f32[3]) -> f32[3] {\n x = f32[3] parameter(0)\n"
        " y = f32[3] parameter(1)\n ROOT r = f32[3] subtract(x, y)\n}",
        body(*_PARAMETERS, "ROOT r = f32[3] subtract(x, y)"),
        (X, Y),
        (X - Y,),
    ),
}

_CONVOLVED = (
    "x = f32[1,4,2] parameter(0)",
    "k = f32[3,2,1] parameter(1)",
)
_VECTORISED = (
    "x = s8[1,4,2,4] parameter(0)",
    "k = s8[3,2,1,4] parameter(1)",
)


def _convolution(labels: str) -> str:
    return body(*_CONVOLVED, f"ROOT r = f32[1,2,1] convolution(x, k), window={{size=3}}, dim_labels={labels}")


def _custom_convolution(labels: str) -> str:
    line = 'ROOT r = s8[1,2,1,4] custom-call(x, k), custom_call_target="conv", window={size=3}, dim_labels='
    return body(*_VECTORISED, line + labels)


LABELS = {
    "labels with ? at the end": Spelling(
        _convolution("b0f?_0io?->b0f?"),
        _convolution("b0f_0io->b0f"),
        (np.arange(8, dtype=np.float32).reshape(1, 4, 2), np.ones((3, 2, 1), np.float32)),
        (np.array([[[15], [27]]], np.float32),),
    ),
    "integers for truth values": Spelling(
        body("ROOT c = pred[5] constant({-3, 0, 7, true, -0})"),
        body("ROOT c = pred[5] constant({1, 0, 1, 1, 0})"),
        results=(np.array([True, False, True, True, False]),),
    ),
    "kind of a convolution in the words of an older XLA": Spelling(
        _convolution("b0f_0io->b0f, conv_kind=fprop"),
        _convolution("b0f_0io->b0f, convolution_kind=fprop"),
        since=(1, 0),
    ),
    "blanks between the dimension sizes of a tile": Spelling(
        body("ROOT x = f32[3,4]{1,0:T(2, * , 128)( 4,1)} parameter(0)"),
        body("ROOT x = f32[3,4]{1,0:T(2,*,128)(4,1)} parameter(0)"),
    ),
    "labels with ? between": Spelling(_custom_convolution("b0?f_?0io->b0f?"), _custom_convolution("b0?f_?0io->b0f")),
}


SHARDINGS = {
    "axes of a mesh without quotes": Spelling(
        body(
            "x = f32[3] parameter(0), sharding={mesh[a=2, b=4], device_ids=([4,2]T(1,0)), [{a, b:(1)2, ?}], "
            'manual={b:(2)2}, metadata={{op_name="a, [b]"}}}',
            "ROOT r = f32[3] negate(x), sharding={mesh[a=1,b=2], manual}",
        ),
        body(
            "x = f32[3] parameter(0), sharding={mesh['a'=2, 'b'=4], device_ids=([4,2]T(1,0)), [{'a', 'b':(1)2, ?}], "
            "manual={'b':(2)2}, metadata={{op_name=\"a, [b]\"}}}",
            "ROOT r = f32[3] negate(x), sharding={mesh['a'=1,'b'=2], manual}",
        ),
        since=(1, 0),
    ),
    "a single device": Spelling(
        body("ROOT x = f32[3] parameter(0), sharding={single_device[device_id=0]}"),
        body("ROOT x = f32[3] parameter(0), sharding={maximal_mesh[device_id=0]}"),
        (X,),
        (X,),
        since=(0, 12),
    ),
}


def _reducing(line: str) -> str:
    return body("x = f32[3] parameter(0)", line, before=ADD)


_MODES = {
    "cross_replica": "replica_groups={{0}}",
    "cross_replica_and_partition": "channel_id=1, replica_groups={{0}}",
    "flattened_id": "channel_id=1, replica_groups={{0}}, use_global_device_ids=true",
}
COLLECTIVES = {
    **{
        f"mode of an all-reduce, {mode}": Spelling(
            _reducing(f"ROOT r = f32[3] all-reduce(x), {attributes}, mode={mode}, to_apply=add_f32"),
            _reducing(f"ROOT r = f32[3] all-reduce(x), {attributes}, to_apply=add_f32"),
            (X,),
            (X,),
        )
        for mode, attributes in _MODES.items()
    },
    "mode of an all-reduce-start": Spelling(
        _reducing(
            "s = f32[3] all-reduce-start(x), mode=cross_replica, to_apply=add_f32\n ROOT r = f32[3] all-reduce-done(s)"
        ),
        _reducing("s = f32[3] all-reduce-start(x), to_apply=add_f32\n ROOT r = f32[3] all-reduce-done(s)"),
        (X,),
        (X,),
    ),
    "mode of a reduce-scatter": Spelling(
        _reducing("ROOT r = f32[3] reduce-scatter(x), mode=cross_replica, dimensions={0}, to_apply=add_f32"),
        _reducing("ROOT r = f32[3] reduce-scatter(x), dimensions={0}, to_apply=add_f32"),
        (X,),
        (X,),
    ),
}

ALL = {**ELEMENTS, **OPERANDS, **ATTRIBUTES, **HEADERS, **LABELS, **SHARDINGS, **COLLECTIVES}
