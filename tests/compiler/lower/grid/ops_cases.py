"""What test_ops.py shares with other tests."""

from __future__ import annotations

ADD = "add { a = KIND[] parameter(0)  b = KIND[] parameter(1)  ROOT r = KIND[] add(a, b) }\n"

GREATER = "ge { a = KIND[] parameter(0)  b = KIND[] parameter(1)  ROOT r = pred[] compare(a, b), direction=GE }\n"

# name: (instruction over p0, p1, …, operands, result, launches)
OPS = {
    "dot, a thread an element": (
        "dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "7,9 9,5",
        "7,5",
        1,
    ),
    "dot, tiles": ("dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "70,50 50,33", "70,33", 1),
    "dot, transposed": ("dot(p0, p1), lhs_contracting_dims={0}, rhs_contracting_dims={1}", "40,64 65,40", "64,65", 1),
    "dot, batches": (
        "dot(p0, p1), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}",
        "3,34,32 3,32,35",
        "3,34,35",
        1,
    ),
    "dot, batches apart, of which both factors are copied": (
        "dot(p0, p1), lhs_batch_dims={0,2}, rhs_batch_dims={0,2}, lhs_contracting_dims={3}, rhs_contracting_dims={3}",
        "2,33,3,32 2,34,3,32",
        "2,3,33,34",
        3,
    ),
    "dot, batches apart, of which one factor is copied": (
        "dot(p0, p1), lhs_batch_dims={0,1}, rhs_batch_dims={0,2}, lhs_contracting_dims={3}, rhs_contracting_dims={1}",
        "2,3,5,6 2,6,3,4",
        "2,3,5,4",
        2,
    ),
    "dot in tiles, with a long sum": (
        "dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "33,1100 1100,40",
        "33,40",
        2,
    ),
    "dot of a matrix and a vector": (
        "dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "5,300 300",
        "5",
        1,
    ),
    "dot of a vector and a matrix": (
        "dot(p0, p1), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
        "300 300,35",
        "35",
        2,
    ),
    "dot of a vector and rows": (
        "dot(p0, p1), lhs_contracting_dims={0}, rhs_contracting_dims={1}",
        "257 3,257",
        "3",
        1,
    ),
    "convolution": (
        "convolution(p0, p1), window={size=3x3 stride=2x1 pad=1_0x0_2}, dim_labels=b01f_01io->b01f",
        "2,9,8,3 3,3,3,4",
        "2,4,8,4",
        1,
    ),
    "convolution whose windows are most of its operand": (
        "convolution(p0, p1), window={size=12x12 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf",
        "2,12,12,3 2,12,12,8",
        "3,3,3,8",
        1,
    ),
    "convolution in tiles": (
        "convolution(p0, p1), window={size=3x3 stride=2x1 pad=1_0x0_2}, dim_labels=b01f_01io->b01f",
        "2,9,8,5 3,3,5,33",
        "2,4,8,33",
        1,
    ),
    "convolution in tiles, features first": (
        "convolution(p0, p1), window={size=3x2 pad=2_2x1_1 lhs_dilate=2x1 rhs_dilate=1x2 rhs_reversal=1x0}, "
        "dim_labels=bf01_oi01->bf01",
        "2,6,5,6 35,6,3,2",
        "2,35,11,6",
        2,
    ),
    "convolution in groups": (
        "convolution(p0, p1), window={size=3 rhs_dilate=2}, dim_labels=bf0_oi0->bf0, feature_group_count=2",
        "2,6,11 4,3,3",
        "2,4,7",
        1,
    ),
    "reduce-window": (
        "reduce-window(p0, zero), window={size=2x3 stride=1x2 pad=0_0x1_1}, to_apply=add",
        "5,40",
        "4,20",
        1,
    ),
    "cumulative": ("reduce-window(p0, zero), window={size=1x40 pad=0_0x39_0}, to_apply=add", "5,40", "5,40", 1),
    "select-and-scatter": (
        "select-and-scatter(p0, p1, zero), window={size=3x2 stride=2x1 pad=1_1x0_0}, select=ge, scatter=add",
        "9,8 5,7",
        "9,8",
        2,
    ),
    "scatter of rows": (
        "scatter(p0, i, p1), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
        "index_vector_dim=1, to_apply=add",
        "6,300 5,300",
        "6,300",
        2,
    ),
    "scatter of elements": (
        "scatter(p0, i, p1), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
        "index_vector_dim=1, to_apply=add",
        "6 5",
        "6",
        2,
    ),
    "dynamic-update-slice": ("dynamic-update-slice(p0, p1, at, at)", "20,30 3,4", "20,30", 2),
    "transpose": ("transpose(p0), dimensions={1,0}", "33,65", "65,33", 1),
    "pad": ("pad(p0, zero), padding=1_2_1x-1_0", "5,6", "12,5", 1),
    "concatenate": ("concatenate(p0, p1), dimensions={1}", "4,5 4,300", "4,305", 1),
    "gather": (
        "gather(p0, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
        "slice_sizes={1,30}",
        "6,30",
        "5,30",
        1,
    ),
}


def module_text(name: str, kind: str) -> str:
    instruction, operands, result, _ = OPS[name]
    shapes = [f"{kind}[{dims}]" for dims in operands.split()]
    parameters = "\n".join(f"  p{k} = {shape} parameter({k})" for k, shape in enumerate(shapes))
    return f"""HloModule op
{ADD}{GREATER}ENTRY main {{
{parameters}
  i = s32[5,1] parameter({len(shapes)})
  at = s32[] parameter({len(shapes) + 1})
  zero = KIND[] constant(0)
  ROOT r = {kind}[{result}] {instruction}
}}
""".replace("KIND", kind)
