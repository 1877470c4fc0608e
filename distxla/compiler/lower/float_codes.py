"""How float types show NaN and Inf in their bits, and code that looks for them in what a kernel stores."""

from __future__ import annotations

from llvmlite import ir

from distxla.compiler.lower import conversion
from distxla.compiler.lower.scalar_value import ScalarValue
from distxla.emit.native_function import I1, I8, I64, counted, emit_copy
from distxla.ir.element_type import ElementType
from distxla.lazy_dataclass import dataclass

COPIED_BYTES = 16 << 10  # that are looked at and copied in turn


@dataclass(frozen=True)
class FloatCode:
    """How a type shows NaN and Inf: v = (bits & mask) ^ flip is above `limit` for NaN, equal to it for Inf."""

    bits: int
    mask: int
    flip: int
    limit: int
    has_inf: bool = True


def _ieee(bits: int, mantissa: int) -> FloatCode:
    mask = (1 << (bits - 1)) - 1
    return FloatCode(bits, mask, 0, mask >> mantissa << mantissa)


_ONE_NAN = FloatCode(8, 0xFF, 0x7F, 0xFE, has_inf=False)  # 0x80
CODES = {
    "f16": _ieee(16, 10),
    "bf16": _ieee(16, 7),
    "f32": _ieee(32, 23),
    "f64": _ieee(64, 52),
    "c64": _ieee(32, 23),
    "c128": _ieee(64, 52),
    "f8e5m2": _ieee(8, 2),
    "f8e4m3": _ieee(8, 3),
    "f8e3m4": _ieee(8, 4),
    "f8e4m3fn": FloatCode(8, 0x7F, 0, 0x7E, has_inf=False),
    "f8e4m3b11fnuz": _ONE_NAN,
    "f8e4m3fnuz": _ONE_NAN,
    "f8e5m2fnuz": _ONE_NAN,
    "f8e8m0fnu": FloatCode(8, 0xFF, 0, 0xFE, has_inf=False),
}


def emit_code(builder: ir.IRBuilder, code: FloatCode, bits: ir.Value) -> ir.Value:
    """The code of an element, whose bits are an integer of the type's width."""
    kind = ir.IntType(code.bits)
    masked = builder.and_(bits, kind(code.mask))
    return builder.xor(masked, kind(code.flip)) if code.flip else masked


def emit_above(builder: ir.IRBuilder, code: FloatCode, one: ir.Value, other: ir.Value) -> ir.Value:
    """Whether one code is above another. Vector instructions compare bytes without sign, wider integers, which have
    none here, with it."""
    compare = builder.icmp_unsigned if code.bits == 8 else builder.icmp_signed
    return compare(">", one, other)


class StoredCodes:
    """The largest code of the elements that are stored in one array: a `StoreWatch`.

    slot: of that code, an integer of the type's width in the function's frame; 0 at its begin.  whole: an i1 in the
    frame, set once every element that the array had before was seen, too.  is_used: whether anything was stored.
    """

    def __init__(self, builder: ir.IRBuilder, slot: ir.Value, whole: ir.Value, element_type: ElementType) -> None:
        self._builder, self._slot, self._whole, self._code = builder, slot, whole, CODES[element_type.name]
        self._kind = ir.IntType(self._code.bits)
        self.is_used = False

    def begin(self) -> None:
        """Nothing has been stored."""
        self._builder.store(self._kind(0), self._slot)
        self._builder.store(I1(0), self._whole)

    def see(self, value: ScalarValue) -> None:
        self.is_used = True
        builder = self._builder
        parts = value.registers() if value.element_type.is_complex else [conversion.pack(builder, value)]
        for part in parts:
            self._see(part if isinstance(part.type, ir.IntType) else builder.bitcast(part, self._kind))

    def copy(self, target: ir.Value, source: ir.Value, size: int) -> None:
        """A memcpy that sees what it copies, by pieces that stay in the nearest cache. size: bytes of the array."""
        self.is_used = True
        builder, width = self._builder, self._code.bits // 8
        with counted(builder, I64(0), I64(size), I64(COPIED_BYTES), names=("piece", "copied", "")) as begin:
            rest = builder.sub(I64(size), begin)
            count = builder.select(builder.icmp_signed("<", rest, I64(COPIED_BYTES)), rest, I64(COPIED_BYTES))
            to, origin = (builder.gep(place, [begin], source_etype=I8) for place in (target, source))
            with counted(builder, I64(0), builder.udiv(count, I64(width)), names=("look", "looked", "")) as index:
                place = builder.gep(origin, [index], source_etype=self._kind)
                self._see(builder.load(place, typ=self._kind))
            emit_copy(builder, to, origin, count)
        builder.store(I1(1), self._whole)

    def _see(self, bits: ir.Value) -> None:
        builder = self._builder
        code, largest = emit_code(builder, self._code, bits), builder.load(self._slot, typ=self._kind)
        above = emit_above(builder, self._code, code, largest)
        builder.store(builder.select(above, code, largest), self._slot)

    def emit_is_whole(self) -> ir.Value:
        """Whether no element of the array was left out, i1."""
        return self._builder.load(self._whole, typ=I1)

    def emit_has_any(self) -> ir.Value:
        """Whether one was NaN or Inf, i1."""
        limit = self._code.limit if self._code.has_inf else self._code.limit + 1
        least = self._kind(limit - 1)
        return emit_above(self._builder, self._code, self._builder.load(self._slot, typ=self._kind), least)


def kind_of(element_type: ElementType) -> ir.IntType:
    """The integer of an element's width, of a complex number's half."""
    return ir.IntType(CODES[element_type.name].bits)
