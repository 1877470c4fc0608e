"""What the code for Linux has to know about x86-64. Needs neither LLVM nor NumPy."""

from __future__ import annotations

from collections.abc import Mapping

from distxla.targets.native.traits import Traits

# features of a CPU that compiled code may use, by the names of /proc/cpuinfo
_INSTRUCTIONS = ("sse", "ssse", "avx", "amx", "bmi", "fma", "f16c", "abm", "popcnt", "movbe", "adx", "gfni", "vaes")
_MORE_INSTRUCTIONS = ("aes", "pclmulqdq", "vpclmulqdq", "sha_ni", "rtm", "xsave", "cx16", "lahf_lm", "fxsr")

# Atomic accesses for Python, as machine code. Tests compare it with what LLVM makes of the same accesses.
# the address in rdi, the value in esi or rsi, a second one in rdx; loads and stores have acquire and release order by
# themselves here
ATOMICS = {
    "read": bytes.fromhex("8b07 c3"),  # mov eax, [rdi]; ret
    "publish": bytes.fromhex("8937 c3"),  # mov [rdi], esi; ret
    "publish_fenced": bytes.fromhex("8737 c3"),  # xchg [rdi], esi; ret
    "read_long": bytes.fromhex("488b07 c3"),  # mov rax, [rdi]; ret
    "publish_long": bytes.fromhex("488937 c3"),  # mov [rdi], rsi; ret
    "read_long_fenced": bytes.fromhex("488b07 c3"),  # mov rax, [rdi]; ret: the stores are the ones that wait
    "compare_exchange_long": bytes.fromhex("4889f0 f0480fb117 c3"),  # mov rax, rsi; lock cmpxchg [rdi], rdx; ret
    "fence": bytes.fromhex("c3"),  # ret: loads stay in order by themselves
}


def _instruction_sets(fields: Mapping[str, str]) -> frozenset[str]:
    flags = fields.get("flags", "").split()
    return frozenset(f for f in flags if f.startswith(_INSTRUCTIONS) or f in _MORE_INSTRUCTIONS)


def openblas_core(fields: Mapping[str, str]) -> str | None:
    """The kernels that were measured to be the fastest; a wrong guess by the library costs half its speed.

    AMD's CPUs with AVX-512 get its AVX2 kernels (113 GFLOP/s for 1024^3 f32 on one of them); the SkylakeX ones need
    only the AVX-512 subsets below and are about twice as fast there (214).
    """
    if fields.get("vendor_id") == "GenuineIntel":
        return None  # the library knows these and chooses well
    flags = set(fields.get("flags", "").split())
    return "SKYLAKEX" if {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd", "fma"} <= flags else None


TRAITS = Traits(
    # several CPUs with AVX-512 are tuned to 256 bits; loops over long arrays gain from the full width
    llvm_features={"prefer-256-bit": False},
    address_bytes=1 << 47,
    sched_yield=24,
    futex=202,
    clock_gettime=228,
    atomics=ATOMICS,
    trap=b"\xcc",
    identity=("vendor_id", "cpu family", "model", "model name", "stepping", "flags"),
    instruction_sets=_instruction_sets,
    openblas_core=openblas_core,
)
