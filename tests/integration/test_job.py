"""The context that every script runs in, with the object Snakemake injects built by hand."""

import json
import os
import re
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest
import yaml
from jsonschema import Draft202012Validator

from tokensphere import hashes, store
from tokensphere.harness import lifeline, records
from tokensphere.harness.errors import UserError
from tokensphere.harness.job import HOST, job
from tools.stand_in import SCRIPTS, snakemake_object

LOG = Path("results/logs/measure.log")
TABLE, IMAGE = Path("results/table.csv"), Path("results/image.png")
RECORD = Path("results/records/measure/gpt2/wiki.v1.json")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """Work in a folder of one prompt and one store, both written an hour ago."""
    monkeypatch.chdir(tmp_path)
    write_inputs()
    return tmp_path


def write_inputs() -> None:
    Path("prompt.txt").write_text("The night ferry.\n")
    shape = {"layers": 1, "n_tokens": 2, "width": 3, "final_norm": False}
    with store.Writer("states.zarr.zip", shape) as writer:
        writer.write_tokens([5, 6], ["a", "b"], [False, False])
        for layer in (0, 1):
            writer.write_residual(layer, np.full((2, 3), layer + 1, dtype=np.float32))
    for name in ("prompt.txt", "states.zarr.zip"):
        hour_ago = os.stat(name).st_mtime - 3600
        os.utime(name, (hour_ago, hour_ago))


def measure(resources=None, **params):
    """Return what Snakemake would inject into a script with two inputs and two outputs."""
    return snakemake_object(
        "measure",
        wildcards={"model": "gpt2", "prompt": "wiki.v1"},
        inputs={
            "text": "prompt.txt",
            "stores": ["states.zarr.zip"],
            "code": [os.path.relpath(SCRIPTS / "inner_products.py")],
        },
        outputs={"table": TABLE, "image": IMAGE},
        params={"constants": {"near_one": 0.9}, **params},
        resources=resources,
    )


def write_both(run) -> None:
    run.output.table.write_text("layer\n0\n")
    run.output.image.write_bytes(b"an image")


def failing(snakemake, body=write_both) -> None:
    """Run a job and see that it ends with status 1."""
    with pytest.raises(SystemExit) as ended, job(snakemake) as run:
        body(run)
    assert ended.value.code == 1


def files() -> set[str]:
    """List all files but the inputs and the log."""
    return {
        str(path)
        for path in Path().rglob("*")
        if path.is_file() and path not in (Path("prompt.txt"), Path("states.zarr.zip"), LOG)
    }


def parts() -> list[Path]:
    return sorted(Path("results").rglob("*.part"))


# --- outputs


def test_outputs_appear_only_after_the_body_has_ended():
    with job(measure()) as run:
        write_both(run)
        assert not TABLE.exists()
        assert not IMAGE.exists()
        assert {path.parent for path in vars(run.output).values()} == {Path("results")}
    assert TABLE.read_text() == "layer\n0\n"
    assert IMAGE.read_bytes() == b"an image"
    assert files() == {str(TABLE), str(IMAGE), str(RECORD)}


def test_two_processes_never_write_to_the_same_part():
    with job(measure()) as run:
        write_both(run)
        name = run.output.table.name
    assert re.fullmatch(
        rf"\.table\.csv\.{re.escape(HOST)}\.{os.getpid()}\.[0-9a-f]{{8}}\.part", name
    )


def test_nothing_remains_after_an_error():
    def body(run):
        write_both(run)
        raise ZeroDivisionError("the seventh layer")

    failing(measure(), body)
    assert files() == set()


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit])
def test_nothing_remains_after_an_interruption(interruption):
    def body(run):
        write_both(run)
        raise interruption

    failing(measure(), body)
    assert files() == set()


@pytest.mark.parametrize(
    "write", [lambda image: None, lambda image: image.touch()], ids=["absent", "empty"]
)
def test_an_output_that_was_not_written_is_refused_and_the_others_discarded(write, capsys):
    def body(run):
        run.output.table.write_text("layer\n0\n")
        write(run.output.image)

    failing(measure(), body)
    assert "did not write its output image" in capsys.readouterr().err
    assert files() == set()


def test_the_record_lies_before_the_outputs(monkeypatch):
    moved = []
    replace = os.replace

    def watched(part, place):
        moved.append(Path(place))
        replace(part, place)

    monkeypatch.setattr(os, "replace", watched)
    with job(measure()) as run:
        write_both(run)
    assert moved == [RECORD, TABLE, IMAGE]


def test_nothing_is_moved_into_place_once_the_driver_is_gone(monkeypatch):
    monkeypatch.setattr(lifeline, "is_attached", lambda: False)
    failing(measure())
    assert files() == set()


# --- parts of other jobs


def ended_process() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_parts_of_a_job_that_was_killed_are_removed_and_living_ones_kept():
    dead = [
        place.with_name(f".{place.name}.{HOST}.{ended_process()}.0a1b2c3d.part")
        for place in (TABLE, RECORD)
    ]
    living = TABLE.with_name(f".table.csv.{HOST}.{os.getpid()}.0a1b2c3d.part")
    elsewhere = TABLE.with_name(f".table.csv.another-{HOST}.{ended_process()}.0a1b2c3d.part")
    for part in (*dead, living, elsewhere):
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_text("half")
    with job(measure()) as run:
        write_both(run)
    assert parts() == sorted([living, elsewhere])


# --- inputs, versions, checkouts


def test_an_input_that_changed_during_the_job_is_refused(capsys):
    def body(run):
        write_both(run)
        Path("prompt.txt").write_text("Another text.\n")

    failing(measure(), body)
    shown = capsys.readouterr().err
    assert "Error in prompt.txt:" in shown
    assert "it changed while the job read it" in shown
    assert files() == set()


def test_an_input_that_was_only_touched_is_accepted():
    with job(measure()) as run:
        write_both(run)
        Path("prompt.txt").touch()
        write_inputs()  # the store's archive now has other time stamps, but the same members
    assert TABLE.exists()


def test_another_version_than_the_locked_one_is_refused_with_a_hint(capsys):
    failing(measure(versions={"numpy": "1.0.0"}))
    shown = capsys.readouterr().err
    assert f"numpy 1.0.0 is locked, {np.__version__} is installed" in shown
    assert "Hint: install the locked versions (make install)" in shown
    assert files() == set()


def test_a_package_that_is_not_installed_is_refused(capsys):
    failing(measure(versions={"no-such-package": "1.0.0"}))
    assert "no-such-package 1.0.0 is locked, none is installed" in capsys.readouterr().err


def test_a_build_label_is_the_same_version(monkeypatch):
    monkeypatch.setattr(records, "installed", lambda wanted: {"torch": "2.13.0+cpu"})
    with job(measure(versions={"torch": "2.13.0"})) as run:
        write_both(run)
    assert TABLE.exists()


def test_a_library_of_another_checkout_is_refused(tmp_path, capsys):
    snakemake = measure()
    snakemake.scriptdir = str(tmp_path / "other" / "scripts")
    failing(snakemake)
    assert f"the library was imported from {SCRIPTS}" in capsys.readouterr().err


# --- the record


def run_once(**params) -> dict:
    with job(measure(**params)) as run:
        run.seeds["weights"] = 7
        run.facts["device"] = "cpu"
        write_both(run)
    return json.loads(RECORD.read_text())


def test_the_record_names_what_was_read_run_and_made():
    deterministic = run_once(versions={"numpy": np.__version__})["deterministic"]
    identity = deterministic.pop("input_id")
    assert deterministic == {
        "rule": "measure",
        "wildcards": {"model": "gpt2", "prompt": "wiki.v1"},
        "inputs": {
            "text": [records.fingerprint("prompt.txt")],
            "stores": [records.fingerprint("states.zarr.zip")],
        },
        "code": {
            "scripts/inner_products.py": records.fingerprint(SCRIPTS / "inner_products.py")[
                "sha256"
            ]
        },
        "params": {"constants": {"near_one": 0.9}, "versions": {"numpy": np.__version__}},
        "seeds": {"weights": 7},
        "outputs": {"table": records.fingerprint(TABLE), "image": records.fingerprint(IMAGE)},
    }
    del deterministic["outputs"]
    assert identity == hashes.of_value(deterministic)


def test_a_file_is_recorded_by_its_bytes_and_a_store_by_its_members():
    inputs = run_once()["deterministic"]["inputs"]
    assert inputs["text"][0].keys() == {"path", "sha256"}
    assert inputs["stores"][0].keys() == {"path", "members"}


def test_the_record_says_how_the_run_went():
    run = run_once(versions={"numpy": np.__version__})["run"]
    assert run.keys() - {"git"} == {  # a copy of the code may be no git checkout
        "started",
        "seconds",
        "cpu_seconds",
        "peak_memory_mb",
        "threads",
        "installed",
        "host",
        "platform",
        "python",
        "device",
    }
    assert run["installed"] == {"numpy": np.__version__}
    assert (run["host"], run["device"], run["threads"]) == (HOST, "cpu", 1)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", run["started"])
    assert run["peak_memory_mb"] > 1
    assert run["cpu_seconds"] > 0


def test_a_job_starts_no_program_once_it_is_large(monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError(f"started {arguments}")

    with job(measure()) as run:
        monkeypatch.setattr(subprocess, "Popen", refuse)
        write_both(run)
    assert RECORD.exists()


def test_the_record_names_the_commit_and_what_differs_from_it(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))

    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        command = ["git", "-C", str(tmp_path), *identity, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    assert records.git_state(tmp_path) == {}
    git("init")
    git("add", "prompt.txt")
    git("commit", "-m", "first")
    commit = git("rev-parse", "HEAD")
    assert records.git_state(tmp_path) == {"commit": commit, "dirty": False}
    Path("prompt.txt").write_text("edited")
    state = records.git_state(tmp_path)
    assert (state["commit"], state["dirty"]) == (commit, True)
    assert len(state["diff_sha256"]) == 64


def values(tree):
    """Yield every key and value in a tree of mappings and lists."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield key
            yield from values(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from values(value)
    else:
        yield tree


def test_the_record_holds_no_null_and_its_deterministic_part_no_absolute_path(tmp_path):
    record = run_once(where={"cache": str(tmp_path)})
    assert None not in list(values(record))
    texts = [value for value in values(record["deterministic"]) if isinstance(value, str)]
    assert not [text for text in texts if Path(text).is_absolute() or str(tmp_path) in text]


def test_the_same_work_in_another_folder_gives_the_same_deterministic_part(tmp_path, monkeypatch):
    here = run_once(where={"cache": "/here"})["deterministic"]
    (tmp_path / "elsewhere" / "deeper").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "elsewhere" / "deeper")
    write_inputs()
    there = run_once(where={"cache": "/there"})["deterministic"]
    assert json.dumps(here) == json.dumps(there)


def test_the_bytes_of_a_stores_archive_stand_in_the_run_part():
    snakemake = snakemake_object(
        "make", outputs={"store": "results/made.zarr.zip"}, inputs={"code": []}
    )
    with job(snakemake) as run:
        run.output.store.write_bytes(Path("states.zarr.zip").read_bytes())
    record = json.loads(Path("results/records/make.json").read_text())
    archive = records.fingerprint("results/made.zarr.zip", name="bytes")["sha256"]
    members = record["run"]["archives"]["results/made.zarr.zip"].pop("members")
    assert record["run"]["archives"] == {"results/made.zarr.zip": {"sha256": archive}}
    assert members == dict(hashes.members("results/made.zarr.zip"))
    assert {"zarr.json", "residual/c/1/0/0"} <= members.keys()
    assert record["deterministic"]["outputs"] == {
        "store": records.fingerprint("results/made.zarr.zip")
    }


def test_every_record_fits_the_schema():
    rules = yaml.safe_load((SCRIPTS.parent / "workflow/schemas/record.schema.yaml").read_text())
    Draft202012Validator.check_schema(rules)
    record = run_once(versions={"numpy": np.__version__})
    assert list(Draft202012Validator(rules).iter_errors(record)) == []
    record["run"]["mood"] = "good"
    assert [e.validator for e in Draft202012Validator(rules).iter_errors(record)] == [
        "additionalProperties"
    ]


def test_a_record_is_sealed_and_no_byte_of_it_can_change():
    run_once()
    data = RECORD.read_bytes()
    records.unseal(data.decode())
    for at in range(len(data)):
        for bit in (1, 2, 0x20, 0x2D):  # of a space 0x2d makes a carriage return, which JSON skips
            changed = data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]
            with pytest.raises(ValueError):
                records.unseal(changed.decode())


def test_the_input_id_is_known_before_the_body_writes_and_stands_in_the_record():
    with job(measure()) as run:
        told = run.input_id
        write_both(run)
    record = json.loads(RECORD.read_text())["deterministic"]
    assert record["input_id"] == told
    with job(measure(constants={"near_one": 0.8})) as run:
        assert run.input_id != told
        write_both(run)


def test_a_seed_after_the_input_id_was_told_is_refused(capsys):
    def body(run):
        assert run.input_id
        run.seeds["late"] = 1
        write_both(run)

    failing(measure(), body)
    assert "learnt of a seed after it told its input id" in capsys.readouterr().err


def test_the_stamp_names_what_a_figure_shows():
    runs = [
        {"model": "gpt2", "weights": weights, "prompt": prompt}
        for weights in ("trained", "norm_matched.0")
        for prompt in ("wiki.v1", "code")
    ]
    with job(measure(figure={"runs": runs})) as run:
        write_both(run)
        Path("picture.svg").write_text(f"<svg>{run.stamp}</svg>")
        assert records.read_stamp("picture.svg") == {
            "input_id": run.input_id,
            "figure": "measure",
            "models": ["gpt2/trained", "gpt2/norm_matched.0"],
            "prompts": ["wiki.v1", "code"],
        }
    assert records.read_stamp("prompt.txt") == {}


def test_what_no_job_made_is_named_by_hash_and_its_place_kept_apart():
    with job(measure()) as run:
        run.external["checkpoint"] = {"model.safetensors": "0" * 64}
        run.places["checkpoint"] = {"source": {"local": "/data/gpt2"}, "folder": "/data/gpt2"}
        run.external["module"] = {}
        write_both(run)
    record = json.loads(RECORD.read_text())
    assert record["deterministic"]["external"] == {"checkpoint": {"model.safetensors": "0" * 64}}
    assert record["run"]["places"]["checkpoint"]["folder"] == "/data/gpt2"
    assert "/data" not in json.dumps(record["deterministic"])


def test_what_is_temporary_stands_in_the_run_part():
    assert "temporary" not in run_once(temporary=False)["run"]
    record = run_once(temporary=True)
    assert record["run"]["temporary"] == sorted([str(TABLE), str(IMAGE)])
    assert "temporary" not in record["deterministic"]["params"]


def test_a_redacted_record_names_no_host_and_no_folder_outside(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKENSPHERE_REDACT", "yes")
    monkeypatch.setenv("TOKENSPHERE_CONFIG", "/home/alice/config.yaml")
    home = tmp_path / "home/alice"
    home.mkdir(parents=True)
    (home / "secret.txt").write_text("a text\n")
    snakemake = snakemake_object(
        "prompt",
        inputs={"text": str(home / "secret.txt"), "code": []},
        outputs={"text": "results/text.txt"},
        params={"entry": {"file": str(home / "secret.txt")}},
    )
    with job(snakemake) as run:
        run.output.text.write_text("a text\n")
        run.external["checkpoint"] = {"model.safetensors": "0" * 64}
        run.places["checkpoint"] = {"source": {"local": str(home)}, "folder": str(home)}
    text = Path("results/records/prompt.json").read_text()
    assert not [word for word in (HOST, "alice", str(tmp_path)) if word in text]
    record = json.loads(text)
    assert record["deterministic"]["inputs"]["text"][0]["path"] == "[redacted]"
    assert record["run"]["configuration"] == ["[redacted]"]


# --- the log


def test_the_log_of_a_failed_job_ends_with_the_traceback_the_message_and_the_hint():
    def seventh_layer(run):
        raise UserError("config: models.tiny", "the seventh layer is missing", "fetch it again")

    failing(measure(), seventh_layer)
    log = LOG.read_text()
    assert log.index("Traceback (most recent call last):") < log.index("in seventh_layer")
    assert log.endswith(
        "ERROR Error in config: models.tiny:\n"
        "  the seventh layer is missing\n"
        "Hint: fetch it again\n"
    )


def test_a_users_error_is_shown_without_a_traceback(capsys):
    def body(run):
        raise UserError("config: models.tiny", "the seventh layer is missing", "fetch it again")

    failing(measure(), body)
    shown = capsys.readouterr().err
    assert shown == (
        "ERROR: Error in config: models.tiny:\n"
        "  the seventh layer is missing\n"
        "Hint: fetch it again\n"
    )


def test_an_unexpected_error_is_shown_by_type_and_points_at_the_log(capsys):
    def body(run):
        raise ZeroDivisionError("the seventh layer")

    failing(measure(), body)
    shown = capsys.readouterr().err
    assert shown == "ERROR: ZeroDivisionError: the seventh layer (traceback in the job's log)\n"
    assert 'raise ZeroDivisionError("the seventh layer")' in LOG.read_text()


def test_a_failing_import_reaches_the_log():
    def body(run):
        import no_such_module  # noqa: F401

    failing(measure(), body)
    assert "No module named 'no_such_module'" in LOG.read_text()


def test_progress_is_logged_step_by_step(capsys):
    with job(measure()) as run:
        assert list(run.progress("abc", unit="layer", total=3)) == ["a", "b", "c"]
        write_both(run)
    lines = [line.partition("INFO ")[2] for line in LOG.read_text().splitlines()]
    assert lines[0].startswith("measure/gpt2/wiki.v1 starts")
    assert lines[1:4] == ["layer 1 of 3", "layer 2 of 3", "layer 3 of 3"]
    assert lines[-1].startswith("measure/gpt2/wiki.v1 done in ")
    assert capsys.readouterr().err == ""


def test_a_warning_reaches_the_log_and_the_terminal(capsys):
    with job(measure()) as run, warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("hardly converged", UserWarning, stacklevel=1)
        write_both(run)
    assert "hardly converged" in LOG.read_text()
    assert "hardly converged" in capsys.readouterr().err


def test_a_new_run_starts_a_new_log():
    LOG.parent.mkdir(parents=True)
    LOG.write_text("of yesterday\n")
    run_once()
    assert "of yesterday" not in LOG.read_text()


# --- GPUs


def visible(monkeypatch, tmp_path, resources):
    """Return what a job with these resources sees of two GPUs."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    with job(measure(resources)) as run:
        write_both(run)
        return os.environ["CUDA_VISIBLE_DEVICES"]


def test_a_job_that_asks_for_a_gpu_sees_one_of_several(monkeypatch, tmp_path):
    assert visible(monkeypatch, tmp_path, {"gpu": 1}) == "4"
    assert "takes GPU 4" in LOG.read_text()


@pytest.mark.parametrize("resources", [{}, {"gpu": 0}])
def test_a_job_that_asks_for_none_takes_none(monkeypatch, tmp_path, resources):
    assert visible(monkeypatch, tmp_path, resources) == "4,5"
