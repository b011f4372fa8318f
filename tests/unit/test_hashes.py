"""Names for content: the same content has the same name, other content another."""

import hashlib
import os
import zipfile

import pytest

from tokensphere import hashes


def archive(path, members, year=2020):
    with zipfile.ZipFile(path, "w") as file:
        for name, data in members:
            file.writestr(zipfile.ZipInfo(name, date_time=(year, 1, 1, 0, 0, 0)), data)
    return path


def test_of_file_is_the_sha256_of_its_bytes(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"tokens\n" * 10**5)
    assert hashes.of_file(path) == hashlib.sha256(b"tokens\n" * 10**5).hexdigest()


def test_of_members_ignores_time_stamps_and_order(tmp_path):
    members = [("a", b"1"), ("b/c", b"2")]
    one = archive(tmp_path / "one.zip", members)
    two = archive(tmp_path / "two.zip", members[::-1], year=2021)
    assert hashes.of_file(one) != hashes.of_file(two)
    assert hashes.of_members(one) == hashes.of_members(two)


@pytest.mark.parametrize(
    "other",
    [[("a", b"1")], [("a", b"1"), ("b/c", b"3")], [("a", b"1"), ("b/d", b"2")]],
    ids=["one less", "other bytes", "other name"],
)
def test_of_members_changes_with_any_name_and_any_byte(tmp_path, other):
    one = archive(tmp_path / "one.zip", [("a", b"1"), ("b/c", b"2")])
    assert hashes.of_members(one) != hashes.of_members(archive(tmp_path / "two.zip", other))


def test_of_value_ignores_the_order_of_keys():
    one = hashes.of_value({"a": 1, "b": [1, "é"]})
    assert one == hashes.of_value({"b": [1, "é"], "a": 1})
    # Written out, so that names given today are found tomorrow.
    assert one == hashlib.sha256('{"a":1,"b":[1,"é"]}'.encode()).hexdigest()


@pytest.mark.parametrize("other", [{"a": "1"}, {"a": 1.5}, {"a": [1]}, {"b": 1}, {}])
def test_of_value_tells_values_apart(other):
    assert hashes.of_value({"a": 1}) != hashes.of_value(other)


# --- the cache


@pytest.fixture
def weights(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"one")
    return path


@pytest.fixture
def counted(monkeypatch):
    """The files that were read to be hashed."""
    read, of_file = [], hashes.of_file
    monkeypatch.setattr(hashes, "of_file", lambda path: read.append(path) or of_file(path))
    return read


def test_a_known_file_is_not_read_again(tmp_path, weights, counted):
    cache = hashes.Cache(tmp_path / "hashes.json")
    first = cache.of_file(weights)
    cache.save()
    assert hashes.Cache(tmp_path / "hashes.json").of_file(weights) == first
    assert counted == [weights]


def test_a_file_is_known_by_any_of_its_paths(tmp_path, weights, counted, monkeypatch):
    cache = hashes.Cache(tmp_path / "hashes.json")
    cache.of_file(weights)
    monkeypatch.chdir(tmp_path)
    cache.of_file("model.safetensors")
    assert counted == [weights]


def test_nothing_is_written_where_nothing_was_learnt(tmp_path, weights):
    cache = hashes.Cache(tmp_path / "hashes.json")
    cache.of_file(weights)
    cache.save()
    (tmp_path / "hashes.json").unlink()
    cache.of_file(weights)
    cache.save()
    assert not (tmp_path / "hashes.json").exists()


def swap_in_place(path, before):
    path.write_bytes(b"two")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    # The kernel's clock ticks every few milliseconds: until it does, nothing shows the change.
    while os.stat(path).st_ctime_ns == before.st_ctime_ns:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def swap_by_rename(path, before):
    other = path.with_name("other")
    other.write_bytes(b"two")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    os.replace(other, path)


@pytest.mark.parametrize("swap", [swap_in_place, swap_by_rename])
def test_a_swap_of_the_same_size_and_time_is_noticed(tmp_path, weights, swap):
    cache = hashes.Cache(tmp_path / "hashes.json")
    cache.of_file(weights)
    before = os.stat(weights)
    swap(weights, before)
    after = os.stat(weights)
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert cache.of_file(weights) == hashlib.sha256(b"two").hexdigest()


@pytest.mark.parametrize("damage", [b"", b'{"a": ', b"null", b"7", b"[1]", b"\x00\xff"])
def test_a_damaged_cache_counts_as_empty(tmp_path, weights, damage):
    place = tmp_path / "hashes.json"
    place.write_bytes(damage)
    cache = hashes.Cache(place)
    assert cache.of_file(weights) == hashlib.sha256(b"one").hexdigest()
    cache.save()
    assert str(weights) in place.read_text()


def test_saving_makes_the_folder_and_leaves_no_part(tmp_path, weights):
    cache = hashes.Cache(tmp_path / "deep" / "cache" / "hashes.json")
    cache.of_file(weights)
    cache.save()
    assert [path.name for path in (tmp_path / "deep" / "cache").iterdir()] == ["hashes.json"]


def test_json_is_sorted_and_ends_with_a_newline():
    assert hashes.to_json({"b": "é", "a": [1]}) == '{\n "a": [\n  1\n ],\n "b": "é"\n}\n'


def test_processes_of_one_number_on_two_machines_write_to_two_parts(tmp_path, monkeypatch):
    parts = []
    monkeypatch.setattr("os.getpid", lambda: 20)
    monkeypatch.setattr("os.replace", lambda part, path: parts.append(part))
    for _ in range(2):
        hashes.write_atomically(tmp_path / "cache.json", "{}")
    assert len(set(parts)) == 2
