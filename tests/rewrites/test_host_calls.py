"""The step `host-calls`: which calls become host transfers, what it says of them, and what it refuses."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from distxla.compiler.verify.verifier import verify_module
from distxla.errors import ArgumentError, DistxlaError, UnsupportedOpError, VerificationError
from distxla.ir.stream_key import FIRST_HOST_CALL
from distxla.program.host_call_site import FunctionKey, HostCallSite
from distxla.rewrites.host_calls import HostCallsAsTransfers
from distxla.rewrites.step import Compilation
from distxla.text.parser import parse_module

NUMBERED = 'custom_call_target="xla_ffi_python_cpu_callback", backend_config={index = 7 : ui64}'
FILLING = 'custom_call_target="xla_buffer_python_cpu_callback", backend_config={index = 7 : ui64}'
SHARED = f"{FILLING}, output_to_operand_aliasing={{{{}}: (1, {{}})}}"
NAMED = 'custom_call_target="halved"'


def begin(line: str, keys: Collection[FunctionKey] | None) -> Compilation:
    """The compilation of a program whose `y` calls a function."""
    text = f"HloModule m\nENTRY e {{ x = f32[2] parameter(0)\n  t = token[] after-all()\n  {line} }}\n"
    return Compilation.of(parse_module(text, "m.hlo"), host_calls=keys)


CALLS = {
    "by number": (f"ROOT y = f32[2] custom-call(x), {NUMBERED}", [7], ["y = 7(f32[2]) -> f32[2]"]),
    "by name": (f"ROOT y = f32[2] custom-call(x), {NAMED}", ["halved"], ["y = halved(f32[2]) -> f32[2]"]),
    "without results": (f"ROOT y = () custom-call(x, x), {NUMBERED}", [7], ["y = 7(f32[2], f32[2]) -> "]),
    "a token": (f"ROOT y = (token[], s8[]) custom-call(t), {NUMBERED}", [7], ["y = 7(token[]) -> token[], s8[]"]),
    "a layout": (f"ROOT y = s8[2,3]{{0,1}} custom-call(x), {NUMBERED}", [7], ["y = 7(f32[2]) -> s8[2,3]"]),
    "that fills": (f"ROOT y = f32[2] custom-call(x, x), {FILLING}", [7], ["y = 7(f32[2], f32[2]) -> f32[2] filled"]),
    "that fills an operand": (
        *(f"ROOT y = f32[2] custom-call(x, x), {SHARED}", [7]),
        ["y = 7(f32[2], f32[2]) -> f32[2] filled ((0, 1),)"],
    ),
    "two": (
        *(f"v = f32[2] custom-call(x), {NUMBERED}\n  ROOT y = f32[2] custom-call(v), {NAMED}", [7, "halved"]),
        ["v = 7(f32[2]) -> f32[2]", "y = halved(f32[2]) -> f32[2]"],
    ),
}


def shown(site: HostCallSite) -> str:
    operands, results = (", ".join(map(str, shapes)) for shapes in (site.operands, site.results))
    text = f"{site.instruction} = {site.key}({operands}) -> {results}"
    return " ".join([text, *["filled"] * site.fills, *map(str, [site.shared] * bool(site.shared))])


@pytest.mark.parametrize(("line", "keys", "wanted"), CALLS.values(), ids=CALLS)
def test_a_call_becomes_host_transfers(line: str, keys: list[FunctionKey], wanted: list[str]) -> None:
    found = HostCallsAsTransfers().apply(begin(line, keys))
    verify_module(found.module)
    assert [shown(site) for site in found.host_call_sites] == wanted
    assert [site.number for site in found.host_call_sites] == [*range(len(wanted))]
    assert [str(site.location).partition(":")[0] for site in found.host_call_sites] == ["m.hlo"] * len(wanted)
    used = {i.op.channel for i in found.module.entry_computation if i.op.channel is not None}
    with_results = {site.channel for site in found.host_call_sites if site.arrays}
    assert used == {FIRST_HOST_CALL, *with_results}
    assert found.result == found.module.entry_computation.root_instruction.shape
    assert not any(i.op.role.is_custom_call for i in found.module.entry_computation)
    again = HostCallsAsTransfers().apply(found)
    assert again is found  # there is nothing left


LEFT = {
    "nobody gives functions": (f"ROOT y = f32[2] custom-call(x), {NUMBERED}", None),
    "a target that no function is for": (f"ROOT y = f32[2] custom-call(x), {NAMED}", [7]),
    "no call": ("ROOT y = f32[2] negate(x)", [7, "halved"]),
}


@pytest.mark.parametrize(("line", "keys"), LEFT.values(), ids=LEFT)
def test_what_calls_no_function_of_the_driver_stays(line: str, keys: list[FunctionKey] | None) -> None:
    compilation = begin(line, keys)
    assert HostCallsAsTransfers().apply(compilation) is compilation


OLD = 'custom_call_target="xla_python_cpu_callback"'
TAKEN = "channel_id=1073741824, is_host_transfer=true"
REFUSED = {  # and the line of the place
    "no functions": (
        *(f"ROOT y = f32[2] custom-call(x), {NUMBERED}", [], ArgumentError, 4),
        "y calls function 7 of the process that lowered the program .* but no host_calls were given",
    ),
    "another function": (
        *(f"ROOT y = f32[2] custom-call(x), {NUMBERED}", [8, "halved"], ArgumentError, 4),
        r"but host_calls has 8, 'halved': Cluster.compile\(module, host_calls=\{7: function\}\)",
    ),
    "an old callback": (f"ROOT y = f32[2] custom-call(x), {OLD}", [], ArgumentError, 4, "an older JAX names"),
    "a dynamic array": (
        *(f"ROOT y = f32[<=2] custom-call(x), {NUMBERED}", [7], UnsupportedOpError, 4),
        r"y: a function of the driver takes and gives no f32\[<=2\]",
    ),
    "no number": (
        *(f"ROOT y = f32[2] custom-call(x), {NUMBERED.replace('index', 'indox')}", [7], VerificationError, 4),
        "y: .*index",
    ),
    "a taken channel": (
        *(f"s = (f32[2], u32[], token[]) send(x, t), {TAKEN}\n  d = token[] send-done(s), {TAKEN}\n", [7]),
        *(VerificationError, 4, "s: channels from 1073741824 on are those of host calls"),
    ),
}


@pytest.mark.parametrize(("line", "keys", "kind", "number", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(line: str, keys: list[FunctionKey], kind: type[DistxlaError], number: int, message: str) -> None:
    if "ROOT" not in line:
        line += f"  ROOT y = f32[2] custom-call(x), {NUMBERED}"
    with pytest.raises(kind, match=message) as caught:
        HostCallsAsTransfers().apply(begin(line, keys))
    assert str(caught.value.location).startswith(f"m.hlo:{number}:")
