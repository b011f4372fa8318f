"""Random weight sets: what is drawn, and the cache that keeps it."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file

from tokensphere import baselines, config, hashes, models, weight_cache
from tokensphere.harness.errors import UserError
from tools import checkpoints
from tools.stand_in import SCRIPTS

KINDS = ("gpt2", "llama", "bert", "albert")
SCHEMES = tuple(baselines.SCHEMES)

# By name, not by the module's class: the library goes by class.
NORM = re.compile(r"(^|\.)(ln_\w+|norm|\w*layer_?norm)\.(weight|bias)$", re.IGNORECASE)


def draw(folder: Path, cache: Path, *, scheme: str = "norm_matched", seed: int = 0) -> Path:
    return baselines.ensure(
        cache, "sha256:source", folder, scheme, seed, known=hashes.Cache(""), where="this run"
    )


def tensors(folder: Path) -> dict[str, np.ndarray]:
    return load_file(folder / "model.safetensors")


def matrices(folder: Path) -> dict[str, np.ndarray]:
    return {name: one for name, one in tensors(folder).items() if one.ndim > 1}


def files(folder: Path) -> dict[str, str]:
    return {path.name: hashes.of_file(path) for path in folder.iterdir()}


@pytest.fixture
def draws(monkeypatch) -> list[object]:
    """Count how often weights are drawn."""
    begun: list[object] = []
    randomise = baselines.randomise

    def counted(model, *arguments):
        begun.append(model)
        return randomise(model, *arguments)

    monkeypatch.setattr(baselines, "randomise", counted)
    return begun


# --- what is drawn


@pytest.fixture(scope="module", params=KINDS)
def pair(request, checkpoint, tmp_path_factory):
    """A trained checkpoint and its norm-matched draw."""
    trained = checkpoint(request.param)
    return trained, draw(trained, tmp_path_factory.mktemp("cache"))


def test_a_draw_has_the_tensors_of_the_trained_checkpoint(pair):
    trained, drawn = map(tensors, pair)
    shapes = {name: one.shape for name, one in trained.items()}
    assert {name: one.shape for name, one in drawn.items()} == shapes
    assert {one.dtype for one in drawn.values()} == {np.dtype("float32")}


def test_every_matrix_and_embedding_keeps_its_frobenius_norm(pair):
    trained, drawn = map(matrices, pair)
    for name, one in trained.items():
        # Each entry is rounded to float32 once, by at most 2^-24 of itself, and so is the norm.
        expected = np.linalg.norm(one.astype(np.float64))
        assert np.linalg.norm(drawn[name].astype(np.float64)) == pytest.approx(
            expected, rel=2**-24, abs=0
        ), name


def test_every_matrix_and_embedding_is_drawn_apart_from_the_trained_one(pair):
    trained, drawn = map(matrices, pair)
    for name, one in trained.items():
        correlation = np.corrcoef(one.ravel(), drawn[name].ravel())[0, 1]
        # Of independent entries: zero, with a standard deviation of 1 / sqrt(size).
        assert abs(correlation) < 5 / np.sqrt(one.size), name


def test_norms_become_gain_1_and_bias_0(pair):
    norms = {name: one for name, one in tensors(pair[1]).items() if NORM.search(name)}
    assert norms
    for name, one in norms.items():
        assert (one == (1 if name.endswith("weight") else 0)).all(), name


def test_other_biases_become_0(pair):
    biases = {
        name: one
        for name, one in tensors(pair[1]).items()
        if name.endswith("bias") and not NORM.search(name)
    }
    assert biases or pair[0].name.startswith("llama")  # which has none
    for name, one in biases.items():
        assert (one == 0).all(), name


def test_a_draw_runs_as_a_model_with_the_trained_tokenizer(pair):
    trained, drawn = pair
    ids = models.load_tokenizer(drawn)("The night ferry smelled of oranges.")["input_ids"]
    assert ids == models.load_tokenizer(trained)("The night ferry smelled of oranges.")["input_ids"]
    model = models.load(drawn, "cpu", "this run")
    assert np.isfinite(models.forward(model, ids).numpy()).all()


def test_seeds_give_different_draws(checkpoint, tmp_path):
    zero, one = (matrices(draw(checkpoint("gpt2"), tmp_path, seed=seed)) for seed in (0, 1))
    assert not any(np.array_equal(zero[name], one[name]) for name in zero)


def test_scheme_seed_and_tensor_name_each_decide_the_generator():
    names = [("a", 0, "t"), ("b", 0, "t"), ("a", 1, "t"), ("a", 0, "u"), ("a", 0, "t")]
    first = [baselines.generator(*name).integers(2**62) for name in names]
    assert first[0] == first[-1]
    assert len(set(first)) == 4


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_draw_does_not_depend_on_the_other_tensors(checkpoint, tmp_path, scheme):
    folder = checkpoint("gpt2")
    model = models.load(folder, "cpu", "this run")
    del model.wte  # the first that is drawn
    baselines.randomise(model, scheme, 0)
    whole = tensors(draw(folder, tmp_path, scheme=scheme))
    remaining = dict(model.named_parameters())
    assert remaining.keys() == whole.keys() - {"wte.weight"}
    for name, parameter in remaining.items():
        np.testing.assert_array_equal(parameter.detach().numpy(), whole[name], err_msg=name)


DRAW = """
import sys
from pathlib import Path
from tokensphere import baselines, hashes
cache, folder = map(Path, sys.argv[1:3])
for scheme in sys.argv[3:]:
    print(baselines.ensure(
        cache, "sha256:source", folder, scheme, 0, known=hashes.Cache(""), where="this run"
    ))
"""


def python(code: str, *arguments: object, threads: int = 1) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(SCRIPTS), "OMP_NUM_THREADS": str(threads)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_draw_has_the_same_bytes_in_every_process_with_any_number_of_threads(damaged, tmp_path):
    def drop_pooler(tensors):  # which transformers then fills with other numbers in each process
        del tensors["pooler.dense.weight"], tensors["pooler.dense.bias"]

    folder = damaged("bert", drop_pooler)
    torch.set_num_threads(2)
    here = [draw(folder, tmp_path / "here", scheme=scheme) for scheme in SCHEMES]
    process = python(DRAW, tmp_path / "there", folder, *SCHEMES, threads=1)
    there = map(Path, process.communicate()[0].split())
    assert [files(place) for place in here] == [files(place) for place in there]
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_model_that_was_drawn_is_the_one_that_is_loaded(checkpoint, tmp_path, kind, scheme):
    folder = checkpoint(kind)
    model = models.load(folder, "cpu", "this run")
    baselines.randomise(model, scheme, 0)
    loaded = models.load(draw(folder, tmp_path, scheme=scheme), "cpu", "this run")
    drawn = dict(loaded.named_parameters())
    assert drawn.keys() == dict(model.named_parameters()).keys()
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, drawn[name]), name
    buffers = dict(loaded.named_buffers())
    for name, buffer in model.named_buffers():
        assert torch.equal(buffer, buffers[name]), name


@pytest.mark.parametrize("kind", KINDS)
def test_trained_weights_and_those_of_every_scheme_all_differ(checkpoint, tmp_path, kind):
    folder = checkpoint(kind)
    sets = [folder, *(draw(folder, tmp_path, scheme=scheme) for scheme in SCHEMES)]
    for one, two in combinations([matrices(place) for place in sets], 2):
        assert one.keys() == two.keys()
        assert not any(np.array_equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_checkpoint_of_half_precision_is_drawn_from_its_values_in_float32(
    damaged, tmp_path, scheme, dtype
):
    def round_off(tensors):
        tensors.update({name: one.to(dtype) for name, one in tensors.items()})

    def widen(tensors):
        tensors.update({name: one.to(dtype).float() for name, one in tensors.items()})

    half = draw(damaged("bert", round_off), tmp_path / "half", scheme=scheme)
    drawn = tensors(half)
    assert {one.dtype for one in drawn.values()} == {np.dtype("float32")}
    full = tensors(draw(damaged("bert", widen), tmp_path / "full", scheme=scheme))
    assert drawn.keys() == full.keys()
    for name, one in drawn.items():
        np.testing.assert_array_equal(one, full[name], err_msg=name)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_tied_embeddings_stay_tied(tmp_path, kind, scheme):
    folder = checkpoints.write(kind, tmp_path / "trained", tie_word_embeddings=True)
    place = draw(folder, tmp_path / "cache", scheme=scheme)
    model = transformers.AutoModelForCausalLM.from_pretrained(place)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert "lm_head.weight" not in tensors(place)


def test_a_tensor_that_two_modules_share_stays_shared(checkpoint):
    for scheme in SCHEMES:
        model = models.load(checkpoint("gpt2"), "cpu", "this run")
        model.h[1].mlp.c_fc.weight = model.h[0].mlp.c_fc.weight
        report = baselines.randomise(model, scheme, 0)
        assert model.h[1].mlp.c_fc.weight is model.h[0].mlp.c_fc.weight
        assert "h.1.mlp.c_fc.weight" not in {one["tensor"] for one in report}


def test_a_tensor_that_is_still_the_trained_one_is_refused(checkpoint, tmp_path, monkeypatch):
    def draw_nothing(model, trained, random):
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(trained[name]))

    monkeypatch.setitem(baselines.SCHEMES, "norm_matched", draw_nothing)
    with pytest.raises(RuntimeError, match=r"norm_matched\.0: wte\.weight is still the trained"):
        draw(checkpoint("gpt2"), tmp_path)


def test_an_unknown_scheme_is_refused_before_anything_is_loaded(tmp_path, draws):
    with pytest.raises(UserError, match="'xavier' is no random scheme") as caught:
        draw(tmp_path / "nowhere", tmp_path / "cache", scheme="xavier")
    assert "norm_matched" in caught.value.hint
    assert not draws


# --- the orthogonal scheme


def embeddings(model) -> set[str]:
    """The names of the embedding matrices, by what holds them."""
    return {
        f"{name}.weight"
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Embedding)
    }


@pytest.fixture(scope="module", params=KINDS)
def orthogonal(request, checkpoint, tmp_path_factory):
    """An orthogonal draw, and the names of its embeddings."""
    folder = draw(checkpoint(request.param), tmp_path_factory.mktemp("cache"), scheme="orthogonal")
    return folder, embeddings(models.load(folder, "cpu", "this run"))


def test_every_orthogonal_matrix_has_all_singular_values_1(orthogonal):
    folder, embedded = orthogonal
    found = {name: one for name, one in matrices(folder).items() if name not in embedded}
    assert found
    for name, one in found.items():
        values = np.linalg.svd(one.reshape(len(one), -1).astype(np.float64), compute_uv=False)
        # QR in float64 is exact to 1e-15; then each entry is rounded to float32, by at most 2^-24
        # of itself. That moves a singular value by at most 2^-24 of the Frobenius norm, the root
        # of how many there are.
        assert values == pytest.approx(1, abs=2**-24 * np.sqrt(values.size) + 1e-14), name


def test_the_embeddings_of_the_orthogonal_scheme_are_small_gaussians(orthogonal):
    folder, embedded = orthogonal
    found = matrices(folder)
    assert embedded <= found.keys()
    for name in embedded:
        values = found[name].astype(np.float64).ravel() / 0.02
        # Five standard errors of a mean (1 / sqrt(n)), a variance (sqrt(2 / n)) and a fourth
        # moment (sqrt(96 / n)).
        assert abs(values.mean()) < 5 / np.sqrt(values.size), name
        assert abs((values**2).mean() - 1) < 5 * np.sqrt(2 / values.size), name
        assert abs((values**4).mean() - 3) < 5 * np.sqrt(96 / values.size), name


def test_norms_and_biases_of_the_orthogonal_scheme_are_plain(orthogonal):
    folder, _ = orthogonal
    flat = {name: one for name, one in tensors(folder).items() if one.ndim < 2}
    assert flat
    for name, one in flat.items():
        gain = NORM.search(name) and name.endswith("weight")
        assert (one == (1 if gain else 0)).all(), name


def test_orthogonal_draws_are_uniform():
    # LAPACK's Q as it is has a trace that is negative on average: only the sign fix makes it even.
    random = np.random.default_rng(0)
    size, draws = 3, 4000
    template = np.zeros((size, size), dtype=np.float32)
    traces = np.array([np.trace(baselines.orthogonal(template, random)) for _ in range(draws)])
    # tr Q of a Haar orthogonal matrix: mean 0, variance 1 (five standard errors; the fourth
    # moment is at most 3, as of a Gaussian).
    assert abs(traces.mean()) < 5 / np.sqrt(draws)
    assert abs((traces**2).mean() - 1) < 5 * np.sqrt(2 / draws)


@pytest.mark.parametrize("shape", [(3, 7), (7, 3), (5, 5), (4, 2, 3), (2, 3, 5), (1, 6)])
def test_a_tensor_of_any_shape_is_a_matrix_of_its_first_axis_against_the_others(shape):
    drawn = baselines.orthogonal(np.zeros(shape, np.float32), np.random.default_rng(0))
    assert (drawn.shape, drawn.dtype) == (shape, np.float32)
    matrix = drawn.reshape(shape[0], -1).astype(np.float64)
    small = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    # Each entry of the product sums roundings of unit vectors: 2 x 2^-24 at most.
    assert small @ small.T == pytest.approx(np.eye(len(small)), abs=2**-23)


def test_schemes_of_the_library_and_of_the_configuration_are_the_same():
    assert tuple(baselines.SCHEMES) == config.SCHEMES


@pytest.mark.parametrize("scheme, other", list(combinations(SCHEMES, 2)))
def test_every_scheme_draws_apart_from_the_others_with_the_same_seed(
    checkpoint, tmp_path, scheme, other
):
    one, two = (matrices(draw(checkpoint("gpt2"), tmp_path, scheme=s)) for s in (scheme, other))
    for name, drawn in one.items():
        correlation = np.corrcoef(drawn.ravel(), two[name].ravel())[0, 1]
        assert abs(correlation) < 5 / np.sqrt(drawn.size), name  # as above


# --- the gaussian scheme: what the family's own initialisation does


@pytest.fixture(scope="module", params=KINDS)
def gaussian(request, checkpoint, tmp_path_factory):
    """A gaussian draw, and its configuration."""
    folder = draw(checkpoint(request.param), tmp_path_factory.mktemp("cache"), scheme="gaussian")
    return folder, transformers.AutoConfig.from_pretrained(folder)


def in_torch_itself(config, seed) -> dict[str, np.ndarray]:
    """What transformers itself makes of a configuration, with torch's own random numbers."""
    torch.manual_seed(seed)
    model = transformers.AutoModel.from_config(config, dtype=torch.float32)
    return {name: one.detach().numpy() for name, one in model.named_parameters()}


def test_every_tensor_has_the_spread_that_its_family_gives_it(gaussian):
    folder, family = gaussian
    spread = family.initializer_range
    for name, one in matrices(folder).items():
        expected = spread
        if name.endswith("c_proj.weight"):  # GPT-2: two of them add to the stream in each block
            expected /= np.sqrt(2 * family.num_hidden_layers)
        values = one.astype(np.float64)
        if name.endswith("word_embeddings.weight") or "embed_tokens" in name:
            assert not values[family.pad_token_id].any(), name
            values = np.delete(values, family.pad_token_id, axis=0)
        values = values.ravel() / expected
        # Five standard errors of a mean, a variance and a fourth moment, as above.
        assert abs(values.mean()) < 5 / np.sqrt(values.size), name
        assert abs((values**2).mean() - 1) < 5 * np.sqrt(2 / values.size), name
        assert abs((values**4).mean() - 3) < 5 * np.sqrt(96 / values.size), name


def test_constants_are_those_of_the_family_and_all_else_is_drawn_as_it_draws(gaussian):
    folder, family = gaussian
    one, two = (in_torch_itself(family, seed) for seed in (0, 1))
    drawn = tensors(folder)
    assert drawn.keys() == one.keys()
    for name, values in drawn.items():
        fixed = one[name] == two[name]  # what no seed changes
        np.testing.assert_array_equal(values[fixed], one[name][fixed], err_msg=name)
        assert fixed.all() == (values.ndim < 2), name
        assert np.isfinite(values).all(), name
        if not fixed.all():
            size = (~fixed).sum()
            ratio = values[~fixed].std() / one[name][~fixed].std()
            # Of two samples of one normal distribution: 1 / sqrt(size) is the standard error.
            assert abs(ratio - 1) < 5 / np.sqrt(size), name


def test_a_family_that_draws_in_several_steps_is_refused_in_words(checkpoint):
    model = models.load(checkpoint("bert"), "cpu", "this run")

    def truncated(module):
        if isinstance(module, torch.nn.Linear):
            torch.nn.init.trunc_normal_(module.weight, std=0.02, a=-0.04, b=0.04)

    model._init_weights = truncated
    with pytest.raises(UserError, match="numbers that are for no tensor of the model"):
        baselines.randomise(model, "gaussian", 0)


def test_a_family_that_leaves_a_tensor_to_its_constructor_is_refused_by_name(checkpoint):
    model = models.load(checkpoint("gpt2"), "cpu", "this run")
    model.wpe.register_parameter("extra", torch.nn.Parameter(torch.ones(3)))
    with pytest.raises(UserError, match=r"does not set wpe\.extra") as caught:
        baselines.randomise(model, "gaussian", 0)
    assert "another random scheme" in caught.value.hint


def test_a_family_that_draws_otherwise_is_refused_in_words(checkpoint):
    model = models.load(checkpoint("gpt2"), "cpu", "this run")
    model._init_weights = lambda module: torch.rand(3)
    with pytest.raises(UserError, match=r"draws by aten\.rand"):
        baselines.randomise(model, "gaussian", 0)


def test_parts_of_a_tensor_are_drawn_apart_and_uniform_numbers_keep_their_ends(checkpoint):
    model = models.load(checkpoint("gpt2"), "cpu", "this run")
    usual = model._init_weights

    def in_parts(module):
        usual(module)
        if module is model.wpe:
            module.weight[:256].uniform_(-3, -1)
            module.weight[256:].uniform_(2, 4)

    model._init_weights = in_parts
    baselines.randomise(model, "gaussian", 0)
    low, high = model.wpe.weight.detach().numpy().astype(np.float64).reshape(2, -1)
    for part, middle in ((low, -2), (high, 3)):
        assert abs(part - middle).max() <= 1
        # Uniform in [-1, 1]: variance 1/3.
        assert abs(part.mean() - middle) < 5 * np.sqrt(1 / 3 / part.size)
    assert abs(np.corrcoef(low, high)[0, 1]) < 5 / np.sqrt(low.size)


# --- the shuffled scheme


@pytest.fixture(scope="module", params=KINDS)
def shuffled(request, checkpoint, tmp_path_factory):
    """A trained checkpoint and its shuffled draw."""
    trained = checkpoint(request.param)
    return trained, draw(trained, tmp_path_factory.mktemp("cache"), scheme="shuffled")


def test_shuffled_tensors_hold_exactly_the_trained_values(shuffled):
    trained, drawn = map(tensors, shuffled)
    for name, one in trained.items():
        np.testing.assert_array_equal(
            np.sort(drawn[name], axis=None), np.sort(one, axis=None), err_msg=name
        )


def test_norms_and_biases_are_shuffled_too(shuffled):
    trained, drawn = map(tensors, shuffled)
    flat = [name for name, one in trained.items() if one.ndim == 1]
    assert flat
    assert not [name for name in flat if np.array_equal(trained[name], drawn[name])]


def test_shuffling_moves_every_entry_anywhere(shuffled):
    trained, drawn = map(matrices, shuffled)
    for name, one in trained.items():
        places = np.argsort(np.argsort(drawn[name], axis=None))
        before = np.argsort(np.argsort(one, axis=None))
        # Ranks are all different; a random permutation leaves one in its place on average.
        assert (places == before).sum() < 10, name


def test_shuffling_destroys_the_singular_structure():
    random = np.random.default_rng(0)
    left, right = random.standard_normal((2, 200, 3))
    trained = (left @ right.T).astype(np.float32)  # rank 3
    drawn = baselines.shuffled(trained, np.random.default_rng(1))
    before, after = (np.linalg.svd(one.astype(np.float64))[1] for one in (trained, drawn))
    assert (before > 1e-4 * before[0]).sum() == 3
    # Independent entries of variance v: all below v^(1/2) (200^(1/2) + 200^(1/2)), the edge of
    # the bulk, but for what their mean adds; 10% covers how far the largest of 200 fluctuates.
    edge = 2 * np.sqrt(200) * trained.std()
    assert after[0] < 1.1 * edge < before[0]
    assert (after > 0.01 * edge).sum() > 190


def test_a_matrix_of_equal_entries_may_stay_as_it_is(damaged, tmp_path):
    def flatten(tensors):
        tensors["embeddings.token_type_embeddings.weight"].fill_(0.5)

    place = draw(damaged("bert", flatten), tmp_path / "cache", scheme="shuffled")
    assert (tensors(place)["embeddings.token_type_embeddings.weight"] == 0.5).all()


# --- the cache


def test_the_manifest_names_source_scheme_seed_files_and_both_norms(checkpoint, tmp_path):
    folder = checkpoint("gpt2")
    place = draw(folder, tmp_path, seed=7)
    manifest = json.loads((place / weight_cache.MANIFEST).read_text())
    assert {key: manifest[key] for key in ("source", "scheme", "seed")} == {
        "source": "sha256:source",
        "scheme": "norm_matched",
        "seed": 7,
    }
    assert manifest["files"] == {
        name: sha for name, sha in files(place).items() if name != weight_cache.MANIFEST
    }
    assert set(manifest["files"]) >= {"config.json", "model.safetensors", "tokenizer.json"}
    stated = {one.pop("tensor"): one for one in manifest["tensors"]}
    assert stated == {
        name: {
            "trained_norm": pytest.approx(np.linalg.norm(one.astype(np.float64)), rel=1e-12),
            "random_norm": pytest.approx(
                np.linalg.norm(tensors(place)[name].astype(np.float64)), rel=1e-12
            ),
        }
        for name, one in tensors(folder).items()
    }  # 1e-12: both sum squares in float64, in another order


def test_a_weight_set_is_drawn_once(checkpoint, tmp_path, draws):
    places = [draw(checkpoint("gpt2"), tmp_path) for _ in range(2)]
    assert places[0] == places[1]
    assert len(draws) == 1


def test_source_scheme_seed_and_code_each_decide_the_place(checkpoint, tmp_path, monkeypatch):
    folder = checkpoint("gpt2")
    monkeypatch.setitem(baselines.SCHEMES, "other", baselines.SCHEMES["norm_matched"])
    monkeypatch.setattr(baselines, "randomise", lambda *_: [])

    def place(source="a", scheme="norm_matched", seed=0):
        return baselines.ensure(
            tmp_path, source, folder, scheme, seed, known=hashes.Cache(""), where="this run"
        ).name

    places = [place(), place(source="b"), place(scheme="other"), place(seed=1)]
    monkeypatch.setattr(baselines, "__file__", str(folder / "config.json"))
    assert len({*places, place()}) == 5


WAIT_AND_DRAW = """
import sys, time
from pathlib import Path
from tokensphere import baselines, hashes
cache, folder, arrived, drawn = map(Path, sys.argv[1:])

def say(path):
    with open(path, "a") as file:
        file.write("x")

randomise = baselines.randomise
def slowly(*arguments):
    say(drawn)
    for _ in range(6000):  # until the other process, too, is about to ask for these weights
        if arrived.stat().st_size < 2:
            time.sleep(0.01)
    return randomise(*arguments)
baselines.randomise = slowly

say(arrived)
print(baselines.ensure(
    cache, "sha256:source", folder, "norm_matched", 0, known=hashes.Cache(""), where="this run"
))
"""


def test_two_processes_that_need_a_weight_set_at_once_draw_it_once(checkpoint, tmp_path):
    arguments = [tmp_path / "cache", checkpoint("gpt2"), tmp_path / "arrived", tmp_path / "drawn"]
    running = [python(WAIT_AND_DRAW, *arguments) for _ in range(2)]
    places = [process.communicate()[0].strip() for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert places[0] == places[1]
    assert weight_cache.is_complete(Path(places[0]), hashes.Cache(""))
    assert (tmp_path / "drawn").read_text() == "x"


DIE_WHILE_DRAWING = """
import os, signal, sys
from pathlib import Path
from tokensphere import baselines, hashes, sources
cache, folder = map(Path, sys.argv[1:])
# The weights are written by then, the tokenizer and the manifest are not.
sources.tokenizer_files = lambda folder: os.kill(os.getpid(), signal.SIGKILL)
baselines.ensure(
    cache, "sha256:source", folder, "norm_matched", 0, known=hashes.Cache(""), where="this run"
)
"""


def test_what_a_killed_writer_left_is_never_taken_for_complete(checkpoint, tmp_path, draws):
    folder, cache = checkpoint("gpt2"), tmp_path / "cache"
    process = python(DIE_WHILE_DRAWING, cache, folder)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    (left,) = (path for path in cache.iterdir() if path.is_dir())
    assert (left / "model.safetensors").is_file()
    assert left.name.endswith(".part")

    place = draw(folder, cache)
    assert len(draws) == 1
    assert weight_cache.is_complete(place, hashes.Cache(""))
    assert [path for path in cache.iterdir() if path.is_dir()] == [place]


def flip_last_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("model.safetensors", flip_last_byte),
        ("tokenizer.json", lambda path: path.write_text("{}")),
        ("config.json", Path.unlink),
        ("manifest.json", lambda path: path.write_text(path.read_text()[:100])),
        ("manifest.json", Path.unlink),
        ("surplus.safetensors", lambda path: path.write_text("left by another writer")),
    ],
)
def test_a_damaged_cached_file_is_drawn_again(name, damage, checkpoint, tmp_path, draws):
    place = draw(checkpoint("gpt2"), tmp_path)
    before = files(place)
    damage(place / name)
    assert draw(checkpoint("gpt2"), tmp_path) == place
    assert len(draws) == 2
    assert files(place) == before


def test_deleting_the_cache_changes_nothing(checkpoint, tmp_path):
    before = files(draw(checkpoint("gpt2"), tmp_path / "cache"))
    shutil.rmtree(tmp_path / "cache")
    assert files(draw(checkpoint("gpt2"), tmp_path / "cache")) == before
