"""HLO text, one entry a feature of the grammar: name -> text. Every opcode stands in at least one."""

from __future__ import annotations

ADD = "add_f32 { x = f32[] parameter(0)\n y = f32[] parameter(1)\n ROOT s = f32[] add(x, y) }\n"
ADD_PAIR = (
    "add_pair { a = f32[] parameter(0)\n b = f32[] parameter(1)\n c = f32[] parameter(2)\n d = f32[] parameter(3)\n"
    " e = f32[] add(a, c)\n f = f32[] add(b, d)\n ROOT t = (f32[], f32[]) tuple(e, f) }\n"
)
LESS = "less { x = f32[] parameter(0)\n y = f32[] parameter(1)\n ROOT c = pred[] compare(x, y), direction=LT }\n"
NEGATE = "negated { x = f32[4] parameter(0)\n ROOT n = f32[4] negate(x) }\n"


def body(*lines: str, before: str = "", header: str = "HloModule m") -> str:
    """A module whose entry computation has these lines."""
    return f"{header}\n\n{before}\nENTRY e {{\n  " + "\n  ".join(lines) + "\n}\n"


X, Y = "x = f32[4]{0} parameter(0)", "y = f32[4]{0} parameter(1)"
M = "m = f32[2,3]{1,0} parameter(0)"

UNARY = [
    "abs",
    "ceil",
    "cbrt",
    "cosine",
    "erf",
    "exponential",
    "exponential-minus-one",
    "floor",
    "log",
    "log-plus-one",
    "logistic",
    "negate",
    "round-nearest-afz",
    "round-nearest-even",
    "rsqrt",
    "sign",
    "sine",
    "sqrt",
    "tan",
    "tanh",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atanh",
    "cosh",
    "sinh",
    "copy",
]
BINARY = ["add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "power", "atan2"]
BITWISE = ["and", "or", "xor", "shift-left", "shift-right-arithmetic", "shift-right-logical"]

OPCODES: dict[str, str] = {
    **{op: body(X, f"ROOT r = f32[4]{{0}} {op}(x)") for op in UNARY},
    **{op: body(X, Y, f"ROOT r = f32[4]{{0}} {op}(x, y)") for op in BINARY},
    **{op: body("x = s32[4] parameter(0)", f"ROOT r = s32[4] {op}(x, x)") for op in BITWISE},
    "mulhi": body("x = u32[4] parameter(0)", "ROOT r = u32[4] mulhi(x, x)"),
    "not": body("x = pred[4] parameter(0)", "ROOT r = pred[4] not(x)"),
    "popcnt": body("x = u8[4] parameter(0)", "ROOT r = u8[4] popcnt(x)"),
    "count-leading-zeros": body("x = u8[4] parameter(0)", "ROOT r = u8[4] count-leading-zeros(x)"),
    "is-finite": body(X, "ROOT r = pred[4] is-finite(x)"),
    "complex real imag": body(
        X, Y, "c = c64[4] complex(x, y)", "a = f32[4] real(c)", "b = f32[4] imag(c)", "ROOT r = f32[4] add(a, b)"
    ),
    "result accuracy": body(X, "ROOT r = f32[4] exponential(x), result_accuracy={mode=highest}"),
    "clamp": body(X, Y, "ROOT r = f32[4] clamp(x, y, x)"),
    "select": body(X, "p = pred[4] parameter(1)", "ROOT r = f32[4] select(p, x, x)"),
    "compare": body(X, Y, "ROOT r = pred[4] compare(x, y), direction=LE, type=TOTALORDER"),
    "convert": body(X, "ROOT r = bf16[4] convert(x)"),
    "bitcast-convert": body(X, "ROOT r = s32[4] bitcast-convert(x)"),
    "bitcast": body(M, "ROOT r = f32[3,2]{1,0} bitcast(m)"),
    "stochastic-convert": body(X, "u = u32[4] parameter(1)", "ROOT r = s8[4] stochastic-convert(x, u)"),
    "reduce-precision": body(X, "ROOT r = f32[4] reduce-precision(x), exponent_bits=5, mantissa_bits=10"),
    "broadcast": body(X, "ROOT r = f32[2,4] broadcast(x), dimensions={1}"),
    "broadcast scalar": body("x = f32[] parameter(0)", "ROOT r = f32[2,4] broadcast(x), dimensions={}"),
    "iota": body("ROOT r = s32[2,4] iota(), iota_dimension=1"),
    "reshape": body(M, "ROOT r = f32[6] reshape(m)"),
    "transpose": body(M, "ROOT r = f32[3,2] transpose(m), dimensions={1,0}"),
    "reverse": body(M, "ROOT r = f32[2,3] reverse(m), dimensions={0,1}"),
    "concatenate": body(X, Y, "ROOT r = f32[8] concatenate(x, y), dimensions={0}"),
    "slice": body(M, "ROOT r = f32[1,2] slice(m), slice={[0:1], [0:3:2]}"),
    "dynamic-slice": body(
        M, "i = s32[] parameter(1)", "ROOT r = f32[1,2] dynamic-slice(m, i, i), dynamic_slice_sizes={1,2}"
    ),
    "dynamic-update-slice": body(
        M, "u = f32[1,2] parameter(1)", "i = s32[] parameter(2)", "ROOT r = f32[2,3] dynamic-update-slice(m, u, i, i)"
    ),
    "pad": body(M, "v = f32[] parameter(1)", "ROOT r = f32[6,2] pad(m, v), padding=1_2_1x0_-1"),
    "gather": body(
        M,
        "i = s32[5,1] parameter(1)",
        "ROOT r = f32[5,3] gather(m, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
        "index_vector_dim=1, slice_sizes={1,3}, indices_are_sorted=true",
    ),
    "scatter": body(
        M,
        "i = s32[5,1] parameter(1)",
        "u = f32[5,3] parameter(2)",
        "ROOT r = f32[2,3] scatter(m, i, u), update_window_dims={1}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, unique_indices=true, to_apply=add_f32",
        before=ADD,
    ),
    "sort": body(X, "ROOT r = f32[4] sort(x), dimensions={0}, is_stable=true, to_apply=less", before=LESS),
    "reduce": body(
        M, "z = f32[] constant(0)", "ROOT r = f32[2] reduce(m, z), dimensions={1}, to_apply=add_f32", before=ADD
    ),
    "variadic reduce": body(
        M,
        "z = f32[] constant(0)",
        "ROOT r = (f32[2], f32[2]) reduce(m, m, z, z), dimensions={1}, to_apply=add_pair",
        before=ADD_PAIR,
    ),
    "map": body(X, Y, "ROOT r = f32[4] map(x, y), dimensions={0}, to_apply=add_f32", before=ADD),
    "reduce-window": body(
        M,
        "z = f32[] constant(0)",
        "ROOT r = f32[2,2] reduce-window(m, z), window={size=1x2 stride=1x2 pad=0_0x0_1 rhs_dilate=1x1}, "
        "to_apply=add_f32",
        before=ADD,
    ),
    "select-and-scatter": body(
        "x = f32[4,4] parameter(0)",
        "s = f32[2,2] parameter(1)",
        "z = f32[] constant(0)",
        "ROOT r = f32[4,4] select-and-scatter(x, s, z), window={size=2x2 stride=2x2}, select=less, scatter=add_f32",
        before=ADD + LESS,
    ),
    "dot": body(
        "a = f32[5,2,3] parameter(0)",
        "b = f32[5,3,4] parameter(1)",
        "ROOT r = f32[5,2,4] dot(a, b), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, "
        "rhs_contracting_dims={1}, operand_precision={highest,default}, algorithm=dot_f32_f32_f32",
    ),
    "scaled-dot": body(
        "a = f8e4m3fn[4,32] parameter(0)",
        "b = f8e4m3fn[8,32] parameter(1)",
        "s = f8e8m0fnu[4,1] parameter(2)",
        "t = f8e8m0fnu[8,1] parameter(3)",
        "ROOT r = bf16[4,8] scaled-dot(a, b, s, t), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    ),
    "scan": body(
        "z = f32[] parameter(0)",
        "v = f32[3] parameter(1)",
        "ROOT r = (f32[3], f32[]) scan(v, z), dimensions={0}, num_carries=1, to_apply=step",
        before="step { c = f32[] parameter(0)\n v = f32[] parameter(1)\n s = f32[] add(c, v)\n"
        " ROOT t = (f32[], f32[]) tuple(s, s) }\n",
    ),
    "ragged-dot": body(
        "a = f32[6,3] parameter(0)",
        "b = f32[2,3,4] parameter(1)",
        "g = s32[2] parameter(2)",
        "ROOT r = f32[6,4] ragged-dot(a, b, g), lhs_contracting_dims={1}, rhs_contracting_dims={1}, "
        "lhs_ragged_dims={0}, rhs_group_dims={0}",
    ),
    "convolution": body(
        "x = f32[1,8,8,3] parameter(0)",
        "k = f32[3,3,3,16] parameter(1)",
        "ROOT r = f32[1,4,5,16] convolution(x, k), window={size=3x3 stride=2x2 pad=1_1x2_2 lhs_dilate=1x1 "
        "rhs_dilate=1x1 rhs_reversal=0x1}, dim_labels=b01f_01io->b01f, feature_group_count=1",
    ),
    "batch-norm-training": body(
        "x = f32[2,3] parameter(0)",
        "s = f32[3] parameter(1)",
        "ROOT r = (f32[2,3], f32[3], f32[3]) batch-norm-training(x, s, s), epsilon=0.001, feature_index=1",
    ),
    "batch-norm-inference": body(
        "x = f32[2,3] parameter(0)",
        "s = f32[3] parameter(1)",
        "ROOT r = f32[2,3] batch-norm-inference(x, s, s, s, s), epsilon=1e-05, feature_index=1",
    ),
    "batch-norm-grad": body(
        "x = f32[2,3] parameter(0)",
        "s = f32[3] parameter(1)",
        "ROOT r = (f32[2,3], f32[3], f32[3]) batch-norm-grad(x, s, s, s, x), epsilon=0, feature_index=1",
    ),
    "fft": body("x = c64[4] parameter(0)", "ROOT r = c64[4] fft(x), fft_type=IFFT, fft_length={4}"),
    "cholesky": body("x = f32[3,3] parameter(0)", "ROOT r = f32[3,3] cholesky(x), lower=true"),
    "triangular-solve": body(
        "x = f32[3,3] parameter(0)",
        "ROOT r = f32[3,3] triangular-solve(x, x), left_side=true, lower=true, unit_diagonal=true, "
        "transpose_a=NO_TRANSPOSE",
    ),
    "topk": body(X, "ROOT r = (f32[2], s32[2]) topk(x), k=2, largest=true"),
    "rng": body("a = f32[] constant(0)", "ROOT r = f32[4] rng(a, a), distribution=rng_uniform"),
    "rng-bit-generator": body(
        "s = u64[2] parameter(0)", "ROOT r = (u64[2], u32[4]) rng-bit-generator(s), algorithm=rng_three_fry"
    ),
    "rng-get-and-update-state": body("ROOT r = u64[2] rng-get-and-update-state(), delta=4096"),
    "tuple": body(X, "t = (f32[4], f32[4]) tuple(x, x)", "ROOT r = f32[4] get-tuple-element(t), index=1"),
    "call": body(X, "ROOT r = f32[4] call(x), to_apply=negated", before=NEGATE),
    "fusion": body(
        X,
        "ROOT r = f32[4] fusion(x), kind=kLoop, output_to_operand_aliasing={{}: (0, {})}, calls=negated",
        before=NEGATE,
    ),
    "while": body(
        X,
        "ROOT r = f32[4] while(x), condition=always, body=negated",
        before=NEGATE + "always { x = f32[4] parameter(0)\n ROOT c = pred[] constant(true) }\n",
    ),
    "conditional by index": body(
        X,
        "i = s32[] parameter(1)",
        "ROOT r = f32[4] conditional(i, x, x), branch_computations={%negated, %negated}",
        before=NEGATE,
    ),
    "conditional by predicate": body(
        X,
        "p = pred[] parameter(1)",
        "ROOT r = f32[4] conditional(p, x, x), true_computation=negated, false_computation=negated",
        before=NEGATE,
    ),
    "custom-call": body(
        X,
        'ROOT r = (f32[4], f32[4]) custom-call(x, x), custom_call_target="f\\"g", '
        "operand_layout_constraints={f32[4]{0}, f32[4]{0}}, custom_call_has_side_effect=true, "
        "output_to_operand_aliasing={{0}: (0, {}), {1}: (1, {})}, schedule=SCHEDULE_LATEST, "
        'api_version=API_VERSION_TYPED_FFI, called_computations={%negated}, backend_config={"k": [1, {"}": 2}]}',
        before=NEGATE,
    ),
    "custom-call literal": body('ROOT r = f32[2] custom-call(), custom_call_target="f", literal=f32[2]{0} {1, 2}'),
    "infeed outfeed": body(
        "t = token[] after-all()",
        'i = (f32[4]{0}, token[]) infeed(t), infeed_config="a"',
        "v = f32[4]{0} get-tuple-element(i), index=0",
        'ROOT o = token[] outfeed(v, t), outfeed_shape=f32[4]{0}, outfeed_config="b"',
    ),
    "send recv": body(
        X,
        "t = token[] after-all()",
        "r = (f32[4], u32[], token[]) recv(t), channel_id=1, "
        'frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,2}},_xla_send_recv_pipeline="1"}',
        "s = (f32[4], u32[], token[]) send(x, t), channel_id=1, is_host_transfer=true, control-predecessors={r}",
        "d = (f32[4], token[]) recv-done(r), channel_id=1",
        "e = token[] send-done(s), channel_id=1, is_host_transfer=true",
        "ROOT v = f32[4] get-tuple-element(d), index=0",
    ),
    "add-dependency": body(X, "t = token[] after-all()", "ROOT r = f32[4] add-dependency(x, t)"),
    "opt-barrier": body(X, "ROOT r = f32[4] opt-barrier(x)"),
    "domain": body(
        X, 'ROOT r = f32[4] domain(x), domain={kind="sharding", entry={maximal device=1}, exit={maximal device=0}}'
    ),
    "ids": body("r = u32[] replica-id()", "p = u32[] partition-id()", "ROOT s = u32[] add(r, p)"),
    "dynamic dimensions": body(
        X,
        "n = s32[] parameter(1)",
        "d = f32[<=4] set-dimension-size(x, n), dimensions={0}",
        "s = s32[] get-dimension-size(d), dimensions={0}",
        "q = f32[2,<=2] dynamic-reshape(d, n, n)",
        "ROOT t = (s32[], f32[2,<=2]) tuple(s, q)",
    ),
    "all-reduce": body(
        X,
        Y,
        "ROOT r = (f32[4], f32[4]) all-reduce(x, y), channel_id=3, replica_groups={{0,1},{2,3}}, "
        "use_global_device_ids=true, constrain_layout=true, to_apply=add_f32",
        before=ADD,
    ),
    "all-reduce-start": body(
        X,
        "s = f32[4] all-reduce-start(x), replica_groups={}, to_apply=add_f32",
        "ROOT r = f32[4] all-reduce-done(s)",
        before=ADD,
    ),
    "all-gather": body(X, "ROOT r = f32[8] all-gather(x), replica_groups=[2,2]<=[4], dimensions={0}"),
    "all-gather-start": body(
        X,
        "s = (f32[4], f32[8]) all-gather-start(x), replica_groups={{0,1}}, dimensions={0}",
        "ROOT r = f32[8] all-gather-done(s)",
    ),
    "reduce-scatter": body(
        X,
        "ROOT r = f32[2] reduce-scatter(x), replica_groups=[2,4]<=[2,2,2]T(2,0,1), dimensions={0}, to_apply=add_f32",
        before=ADD,
    ),
    "all-to-all": body(X, "ROOT r = f32[4] all-to-all(x), replica_groups={{0,1}}, dimensions={0}"),
    "all-to-all tuple": body(X, Y, "ROOT r = (f32[4], f32[4]) all-to-all(x, y), replica_groups={{0,1}}"),
    "collective-permute": body(
        X, "ROOT r = f32[4] collective-permute(x), channel_id=2, source_target_pairs={{0,1},{1,0}}"
    ),
    "collective-permute-start": body(
        X,
        "s = (f32[4], f32[4], u32[], u32[]) collective-permute-start(x), source_target_pairs={{0,1}}",
        "ROOT r = f32[4] collective-permute-done(s)",
    ),
    "collective-broadcast": body(X, "ROOT r = f32[4] collective-broadcast(x), replica_groups={{1,0}}"),
    "ragged-all-to-all": body(
        X,
        Y,
        "i = s32[2] parameter(2)",
        "ROOT r = f32[4] ragged-all-to-all(x, y, i, i, i, i), replica_groups={{0,1}}",
    ),
    "copy-start": body(
        X, "s = (f32[4], f32[4], u32[]) copy-start(x), cross_program_prefetch_index=0", "ROOT r = f32[4] copy-done(s)"
    ),
    "async-start": body(
        X,
        's = ((f32[4]), f32[4], u32[]) async-start(x), async_execution_thread="t", calls=negated',
        "u = ((f32[4]), f32[4], u32[]) async-update(s)",
        "ROOT r = f32[4] async-done(u)",
        before=NEGATE.rstrip() + ', execution_thread="t"\n',
    ),
}

FEATURES: dict[str, str] = {
    "single instruction": "r = f32[4]{0} multiply(f32[4]{0} %a, f32[4]{0} b)",
    "single instruction without name": "f32[4]{0} negate(f32[4]{0} %a)",
    "single instruction without shape": "r = add(f32[4]{0} %a, f32[4]{0} b)",
    "no header": "ENTRY e { x = f32[4] parameter(0) }",
    "no header, no ENTRY, no ROOT": "a { x = f32[] parameter(0) }\nb { x = f32[] parameter(0)\n y = f32[] negate(x) }",
    "no header, a signature": "e (x: f32[4]) -> f32[4] { x = f32[4] parameter(0) }",
    "percent": "HloModule %m\n%c { ROOT %x = f32[] parameter(0) }\nENTRY %e { ROOT %x = f32[] parameter(0) }",
    "names like keywords": "HloModule m\nENTRY %true { %ROOT = f32[] parameter(0)\n %f32 = f32[] abs(%ROOT)\n"
    " %add = f32[] add(%f32, %ROOT)\n ROOT %nan = f32[] abs(%add) }",
    "signature": "HloModule m\nENTRY e (x.1: f32[4], y: (s32[], token[])) -> f32[4] {\n"
    " x.1 = f32[4] parameter(0)\n y = (s32[], token[]) parameter(1)\n ROOT z = f32[4] copy(x.1) }",
    "instruction and computation of one name": body(
        X, "ROOT negated = f32[4] call(x), to_apply=negated", before=NEGATE
    ),
    "root in the middle": body(X, "ROOT r = f32[4] negate(x)", "z = f32[4] abs(x)"),
    "nested operands": body(X, Y, "ROOT r = f32[4] add(maximum(x, y), f32[4] subtract(f32[4]{0} x, negate(y)))"),
    "nested constant": body(X, "ROOT r = f32[4] multiply(x, f32[4] broadcast(f32[] constant(2)))"),
    "inline computation": body(
        M,
        "z = f32[] constant(0)",
        "ROOT r = f32[2] reduce(m, z), dimensions={1}, to_apply={ a = f32[] parameter(0)\n b = f32[] parameter(1)\n"
        " ROOT c = f32[] add(a, b) }",
    ),
    "omitted shapes": body(
        X,
        "n = negate(x)",
        "c = compare(x, n), direction=GT",
        "t = tuple(n, c)",
        "g = get-tuple-element(t), index=0",
        "ROOT s = select(c, g, x)",
    ),
    "operands with shapes": body(X, "ROOT r = f32[4]{0} add(f32[4]{0} %x, f32[4] x)"),
    "comments": "// first\nHloModule m /* name */\n\n/* * / ** */ENTRY e { // entry\n"
    " x = /*s*/ f32[4]{0} /**/ parameter(/*n*/0)\n"
    " ROOT t = (f32[4], /*index=1*/f32[4]) tuple(x, /*index=1*/x) /*end*/ }//",
    "header": body(
        X,
        header="HloModule jit_f, is_scheduled=true, input_output_alias={ {}: (0, {}, may-alias) }, "
        "buffer_donor={ (0, {}) }, alias_passthrough_params=true, "
        "entry_computation_layout={(f32[4]{0})->f32[4]{0}}, allow_spmd_sharding_propagation_to_parameters={true}, "
        'allow_spmd_sharding_propagation_to_output=true, frontend_attributes={k="v",mesh={m = #sdy.mesh<["i"=8]>}}, '
        "replica_count=2, num_partitions=4",
    ),
    "tables": body(
        'x = f32[4] parameter(0), metadata={op_name="x" stack_frame_id=2}',
        header='HloModule m\n\nFileNames\n1 "a b.py"\n2 "c\\"d.py"\n\nFunctionNames\n1 "f"\n\nFileLocations\n'
        "1 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=5 end_column=9}\n"
        "2 {file_name_id=2 function_name_id=1 line=4 end_line=4 column=0 end_column=0}\n\nStackFrames\n"
        "1 {file_location_id=1 parent_frame_id=1}\n2 {file_location_id=2 parent_frame_id=1}\n",
    ),
    "computations called like tables": "HloModule m\n\nStackFrames { x = f32[] parameter(0) }\n\n"
    "ENTRY FileNames (x: f32[]) -> f32[] { x = f32[] parameter(0) }",
    "annotations": body(
        "x = f32[4] parameter(0), parameter_replication={true}, sharding={replicated}, "
        'metadata={op_type="t" op_name="a \\"b\\" \\\\ c" source_file="f.py" source_line=3}',
        'ROOT y = f32[4] negate(x), frontend_attributes={a="1",b={"x":1},c={{1}}}, backend_config="a\\"b\\303\\251", '
        'statistics={visualizing_index=1,st=3.5}, origin={{"a"}}, control-predecessors={x}',
    ),
    "metadata with commas": body('x = f32[4] parameter(0), metadata={op_type="t", op_name="n", profile_type={1}}'),
    "execution thread": 'HloModule m\n\na { x = f32[] parameter(0) }, execution_thread="other"\n\n'
    "ENTRY e { x = f32[] parameter(0) }",
    "async sugar": body(
        X,
        "s = ((f32[4]), f32[2]) reduce-scatter-start(x), replica_groups={{0,1}}, dimensions={0}, to_apply=add_f32, "
        'metadata={op_name="rs"}',
        "u = ((f32[4]), f32[2]) reduce-scatter-update(s)",
        "ROOT r = f32[2] reduce-scatter-done(u)",
        before=ADD,
    ),
    "async sugar on a thread": body(
        X,
        's = ((f32[4]), f32[4], u32[]) custom-call-start(x), async_execution_thread="t", custom_call_target="f"',
        "ROOT r = f32[4] custom-call-done(s)",
    ),
    "mesh axes": body(
        X, "ROOT r = f32[4] all-reduce(x), replica_groups=mesh['a'=2,'b'=4] {'a'}, to_apply=add_f32", before=ADD
    ),
    "mesh axes with devices": body(
        X,
        "ROOT r = f32[4] all-reduce(x), replica_groups=mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b':(2)2,'a'}, "
        "to_apply=add_f32",
        before=ADD,
    ),
}

SHAPES: dict[str, str] = {
    name: body(f"x = {shape} parameter(0)")
    for name, shape in {
        "scalar": "f32[]",
        "layout": "f32[2,3]{0,1}",
        "tiles": "f32[2,3]{1,0:T(8,128)(2,1)}",
        "tile with star": "f32[2,3]{1,0:T(8,*,128)}",
        "memory space": "f32[2,3]{1,0:S(1)}",
        "memory space of a scalar": "f32[]{:S(2)}",
        "all properties": "f32[2]{0:D(D)T(2)(3,*)L(3)#(u8)*(u32)E(4)S(2)SC(0:1,1)M(1)}",
        "buffers": "(b(f32[2,3]{0,1}), b(s32[]))",
        "dynamic": "f32[<=2,3]{1,0}",
        "unbounded": "f32[?,3]{1,0}",
        "token": "token[]",
        "opaque": "opaque[]",
        "empty tuple": "()",
        "nested tuple": "((f32[], s32[2]{0}), (token[], ()), pred[])",
        "long tuple": "(f32[], f32[], f32[], f32[], f32[], /*index=5*/f32[])",
        "size zero": "f32[0,3]{1,0}",
        **{
            t: f"{t}[3]{{0}}"
            for t in [
                "pred",
                "s2",
                "s4",
                "s8",
                "s16",
                "s32",
                "s64",
                "u2",
                "u4",
                "u8",
                "u16",
                "u32",
                "u64",
                "f16",
                "bf16",
                "f32",
                "f64",
                "c64",
                "c128",
            ]
        },
        **{
            t: f"{t}[3]"
            for t in ["f8e5m2", "f8e4m3", "f8e4m3fn", "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3fnuz", "f8e3m4", "f4e2m1fn"]
        },
        "f8e8m0fnu": "f8e8m0fnu[3]",
    }.items()
}

SHARDINGS: dict[str, str] = {
    sharding: body(f"x = {shape} parameter(0), sharding={sharding}")
    for sharding, shape in {
        "{replicated}": "f32[4]",
        "{maximal device=3}": "f32[4]",
        "{manual}": "f32[4]",
        "{unreduced}": "f32[4]",
        "{unknown}": "f32[4]",
        "{devices=[2,4]<=[8]}": "f32[4,4]",
        "{devices=[2,4]<=[4,2]T(1,0)}": "f32[4,4]",
        "{devices=[2,2]0,2,1,3}": "f32[4,4]",
        "{devices=[2,4]<=[8] last_tile_dim_replicate}": "f32[4]",
        "{devices=[2,2,2]<=[8] last_tile_dims={manual, replicated}}": "f32[4]",
        '{replicated metadata={op_name="a"}}': "f32[4]",
        "{devices=[2]<=[2] shard_as 1}": "f32[4]",
        "{{replicated}, {devices=[2]<=[2]}}": "(f32[4], f32[4])",
        "{mesh['x'=2,'y'=4], [{'x'}, {}]}": "f32[4,4]",
        "{mesh['x'=2,'y'=4], replicated}": "f32[4,4]",
        "{mesh['x'=2,'y'=4], device_ids=([4,2]T(1,0)), [{'x', ?}, {'y':(1)2}]}": "f32[4,4]",
        "{mesh['x'=2,'y'=4], [{}, {?}], replicated={'y':(1)2}, unreduced={'y':(2)2}, manual={'x'}}": "f32[4,4]",
        "{mesh['x'=2,'y'=4], manual}": "f32[4,4]",
        "{mesh['x'=2,'y'=4], unreduced}": "f32[4,4]",
        "{mesh['x'=2,'y'=4], [], unreduced={'x'}}": "f32[4,4]",
        "{maximal_mesh[device_id=3]}": "f32[4]",
    }.items()
}

LITERALS: dict[str, tuple[str, str]] = {
    f"{shape} {text}": (shape, text)
    for shape, text in [
        ("f32[]", "1"), ("f32[]", "-0"), ("f32[]", "-0.0"), ("f32[]", "1."), ("f32[]", "1e-45"),
        ("f32[]", "-3.4028235e+38"),
        ("f32[]", "nan"), ("f32[]", "-nan"), ("f32[]", "nan(0x7f)"), ("f32[]", "-nan(0x7fffff)"), ("f32[]", "inf"),
        ("f32[]", "-inf"), ("f64[]", "nan(0xfff)"), ("f64[]", "2.2250738585072014e-308"), ("f16[]", "65519"),
        ("bf16[]", "0.1"), ("f8e5m2[4]", "{57344, nan, -inf, 1}"), ("f8e4m3fn[3]", "{448, -nan, 0.0625}"),
        ("f8e4m3fnuz[2]", "{nan, 240}"), ("f8e4m3b11fnuz[2]", "{nan, 30}"), ("f8e3m4[2]", "{15.5, 0.25}"),
        ("f8e4m3[2]", "{240, inf}"), ("f8e5m2fnuz[2]", "{57344, 0}"), ("f8e8m0fnu[2]", "{1, nan}"),
        ("f4e2m1fn[4]", "{6, -0.5, 0, -0.0}"), ("s4[2]", "{-8, 7}"), ("u4[2]", "{0, 15}"), ("s2[2]", "{-2, 1}"),
        ("u2[2]", "{0, 3}"), ("u64[]", "-1"), ("u64[]", "18446744073709551615"), ("s64[]", "-9223372036854775808"),
        ("pred[]", "true"), ("pred[]", "0"), ("pred[4]", "{0, 1, true, false}"), ("c64[]", "(1, -nan)"),
        ("c64[]", "(nan(0x10), 0)"), ("c64[2]", "{(0, nan(0x10000)), (1, -2)}"),
        ("c128[2]", "{(0.1, 2), (-inf, 0)}"), ("f32[2,3]", "{{1, 2, 3}, {4, 5, 6}}"),
        ("f32[2,3]", "{ /*i0=0*/ {1, 2, 3}, /*i0=1*/\n{4, 5, 6} }"), ("f32[2,0]", "{{}, {}}"), ("f32[0,2]", "{ }"),
        ("f32[2,1,2]", "{{{1, 2}}, {{3, 4}}}"), ("f32[4]", "{...}"), ("(f32[], s32[2])", "(1, {2, 3})"),
        ("((pred[]), ())", "((true), ())"), ("(f32[], s32[2])", "{...}"),
    ]
}  # fmt: skip

ALL: dict[str, str] = {
    **{f"opcode {k}": v for k, v in OPCODES.items()},
    **{f"feature {k}": v for k, v in FEATURES.items()},
    **{f"shape {k}": v for k, v in SHAPES.items()},
    **{f"sharding {k}": v for k, v in SHARDINGS.items()},
    **{f"literal {k}": body(f"ROOT c = {shape} constant({text})") for k, (shape, text) in LITERALS.items()},
}
