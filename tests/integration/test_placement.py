"""Models in 16 bits, and models of which a part lies on the disk.

Where weights lie decides no bit: the library computes with them on one device. What could go wrong
is silent, so states are compared bit by bit with those of a plain load.
"""

import json
import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tokensphere import extraction, hashes, models, sources, sphere, store, weight_cache
from tokensphere.harness.errors import UserError
from tools.runs import THREADS, load
from tools.stand_in import SCRIPTS, snakemake_object

KINDS = ("gpt2", "llama", "bert", "albert")
HALVES = ("bfloat16", "float16")


def states(folder, text, path, **settings):
    run = load(folder, text, settings=settings)
    extraction.extract(run, path)
    with store.Activations(path) as activations:
        return run, [vectors for _, _, vectors in activations.states()]


def weights(folder, text, path, **settings):
    run = load(folder, text, settings=settings)
    extraction.attend(run, path)
    with store.Attention(path) as attention:
        return [block for _, block in attention.blocks()], attention.row_tolerance


# --- a part of the model on the disk


def some(folder, share):
    """Return settings under which a share of a checkpoint's weights stays in memory."""
    size = (folder / "model.safetensors").stat().st_size
    return {"device_map": "auto", "max_memory": {"cpu": f"{max(1, int(share * size / 1000))}KB"}}


@pytest.mark.parametrize("share", [0.9, 0.0])
@pytest.mark.parametrize("kind", KINDS)
def test_states_and_attention_are_those_of_a_plain_load_bit_by_bit(
    kind, share, checkpoint, text, tmp_path
):
    folder = checkpoint(kind)
    plain, expected = states(folder, text, tmp_path / "plain.zarr.zip")
    (tmp_path / "offload").mkdir()
    settings = some(folder, share) | {"offload": tmp_path / "offload"}
    run, found = states(folder, text, tmp_path / "spread.zarr.zip", **settings)
    places = {*models.placed(run.model).values()}
    assert "disk" in places
    assert ("cpu" in places) == (share > 0)
    assert "meta" in {parameter.device.type for parameter in run.model.parameters()}
    # What no checkpoint holds (positions, types of tokens, rotary frequencies) is there, too.
    expected_buffers = dict(plain.model.named_buffers())
    for name, buffer in run.model.named_buffers():
        torch.testing.assert_close(buffer, expected_buffers[name], rtol=0, atol=0)
    assert len(found) == len(expected)
    for one, two in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, two)
    # Where weights are kept is not what a store is.
    assert run.attributes == plain.attributes
    blocks, _ = weights(folder, text, tmp_path / "a.zarr.zip", **settings)
    plain_blocks, _ = weights(folder, text, tmp_path / "b.zarr.zip")
    for one, two in zip(blocks, plain_blocks, strict=True):
        np.testing.assert_array_equal(one, two)


def test_weights_on_the_disk_may_be_of_another_type_than_the_checkpoints(
    checkpoint, text, tmp_path
):
    folder = checkpoint("gpt2")
    (tmp_path / "offload").mkdir()
    settings = some(folder, 0.0) | {"offload": tmp_path / "offload"}
    _, found = states(folder, text, tmp_path / "a.zarr.zip", dtype="bfloat16", **settings)
    _, expected = states(folder, text, tmp_path / "b.zarr.zip", dtype="bfloat16")
    for one, two in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, two)


def test_without_a_limit_all_of_a_small_model_is_in_memory(checkpoint, text, tmp_path):
    run, _ = states(checkpoint("gpt2"), text, tmp_path / "a.zarr.zip", device_map="auto")
    assert not {*models.placed(run.model).values()} & {"disk"}
    assert {parameter.device.type for parameter in run.model.parameters()} == {"cpu"}


def test_a_gpu_that_is_not_there_is_refused(checkpoint, text, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="max_memory names GPU 3, torch finds 0"):
        load(checkpoint("gpt2"), text, settings={"device_map": "auto", "max_memory": {"3": "1GB"}})


def test_the_gpus_of_a_model_that_is_spread_are_what_it_computes_on():
    def spread(**places):
        return SimpleNamespace(hf_device_map=places)

    assert models.computed_on(spread(wte=0, h0=1, h1="cpu", ln_f="disk"), "cuda") == "cuda:0+1"
    assert models.computed_on(spread(wte="cpu", h="disk"), "cpu") == "cpu"
    assert models.computed_on(object(), "cuda") == "cuda"


def test_a_module_without_weights_of_its_own_is_given_states_where_its_block_is():
    block, on_disk = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2, device="meta")
    assert models.device_of(torch.nn.Identity(), block).type == "cpu"
    assert models.device_of(on_disk).type == "cpu"


def extract_job(folder, settings):
    Path("text.txt").write_text("The night ferry smelled of oranges.\n", encoding="utf-8")
    return snakemake_object(
        "extract",
        wildcards={"model": "tiny", "weights": "trained", "prompt": "night"},
        inputs={"text": "text.txt", "code": [os.path.relpath(SCRIPTS / "extract.py")]},
        outputs={"store": "results/run.zarr.zip"},
        params={
            "what": "residual",
            "source": sources.identify(folder, hashes.Cache("hashes.json")),
            "settings": {"device": "cpu", "threads": THREADS, "max_tokens": 512} | settings,
            "where": {"source": {"local": str(folder)}, "cache": "cache"},
        },
    )


def test_a_job_leaves_nothing_on_the_disk_and_records_where_weights_were(
    checkpoint, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    folder = checkpoint("gpt2")
    settings = {"dtype": "bfloat16", "device_map": "auto", "max_memory": {"cpu": "1KB"}}
    job = extract_job(folder, settings)
    runpy.run_path(str(SCRIPTS / "extract.py"), init_globals={"snakemake": job})
    assert list(Path("cache/offload").iterdir()) == []
    record = json.loads(Path("results/records/extract/tiny/trained/night.json").read_text())
    assert record["deterministic"]["params"]["settings"]["max_memory"] == {"cpu": "1KB"}
    assert {*record["run"]["device_map"].values()} == {"disk"}
    with store.Activations("results/run.zarr.zip") as activations:
        assert activations.attributes["dtype"] == "bfloat16"
        assert activations.residual(1).dtype == np.float32


HOLD = """
import sys, time
from pathlib import Path
from tokensphere import weight_cache
with weight_cache.scratch(Path(sys.argv[1])) as own:
    (own / "weights.dat").write_text("x")
    print(own, flush=True)
    time.sleep(100)
"""


def test_what_a_killed_job_left_on_the_disk_is_deleted_by_the_next_and_no_others(tmp_path):
    def start():
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, tmp_path],
            env=os.environ | {"PYTHONPATH": str(SCRIPTS)},
            stdout=subprocess.PIPE,
            text=True,
        )
        return process, Path(process.stdout.readline().strip())

    (one, killed), (two, living) = start(), start()
    try:
        assert (killed / "weights.dat").exists()
        one.send_signal(signal.SIGKILL)
        one.wait()
        with weight_cache.scratch(tmp_path) as own:
            assert own.is_dir()
            assert not killed.exists()
            assert (living / "weights.dat").exists()
        assert not own.exists()
    finally:
        for process in (one, two):
            process.kill()
            process.communicate()


# --- 16 bits


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_runs_in_16_bits_and_near_its_states_in_32(kind, dtype, checkpoint, text, tmp_path):
    run, found = states(checkpoint(kind), text, tmp_path / "a.zarr.zip", dtype=dtype)
    _, exact = states(checkpoint(kind), text, tmp_path / "b.zarr.zip")
    assert {str(one.dtype) for one in run.model.parameters()} == {f"torch.{dtype}"}
    assert run.attributes["dtype"] == dtype
    for one, two in zip(found, exact, strict=True):
        assert one.dtype == np.float32
        # Each is a number of 16 bits, and not the one of 32.
        np.testing.assert_array_equal(
            one, torch.from_numpy(one).to(getattr(torch, dtype)).float().numpy()
        )
        assert not np.array_equal(one, two)
        cosines = (sphere.project(one) * sphere.project(two)).sum(axis=1)
        assert cosines.min() > 0.99


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("kind", KINDS)
def test_attention_in_16_bits_adds_up_to_1_within_its_rounding(
    kind, dtype, checkpoint, text, tmp_path
):
    blocks, tolerance = weights(checkpoint(kind), text, tmp_path / "a.zarr.zip", dtype=dtype)
    missed = max(np.abs(block.sum(axis=2, dtype=np.float64) - 1).max() for block in blocks)
    assert store.ROW_TOLERANCE["float32"] < missed < tolerance == store.ROW_TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", HALVES)
def test_the_same_run_in_16_bits_gives_the_same_members(dtype, checkpoint, text, tmp_path):
    for name in "ab":
        states(checkpoint("llama"), text, tmp_path / f"{name}.zarr.zip", dtype=dtype)
    one, two = (hashes.of_members(tmp_path / f"{name}.zarr.zip") for name in "ab")
    assert one == two


@pytest.mark.parametrize("dtype", HALVES)
def test_the_end_of_a_store_in_16_bits_must_still_be_the_models_own_last_state(
    dtype, checkpoint, text, tmp_path
):
    run, found = states(checkpoint("gpt2"), text, tmp_path / "a.zarr.zip", dtype=dtype)
    own = found[-1].copy()
    extraction.check_last_state(tmp_path / "a.zarr.zip", run.anatomy, own, "this run")
    own[3] *= 1.05
    with pytest.raises(UserError, match="check 'last state' failed"):
        extraction.check_last_state(tmp_path / "a.zarr.zip", run.anatomy, own, "this run")


@pytest.mark.parametrize("dtype", ["float32", *HALVES])
def test_a_row_that_misses_1_by_more_than_rounding_is_a_problem_in_every_type(dtype):
    even = np.full((1, 4, 4), 0.25, dtype=np.float32)
    assert store.attention_problem(even, False, dtype) == ""
    even[0, 2, 1] += np.float32(2 * store.ROW_TOLERANCE[dtype])
    assert "the row of query 2" in store.attention_problem(even, False, dtype)


@pytest.mark.parametrize("dtype", HALVES)
def test_random_weights_are_drawn_in_32_bits_and_run_in_16(dtype, checkpoint, text, tmp_path):
    from tokensphere import weight_sets

    folder = checkpoint("gpt2")
    source = {"local": str(folder)}
    identity = sources.look_up(source, "here", hashes.Cache(tmp_path / "hashes.json")).identity
    drawn = weight_sets.find(source, identity, "norm_matched.0", tmp_path, "here").folder
    assert {one.dtype for one in models.load(drawn, "cpu", "here").parameters()} == {torch.float32}
    run, _ = states(drawn, text, tmp_path / "a.zarr.zip", dtype=dtype)
    assert str(next(run.model.parameters()).dtype) == f"torch.{dtype}"
