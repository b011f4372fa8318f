"""Every family of transformers is read right, or refused by a check that is named.

The reference is written here with `transformers` alone: hooks on modules whose paths stand below,
beside what the library itself collects. As in test_extraction.py, arrays are compared bit by bit:
both sides run the same kernels on the same numbers with the same number of threads.
"""

import os
import re
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from tokensphere import extraction, models, prompts, store
from tokensphere.harness.errors import UserError
from tools import checkpoints
from tools.runs import THREADS, load

PAGE = Path(__file__).resolve().parents[2] / "docs" / "models.md"
TEXT = prompts.read(checkpoints.PROMPTS / "wiki_paragraph.txt", "wiki_paragraph")[:300]
SHORT = 24  # positions, fewer than TEXT has tokens in every family


@dataclass(frozen=True)
class Expected:
    """What is known of a family from its code, written by hand.

    Attributes
    ----------
    blocks, end : str
        Paths of the blocks and of what follows the last one, '' for nothing.
    causal : bool
    positions : str
        What limits the tokens: a `table`, which has no row for more, the `config` alone, or
        nothing.
    """

    blocks: str
    end: str = ""
    causal: bool = False
    positions: str = "table"


def decoder(blocks: str, end: str, positions: str = "config") -> Expected:
    return Expected(blocks, end, True, positions)


READ = {
    "gpt2": decoder("h", "ln_f", "table"),
    "gptj": decoder("h", "ln_f"),
    "gpt_neo": decoder("h", "ln_f", "table"),
    "gpt_neox": decoder("layers", "final_layer_norm"),
    "codegen": decoder("h", "ln_f"),
    "opt": decoder("decoder.layers", "decoder.final_layer_norm", "table"),
    "opt (post-norm)": decoder("decoder.layers", "decoder.project_out", "table"),
    "bloom": decoder("h", "ln_f", ""),
    "mpt": decoder("blocks", "norm_f"),
    "falcon": decoder("h", "ln_f"),
    "falcon (alibi)": decoder("h", "ln_f"),
    "llama": decoder("layers", "norm"),
    "mistral": decoder("layers", "norm"),
    "mixtral": decoder("layers", "norm"),
    "qwen2": decoder("layers", "norm"),
    "qwen3": decoder("layers", "norm"),
    "gemma2": decoder("layers", "norm"),
    "olmo2": decoder("layers", "norm"),
    "gemma3": decoder("language_model.layers", "language_model.norm"),
    "gemma3_text (bidirectional)": Expected("layers", "norm", positions="config"),
    "gpt_oss": decoder("layers", "norm"),
    "gpt_bigcode": decoder("h", "ln_f", "table"),
    "openai-gpt": decoder("h", "", "table"),
    "phi": decoder("layers", "final_layernorm"),
    "stablelm": decoder("layers", "norm"),
    "mamba": decoder("layers", "norm_f", ""),
    "bert": Expected("encoder.layer"),
    "roberta": Expected("encoder.layer"),
    "xlm-roberta": Expected("encoder.layer"),
    "fnet": Expected("encoder.layer"),
    "distilbert": Expected("transformer.layer"),
    "albert": Expected("encoder.albert_layer_groups"),
    "electra": Expected("encoder.layer"),
    "mpnet": Expected("encoder.layer"),
    "deberta-v2": Expected("encoder.layer"),
    "modernbert": Expected("layers", "final_norm", positions="config"),
    "big_bird": Expected("encoder.layer"),
    "xlnet": Expected("layer", positions=""),
}
REFUSED = {
    "convbert": "heads",
    "big_bird (sparse)": "steady",
    "longformer": "width",
    "xlm": "chain",
    "t5": "one stack",
    "bart": "one stack",
}
NO_ATTENTION = ("mamba", "fnet")
SINKS = ("gpt_oss",)  # its heads attend to a learned sink too: a row of tokens adds up to less
NO_NORM = ("opt (post-norm)",)  # what follows its last block is a projection

every_family_read = pytest.mark.parametrize("family", READ)


def check_of(error: UserError) -> str:
    """Return the name of the check that refused."""
    (name,) = re.findall("check '(.+?)' failed: ", error.what)
    return name


@dataclass(eq=False)
class Outcome:
    """What tokensphere made of a family's checkpoint."""

    folder: Path
    model: Any  # as it was before it was saved
    refused: str = ""
    attention_refused: str = ""
    run: Any = None
    residual: tuple[np.ndarray, ...] = ()
    final_norm: np.ndarray | None = None
    weights: tuple[np.ndarray, ...] = ()


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """Return a function from a family to its outcome, made once."""

    @cache
    def make(family: str) -> Outcome:
        folder = tmp_path_factory.mktemp("family")
        transformers.utils.logging.disable_progress_bar()
        model, tokenizer = checkpoints.build(family)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        made = Outcome(folder, model)
        try:
            made.run = load(folder, TEXT)
            extraction.extract(made.run, folder / "states.zarr.zip")
        except UserError as error:
            made.refused = check_of(error)
            return made
        with store.Activations(folder / "states.zarr.zip") as states:
            made.residual = tuple(states.residual(layer) for layer in range(states.layers + 1))
            made.final_norm = states.final_norm() if states.has_final_norm else None
        try:
            extraction.attend(made.run, folder / "attention.zarr.zip")
        except UserError as error:
            made.attention_refused = check_of(error)
            return made
        with store.Attention(folder / "attention.zarr.zip") as attention:
            made.weights = tuple(weights for _, weights in attention.blocks())
        return made

    return make


@dataclass
class Reference:
    """One forward pass by `transformers`, with hooks placed by hand."""

    residual: list[np.ndarray]
    own: np.ndarray
    hidden_states: list[np.ndarray]
    attentions: list[np.ndarray]


def reference(family: str, model: Any, ids: list[int]) -> Reference:
    residual: list[np.ndarray] = []

    def keep(states: torch.Tensor) -> None:
        states = states.transpose(0, 1) if family == "xlnet" else states  # its batch stands second
        residual.append(states[0].numpy().copy())

    def enter(module, arguments, keywords):
        if not residual:
            keep(arguments[0] if arguments else keywords["hidden_states"])

    def leave(module, arguments, output):
        keep(output[0] if isinstance(output, tuple | list) else output)

    blocks = list(model.get_submodule(READ[family].blocks))
    handles = [blocks[0].register_forward_pre_hook(enter, with_kwargs=True)]
    handles += [block.register_forward_hook(leave) for block in blocks]
    torch.set_num_threads(THREADS)
    with torch.no_grad():
        asked = {} if family in NO_ATTENTION else {"output_attentions": True}
        out = model(torch.tensor([ids]), output_hidden_states=True, **asked)
    for handle in handles:
        handle.remove()
    return Reference(
        residual=residual,
        own=out.last_hidden_state[0].numpy(),
        hidden_states=[states[0].numpy() for states in out.hidden_states],
        attentions=[weights[0].numpy() for weights in out.get("attentions") or ()],
    )


@cache
def independent(family: str, made: Outcome) -> Reference:
    """Load a saved checkpoint with `transformers` alone and run it."""
    model = transformers.AutoModel.from_pretrained(
        made.folder, dtype=torch.float32, attn_implementation="eager"
    )
    return reference(family, model.eval(), made.run.tokens.ids)


def assert_same_bits(one: Any, two: Any) -> None:
    assert len(one) == len(two)
    for index, (left, right) in enumerate(zip(one, two, strict=True)):
        np.testing.assert_array_equal(left, right, err_msg=f"entry {index}")


@every_family_read
def test_a_store_holds_the_residual_stream_of_an_independent_pass(family, outcome):
    made = outcome(family)
    assert not made.refused
    expected = independent(family, made)
    assert len(made.residual) == 3
    assert_same_bits(made.residual, expected.residual)
    first = 1 if family == "mamba" else 0  # whose list leaves out the embedding
    listed = expected.hidden_states[:-1]
    assert_same_bits(made.residual[first : first + len(listed)], listed)


@every_family_read
def test_a_store_holds_what_the_model_gave_before_it_was_saved(family, outcome):
    made = outcome(family)
    expected = reference(family, made.model, made.run.tokens.ids)
    assert_same_bits(made.residual, expected.residual)
    if made.weights:
        assert_same_bits(made.weights, expected.attentions)


@every_family_read
def test_blocks_move_the_states_so_that_layers_cannot_be_confused(family, outcome):
    residual = outcome(family).residual
    for before, after in pairwise(residual):
        assert np.linalg.norm(after - before) > 0.1 * np.linalg.norm(before)


@every_family_read
def test_the_final_norm_is_kept_apart_from_the_last_layer(family, outcome):
    made = outcome(family)
    own = independent(family, made).own
    end = READ[family].end
    with torch.no_grad():
        state = torch.from_numpy(made.residual[-1])[None]
        remade = made.model.get_submodule(end)(state) if end else state
    np.testing.assert_array_equal(remade[0].numpy(), own)
    if end and family not in NO_NORM:
        assert not np.array_equal(made.residual[-1], own)
        np.testing.assert_array_equal(made.final_norm, own)
    else:
        assert made.final_norm is None


@every_family_read
def test_causality_is_measured_right(family, outcome):
    assert outcome(family).run.anatomy.causal == READ[family].causal


@every_family_read
def test_architecture_facts_are_right(family, outcome):
    made = outcome(family)
    facts = {name: made.run.attributes[name] for name in ("layers", "heads", "width")}
    heads = None if family in NO_ATTENTION else checkpoints.HEADS
    assert facts == {"layers": 2, "heads": heads, "width": checkpoints.WIDTH}
    assert made.run.attributes["architecture"] == family.partition(" ")[0]


@pytest.mark.parametrize("family", [name for name in READ if name not in NO_ATTENTION + SINKS])
def test_attention_is_that_of_an_independent_pass(family, outcome):
    made = outcome(family)
    expected = independent(family, made)
    assert len(made.weights) == 2
    assert_same_bits(made.weights, expected.attentions)
    for weights in made.weights:
        # 1e-6: the rounding of rows of some hundred float32 weights.
        np.testing.assert_allclose(weights.sum(axis=-1, dtype=float), 1, atol=1e-6)
        assert np.triu(weights, 1).any() != READ[family].causal


@pytest.mark.parametrize("family", NO_ATTENTION + SINKS)
def test_a_model_without_attention_between_tokens_alone_gives_its_stream_only(family, outcome):
    assert outcome(family).attention_refused == "attention"


@pytest.mark.parametrize(
    ("family", "windowed"),
    [
        ("gpt_neo", 1),
        ("gemma2", 0),
        ("mistral", 0),
        ("mistral", 1),
        ("modernbert", 1),
        ("gemma3_text (bidirectional)", 0),
    ],
)
def test_a_window_shorter_than_the_prompt_is_seen_in_the_attention(family, windowed, outcome):
    weights = outcome(family).weights[windowed]
    query, key = np.indices(weights.shape[1:])
    near = abs(query - key) <= checkpoints.WINDOW
    assert weights[:, near].any()
    assert not weights[:, ~near].any()


# --- the most tokens


def write_short(family: str, folder: Path) -> Path:
    """Write a checkpoint that can read SHORT tokens."""
    _, shape, _ = checkpoints.FAMILIES[family]
    # RoBERTa and MPNet count positions from 2, as their configurations say in a roundabout way.
    offset = shape.get("max_position_embeddings", checkpoints.POSITIONS) - checkpoints.POSITIONS
    name = "max_seq_len" if family == "mpt" else "max_position_embeddings"
    return checkpoints.write(family, folder, **{name: SHORT + offset})


@pytest.mark.parametrize("family", [name for name in READ if READ[name].positions])
def test_a_prompt_is_cut_where_the_model_has_no_more_positions(family, tmp_path):
    folder = write_short(family, tmp_path / "short")
    run = load(folder, TEXT)
    assert (run.attributes["truncated"], run.attributes["n_tokens"]) == (True, SHORT)
    assert models.forward(run.model, run.tokens.ids).shape[0] == SHORT
    if READ[family].positions == "table":
        with pytest.raises((IndexError, RuntimeError)):
            run.model(torch.tensor([[*run.tokens.ids, run.tokens.ids[1]]]))


@pytest.mark.parametrize("family", [name for name in READ if not READ[name].positions])
def test_a_prompt_is_not_cut_where_a_model_has_no_positions(family, outcome):
    run = outcome(family).run
    assert run.anatomy.positions is None
    assert not run.attributes["truncated"]
    assert run.attributes["n_tokens"] > SHORT


@pytest.mark.parametrize("unlimited", [None, -1])
def test_a_configuration_without_a_limit_cuts_nothing(unlimited, tmp_path):
    folder = checkpoints.write("bloom", tmp_path / "bloom", max_position_embeddings=unlimited)
    run = load(folder, TEXT)
    assert (run.anatomy.positions, run.attributes["truncated"]) == (None, False)


# --- refusals


@pytest.mark.parametrize(("family", "check"), REFUSED.items())
def test_a_family_that_cannot_be_vouched_for_is_refused_naming_the_check(family, check, outcome):
    assert outcome(family).refused == check


def test_a_model_that_pads_a_longer_prompt_only_is_refused_when_it_reads_it(tmp_path):
    # Four tokens fill a window of four; of TEXT, some are left over.
    folder = checkpoints.write("longformer", tmp_path / "longformer", attention_window=4)
    run = load(folder, TEXT)
    assert run.attributes["n_tokens"] % 4
    with pytest.raises(UserError, match=r"check 'width' failed: residual layer 0 has .* states"):
        extraction.extract(run, tmp_path / "a.zarr.zip")


def test_every_family_is_expected_to_be_read_or_refused():
    assert {*READ, *REFUSED} == {*checkpoints.FAMILIES}


# --- the page


def path_in(model: Any, modules: tuple[Any, ...]) -> str:
    """Return where modules stand in a model: the path of their list, or of the one module."""
    names = {module: name for name, module in model.named_modules()}
    found = {names[module].removesuffix(f".{index}") for index, module in enumerate(modules)}
    return re.sub(r"\.\d+$", "", min(found))


def row(family: str, made: Outcome) -> str:
    if made.refused:
        cells = [family, "", "", "", "", f"refused: `{made.refused}`"]
    else:
        anatomy = made.run.anatomy
        end = path_in(made.run.model, (anatomy.final_norm,)) if anatomy.final_norm else ""
        cells = [
            family,
            "yes" if anatomy.causal else "no",
            f"`{end}`" if end else "none",
            f"`{path_in(made.run.model, anatomy.blocks)}`",
            f"refused: `{made.attention_refused}`" if made.attention_refused else "every head",
            "read",
        ]
    return f"| {' | '.join(cells)} |".replace("|  ", "| ")


def test_the_page_lists_every_family_and_what_became_of_it(outcome):
    families = [*READ, *REFUSED]
    table = "\n".join(
        [
            "| family | causal | final norm | blocks | attention | outcome |",
            "|---|---|---|---|---|---|",
            *(row(family, outcome(family)) for family in families),
        ]
    )
    first, last = "<!-- families: by test_families.py -->\n\n", "\n\n<!-- end of families -->"
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(first)
    _, _, after = rest.partition(last)
    expected = f"{before}{first}{table}{last}{after}"
    if os.environ.get("TOKENSPHERE_WRITE_DOCS") == "1":
        PAGE.write_text(expected, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == expected, (
        "run this test with TOKENSPHERE_WRITE_DOCS=1 to write the page"
    )
