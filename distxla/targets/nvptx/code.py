"""The compiler's side of NVIDIA's GPUs: LLVM IR of kernels to PTX for one architecture. Methods: targets/grid.py.

Rounding is IEEE's: without permission to contract, LLVM writes `add.rn` and `mul.rn`, which no assembler fuses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from distxla.emit.native_function import I32, I64, POINTER, VOID, declared
from distxla.errors import ArgumentError
from distxla.ir.element_type import F32, F64, ElementType
from distxla.targets.grid import MatrixUnit
from distxla.targets.nvptx.architectures import VERSIONS
from distxla.targets.nvptx.ptxas_workaround import keep_borrows
from distxla.targets.nvptx.remainders import REMAINDERS
from distxla.targets.processor import Processor
from distxla.targets.registry import native_target

TRIPLE = "nvptx64-nvidia-cuda"
SHARED_MEMORY = 3  # an address space
SPEED_LEVEL = 2
ALL_LANES, LAST_LANE = 0xFFFFFFFF, 31  # of a warp

FLOAT, DOUBLE = ir.FloatType(), ir.DoubleType()
# PTX's tables for `mma.m16n8k16` and `mma.m8n8k4`
OF_16_BITS = MatrixUnit(16, 8, 16, 2, F32, ((0, 0), (8, 0), (0, 8), (8, 8)), (0, 8), ((0, 0), (0, 1), (8, 0), (8, 1)))
OF_F64 = MatrixUnit(8, 8, 4, 1, F64, ((0, 0),), (0,), ((0, 0), (0, 1)))
# by the factors' type: the unit, the intrinsic, and the types of its words and sums
MATRIX_PRODUCTS = {
    "bf16": (OF_16_BITS, "llvm.nvvm.mma.m16n8k16.row.col.bf16", I32, FLOAT),
    "f16": (OF_16_BITS, "llvm.nvvm.mma.m16n8k16.row.col.f32.f32", ir.VectorType(ir.HalfType(), 2), FLOAT),
    "f64": (OF_F64, "llvm.nvvm.mma.m8n8k4.row.col.f64", DOUBLE, DOUBLE),
}
WITHOUT_MATRIX_UNITS = ("sm_75",)  # for these types


class NvptxCode:
    """`targets.grid.GridTarget` for one architecture."""

    name = "nvptx"

    def __init__(self, architecture: str) -> None:
        self.architecture = architecture

    @property
    def processor(self) -> Processor:
        return native_target().code.processor

    # --- from IR to PTX

    def parse(self, module: ir.Module | str) -> Any:
        machine = _machine(self.architecture)
        if isinstance(module, ir.Module):
            module.triple = TRIPLE
            module.data_layout = str(machine.target_data)
        parsed = llvm.parse_assembly(str(module))
        _add_remainders(parsed)
        parsed.verify()
        return parsed

    def optimise(self, parsed: Any) -> None:
        options = llvm.create_pipeline_tuning_options(speed_level=SPEED_LEVEL)
        builder = llvm.create_pass_builder(_machine(self.architecture), options)
        builder.getModulePassManager().run(parsed, builder)

    def emit_assembly(self, parsed: Any) -> str:
        return keep_borrows(str(_machine(self.architecture).emit_assembly(parsed)))

    def begin_kernel(self, function: ir.Function) -> None:
        function.calling_convention = "ptx_kernel"

    # --- places in the grid

    def emit_thread(self, builder: ir.IRBuilder) -> ir.Value:
        return _register(builder, "tid")

    def emit_threads(self, builder: ir.IRBuilder) -> ir.Value:
        return _register(builder, "ntid")

    def emit_block(self, builder: ir.IRBuilder) -> ir.Value:
        return _register(builder, "ctaid")

    def emit_blocks(self, builder: ir.IRBuilder) -> ir.Value:
        return _register(builder, "nctaid")

    # --- together

    def emit_barrier(self, builder: ir.IRBuilder) -> None:
        name = "llvm.nvvm.barrier.cta.sync.aligned.all"
        function = declared(builder.module, name, VOID, [I32])
        function.attributes.add("convergent")
        builder.call(function, [ir.Constant(I32, 0)])

    def emit_shuffle_down(self, builder: ir.IRBuilder, word: ir.Value, distance: int) -> ir.Value:
        function = declared(builder.module, "llvm.nvvm.shfl.sync.down.i32", I32, [I32] * 4)
        function.attributes.add("convergent")
        return builder.call(function, [I32(ALL_LANES), word, I32(distance), I32(LAST_LANE)])

    def matrix_unit(self, factors: ElementType) -> MatrixUnit | None:
        if factors.name not in MATRIX_PRODUCTS or self.architecture in WITHOUT_MATRIX_UNITS:
            return None
        return MATRIX_PRODUCTS[factors.name][0]

    def emit_matrix_product(
        self,
        builder: ir.IRBuilder,
        factors: ElementType,
        left: Sequence[ir.Value],
        right: Sequence[ir.Value],
        sums: Sequence[ir.Value],
    ) -> list[ir.Value]:
        _, name, given, summed = MATRIX_PRODUCTS[factors.name]
        words = [word if word.type == given else builder.bitcast(word, given) for word in (*left, *right)]
        result = ir.LiteralStructType([summed] * len(sums))
        function = declared(builder.module, name, result, [given] * len(words) + [summed] * len(sums))
        function.attributes.add("convergent")
        products = builder.call(function, [*words, *sums])
        return [builder.extract_value(products, k) for k in range(len(sums))]

    def emit_shared_array(self, builder: ir.IRBuilder, element: ir.Type, count: int) -> ir.Value:
        module = builder.module
        name = module.get_unique_name("shared")
        variable = ir.GlobalVariable(module, ir.ArrayType(element, count), name, addrspace=SHARED_MEMORY)
        variable.linkage = "internal"
        variable.align = 16
        variable.initializer = ir.Constant(variable.value_type, ir.Undefined)
        address = ir.instructions.CastInstr(builder.block, "addrspacecast", variable, POINTER, name)
        builder._insert(address)
        return address


@cache
def code_for(architecture: str) -> NvptxCode:
    """ArgumentError for an architecture that no kernel is made for."""
    if architecture not in VERSIONS:
        raise ArgumentError(f"GPU architecture {architecture!r}: kernels are made for {', '.join(VERSIONS)}")
    return NvptxCode(architecture)


@cache
def _machine(architecture: str) -> llvm.TargetMachine:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(TRIPLE)
    return target.create_target_machine(cpu=architecture, features=f"+{VERSIONS[architecture]}", opt=3)


def _add_remainders(parsed: Any) -> None:
    """Define the functions of C's library that the module calls; there is none on a GPU."""
    declared = {function.name for function in parsed.functions if function.is_declaration}
    for name, text in REMAINDERS.items():
        if name in declared:
            layout = f'target triple = "{TRIPLE}"\ntarget datalayout = "{parsed.data_layout}"\n'
            parsed.link_in(llvm.parse_assembly(layout + text))
            (function,) = (f for f in parsed.functions if f.name == name)
            function.linkage = llvm.Linkage.internal


def _register(builder: ir.IRBuilder, name: str) -> ir.Value:
    function = declared(builder.module, f"llvm.nvvm.read.ptx.sreg.{name}.x", I32, [])
    return builder.zext(builder.call(function, []), I64)


def kernel_names(assembly: str) -> list[str]:
    """The kernels that assembler text defines, in its order."""
    return re.findall(r"\.visible \.entry (\w+)\(", assembly)


__all__ = ["NvptxCode", "code_for", "kernel_names"]
