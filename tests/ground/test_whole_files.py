"""Files appear whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from fewview.errors import FewviewError
from fewview.ground._whole_files import replacing, temporary_folder


def fail_half_way(target: Path, error: BaseException) -> None:
    with replacing(target) as temporary:
        temporary.write_text("new and incompl")
        raise error


def test_the_file_appears_when_the_block_ends(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    with replacing(target) as temporary:
        temporary.write_text("half")
        assert not target.exists()
        assert temporary.parent == tmp_path
        assert temporary.suffix == ".json"  # some writers choose their format by the suffix
    assert target.read_text() == "half"
    assert os.listdir(tmp_path) == ["out.json"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit, FewviewError])
def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, error: type[BaseException]
) -> None:
    target = tmp_path / "out.txt"
    target.write_text("old")
    with pytest.raises(error):
        fail_half_way(target, error("stop"))
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.txt"]


def test_a_write_error_is_one_clear_message(tmp_path: Path) -> None:
    with pytest.raises(FewviewError, match=r"out\.txt: cannot write \(Input/output error"):
        fail_half_way(tmp_path / "out.txt", OSError(errno.EIO, "Input/output error"))
    assert os.listdir(tmp_path) == []


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(FewviewError, match="nowhere does not exist; create it first"):
        fail_half_way(tmp_path / "nowhere" / "out.txt", AssertionError("the block must not run"))


def test_a_folder_instead_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(FewviewError, match="is a folder"):
        fail_half_way(tmp_path, AssertionError("the block must not run"))


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_permissions_follow_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        with replacing(tmp_path / "out.txt") as temporary:
            temporary.write_text("x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out.txt").stat().st_mode) == mode


def test_names_with_odd_characters(tmp_path: Path) -> None:
    target = tmp_path / "  ünï%s{}.tar.gz"
    with replacing(str(target)) as temporary:
        temporary.write_text("x")
    assert os.listdir(tmp_path) == [target.name]


def test_a_full_disk_is_said_to_be_full(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    match = r"a.csv: cannot write \(no room is left in .* free\); make room there, or write elsewh"
    with pytest.raises(FewviewError, match=match), replacing(tmp_path / "a.csv"):
        raise full
    with pytest.raises(FewviewError, match=r"no room is left in .*TMPDIR"), temporary_folder():
        raise full
    with pytest.raises(OSError, match="odd"), temporary_folder():
        raise OSError(errno.EIO, "odd")
    assert not list(tmp_path.iterdir())
