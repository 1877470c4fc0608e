"""The file with the owner's secret: only the user can read it, and only on its machine."""

from __future__ import annotations

import os
import stat

import pytest

from distxla.errors import ClusterError
from distxla.jax.processes.owner_file import pack_path, read_owner, unpack_path, write_owner

ADDRESS, SECRET = ("127.0.0.1", 4711), bytes(range(32))


def test_it_comes_back_and_is_the_users_alone(tmp_path) -> None:
    path = write_owner(str(tmp_path), ADDRESS, SECRET)
    assert read_owner(path) == (ADDRESS, SECRET)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert os.listdir(tmp_path) == ["owner"]


def test_others_that_could_read_it_are_an_error(tmp_path) -> None:
    path = write_owner(str(tmp_path), ADDRESS, SECRET)
    os.chmod(path, 0o640)
    with pytest.raises(ClusterError, match="that nobody else may read"):
        read_owner(path)


def test_a_link_is_not_followed(tmp_path) -> None:
    os.symlink(write_owner(str(tmp_path), ADDRESS, SECRET), tmp_path / "link")
    with pytest.raises(ClusterError, match="can't be found"):
        read_owner(str(tmp_path / "link"))


@pytest.mark.parametrize("text", ["", "{}", '{"address": ["a", 1], "secret": "00", "boot_id": ""}', "[1]", "\xff"])
def test_other_files_are_refused(tmp_path, text) -> None:
    path = tmp_path / "owner"
    path.write_bytes(text.encode("latin-1"))
    path.chmod(0o600)
    with pytest.raises(ClusterError, match="expected an owner's address and secret"):
        read_owner(str(path))


def test_a_missing_file_is_an_error(tmp_path) -> None:
    with pytest.raises(ClusterError, match="can't be found"):
        read_owner(str(tmp_path / "owner"))


def test_an_owner_of_another_machine_is_refused(tmp_path) -> None:
    path = write_owner(str(tmp_path), ADDRESS, SECRET)
    assert unpack_path(pack_path(path)) == path
    with pytest.raises(ClusterError, match="is on another machine"):
        unpack_path(b"another-boot /tmp/owner")
    with open(path) as file:
        text = file.read()
    with open(path, "w") as file:
        file.write(text.replace('"boot_id": "', '"boot_id": "0'))
    with pytest.raises(ClusterError, match="is on another machine"):
        read_owner(path)
