"""Array files: what is written is read back, and equal arrays are equal files."""

import time

import numpy as np
import pytest

from tokensphere import arrays

GIVEN = {
    "umap_final_norm": np.array([[1.5, np.nan]]),
    "pca_3": np.arange(6, dtype=np.int64).reshape(3, 2),
}


def test_arrays_come_back_as_they_were_in_their_order(tmp_path):
    arrays.write(tmp_path / "of any suffix.part", GIVEN)
    found = arrays.read(tmp_path / "of any suffix.part")
    assert list(found) == list(GIVEN)
    for name, array in GIVEN.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
    assert [path.name for path in tmp_path.iterdir()] == ["of any suffix.part"]


def test_equal_arrays_are_equal_files_whenever_they_are_written(tmp_path, monkeypatch):
    arrays.write(tmp_path / "one", GIVEN)
    monkeypatch.setattr(time, "time", lambda: 2e9)
    arrays.write(tmp_path / "two", GIVEN)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_file_without_arrays_is_refused(tmp_path):
    with pytest.raises(ValueError, match="at least one"):
        arrays.write(tmp_path / "none", {})


def test_a_file_that_was_not_written_as_it_should_is_refused(tmp_path, monkeypatch):
    saved = np.savez
    monkeypatch.setattr(
        np, "savez", lambda file, **given: saved(file, **{n: a + 1 for n, a in given.items()})
    )
    with pytest.raises(RuntimeError, match="umap_final_norm was not written"):
        arrays.write(tmp_path / "changed", GIVEN)
