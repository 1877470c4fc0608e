"""Tokens, feeds, channels and routines that are not HLO: what is built, and in which order."""

from __future__ import annotations

import inspect
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import distxla as dx
from distxla.compiler.verify.verifier import verify_module
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module
from distxla.text.printer import print_module


def built(b: dx.XlaBuilder, root: dx.XlaOp | None = None) -> Module:
    """The module, which verifies, and is read back from its text: by XLA, too, where it is installed."""
    module = b.build(root)
    verify_module(module)
    assert parse_module(print_module(module)) == module
    if find_spec("jaxlib") is not None:
        from jaxlib import _hlo

        assert _hlo.hlo_module_from_text(print_module(module)).name == module.name
    return module


def opcodes(module: Module) -> list[str]:
    return [i.opcode for i in module.entry_computation]


def test_after_all_joins_tokens() -> None:
    b = dx.XlaBuilder("tokens")
    token = b.after_all([b.create_token(), b.create_token()])
    value = b.add_dependency(b.optimization_barrier(b.constant(3)), token)
    (outs,) = run_reference(built(b), [[]], Counts(1, 1))
    assert (str(token.shape), str(value.shape), outs) == ("token[]", "s32[]", [3])
    with pytest.raises(dx.VerificationError, match="joins tokens"):
        b.after_all([value])


def test_feeds_of_a_computation_have_one_order() -> None:
    b = dx.XlaBuilder("feeds")
    first = b.infeed("f32[3]")
    b.outfeed(first * 2)
    second = b.infeed("(s32[], pred[2])", config="c")
    assert [str(x.shape) for x in (first, second)] == ["f32[3]", "(s32[], pred[2])"]
    module = built(b, second)
    entry = module.entry_computation
    feeds = [i for i in entry if i.opcode in ("infeed", "outfeed")]
    assert [i.opcode for i in feeds] == ["infeed", "outfeed", "infeed"]
    for before, after in pairwise(feeds):
        token = entry[after.operands[-1]]
        assert before.name in (token.name, *token.operands)


def test_send_and_receive_are_pairs_of_instructions() -> None:
    b = dx.XlaBuilder("channels")
    x = b.parameter(0, "f32[4]")
    done = b.send(x, channel_handle=1, source_target_pairs=[(0, 1)])
    y = b.recv("f32[4]", 1, source_target_pairs=[(0, 1)])
    assert (str(done.shape), str(y.shape)) == ("token[]", "f32[4]")
    module = built(b, y)
    assert [o for o in opcodes(module) if o.startswith(("send", "recv"))] == ["send", "send-done", "recv", "recv-done"]
    for instruction in module.entry_computation:
        if instruction.opcode in ("send", "recv"):
            assert instruction.frontend_attribute("_xla_send_recv_source_target_pairs") == "{{0,1}}"
            assert instruction.op.channel_id == 1  # type: ignore[attr-defined]


def test_send_and_receive_with_start_and_done() -> None:
    b = dx.XlaBuilder("halves")
    token = b.create_token()
    receiving = b.recv_start("s32[2]", token, 3)
    sending = b.send_start(b.constant([1, 2]), token, 3)
    value, after = b.recv_done(receiving)
    b.after_all([after, b.send_done(sending)])
    built(b, value)
    with pytest.raises(dx.VerificationError, match="does not begin a recv; argument context of recv_done"):
        b.recv_done(sending)
    with pytest.raises(dx.VerificationError, match="channel_handle=-1 is negative"):
        b.send(value, -1)


def test_transfers_with_the_host() -> None:
    b = dx.XlaBuilder("host")
    received, token = b.recv_from_host(b.create_token(), "f32[]", 5)
    b.send_to_host(received, token, 6)
    module = built(b, received)
    assert all(i.op.is_host_transfer for i in module.entry_computation if hasattr(i.op, "is_host_transfer"))


def test_the_pages_custom_call() -> None:
    def myfunc(x: Any, y: Any) -> Any:
        z = np.zeros((3, 3), np.float32)
        z[0, 0] = x[1] + y[1, 0]
        return z

    b = dx.XlaBuilder("custom")
    x, y = b.parameter(0, "f32[2]"), b.parameter(1, "f32[2,3]")
    z = b.custom_call("builder_test_myfunc", [x, y], "f32[3,3]", opaque="k=1")
    module = built(b, z)
    assert (z.instruction.backend_config, str(z.shape)) == ("k=1", "f32[3,3]")
    dx.register_custom_call("builder_test_myfunc", myfunc)
    try:
        arguments = [np.float32([1, 2]), np.float32([[10, 20, 30], [40, 50, 60]])]
        (outs,) = run_reference(module, [arguments], Counts(1, 1))
    finally:
        dx.unregister_custom_call("builder_test_myfunc")
    assert outs[0] is not None
    assert outs[0].tolist() == [[42, 0, 0], [0, 0, 0], [0, 0, 0]]


def test_composite_calls_carry_their_name() -> None:
    b = dx.XlaBuilder("composite")
    y = b.composite_call(
        lambda p: p + 1, b.constant(3.0), name="foo.bar", composite_attributes="{n = 1 : i32}", version=1
    )
    text = print_module(built(b, y))
    assert "is_composite=true" in text
    attributes = 'composite.attributes={n = 1 : i32},composite.name="foo.bar",composite.version="1"'
    assert f"frontend_attributes={{{attributes}}}" in text


def test_annotations() -> None:
    b = dx.XlaBuilder("annotated", num_partitions=2)
    with b.sharding("{devices=[2]<=[2]}"), b.name_scope("layer"):
        x = b.parameter(0, "f32[4]")
        with b.frontend_attributes(kind="a"), b.frontend_attributes(other="b"):
            y = x + x
    z = y * y
    b.set_sharding("{replicated}")
    b.set_frontend_attributes({"k": "v"})
    w = z - z
    line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
    b.clear_sharding()
    assert [v.instruction.sharding and v.instruction.sharding.text for v in (x, y, z, w)] == [
        "{devices=[2]<=[2]}",
        "{devices=[2]<=[2]}",
        None,
        "{replicated}",
    ]
    assert y.instruction.frontend_attributes == (("kind", "a"), ("other", "b"))
    assert w.instruction.frontend_attributes == (("k", "v"),)
    metadata = [v.instruction.metadata for v in (y, w)]
    assert [m and m.op_name for m in metadata] == ["annotated/layer/add", "annotated/sub"]
    assert metadata[1] is not None
    assert (metadata[1].get("source_file"), metadata[1].get("source_line")) == (__file__, line)
    built(b)


def test_header() -> None:
    b = dx.XlaBuilder("header", replica_count=2, num_partitions=3)
    x = b.parameter(0, "(f32[2], s32[])")
    b.set_up_alias([0], 0, [0])
    b.add_buffer_donor(0, [1])
    module = built(b, x)
    assert (module.replica_count, module.num_partitions) == (2, 3)
    text = print_module(module)
    assert "input_output_alias={ {0}: (0, {0}, may-alias) }, buffer_donor={ (0, {1}) }" in text
    with pytest.raises(dx.VerificationError, match="neither may-alias nor must-alias"):
        b.set_up_alias([0], 0, kind="always")
