"""Between element types, and between registers and memory: XLA's ConvertElementType, bitcasts, reduce-precision.

Narrow floats: every conversion to one rounds to nearest even and follows the type's own rules for overflow, NaN and
zero.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from llvmlite import ir

from distxla.compiler.lower.index import IndexExpression
from distxla.compiler.lower.scalar_code import ScalarCode
from distxla.compiler.lower.scalar_expression import F16T, F32T, F64T, ScalarExpr, float_constant
from distxla.compiler.lower.scalar_value import ScalarValue, is_narrow_float, memory_type, register_type
from distxla.emit.native_function import I32
from distxla.errors import InternalError
from distxla.ir.element_type import PRED, ElementType
from distxla.lazy_dataclass import dataclass


@dataclass(frozen=True)
class NarrowFormat:
    """How an 8-bit or 4-bit float is made, found by asking its ml_dtypes type.

    bias, mantissa: exponent bias and explicit mantissa bits.  signed: has a sign bit.  largest: the code of the largest
    finite number.  overflow: the code for anything beyond it (infinity, NaN, or `largest`).  infinity: the code an
    infinity becomes.  nan: the code NaN becomes.  negative_zero: whether there is one.
    """

    bits: int
    mantissa: int
    bias: int
    signed: bool
    largest: int
    overflow: int
    infinity: int
    nan: int
    nan_is_signed: bool
    negative_zero: bool


@cache
def narrow_format(name: str) -> NarrowFormat:
    """The format of an f8* or f4* type."""
    dtype: Any = np.dtype(getattr(ml_dtypes, ElementTypeName[name]))
    info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]

    def code(value: float) -> int:
        with np.errstate(all="ignore"):
            return int(np.float32(value).astype(dtype).view(np.uint8))

    bits = 4 if name.startswith("f4") else 8
    signed = name != "f8e8m0fnu"
    huge = float(info.max) * 2
    return NarrowFormat(
        bits=bits,
        mantissa=int(info.nmant),
        bias=_bias(dtype, int(info.nmant)),
        signed=signed,
        largest=code(float(info.max)),
        overflow=code(huge),
        infinity=code(np.inf),
        # without a NaN -0 takes its place, whatever the sign
        nan=8 if bits == 4 else code(np.nan),
        nan_is_signed=bits == 8 and signed and code(np.copysign(np.nan, -1.0)) != code(np.nan),
        negative_zero=signed and code(-0.0) != 0,
    )


ElementTypeName = {
    "f8e5m2": "float8_e5m2",
    "f8e4m3": "float8_e4m3",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e4m3b11fnuz": "float8_e4m3b11fnuz",
    "f8e5m2fnuz": "float8_e5m2fnuz",
    "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e3m4": "float8_e3m4",
    "f8e8m0fnu": "float8_e8m0fnu",
    "f4e2m1fn": "float4_e2m1fn",
}


def _bias(dtype: Any, mantissa: int) -> int:
    """From the code of 1.0."""
    return int(np.float32(1.0).astype(dtype).view(np.uint8)) >> mantissa


def unpack(builder: ir.IRBuilder, memory: ir.Value, element_type: ElementType) -> ScalarValue:
    """A loaded element as a register."""
    kind = register_type(element_type)
    if element_type is PRED:
        return ScalarValue(PRED, builder.icmp_unsigned("!=", memory, ir.Constant(memory.type, 0)))
    if element_type.is_integer:
        register = builder.trunc(memory, kind) if element_type.bits < 8 else memory
        return ScalarValue(element_type, register)
    if element_type.name == "f16":
        return ScalarValue(element_type, builder.fpext(memory, F32T), packed=memory)
    if is_narrow_float(element_type):
        return ScalarValue(element_type, _decode(builder, memory, element_type), packed=memory)
    return ScalarValue(element_type, memory)


def pack(builder: ir.IRBuilder, value: ScalarValue) -> ir.Value:
    """A register as it is stored."""
    kind = value.element_type
    if kind is PRED:
        return builder.zext(value.llvm, memory_type(kind))
    if kind.is_integer:
        return builder.zext(value.llvm, memory_type(kind)) if kind.bits < 8 else value.llvm
    if is_narrow_float(kind):
        return value.packed if value.packed is not None else _encode(builder, value.llvm, kind)
    return value.llvm


def rounded(builder: ir.IRBuilder, value: ir.Value, element_type: ElementType) -> ScalarValue:
    """An f32 register as a value of a narrow float type; of any other float type as it is."""
    if not is_narrow_float(element_type):
        return ScalarValue(element_type, value)
    packed = _encode(builder, value, element_type)
    if element_type.name == "f16":
        return ScalarValue(element_type, builder.fpext(packed, F32T), packed=packed)
    return ScalarValue(element_type, _decode(builder, packed, element_type), packed=packed)


def _decode(builder: ir.IRBuilder, memory: ir.Value, element_type: ElementType) -> ir.Value:
    code = ScalarExpr(builder, memory)
    if element_type.name == "bf16":
        return code.zext(32).shl(16).float_of_bits().value
    form = narrow_format(element_type.name)
    wide = code.zext(32)
    if not form.signed:
        # powers of two only: code 0 is 2^-127, a subnormal of f32
        bits = wide.eq(0).select(0x00400000, wide.shl(23))
        return wide.eq(form.nan).select(0x7FC00000, bits).float_of_bits().value
    magnitude = wide & ((1 << (form.bits - 1)) - 1)
    # shifted into place, the exponent is off by a power of two that one exact multiplication makes up for
    scale = 2.0 ** (127 - form.bias)
    number = magnitude.shl(23 - form.mantissa).float_of_bits() * scale
    sign = (wide & (1 << (form.bits - 1))).shl(32 - form.bits)
    bits = number.bits() | sign
    if form.infinity not in (form.nan, form.largest):
        bits = magnitude.eq(form.infinity).select(sign | 0x7F800000, bits)
        bits = magnitude.ugt(form.infinity).select(sign | 0x7FC00000, bits)
    elif not form.negative_zero:
        bits = wide.eq(form.nan).select(0xFFC00000, bits)
    elif form.nan != form.largest and element_type.name != "f4e2m1fn":
        bits = magnitude.ugt(form.largest).select(sign | 0x7FC00000, bits)
    return bits.float_of_bits().value


def _encode(builder: ir.IRBuilder, value: ir.Value, element_type: ElementType) -> ir.Value:
    """An f32 as a narrow float's code, rounded to nearest even."""
    if element_type.name == "f16":
        return builder.fptrunc(value, F16T)
    number = ScalarExpr(builder, value)
    bits = number.bits()
    if element_type.name == "bf16":
        nearest = (bits + 0x7FFF + (bits.lshr(16) & 1)).lshr(16)
        quiet = bits.lshr(16) | 0x40
        return number.is_nan().select(quiet, nearest).trunc(16).value
    form = narrow_format(element_type.name)
    if not form.signed:
        return _encode_power(number, form).trunc(8).value
    sign = bits.lshr(32 - form.bits) & (1 << (form.bits - 1))
    magnitude = bits & 0x7FFFFFFF
    drop = 23 - form.mantissa
    # normal: rebias, then round at the last kept bit; a carry runs into the exponent as it should
    rebased = magnitude - ((127 - form.bias) << 23)
    normal = (rebased + ((1 << (drop - 1)) - 1) + (rebased.lshr(drop) & 1)).lshr(drop)
    # subnormal: adding 2^k makes the hardware round at the right place
    anchor = float(2.0 ** (1 - form.bias - form.mantissa + 23))
    tiny = (magnitude.float_of_bits() + anchor).bits() - int(np.float32(anchor).view(np.int32))
    smallest_normal = (1 - form.bias + 127) << 23
    code = magnitude.ult(smallest_normal).select(tiny, normal)
    above = code.ugt(form.largest)
    code = above.select(form.overflow & 0x7F if form.negative_zero else form.overflow, code)
    sign_kept = sign
    if not form.negative_zero:
        # one NaN and no negative zero: the code 0x80 is the NaN
        code = above.select(form.overflow, (code.eq(0)).select(0, code | sign))
        code = magnitude.ugt(0x7F800000).select(form.nan, code)
        return code.trunc(8).value
    if form.infinity != form.overflow:
        code = magnitude.eq(0x7F800000).select(form.infinity, code)
    nan = form.nan & ((1 << (form.bits - 1)) - 1)
    code = magnitude.ugt(0x7F800000).select(nan, code)
    if not form.nan_is_signed:
        sign_kept = magnitude.ugt(0x7F800000).select(form.nan & (1 << (form.bits - 1)), sign)
    return (code | sign_kept).trunc(8).value


def _encode_power(number: ScalarExpr, form: NarrowFormat) -> ScalarExpr:
    """f8e8m0fnu: the nearest power of two; zero, negative numbers and NaN have none."""
    bits = number.bits()
    # ties go up; 2^-127 itself is subnormal and stays
    code = (bits + 0x400000).lshr(23)
    code = bits.eq(0x400000).select(0, code)
    code = code.ugt(form.largest).select(form.overflow, code)
    code = bits.eq(0).select(form.nan, code)
    bad = bits.lshr(31).ne(0).value
    either = number.builder.or_(bad, number.is_nan().value)
    return ScalarExpr(number.builder, either).select(form.nan, code)


# --- conversions -----------------------------------------------------------------------------------------------


def integer_of_bits(bits: int, element_type: ElementType) -> int:
    """The number that the low bits of a constant mean."""
    bits &= (1 << register_type(element_type).width) - 1
    if element_type.is_signed and bits >> (element_type.bits - 1):
        return bits - (1 << element_type.bits)
    return bits


def from_index(emit: ScalarCode, index: IndexExpression, element_type: ElementType) -> ScalarValue:
    """An index as an element, as `iota` does: integers wrap, floats round once."""
    value = emit.expr(emit.i64(index))
    if element_type.is_integer:
        width = register_type(element_type).width
        return ScalarValue(element_type, value.trunc(width).value if width < 64 else value.value)
    if index.low >= -(2**31) and index.high < 2**31:
        value = value.trunc(32)
    return _from_integer(emit.builder, value, True, element_type)


def _from_integer(builder: ir.IRBuilder, value: ScalarExpr, signed: bool, target: ElementType) -> ScalarValue:
    if target is PRED:
        return ScalarValue(PRED, value.ne(0).value)
    if target.is_complex:
        real = _from_integer(builder, value, signed, target.real_part)
        return ScalarValue(target, real.llvm, float_constant(real.llvm.type, 0.0))
    make = builder.sitofp if signed else builder.uitofp
    if is_narrow_float(target):
        # through f64 to odd would be needed for 64-bit integers: keep the sticky bit by rounding to odd by hand
        if value.width > 24:
            return rounded(builder, _odd_f32(builder, value, signed).value, target)
        return rounded(builder, make(value.value, F32T), target)
    return ScalarValue(target, make(value.value, register_type(target)))


def _odd_f32(builder: ir.IRBuilder, value: ScalarExpr, signed: bool) -> ScalarExpr:
    """A wide integer as an f32 rounded to odd, so that a second rounding to a narrower type is the only one that
    counts."""
    magnitude = value.abs() if signed else value
    one = magnitude.constant(1)
    low_mask = (1 << (value.width - 24)) - 1
    # numbers above 24 bits: gather the bits shifted out into the last kept bit
    lead = magnitude.call_flag("ctlz", False)
    shift = (value.constant(value.width - 24) - lead).call("smax", 0)
    kept = magnitude.lshr(shift)
    back = kept.shl(shift)
    sticky = ScalarExpr(builder, builder.select(back.ne(magnitude).value, one.value, value.constant(0).value))
    odd = (kept | sticky).shl(shift)
    number = ScalarExpr(builder, builder.uitofp(odd.value, F32T))
    if not signed or low_mask < 0:
        return number
    return value.lt(0).select(-number, number)


def convert(builder: ir.IRBuilder, a: ScalarValue, target: ElementType) -> ScalarValue:
    """XLA ConvertElementType: floats to integers truncate, saturate, and NaN gives 0; anything but 0 is true."""
    source = a.element_type
    if source == target:
        return a
    if source.is_complex:
        real = ScalarValue(source.real_part, a.llvm)
        if target.is_complex:
            imag = convert(builder, ScalarValue(source.real_part, a.imag), target.real_part)
            return ScalarValue(target, convert(builder, real, target.real_part).llvm, imag.llvm)
        if target is PRED:
            zero = float_constant(a.llvm.type, 0.0)
            parts = [builder.fcmp_unordered("!=", part, zero) for part in (a.llvm, a.imag)]
            return ScalarValue(PRED, builder.or_(*parts))
        return convert(builder, real, target)
    if target.is_complex:
        real = convert(builder, a, target.real_part)
        return ScalarValue(target, real.llvm, float_constant(real.llvm.type, 0.0))
    value = ScalarExpr(builder, a.llvm)
    if source.is_float:
        return _from_float(builder, a, value, target)
    signed = source.is_signed
    if target is PRED:
        return ScalarValue(PRED, value.ne(0).value)
    if target.is_integer:
        width = register_type(target).width
        if width < value.width:
            return ScalarValue(target, value.trunc(width).value)
        return ScalarValue(target, (value.sext(width) if signed else value.zext(width)).value)
    return _from_integer(builder, value, signed, target)


def _from_float(builder: ir.IRBuilder, a: ScalarValue, value: ScalarExpr, target: ElementType) -> ScalarValue:
    if target is PRED:
        return ScalarValue(PRED, value.ne(0.0).value)
    if target.is_integer:
        return ScalarValue(target, _saturated(value, target).value)
    if is_narrow_float(target):
        if value.type == F64T:
            value = f64_to_odd_f32(value)
        return rounded(builder, value.value, target)
    if register_type(target) == value.type:
        return ScalarValue(target, value.value)
    return ScalarValue(target, (value.to_f64() if register_type(target) == F64T else value.to_f32()).value)


def _saturated(value: ScalarExpr, target: ElementType) -> ScalarExpr:
    """An f32 or f64 truncated to an integer, the nearest one where it is out of range; 0 for NaN.

    LLVM has an intrinsic for this, which may become scalar code even in a loop that is vectorised. The plain
    conversion's result is undefined out of range, so there it is not chosen, or the number is brought into range first.
    """
    builder = value.builder
    bits = register_type(target).width
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if target.is_signed else (0, (1 << bits) - 1)
    make = builder.fptosi if target.is_signed or bits < 32 else builder.fptoui
    if bits <= (24 if value.type == F32T else 32):
        # both limits are floats
        inside = value.is_nan().select(0.0, value)
        inside = inside.gt(float(low)).select(inside, float(low))
        inside = inside.lt(float(high)).select(inside, float(high))
        return value.of(make(inside.value, I32)).trunc(bits)
    number = value.of(make(value.value, register_type(target)))
    number = value.gt(float(low)).select(number, low) if low == 0 else value.ge(float(low)).select(number, low)
    number = value.ge(float(high + 1)).select(high, number)
    return value.is_nan().select(0, number)


def f64_to_odd_f32(value: ScalarExpr) -> ScalarExpr:
    """An f64 as an f32 rounded to odd: a second rounding to a narrower type then rounds the f64 correctly."""
    nearest = value.to_f32()
    bits = nearest.bits()
    back = nearest.to_f64()
    exact = back.eq(value)
    away = back.abs().gt(value.abs())
    # the truncated neighbour, with its last bit set
    odd = away.select(bits - 1, bits) | 1
    keep = ScalarExpr(value.builder, value.builder.or_(exact.value, value.is_nan().value))
    return keep.select(bits, odd).float_of_bits()


def bitcast(builder: ir.IRBuilder, a: ScalarValue, target: ElementType) -> ScalarValue:
    """Same bits, same width."""
    source = a.element_type
    if source == target:
        return a
    if source.is_complex and target.is_complex:
        return ScalarValue(target, a.llvm, a.imag)
    if source.is_complex:
        low, high = (ScalarExpr(builder, p).bits().zext(source.bits) for p in (a.llvm, a.imag))
        return _of_memory(builder, (low | high.shl(source.bits // 2)).value, target)
    memory = pack(builder, a)
    if target.is_complex:
        whole = ScalarExpr(builder, builder.bitcast(memory, ir.IntType(target.bits)))
        half = target.bits // 2
        parts = [whole.trunc(half), whole.lshr(half).trunc(half)]
        return ScalarValue(target, *(p.float_of_bits().value for p in parts))
    return _of_memory(builder, memory, target)


def _of_memory(builder: ir.IRBuilder, memory: ir.Value, target: ElementType) -> ScalarValue:
    kind = memory_type(target)
    return unpack(builder, memory if memory.type == kind else builder.bitcast(memory, kind), target)


def reduce_precision(builder: ir.IRBuilder, a: ScalarValue, exponent_bits: int, mantissa_bits: int) -> ScalarValue:
    """Round to a float with that many bits and back; numbers too large become infinite, too small ones zero."""
    kind = a.element_type
    if not kind.is_float:
        raise InternalError(f"reduce-precision of {kind}")
    # f16 has subnormals where f32 has none, so its own bits are rounded; smaller types count as f16
    in_f16 = kind.bits < 16 and kind.name != "f8e8m0fnu"
    if in_f16:
        value = ScalarExpr(builder, builder.fptrunc(a.llvm, F16T))
    else:
        value = ScalarExpr(builder, pack(builder, a) if kind.name == "f16" else a.llvm)
    total, full = {16: (10, 5), 32: (23, 8), 64: (52, 11)}[value.width]
    bits = value.bits()
    width = value.width
    sign = bits & (1 << (width - 1))
    magnitude = bits & ((1 << (width - 1)) - 1)
    result = magnitude
    drop = total - mantissa_bits
    if drop > 0:
        lead = result.lshr(drop) & 1
        result = ((result + ((1 << (drop - 1)) - 1) + lead).lshr(drop)).shl(drop)
    if exponent_bits < full:
        bias, small = (1 << (full - 1)) - 1, (1 << (exponent_bits - 1)) - 1
        infinity = ((1 << full) - 1) << total
        # the largest exponent of the small format is reserved for infinity
        largest = ((bias + small + 1) << total) - 1
        smallest = (bias - small + 1) << total
        result = result.ugt(largest).select(infinity, result)
        result = result.ult(smallest).select(0, result)
    result = value.is_nan().select(magnitude, result)
    reduced = (result | sign).float_of_bits().value
    if kind.name == "f16":
        return unpack(builder, reduced, kind)
    if in_f16:
        reduced = builder.fpext(reduced, F32T)
    return rounded(builder, reduced, kind) if is_narrow_float(kind) else ScalarValue(kind, reduced)
