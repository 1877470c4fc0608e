"""The cache of compiled programs: hits and misses. The folder itself: test_cache_folder.py."""

from __future__ import annotations

import pickle
import subprocess

import numpy as np
import pytest

import distxla as dx
from distxla.compiler.cache import ProgramCache, compile_cached
from distxla.compiler.cache_key import program_key
from distxla.compiler.server import CompileServer
from distxla.ir.counts import Counts
from distxla.text.parser import parse_module
from tests.runtime.cached_program import program

TEXT = """HloModule m
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }
ENTRY e { x = f32[4] parameter(0)
 ROOT r = f32[4] all-reduce(x), replica_groups={}, to_apply=add, metadata={op_name="psum"} }
"""


def module(text: str = TEXT, file: str = "m.hlo"):
    return parse_module(text, file)


def usual_key():
    return program_key(module(), Counts(2, 1))


@pytest.fixture
def programs(tmp_path):
    return ProgramCache(tmp_path / "cache")


def test_what_was_put_is_found(programs):
    assert programs.get(usual_key(), module()) is None
    programs.write(usual_key(), program())
    found = programs.get(usual_key(), module())
    assert found is not None
    assert found.image.data == b"image"


def test_sites_point_into_the_text_that_asks(programs):
    programs.write(usual_key(), program())
    moved = module("\n\n" + TEXT.replace('"psum"', '"other"'), "other.hlo")
    found = programs.get(usual_key(), moved)
    assert found is not None
    assert str(found.sites[0].location).startswith("other.hlo:8:")


def test_metadata_does_not_count_everything_else_does(monkeypatch):
    key = program_key(module(), Counts(2, 1))
    assert key == program_key(module(TEXT.replace('"psum"', '"other"'), "b.hlo"), Counts(2, 1))
    assert key != program_key(module(), Counts(1, 2))
    assert key != program_key(module(TEXT.replace("f32[4]", "f32[5]")), Counts(2, 1))
    monkeypatch.setattr("distxla.targets.native.host.processor", lambda: "another CPU")
    assert key != program_key(module(), Counts(2, 1))
    monkeypatch.undo()
    monkeypatch.setattr("distxla.compiler.cache_key.compiler_version", lambda: "another version")
    assert key != program_key(module(), Counts(2, 1))


def test_each_bit_of_a_constant_counts():
    values = np.ones((2, 9, 20), np.float32)

    def key(array):
        x = dx.XlaBuilder("m")
        return program_key(x.build(x.tuple([x.constant(values), x.constant(array)])), Counts(1, 1))

    keys = {key(values)}
    for k in (0, 179, 359):
        changed = values.copy()
        changed.reshape(-1).view(np.uint32)[k] ^= 1
        keys |= {key(changed), key(changed)}
    assert len(keys | {key(values.reshape(2, 20, 9)), key(values.view(np.int32))}) == 6
    x = dx.XlaBuilder("m")
    assert program_key(x.build(x.tuple([x.constant(changed), x.constant(values)])), Counts(1, 1)) not in keys


@pytest.mark.parametrize("content", [b"no pickle", pickle.dumps("no program"), b"\x80\x05cno_module\nname\n."], ids=str)
def test_what_is_no_program_is_dropped(programs, content):
    programs.files.write(usual_key(), content)
    assert programs.get(usual_key(), module()) is None
    assert programs.files.usage().entries == 0


def test_where_nothing_can_be_kept_nothing_fails(tmp_path):
    (tmp_path / "file").touch()
    for programs in (ProgramCache(tmp_path / "file" / "cache"), ProgramCache(tmp_path / "cache", max_bytes=0)):
        programs.write(usual_key(), program())
        assert programs.get(usual_key(), module()) is None
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_program_out_of_the_cache_needs_no_compile_process(programs, monkeypatch):
    programs.write(usual_key(), program())
    with CompileServer() as server:
        monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a compile process was started"))
        assert compile_cached(server, module(), Counts(2, 1), programs=programs)[1]
