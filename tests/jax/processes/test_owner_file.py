"""The file with the owner's secret: only the user can read it, on its machine, as long as the owner has it."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from distxla.errors import ClusterError
from distxla.jax.processes.owner_file import OwnerFile, boot_id, machine_of_process, pack_paths, read_owner, unpack_path

ADDRESS, SECRET = ("127.0.0.1", 4711), bytes(range(32))


@pytest.fixture
def made() -> Iterator[OwnerFile]:
    found = OwnerFile(ADDRESS, SECRET)
    yield found
    found.close()


def another(tmp_path: Path, text: str, mode: int = 0o600) -> str:
    """A file that is not the owner's."""
    path = tmp_path / "owner"
    path.write_bytes(text.encode("latin-1"))
    path.chmod(mode)
    return str(path)


def told(boot: str) -> str:
    return json.dumps({"address": list(ADDRESS), "secret": SECRET.hex(), "boot_id": boot})


def test_it_comes_back_is_the_users_alone_and_has_no_name(made) -> None:
    assert read_owner(made.path) == (ADDRESS, SECRET)
    assert read_owner(made.path) == (ADDRESS, SECRET)
    assert stat.S_IMODE(os.stat(made.path).st_mode) == 0o600
    assert os.readlink(made.path).startswith("/memfd:")


def test_it_is_gone_once_it_is_closed(made) -> None:
    made.close()
    with pytest.raises(ClusterError, match="can't be found"):
        read_owner(made.path)


def test_others_that_could_read_it_are_an_error(tmp_path) -> None:
    assert read_owner(another(tmp_path, told(boot_id()))) == (ADDRESS, SECRET)
    with pytest.raises(ClusterError, match="that nobody else may read"):
        read_owner(another(tmp_path, told(boot_id()), 0o640))


def test_a_link_is_not_followed(tmp_path) -> None:
    os.symlink(another(tmp_path, told(boot_id())), tmp_path / "link")
    with pytest.raises(ClusterError, match="can't be found"):
        read_owner(str(tmp_path / "link"))


@pytest.mark.parametrize("text", ["", "{}", '{"address": ["a", 1], "secret": "00", "boot_id": ""}', "[1]", "\xff"])
def test_other_files_are_refused(tmp_path, text) -> None:
    with pytest.raises(ClusterError, match="expected an owner's address and secret"):
        read_owner(another(tmp_path, text))


def test_an_owner_of_another_machine_is_refused(tmp_path, made) -> None:
    assert unpack_path(pack_paths({"another": "/proc/1/fd/3", machine_of_process(): made.path})) == made.path
    with pytest.raises(ClusterError, match="is on another machine"):
        unpack_path(b"another-boot /proc/1/fd/3")
    with pytest.raises(ClusterError, match="is on another machine"):
        read_owner(another(tmp_path, told("another-boot")))
