"""Atomic accesses for Python, as machine code. Tests compare it with what LLVM makes of the same accesses."""

from __future__ import annotations

# the address in rdi, the value in esi or rsi; loads and stores have acquire and release order by themselves here
CODE = {
    "read": bytes.fromhex("8b07 c3"),  # mov eax, [rdi]; ret
    "publish": bytes.fromhex("8937 c3"),  # mov [rdi], esi; ret
    "publish_fenced": bytes.fromhex("8737 c3"),  # xchg [rdi], esi; ret
    "read_long": bytes.fromhex("488b07 c3"),  # mov rax, [rdi]; ret
    "publish_long": bytes.fromhex("488937 c3"),  # mov [rdi], rsi; ret
    "fence": bytes.fromhex("c3"),  # ret: loads stay in order by themselves
}


__all__ = ["CODE"]
