"""Records: where one lies, and how it names what a job read and made."""

import subprocess
import zipfile

import pytest

from tokensphere import hashes
from tokensphere.harness import records


@pytest.mark.parametrize(
    "rule, wildcards, place",
    [
        ("fig03_mass_near_one", {}, "results/records/fig03_mass_near_one.json"),
        ("prompt", {"prompt": "wiki"}, "results/records/prompt/wiki.json"),
        (
            "extract",
            {"model": "gpt2", "weights": "norm_matched.0", "prompt": "v1.5"},
            "results/records/extract/gpt2/norm_matched.0/v1.5.json",
        ),
    ],
)
def test_every_job_has_a_record_of_its_own(rule, wildcards, place):
    assert str(records.place(rule, wildcards)) == place


def store(path, year):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo("zarr.json", date_time=(year, 1, 1, 0, 0, 0)), "{}")
    return path


def test_a_store_is_named_by_its_members_and_not_by_its_bytes(tmp_path):
    one, two = (store(tmp_path / f"{year}.zarr.zip", year) for year in (2020, 2021))
    assert one.read_bytes() != two.read_bytes()
    found = records.fingerprint(one)
    assert found == {"path": str(one), "members": hashes.of_members(one)}
    assert found["members"] == records.fingerprint(two)["members"]


def test_any_other_file_is_named_by_its_bytes(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("layer\n0\n")
    assert records.fingerprint(path) == {"path": str(path), "sha256": hashes.of_file(path)}


def test_a_part_goes_by_the_name_of_the_output_it_will_be(tmp_path):
    part = store(tmp_path / ".run.zarr.zip.host.1.part", 2020)
    found = records.fingerprint(part, name="results/run.zarr.zip")
    assert found == {"path": "results/run.zarr.zip", "members": hashes.of_members(part)}


def test_a_distribution_that_is_not_installed_is_left_out():
    assert records.installed({"pytest": "?", "no-such-distribution": "1"}) == {
        "pytest": pytest.__version__
    }


def git(folder, *arguments):
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    subprocess.run(["git", "-C", folder, *identity, *arguments], check=True, capture_output=True)


def test_git_says_commit_and_whether_tracked_files_differ_from_it(tmp_path):
    git(tmp_path, "init")
    (tmp_path / "code.py").write_text("one\n")
    git(tmp_path, "add", "code.py")
    git(tmp_path, "commit", "-m", "one")
    clean = records.git_state(tmp_path)
    assert clean["dirty"] is False
    assert len(clean["commit"]) == 40
    (tmp_path / "code.py").write_text("two\n")
    two = records.git_state(tmp_path)
    (tmp_path / "code.py").write_text("three\n")
    three = records.git_state(tmp_path)
    assert (two["commit"], two["dirty"]) == (clean["commit"], True)
    assert two["diff_sha256"] != three["diff_sha256"]


def test_a_folder_without_git_has_no_git_state(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert records.git_state(tmp_path) == {}
