"""The audit, on a folder of results made by hand: each kind of damage, and what depends on it."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tokensphere import audit, chain, command, hashes, impact
from tokensphere.harness import records
from tokensphere.harness.errors import UserError
from tools import archives, flips, results

ONE, TWO = "fig01_clusters", "fig02_energy"
EXTRACT = "results/records/extract/tiny/trained/harbour.json"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(records, "installed", lambda names: dict.fromkeys(names, "0"))
    results.make()
    return tmp_path


def verify(*wanted, **options):
    return audit.verify(chain.read(), Path(), wanted, **options)


def found(report):
    return [(one.kind, one.what, one.parts, one.figures) for one in report.findings]


def tamper(path, old=None, new=b"!"):
    """Change a file and put its time stamp back."""
    path = Path(path)
    status, data = path.stat(), path.read_bytes()
    path.write_bytes(data.replace(old, new, 1) if old else new + data[1:])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def edit(path, text):
    path = Path(path)
    later = path.stat().st_mtime + 3600
    path.write_text(text)
    os.utime(path, (later, later))


def flip(path, at):
    data = bytearray(Path(path).read_bytes())
    data[at] ^= 1
    status = Path(path).stat()
    Path(path).write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


# --- verify


def test_results_as_they_were_made_hold():
    report = verify()
    assert found(report) == []
    assert report.figures == [ONE, TWO]
    assert report.broken == {}
    assert report.records == 6
    assert report.notes == ["6 jobs ran with --config: their params are not compared"]
    beside = ("results/records", "results/cache", "results/benchmarks", "workflow")
    files = [path for path in Path().rglob("*") if path.is_file()]
    counted = [path for path in files if not str(path).startswith(beside)]
    assert report.files == len(counted)
    assert report.size == sum(path.stat().st_size for path in counted)


def test_a_flipped_byte_of_a_layer_is_tampered_with_and_named():
    archives.flip(Path(results.STORE), "residual/c/1/0/0")
    os.utime(results.STORE, (0, 0))
    (one,) = verify().findings
    assert (one.kind, one.what, one.parts) == ("tampered", results.STORE, ["residual layer 1"])
    assert one.says == "its content is affected"
    assert one.figures == [ONE, TWO]


def directory(path):
    """Where the zip's central directory begins."""
    with zipfile.ZipFile(path) as archive:
        return archive.start_dir


def test_a_flipped_time_in_the_archives_directory_does_not_affect_the_content():
    flip(results.STORE, directory(results.STORE) + 12)
    (one,) = verify().findings
    assert (one.kind, one.what, one.parts) == ("tampered", results.STORE, [])
    assert "its content is not affected" in one.says
    assert one.figures == [ONE, TWO]


def test_a_directory_that_cannot_be_read_is_said_to_be():
    flip(results.STORE, directory(results.STORE))
    (one,) = verify().findings
    assert "its content cannot be read" in one.says
    assert one.figures == [ONE, TWO]


def test_every_byte_of_an_archive_counts():
    size = Path(results.STORE).stat().st_size
    for at in range(0, size, 41):
        flip(results.STORE, at)
        assert [one.what for one in verify().findings] == [results.STORE], at
        flip(results.STORE, at)
    assert found(verify()) == []


def test_a_member_that_is_gone_or_there_twice_is_named():
    archives.rewrite(Path(results.STORE), {"residual/c/2/0/0": None})
    (one,) = verify().findings
    assert one.parts == ["residual layer 2 (not there)"]
    results.store(results.STORE)
    archives.rewrite(Path(results.STORE), {}, twice=["zarr.json"])
    (one,) = verify().findings
    assert "twice" in one.says


def test_a_store_written_again_with_the_same_members_is_not_what_its_job_wrote():
    members = archives.members(results.STORE)
    with zipfile.ZipFile(results.STORE, "w") as archive:
        for name in reversed(members):
            archive.writestr(name, members[name])
    (one,) = verify().findings
    assert "its content is not affected" in one.says


@pytest.mark.parametrize(
    "member, words",
    [
        ("zarr.json", "attributes"),
        ("residual/zarr.json", "metadata of residual"),
        ("residual/c/7/0/0", "residual layer 7"),
        ("attention/c/2/0/0/0", "attention block 3"),
        ("final_norm/c/0/0", "final norm"),
        ("token_ids/c/0", "token ids"),
        ("stranger", "stranger"),
    ],
)
def test_members_are_named_in_words(member, words):
    assert audit.member_words(member) == words


def test_a_changed_table_names_its_own_figure_alone():
    tamper(results.TABLE)
    assert found(verify()) == [("tampered", results.TABLE, [], [ONE])]


def test_a_result_that_is_newer_than_its_job_was_edited():
    edit(f"{results.FIGURE}.svg", "by hand")
    assert found(verify()) == [("edited", f"{results.FIGURE}.svg", [], [ONE])]


def test_the_end_of_a_job_is_that_of_its_benchmark_which_snakemake_touches():
    benchmark = Path(f"results/benchmarks/{ONE}.tsv")
    path = Path(f"{results.FIGURE}.png")
    late = path.stat().st_mtime + 600
    for one in (benchmark, path):
        os.utime(one, (late, late))
    tamper(path)
    assert [one.kind for one in verify().findings] == ["tampered"]
    os.utime(path, (late + 600, late + 600))
    assert [one.kind for one in verify().findings] == ["edited"]


def test_a_changed_prompt_a_weight_file_and_a_module_make_what_was_made_of_them_stale():
    edit("texts/harbour.txt", "The harbour thawed.\n")
    edit("checkpoints/tiny/model.safetensors", "others")
    edit("scripts/tokensphere/sphere.py", "pass\n")
    assert found(verify()) == [
        ("stale", "texts/harbour.txt", [], [ONE, TWO]),
        ("stale", "scripts/tokensphere/sphere.py", [], [TWO]),
        ("stale", "checkpoints/tiny/model.safetensors", [], [ONE, TWO]),
    ]


def test_what_is_gone_is_missing():
    for path in (results.TABLE, "texts/harbour.txt", "scripts/energy.py"):
        Path(path).unlink()
    Path("checkpoints/tiny/config.json").unlink()
    assert found(verify()) == [
        ("missing", results.TABLE, [], [ONE]),
        ("missing", "texts/harbour.txt", [], [ONE, TWO]),
        ("missing", "scripts/energy.py", [], [TWO]),
        ("missing", "checkpoints/tiny/config.json", [], [ONE, TWO]),
    ]


def test_a_checkpoint_that_is_gone_is_missing_as_a_whole():
    Path("checkpoints/tiny").rename("checkpoints/moved")
    assert found(verify()) == [("missing", "checkpoints/tiny", [], [ONE, TWO])]


def test_a_table_made_anew_makes_the_figure_drawn_from_the_old_one_stale():
    results.text(results.TABLE, "layer,clusters\n0,4\n")
    run = {"model": "tiny", "weights": "trained", "prompt": "harbour"}
    results.write("clusters", run, [results.STORE], [results.TABLE], ["scripts/clusters.py"])
    assert found(verify()) == [("stale", results.TABLE, [], [ONE])]


def test_an_upgraded_library_is_stale(monkeypatch):
    monkeypatch.setattr(records, "installed", lambda names: dict.fromkeys(names, "1"))
    (one,) = verify().findings
    assert (one.kind, one.what) == ("stale", "library pytest")
    assert one.says == "2 jobs ran with 0, 1 is installed"
    assert one.figures == [ONE, TWO]


def test_a_library_locked_otherwise_is_stale_and_an_absent_one_a_note(monkeypatch):
    monkeypatch.setattr(records, "installed", lambda names: {})
    report = verify()
    assert found(report) == []
    assert "not installed here, so not compared: pytest" in report.notes
    results.text("requirements.lock", "pytest==2\n")
    assert [one.says for one in verify().findings] == ["2 jobs ran with 0, 2 is locked"]


def test_a_build_label_is_the_same_release(monkeypatch):
    monkeypatch.setattr(records, "installed", lambda names: dict.fromkeys(names, "0+cpu"))
    assert found(verify()) == []


def test_a_temporary_output_is_gone_by_design():
    run = {"model": "tiny", "weights": "trained", "prompt": "harbour"}
    place = "results/attention/tiny/trained/harbour.zarr.zip"
    results.store(place)
    results.write("attention", run, [], [place], ["scripts/extract.py"], run={"temporary": [place]})
    Path(place).unlink()
    report = verify()
    assert found(report) == []
    assert [note for note in report.notes if "gone by design" in note and place in note]


def test_a_damaged_record_names_what_its_job_made_and_what_came_of_it():
    record = Path(EXTRACT)
    good = record.read_bytes()
    for at in range(0, len(good), 7):
        flip(record, at)
        (one,) = verify().findings
        assert (one.kind, one.what, one.figures) == ("tampered", EXTRACT, [ONE, TWO]), at
        flip(record, at)
    tamper(f"results/records/{ONE}.json", b"fig01", b"fig02")
    assert found(verify()) == [("tampered", f"results/records/{ONE}.json", [], [ONE])]


def test_a_record_spelt_otherwise_is_damaged():
    record = Path(EXTRACT)
    record.write_text(json.dumps(json.loads(record.read_text())))
    assert [one.what for one in verify().findings] == [EXTRACT]


def test_a_deleted_record_leaves_results_that_nobody_vouches_for():
    Path(EXTRACT).unlink()
    assert found(verify()) == [("unrecorded", results.STORE, [], [ONE, TWO])]


def test_a_stranger_is_noted_and_a_strange_figure_found():
    results.text("results/notes.txt", "of mine")
    results.text("results/figures/extra.png", "a picture")
    report = verify()
    assert found(report) == [("unrecorded", "results/figures/extra.png", [], ["extra"])]
    assert [note for note in report.notes if note.startswith("results/notes.txt")]


def test_an_older_record_of_the_same_file_is_superseded():
    run = {"model": "tiny", "weights": "trained", "prompt": "harbour"}
    results.write("old_clusters", run, [results.STORE], [results.TABLE], ["scripts/clusters.py"],
                  run={"started": "2025-01-01T00:00:00Z"})  # fmt: skip
    edit("scripts/clusters.py", "pass\n")
    report = verify()
    assert [one.says for one in report.findings] == ["1 job ran with another text of it"]
    assert [note for note in report.notes if "records/old_clusters" in note]


def test_only_the_chain_of_a_wanted_figure_is_looked_at():
    tamper(results.OTHER)
    assert found(verify(ONE)) == []
    assert found(verify(f"{results.FIGURE}.svg")) == []
    tamper(results.STORE)
    report = verify(ONE)
    assert found(report) == [("tampered", results.STORE, ["attributes"], [ONE])]
    assert report.figures == [ONE]
    with pytest.raises(UserError, match=f"figures here: {ONE}, {TWO}"):
        verify("fig99")


def test_what_a_wanted_figure_does_not_read_is_not_in_its_chain():
    run = {"model": "tiny", "weights": "trained", "prompt": "harbour"}
    labels = results.text("results/metrics/labels/tiny/trained/harbour.csv", "token,label\n0,1\n")
    results.write(
        "clusters", run, [results.STORE], [results.TABLE, labels], ["scripts/clusters.py"]
    )
    tamper(labels)
    assert found(verify(ONE)) == []
    assert found(verify(labels)) == [("tampered", labels, [], [])]
    assert found(verify()) == [("tampered", labels, [], [])]


def test_a_damaged_record_in_the_chain_of_a_wanted_figure_is_found():
    tamper(EXTRACT)
    assert [one.what for one in verify(ONE).findings] == [EXTRACT]
    tamper(f"results/records/{TWO}.json")
    report = verify(TWO)
    assert found(report) == [("tampered", f"results/records/{TWO}.json", [], [TWO])]
    assert "what lies behind a damaged record is not looked at" in report.notes


def test_hashes_are_remembered_while_a_file_keeps_its_stamps(monkeypatch):
    verify()
    read = []
    of_file = hashes.of_file
    monkeypatch.setattr(hashes, "of_file", lambda path: read.append(str(path)) or of_file(path))
    assert found(verify()) == []
    assert read == []
    tamper(results.TABLE)  # size and mtime are the same, ctime is not
    assert [one.what for one in verify().findings] == [results.TABLE]
    assert read == [results.TABLE]
    verify(full=True)
    assert len(read) > 10


def test_progress_is_told_every_byte():
    told, sizes = [], []
    report = verify(start=lambda size: sizes.append(size) or told.append)
    assert sizes == [report.size] == [sum(told)]


def test_lines_of_an_installed_module(monkeypatch):
    from tokensphere import prompts

    lines = prompts.sha256("# nothing")
    results.write(
        "prompt", {"prompt": "code"}, [], [results.text("results/prompts/code.txt", "x")],
        ["scripts/prompt.py"], external={"module": {"pytest.raises:1-1": lines}},
    )  # fmt: skip
    (one,) = verify().findings
    assert (one.kind, one.what) == ("missing", "pytest.raises:1-1")
    results.write(
        "prompt", {"prompt": "code"}, [], ["results/prompts/code.txt"],
        ["scripts/prompt.py"], external={"module": {"json.decoder:1-1": lines}},
    )  # fmt: skip
    assert [one.kind for one in verify().findings] == ["stale"]
    same = prompts.sha256(Path(json.decoder.__file__).read_text().splitlines()[0])
    results.write(
        "prompt", {"prompt": "code"}, [], ["results/prompts/code.txt"],
        ["scripts/prompt.py"], external={"module": {"json.decoder:1-1": same}},
    )  # fmt: skip
    assert found(verify()) == []


def test_random_flips_are_all_found_and_no_innocent_figure_is_named():
    truth = flips.dependents()
    assert [said for seed in range(60) if (said := flips.trial(seed, truth, Path()))] == []


# --- impact


@pytest.mark.parametrize(
    "name, kind, figures",
    [
        ("scripts/tokensphere/sphere.py", "code", [TWO]),
        ("texts/harbour.txt", "input", [ONE, TWO]),
        ("checkpoints/tiny", "checkpoint", [ONE, TWO]),
        ("checkpoints/tiny/model.safetensors", "checkpoint", [ONE, TWO]),
        (results.TABLE, "result", [ONE]),
        (results.STORE, "result", [ONE, TWO]),
        (f"{results.FIGURE}.csv", "result", []),  # nothing is made from it
        ("metrics.min_cluster_size", "configuration", [ONE]),
        ("models.tiny", "configuration", [ONE, TWO]),
        ("prompts.harbour", "configuration", [ONE, TWO]),
        ("pytest", "library", [ONE, TWO]),
        ("workflow/figures.yaml", "file", []),
    ],
)
def test_what_a_change_would_change(name, kind, figures, root):
    schema = "workflow/schemas/config.schema.yaml"
    results.text(schema, (root / schema).read_text())
    chained = chain.read()
    there, jobs = impact.find(chained, name, Path())
    assert (there, chained.figures(jobs)) == (kind, figures)


def test_an_unknown_name_is_refused_with_a_suggestion(root):
    schema = "workflow/schemas/config.schema.yaml"
    results.text(schema, (root / schema).read_text())
    with pytest.raises(UserError, match=r"did you mean 'metrics\.near_one'"):
        impact.find(chain.read(), "metrics.near_onne", Path())
    assert impact.find(chain.read(), "keep_attention", Path()) == ("configuration", [])


# --- the command line


def test_exit_statuses(capsys):
    assert command.main(["verify"]) == 0
    assert "All holds: 2 of 2 figures" in capsys.readouterr().out
    tamper(results.TABLE)
    assert command.main(["verify"]) == 1
    shown = capsys.readouterr().out
    assert "TAMPERED   results/metrics/clusters" in shown
    assert f"figures: {ONE}\n" in shown
    assert "1 of 2 figures do not hold." in shown
    assert command.main(["verify", "fig99"]) == 2
    assert "Hint: figures here" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        command.main(["verfy"])
    assert ended.value.code == 2


def test_every_figure_is_named_and_a_companion_with_its_figure():
    names = ["fig01", "fig01_controlled", "fig02_controlled", "sheet"]
    assert command._paired(names) == ["fig01(+controlled)", "fig02_controlled", "sheet"]
    lines = command._wrapped("figures: ", [f"fig{n:02}_of_some_length" for n in range(40)], 11)
    assert max(map(len, lines)) <= 100
    assert " ".join(lines).count("_of_some_length") == 40


def test_a_folder_without_records_is_refused(tmp_path, monkeypatch, capsys):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert command.main(["verify"]) == 2
    assert "the one that holds results/" in capsys.readouterr().err


def test_records_of_an_older_version_are_refused(capsys):
    record = Path(EXTRACT)
    old = {key: value for key, value in json.loads(record.read_text()).items()
           if key != records.SEAL} | {"schema": 1}  # fmt: skip
    record.write_text(hashes.to_json(old))
    assert command.main(["verify"]) == 2
    assert f"1 records are of an older version, such as {EXTRACT}" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["verify"], ["explain", ONE], ["impact", "pytest"]])
def test_every_command_speaks_json(arguments, capsys):
    assert command.main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)


def test_the_chain_is_a_tree_down_to_texts_and_weights(capsys):
    assert command.main(["explain", ONE]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{results.FIGURE}.png")
    places = [
        next(i for i, line in enumerate(lines) if words in line)
        for words in ("made by fig01_clusters", results.TABLE, "made by clusters",
                      "constants min_cluster_size 2", "made by extract", "model.safetensors",
                      "results/prompts/harbour.txt", "made by prompt", "texts/harbour.txt")
    ]  # fmt: skip
    assert places == sorted(places)
    assert "snakemake --forcerun fig01_clusters" in lines[-1]


def stamped(path, identity, models="tiny/trained", prompts="harbour"):
    stamp = records.stamp(identity, ONE, models.split(","), prompts.split(","))
    Path(path).write_bytes(b"\x89PNG\r\n..tEXtDescription\x00" + stamp.encode() + b"\x00..")
    return str(path)


def identity_of(rule):
    place = Path(f"results/records/{rule}.json")
    return json.loads(place.read_text())["deterministic"]["input_id"]


def test_a_picture_from_elsewhere_with_the_same_inputs(tmp_path, capsys):
    picture = stamped(tmp_path / "theirs.png", identity_of(ONE))
    assert command.main(["explain", picture]) == 1
    shown = capsys.readouterr().out
    assert "its bytes are not what that made" in shown
    assert "All it was made from is still here" in shown
    edit("texts/harbour.txt", "The harbour thawed.\n")
    command.main(["explain", picture])
    assert "stale texts/harbour.txt" in capsys.readouterr().out


def test_a_picture_from_elsewhere_with_other_inputs_says_what_differs(tmp_path, capsys):
    picture = stamped(tmp_path / "theirs.png", "0" * 64, "other/trained", "harbour,attic")
    assert command.main(["explain", picture]) == 1
    shown = capsys.readouterr().out
    for line in (
        "models: other/trained is in that figure alone",
        "models: tiny/trained is here alone",
        "prompts: attic is in that figure alone",
        f"give its record (results/records/{ONE}.json) with --record",
    ):
        assert line in shown


def test_the_record_of_a_picture_from_elsewhere_says_what_differs(tmp_path, capsys):
    place = Path(f"results/records/{ONE}.json")
    theirs = json.loads(place.read_text())["deterministic"]
    theirs["params"]["versions"]["pytest"] = "7"
    theirs["inputs"]["read"][0]["sha256"] = "1" * 64
    theirs["input_id"] = "2" * 64
    (tmp_path / "theirs.json").write_text(json.dumps({"deterministic": theirs}))
    picture = stamped(tmp_path / "theirs.png", "2" * 64)
    record = str(tmp_path / "theirs.json")
    assert command.main(["explain", picture, "--record", record]) == 1
    shown = capsys.readouterr().out
    assert "params.versions.pytest: 7 there, 0 here" in shown
    assert f"inputs.{results.TABLE}: 111111111111 there" in shown
    other = stamped(tmp_path / "another.png", "3" * 64)
    assert command.main(["explain", other, "--record", record]) == 2
    assert "the record of another figure" in capsys.readouterr().err


def test_a_picture_of_another_program_is_refused(tmp_path, capsys):
    (tmp_path / "cat.png").write_bytes(b"\x89PNG")
    assert command.main(["explain", str(tmp_path / "cat.png")]) == 2
    assert "carries no input id" in capsys.readouterr().err


def test_the_command_line_starts_without_what_is_slow(root):
    heavy = ("torch", "transformers", "pandas", "numpy", "zarr", "matplotlib", "snakemake")
    body = f"import sys, tokensphere.command; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", body], capture_output=True, text=True, check=True,
        env=os.environ | {"PYTHONPATH": str(root / "scripts")},
    )  # fmt: skip
    assert done.stdout.strip() == "[]"


# --- the page


def test_the_page_names_findings_and_figures_and_escapes_them(root):
    results.text("results/figures/<b>.png", "a picture")
    tamper(results.TABLE)
    page = root / "workflow/report/audit.html"
    text = audit.page(page, verify())
    assert "2 of 3 figures do not hold" in text
    assert "&lt;b&gt;" in text and "<b>" not in text
    assert "http" not in text.replace("http-equiv", "")
    fine = audit.page(page, verify(TWO))
    assert "1 of 1 figures are what their records say." in fine
