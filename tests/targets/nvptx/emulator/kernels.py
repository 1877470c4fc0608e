"""Device modules for the tests, in the form in which the compiler makes them."""

from __future__ import annotations

HEADER = """
target triple = "nvptx64-nvidia-cuda"
target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.tid.y()
declare i32 @llvm.nvvm.read.ptx.sreg.tid.z()
declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ntid.y()
declare i32 @llvm.nvvm.read.ptx.sreg.ntid.z()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.z()
declare i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.nctaid.y()
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)
declare void @llvm.nvvm.bar.warp.sync(i32)
declare float @llvm.nvvm.shfl.sync.down.f32(i32, float, i32, i32)
declare i32 @llvm.nvvm.vote.ballot.sync(i32, i1)
"""

# y[i] = 3 * x[i] + y[i] for i < n: a grid-stride loop
AXPY = (
    HEADER
    + """
@factor = internal constant [2 x float] [float 3.0, float 5.0], align 16
define internal i64 @thread() {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %nt = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %b = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %offset = mul i32 %b, %nt
  %number = add i32 %offset, %t
  %wide = zext i32 %number to i64
  ret i64 %wide
}
define ptx_kernel void @axpy(ptr noalias %x, ptr noalias %y, i64 %n, i32 %which) {
entry:
  %first = call i64 @thread()
  %nt = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %nb = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
  %threads = mul i32 %nb, %nt
  %step = zext i32 %threads to i64
  %place = getelementptr float, ptr @factor, i32 %which
  %factor = load float, ptr %place
  br label %test
test:
  %i = phi i64 [%first, %entry], [%next, %body]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %done
body:
  %p = getelementptr float, ptr %x, i64 %i
  %q = getelementptr float, ptr %y, i64 %i
  %v = load float, ptr %p
  %product = fmul float %v, %factor
  %u = load float, ptr %q
  %sum = fadd float %product, %u
  store float %sum, ptr %q
  %next = add i64 %i, %step
  br label %test
done:
  ret void
}
"""
)

# out[block] = the sum of a row of n: each thread sums every 256th, then lanes by shuffles, then warps in shared memory
REDUCE = (
    HEADER
    + """
@partial = internal addrspace(3) global [32 x float] undef, align 16
define internal float @across(float %x, i32 %distance) convergent {
  %other = call float @llvm.nvvm.shfl.sync.down.f32(i32 -1, float %x, i32 %distance, i32 31)
  %sum = fadd float %x, %other
  ret float %sum
}
define ptx_kernel void @reduce(ptr noalias %in, ptr noalias %out, i64 %n) convergent {
entry:
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %nt = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %b = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %block = zext i32 %b to i64
  %row = mul i64 %block, %n
  %first = zext i32 %t to i64
  %step = zext i32 %nt to i64
  br label %loop
loop:
  %i = phi i64 [%first, %entry], [%next, %loop]
  %s = phi float [0.0, %entry], [%sum, %loop]
  %at = add i64 %row, %i
  %p = getelementptr float, ptr %in, i64 %at
  %x = load float, ptr %p
  %sum = fadd float %s, %x
  %next = add i64 %i, %step
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %warp
warp:
  %s16 = call float @across(float %sum, i32 16)
  %s8 = call float @across(float %s16, i32 8)
  %s4 = call float @across(float %s8, i32 4)
  %s2 = call float @across(float %s4, i32 2)
  %s1 = call float @across(float %s2, i32 1)
  %lane = and i32 %t, 31
  %number = lshr i32 %t, 5
  %leads = icmp eq i32 %lane, 0
  br i1 %leads, label %put, label %sync
put:
  %place = getelementptr float, ptr addrspace(3) @partial, i32 %number
  store float %s1, ptr addrspace(3) %place
  br label %sync
sync:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %last = icmp eq i32 %t, 0
  br i1 %last, label %collect, label %end
collect:
  %warps = lshr i32 %nt, 5
  br label %each
each:
  %k = phi i32 [0, %collect], [%k1, %each]
  %acc = phi float [0.0, %collect], [%acc1, %each]
  %q = getelementptr float, ptr addrspace(3) @partial, i32 %k
  %v = load float, ptr addrspace(3) %q
  %acc1 = fadd float %acc, %v
  %k1 = add i32 %k, 1
  %again = icmp ult i32 %k1, %warps
  br i1 %again, label %each, label %write
write:
  %o = getelementptr float, ptr %out, i64 %block
  store float %acc1, ptr %o
  br label %end
end:
  ret void
}
"""
)

# out = transpose(in) of a matrix of 32 * nctaid.y rows and 32 * nctaid.x columns; blocks of (32, 8) threads
TRANSPOSE = (
    HEADER
    + """
@tile = internal addrspace(3) global [32 x [33 x i32]] undef, align 16
define ptx_kernel void @transpose(ptr noalias %in, ptr noalias %out) convergent {
entry:
  %x = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %y = call i32 @llvm.nvvm.read.ptx.sreg.tid.y()
  %bx = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %by = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()
  %gx = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
  %gy = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.y()
  %columns = mul i32 %gx, 32
  %rows = mul i32 %gy, 32
  %left = mul i32 %bx, 32
  %top = mul i32 %by, 32
  br label %read
read:
  %k = phi i32 [%y, %entry], [%k8, %read]
  %row = add i32 %top, %k
  %column = add i32 %left, %x
  %start = mul i32 %row, %columns
  %at = add i32 %start, %column
  %p = getelementptr i32, ptr %in, i32 %at
  %v = load i32, ptr %p
  %s = getelementptr [33 x i32], ptr addrspace(3) @tile, i32 %k, i32 %x
  store i32 %v, ptr addrspace(3) %s
  %k8 = add i32 %k, 8
  %more = icmp ult i32 %k8, 32
  br i1 %more, label %read, label %sync
sync:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  br label %write
write:
  %j = phi i32 [%y, %sync], [%j8, %write]
  %row2 = add i32 %left, %j
  %column2 = add i32 %top, %x
  %start2 = mul i32 %row2, %rows
  %at2 = add i32 %start2, %column2
  %s2 = getelementptr [33 x i32], ptr addrspace(3) @tile, i32 %x, i32 %j
  %w = load i32, ptr addrspace(3) %s2
  %q = getelementptr i32, ptr %out, i32 %at2
  store i32 %w, ptr %q
  %j8 = add i32 %j, 8
  %more2 = icmp ult i32 %j8, 32
  br i1 %more2, label %write, label %end
end:
  ret void
}
"""
)

# out[i] = in[n - 1 - i] for one block of n threads, through the dynamic shared array
REVERSE = (
    HEADER
    + """
@dynamic = external addrspace(3) global [0 x i8], align 16
define ptx_kernel void @reverse(ptr noalias %in, ptr noalias %out) convergent {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %n = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %p = getelementptr i32, ptr %in, i32 %t
  %v = load i32, ptr %p
  %s = getelementptr i32, ptr addrspace(3) @dynamic, i32 %t
  store i32 %v, ptr addrspace(3) %s
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %n1 = sub i32 %n, 1
  %u = sub i32 %n1, %t
  %g = addrspacecast ptr addrspace(3) @dynamic to ptr
  %r = getelementptr i32, ptr %g, i32 %u
  %w = load i32, ptr %r
  %q = getelementptr i32, ptr %out, i32 %t
  store i32 %w, ptr %q
  ret void
}
"""
)

ALL = {"axpy": AXPY, "reduce": REDUCE, "transpose": TRANSPOSE, "reverse": REVERSE}
