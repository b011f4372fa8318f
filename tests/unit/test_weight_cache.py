"""The cache of weight sets: written whole once, and again if it is not what it was."""

import json
import threading

import pytest

from tokensphere import hashes, weight_cache

FILES = {"config.json": "{}", "model.safetensors": "weights"}


@pytest.fixture
def begun():
    return []


@pytest.fixture
def ensure(tmp_path, begun):
    """Ask for a weight set; every writing is noted."""

    def write(part):
        begun.append(part)
        part.mkdir()
        for name, text in FILES.items():
            (part / name).write_text(text)
        return {"scheme": "mine"}

    def ask(key=("source", 0), write=write):
        return weight_cache.ensure(tmp_path / "cache", key, write, hashes.Cache(""))

    return ask


def complete(place):
    return weight_cache.is_complete(place, hashes.Cache(""))


def contents(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_a_set_is_written_once_with_a_manifest_of_its_files(ensure, begun):
    place = ensure()
    assert ensure() == place
    assert len(begun) == 1
    assert complete(place)
    manifest = json.loads((place / weight_cache.MANIFEST).read_text())
    assert manifest == {
        "scheme": "mine",
        "files": {name: hashes.of_file(place / name) for name in FILES},
    }


def test_the_key_decides_the_place(ensure, begun):
    places = [ensure(key) for key in (["a", 0], ["a", 1], ["b", 0], ["a", "0"], ["a", 0])]
    assert len(set(places)) == 4
    assert places[0] == places[-1]
    assert len(begun) == 4


@pytest.mark.parametrize(
    "damage",
    [
        lambda place: (place / "model.safetensors").write_text("weightS"),
        lambda place: (place / "model.safetensors").unlink(),
        lambda place: (place / "model-2.safetensors").write_text("left behind"),
        lambda place: (place / "folder").mkdir(),
        lambda place: (place / "manifest.json").unlink(),
        lambda place: (place / "manifest.json").write_text("{"),
        lambda place: (place / "manifest.json").write_text("[]"),
        lambda place: (place / "manifest.json").write_text('"text"'),
        lambda place: (place / "manifest.json").write_text('{"files": 3}'),
        lambda place: (place / "manifest.json").write_text('{"files": {}}'),
        lambda place: (place / "manifest.json").write_text('{"other": {}}'),
        lambda place: (place / "manifest.json").write_bytes(b"\xff\xfe"),
    ],
)
def test_a_set_that_is_not_what_it_was_is_written_again(ensure, begun, damage):
    place = ensure()
    before = contents(place)
    damage(place)
    assert not complete(place)
    assert ensure() == place
    assert len(begun) == 2
    assert contents(place) == before


def test_a_folder_that_is_not_there_is_not_complete(tmp_path):
    assert not complete(tmp_path / "absent")


def test_a_writer_that_fails_leaves_nothing_that_is_taken_for_complete(ensure, begun, tmp_path):
    def fail(part):
        part.mkdir()
        (part / "model.safetensors").write_text("half")
        raise RuntimeError("no more room")

    with pytest.raises(RuntimeError, match="no more room"):
        ensure(write=fail)
    (left,) = (path for path in (tmp_path / "cache").iterdir() if path.is_dir())
    assert left.name.endswith(".part")
    place = ensure()
    assert complete(place)
    assert [path for path in (tmp_path / "cache").iterdir() if path.is_dir()] == [place]
    assert len(begun) == 1


def test_what_is_left_of_another_set_stays(ensure, tmp_path):
    place = ensure()
    other = tmp_path / "cache" / f".{'0' * len(place.name)}.1234.part"
    other.mkdir()
    ensure()
    assert other.is_dir()


def test_those_who_need_a_set_at_once_wait_for_one_writer(ensure, begun):
    places = []
    waiting = [threading.Thread(target=lambda: places.append(ensure())) for _ in range(4)]
    for one in waiting:
        one.start()
    for one in waiting:
        one.join()
    assert len(set(places)) == 1
    assert len(places) == 4
    assert len(begun) == 1
