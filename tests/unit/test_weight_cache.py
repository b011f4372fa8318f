"""The cache of weight sets: written whole once, and again if it is not what it was."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

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


# --- a limit, with processes of their own: what one uses is its own until it ends

SCRIPTS = Path(__file__).parents[2] / "scripts"
KILOBYTE = 1e-6  # in GB
# Makes or finds a set of 1000 bytes and a manifest, says so, and goes on when it is told to.
USE = """
import sys
from pathlib import Path
from tokensphere import hashes, weight_cache

def write(part):
    part.mkdir()
    (part / "model.safetensors").write_bytes(b"x" * 1000)
    if "slowly" in sys.argv:
        print("writes", flush=True)
        sys.stdin.readline()
    return {}

cache, key, limit = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
place = weight_cache.ensure(cache, [key], write, hashes.Cache(""))
weight_cache.make_room(cache, limit)
print(place.name, flush=True)
sys.stdin.readline()
print(len((place / "model.safetensors").read_bytes()), flush=True)
"""


@pytest.fixture
def use(tmp_path):
    """Start a process that uses a set of the cache, and wait for its first line."""
    started = []

    def start(key, limit=1.0, *more):
        process = subprocess.Popen(
            [sys.executable, "-c", USE, str(tmp_path / "cache"), key, str(limit), *more],
            env=os.environ | {"PYTHONPATH": str(SCRIPTS)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process, process.stdout.readline().strip()

    yield start
    for process in started:
        process.kill()
        process.communicate()


def end(process):
    """Let a process read its set, and return what it says of it."""
    said, _ = process.communicate("\n")
    assert process.returncode == 0
    return said.strip()


@pytest.fixture
def held(tmp_path):
    """List the sets that the cache holds."""
    return lambda: {
        path.name
        for path in (tmp_path / "cache").iterdir()
        if (path / weight_cache.MANIFEST).exists()
    }


def age(tmp_path, *places):
    """Let sets have been used long ago, the first the longest."""
    for place, name in enumerate(places):
        os.utime(tmp_path / "cache" / name / weight_cache.MANIFEST, (1000 + place, 1000 + place))


def test_what_was_used_longest_ago_is_deleted_first(use, held, tmp_path):
    names = []
    for key in "abc":
        process, name = use(key)
        end(process)
        names.append(name)
    age(tmp_path, *names)
    end(use("a")[0])  # used again: b is the oldest now
    process, new = use("d", 3.9 * KILOBYTE)  # room for three of a little more than 1000 bytes
    assert held() == {names[0], names[2], new}
    assert end(process) == "1000"


def test_a_set_that_a_process_has_found_stays_until_it_ends(use, held, tmp_path):
    reader, found = use("a")
    age(tmp_path, found)
    other, new = use("b", 1.5 * KILOBYTE)
    assert held() == {found, new}
    assert end(reader) == "1000"
    end(other)
    third, newest = use("c", 1.5 * KILOBYTE)
    assert held() == {newest}
    end(third)


def test_a_killed_process_uses_nothing(use, held, tmp_path):
    reader, found = use("a")
    reader.send_signal(signal.SIGKILL)
    reader.wait()
    age(tmp_path, found)
    process, new = use("b", 1.5 * KILOBYTE)
    assert held() == {new}
    end(process)


def test_the_set_just_made_stays_even_if_it_is_larger_than_the_limit(use, held):
    process, new = use("a", 0.5 * KILOBYTE)
    assert held() == {new}
    assert end(process) == "1000"


def test_a_set_that_is_being_written_stays_and_one_whose_writer_was_killed_goes(use, tmp_path):
    writer, said = use("a", 1.0, "slowly")
    assert said == "writes"
    end(use("b", 0.5 * KILOBYTE)[0])
    (part,) = (tmp_path / "cache").glob(".*.part")
    assert (part / "model.safetensors").stat().st_size == 1000
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    end(use("c", 1.5 * KILOBYTE)[0])
    assert not list((tmp_path / "cache").glob(".*.part"))


def test_what_was_deleted_is_made_again(use, held, tmp_path):
    process, first = use("a")
    end(process)
    age(tmp_path, first)
    end(use("b", 0.5 * KILOBYTE)[0])
    assert first not in held()
    process, again = use("a")
    assert (again, end(process)) == (first, "1000")


def test_under_the_limit_nothing_is_deleted(use, held):
    for key in "abc":
        end(use(key, 10 * KILOBYTE)[0])
    assert len(held()) == 3


def test_a_cache_that_is_deleted_meanwhile_is_used_anew(ensure, tmp_path):
    """The lock that a process holds is then of a file without a name."""
    place = ensure()
    for path in sorted((tmp_path / "cache").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert ensure() == place
    weight_cache.make_room(tmp_path / "cache", 1e-9)
    assert complete(place)
