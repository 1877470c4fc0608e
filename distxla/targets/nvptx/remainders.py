"""C's fmod as LLVM IR, exact for all operands: PTX's own remainder divides and loses bits of large quotients.

Long division in binary on the significands: a step a bit of the exponents' difference, as C libraries do it.
"""

from __future__ import annotations

_TEMPLATE = """
define {real} @{name}({real} %x, {real} %y) {{
entry:
  %xb = bitcast {real} %x to {word}
  %yb = bitcast {real} %y to {word}
  %sign = and {word} %xb, {sign}
  %xm = and {word} %xb, {rest}
  %ym = and {word} %yb, {rest}
  %zero = icmp eq {word} %ym, 0
  %ynan = icmp ugt {word} %ym, {infinity}
  %xinf = icmp uge {word} %xm, {infinity}
  %bad0 = or i1 %zero, %ynan
  %bad = or i1 %bad0, %xinf
  br i1 %bad, label %nan, label %sized
nan:
  %product = fmul {real} %x, %y
  %quotient = fdiv {real} %product, %product
  ret {real} %quotient
sized:
  %less = icmp ult {word} %xm, %ym
  br i1 %less, label %same, label %split
same:
  ret {real} %x
split:
  ; significand and exponent of both; subnormal numbers are shifted until their highest bit is the hidden one
  %xe0 = lshr {word} %xm, {bits}
  %ye0 = lshr {word} %ym, {bits}
  %xf0 = and {word} %xm, {fraction}
  %yf0 = and {word} %ym, {fraction}
  %xsub = icmp eq {word} %xe0, 0
  %ysub = icmp eq {word} %ye0, 0
  %xz = call {word} @llvm.ctlz.{word}({word} %xf0, i1 false)
  %yz = call {word} @llvm.ctlz.{word}({word} %yf0, i1 false)
  %xs = sub {word} %xz, {above}
  %ys = sub {word} %yz, {above}
  %xshift = select i1 %xsub, {word} %xs, {word} 0
  %yshift = select i1 %ysub, {word} %ys, {word} 0
  %xfn = or {word} %xf0, {hidden}
  %yfn = or {word} %yf0, {hidden}
  %xfs = shl {word} %xf0, %xshift
  %yfs = shl {word} %yf0, %yshift
  %xf = select i1 %xsub, {word} %xfs, {word} %xfn
  %yf = select i1 %ysub, {word} %yfs, {word} %yfn
  %xes = sub {word} 1, %xshift
  %yes = sub {word} 1, %yshift
  %xe = select i1 %xsub, {word} %xes, {word} %xe0
  %ye = select i1 %ysub, {word} %yes, {word} %ye0
  br label %step
step:
  %r = phi {word} [ %xf, %split ], [ %doubled, %next ]
  %e = phi {word} [ %xe, %split ], [ %lower, %next ]
  %fits = icmp uge {word} %r, %yf
  %taken = sub {word} %r, %yf
  %left = select i1 %fits, {word} %taken, {word} %r
  %last = icmp eq {word} %e, %ye
  br i1 %last, label %done, label %next
next:
  %doubled = shl {word} %left, 1
  %lower = sub {word} %e, 1
  br label %step
done:
  %nothing = icmp eq {word} %left, 0
  br i1 %nothing, label %null, label %pack
null:
  %signed = bitcast {word} %sign to {real}
  ret {real} %signed
pack:
  %lz = call {word} @llvm.ctlz.{word}({word} %left, i1 true)
  %up = sub {word} %lz, {above}
  %exponent = sub {word} %ye, %up
  %normal = icmp sgt {word} %exponent, 0
  %shifted = shl {word} %left, %up
  %stripped = and {word} %shifted, {fraction}
  %high = shl {word} %exponent, {bits}
  %whole = or {word} %stripped, %high
  ; below the smallest exponent the number is subnormal: its unit is that of exponent 1
  %down0 = sub {word} 1, %ye
  %isdown = icmp sgt {word} %down0, 0
  %down = select i1 %isdown, {word} %down0, {word} 0
  %ym1 = sub {word} %ye, 1
  %up1 = select i1 %isdown, {word} 0, {word} %ym1
  %small0 = shl {word} %left, %up1
  %small = lshr {word} %small0, %down
  %result = select i1 %normal, {word} %whole, {word} %small
  %both = or {word} %result, %sign
  %back = bitcast {word} %both to {real}
  ret {real} %back
}}
declare {word} @llvm.ctlz.{word}({word}, i1)
"""


def _function(name: str, real: str, bits: int, width: int) -> str:
    exponent = width - 1 - bits
    return _TEMPLATE.format(
        name=name,
        real=real,
        word=f"i{width}",
        bits=bits,
        above=width - 1 - bits,
        hidden=1 << bits,
        fraction=(1 << bits) - 1,
        sign=1 << (width - 1),
        rest=(1 << (width - 1)) - 1,
        infinity=((1 << exponent) - 1) << bits,
    )


REMAINDERS = {"fmod": _function("fmod", "double", 52, 64), "fmodf": _function("fmodf", "float", 23, 32)}
