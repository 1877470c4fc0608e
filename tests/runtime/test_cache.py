"""The cache of compiled programs: what hits, what misses, what it survives."""

from __future__ import annotations

import dataclasses
import os
import stat
import threading
from pathlib import Path

import pytest

from distxla.codegen.program import CompiledProgram, Site
from distxla.errors import ClusterError
from distxla.ir.shape import Shape
from distxla.runtime.cache import ProgramCache, cache_folder, program_key
from distxla.text.parser import parse_module

TEXT = """HloModule m
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }
ENTRY e { x = f32[4] parameter(0)
 ROOT r = f32[4] all-reduce(x), replica_groups={}, to_apply=add, metadata={op_name="psum"} }
"""


def module(text: str = TEXT, file: str = "m.hlo"):
    return parse_module(text, file)


def program(image: bytes = b"image", name: str = "m") -> CompiledProgram:
    return CompiledProgram(
        name=name,
        image=image,
        symbols={"distxla_entry": 0},
        imports=(),
        imports_offset=0,
        code_bytes=0,
        replicas=2,
        partitions=1,
        parameters=(),
        result=Shape.tuple(()),
        arena_bytes=0,
        sites=(Site(0, "r", "all-reduce", "e", 0, None),),
        communicators=(),
        timings={},
    )


@pytest.fixture
def programs(tmp_path):
    return ProgramCache(tmp_path / "cache")


def test_what_was_put_is_found(programs):
    assert programs.get(module(), 2, 1) is None
    programs.put(module(), 2, 1, program())
    found = programs.get(module(), 2, 1)
    assert found is not None
    assert found.image == b"image"


def test_sites_point_into_the_text_that_asks(programs):
    programs.put(module(), 2, 1, program())
    moved = module("\n\n" + TEXT.replace('"psum"', '"other"'), "other.hlo")
    found = programs.get(moved, 2, 1)
    assert found is not None
    assert str(found.sites[0].location).startswith("other.hlo:8:")


def test_metadata_does_not_count_everything_else_does(monkeypatch):
    key = program_key(module(), 2, 1)
    assert key == program_key(module(TEXT.replace('"psum"', '"other"'), "b.hlo"), 2, 1)
    assert key != program_key(module(), 1, 2)
    assert key != program_key(module(TEXT.replace("f32[4]", "f32[5]")), 2, 1)
    monkeypatch.setattr("distxla.runtime.cache._cpu", lambda: "another CPU")
    assert key != program_key(module(), 2, 1)
    monkeypatch.undo()
    monkeypatch.setattr("distxla.runtime.cache._compiler", lambda: "another version")
    assert key != program_key(module(), 2, 1)


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b[:60] + bytes([b[60] ^ 1]) + b[61:], lambda b: b"", lambda b: b"x" * 100]
)
def test_damaged_files_are_dropped(programs, damage):
    programs.put(module(), 2, 1, program())
    (path,) = programs.folder.glob("*.program")
    path.write_bytes(damage(path.read_bytes()))
    assert programs.get(module(), 2, 1) is None
    assert not path.exists()


def test_folder_and_files_belong_to_the_user_alone(programs):
    programs.put(module(), 2, 1, program())
    assert stat.S_IMODE(programs.folder.stat().st_mode) == 0o700
    (path,) = programs.folder.glob("*.program")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    programs.folder.chmod(0o755)
    ProgramCache(programs.folder)
    assert stat.S_IMODE(programs.folder.stat().st_mode) == 0o700


def test_a_link_in_place_of_a_file_is_not_followed(programs, tmp_path):
    programs.put(module(), 2, 1, program())
    (path,) = programs.folder.glob("*.program")
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert programs.get(module(), 2, 1) is None


def test_a_folder_of_somebody_else_is_refused(programs, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(ClusterError, match="does not belong to you"):
        ProgramCache(programs.folder)


def test_a_link_to_a_folder_of_ones_own_is_followed(programs, tmp_path, monkeypatch):
    programs.put(module(), 2, 1, program())
    link = tmp_path / "link"
    link.symlink_to(programs.folder)
    monkeypatch.setenv("DISTXLA_CACHE_DIR", str(link))
    assert ProgramCache().get(module(), 2, 1) is not None


def test_without_a_folder_nothing_is_kept_and_nothing_fails():
    programs = ProgramCache(Path("/proc/nowhere/distxla"))
    programs.put(module(), 2, 1, program())
    assert programs.get(module(), 2, 1) is None


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ClusterError, match="is no folder"):
        ProgramCache(tmp_path / "file")


def test_the_oldest_go_first(tmp_path):
    programs = ProgramCache(tmp_path, max_bytes=2500)
    texts = [TEXT.replace("f32[4]", f"f32[{n}]") for n in (4, 5, 6)]
    for age, text in enumerate(texts):
        programs.put(module(text), 2, 1, program(bytes(1000)))
        for path in tmp_path.glob("*.program"):
            if program_key(module(text), 2, 1) in path.name:
                os.utime(path, (1000 + age, 1000 + age))
    programs.put(module(texts[0].replace("HloModule m", "HloModule n")), 2, 1, program(bytes(100)))
    kept = [programs.get(module(text), 2, 1) is not None for text in texts]
    assert kept[0] is False
    assert sum(path.stat().st_size for path in tmp_path.glob("*.program")) <= 2500


def test_writers_at_once_never_show_half_a_file(programs):
    wrong: list[object] = []

    def work(letter: bytes) -> None:
        for _ in range(30):
            programs.put(module(), 2, 1, dataclasses.replace(program(), image=letter * 20000))
            found = programs.get(module(), 2, 1)
            if found is None or len(set(found.image)) != 1:
                wrong.append(found)

    threads = [threading.Thread(target=work, args=(letter,)) for letter in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert not list(programs.folder.glob(".new-*"))


def test_where_the_folder_is(monkeypatch):
    monkeypatch.setenv("DISTXLA_CACHE_DIR", "/a/b")
    assert cache_folder() == Path("/a/b")
    monkeypatch.delenv("DISTXLA_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert cache_folder() == Path("/c/distxla")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/h")
    assert cache_folder() == Path("/h/.cache/distxla")
