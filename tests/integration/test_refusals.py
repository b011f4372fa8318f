"""A model whose states cannot be vouched for is refused, with a message that names the fault.

Each test takes something that is accepted and damages one thing in it.
"""

import json
from types import SimpleNamespace

import pytest
import torch
import transformers
from torch import nn

from tokensphere import extraction, models, store
from tokensphere.harness.errors import UserError
from tools import checkpoints
from tools.runs import load


@pytest.fixture
def refusal(text, tmp_path):
    """Return a function that extracts from a folder and gives back how it was refused."""

    def refuse(folder, text=text) -> UserError:
        with pytest.raises(UserError) as caught:
            extraction.extract(load(folder, text), tmp_path / "run.zarr.zip")
        return caught.value

    return refuse


# --- damaged checkpoints


@pytest.mark.parametrize(
    ("kind", "tensor", "place"),
    [
        ("gpt2", "wpe.weight", "residual layer 0"),
        ("gpt2", "h.1.mlp.c_proj.weight", "residual layer 2"),
        ("gpt2", "ln_f.weight", "the model's last state"),
        ("llama", "layers.0.mlp.down_proj.weight", "residual layer 1"),
        ("bert", "encoder.layer.1.output.dense.weight", "residual layer 2"),
    ],
)
def test_a_weight_that_is_not_a_number_is_refused_naming_the_layer(
    kind, tensor, place, damaged, refusal
):
    def spoil(tensors):
        tensors[tensor].view(-1)[0] = float("nan")

    error = refusal(damaged(kind, spoil))
    assert error.where == "this run"
    assert f"{place} holds values that are not finite" in error.what


def test_a_state_that_is_not_finite_for_one_late_token_is_refused_naming_the_layer(
    damaged, refusal
):
    late = 100  # beyond the tokens that the model is probed with

    def spoil(tensors):
        tensors["wpe.weight"][late] = float("inf")

    error = refusal(damaged("gpt2", spoil))
    assert isinstance(error, store.StoreError)
    assert "residual layer 0 holds values that are not finite" in error.what


def test_a_checkpoint_that_lacks_a_tensor_is_refused_naming_it(damaged, refusal):
    error = refusal(damaged("gpt2", lambda tensors: tensors.pop("h.1.mlp.c_proj.weight")))
    assert error.what == "the checkpoint lacks 1 tensors, first h.1.mlp.c_proj.weight"


def test_a_checkpoint_with_a_tensor_of_another_shape_is_refused_naming_it(damaged, refusal):
    def halve(tensors):
        name = "h.1.mlp.c_proj.weight"
        tensors[name] = tensors[name][:, : checkpoints.WIDTH // 2].contiguous()

    error = refusal(damaged("gpt2", halve))
    assert error.where == "this run"
    assert "has in another shape 1 tensors, first h.1.mlp.c_proj.weight" in error.what


@pytest.mark.parametrize("kind", ["bert", "albert"])
def test_a_missing_pooler_is_no_fault_because_no_layer_needs_it(kind, damaged):
    def drop(tensors):
        for name in [name for name in tensors if name.startswith("pooler.")]:
            del tensors[name]

    model = models.load(damaged(kind, drop), "cpu", "this run")
    assert models.dissect(model, [5, 6, 7], "this run").final_norm is None


def test_a_text_of_too_few_tokens_is_refused_with_the_count(checkpoint, refusal):
    error = refusal(checkpoint("gpt2"), text="The night")
    assert error.what == "the prompt has 2 tokens, the fewest that can be measured is 3"


# --- stores that are not what the model gave


def test_a_stored_final_norm_that_is_not_the_models_is_refused(checkpoint, refusal, monkeypatch):
    write = store.Writer.write_final_norm
    # 1e-4: ten times what the check allows in units of the largest entry.
    monkeypatch.setattr(
        store.Writer, "write_final_norm", lambda self, states: write(self, states * (1 + 1e-4))
    )
    error = refusal(checkpoint("gpt2"))
    assert "check 'last state' failed: the stored final norm differs" in error.what


@pytest.mark.parametrize(
    ("kind", "named"),
    [("gpt2", "final_norm(residual layer L)"), ("bert", "residual layer L")],
)
def test_a_stored_last_layer_that_is_not_the_models_is_refused(
    kind, named, checkpoint, refusal, monkeypatch
):
    write = store.Writer.write_residual

    def write_wrongly(self, layer, states):
        # Another direction: a final norm would hide another length.
        write(self, layer, states[:, ::-1] if layer == 2 else states)

    monkeypatch.setattr(store.Writer, "write_residual", write_wrongly)
    error = refusal(checkpoint(kind))
    assert f"check 'last state' failed: {named} differs" in error.what


def test_a_layer_that_was_never_written_is_refused(checkpoint, refusal, monkeypatch):
    write = store.Writer.write_residual
    monkeypatch.setattr(
        store.Writer,
        "write_residual",
        lambda self, layer, states: write(self, layer, states) if layer != 1 else None,
    )
    error = refusal(checkpoint("bert"))
    assert error.what == "1 members are missing, first residual/c/1/0/0"


# --- architectures whose stream cannot be followed


def same(states: torch.Tensor) -> torch.Tensor:
    return states


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(8, 8)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return states + self.mix(states.cumsum(dim=1))  # a token sees those before it


class Toy(nn.Module):
    """Two blocks and a final norm, written so that each part can be made wrong."""

    def __init__(self, *, listed=True, block=Block, between=same, before=same, after=same) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.config = transformers.PretrainedConfig(num_hidden_layers=2, vocab_size=20)
        self.embed = nn.Embedding(20, 8)
        blocks = [block(), block()]
        self.blocks = nn.ModuleList(blocks) if listed else nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(8)
        self.between, self.before, self.after = between, before, after

    def forward(self, input_ids, attention_mask, use_cache=False, output_attentions=False):
        states = self.blocks[0](self.embed(input_ids))
        states = self.blocks[1](self.between(states))
        return SimpleNamespace(last_hidden_state=self.after(self.norm(self.before(states))))


IDS = [3, 1, 4, 1]


def test_a_model_that_hands_its_stream_from_block_to_block_is_accepted():
    toy = Toy()
    expected = models.Anatomy(tuple(toy.blocks), toy.norm, True, width=8, heads=None, asked=True)
    assert models.dissect(toy, IDS, "toy") == expected


def test_a_list_that_is_called_once_a_layer_but_hands_nothing_on_is_not_taken_for_the_blocks():
    class Adapted(Toy):
        """Two adapters stand before the blocks; both are fed with the embedding."""

        def __init__(self) -> None:
            super().__init__()
            blocks = self.blocks
            del self.blocks
            self.adapters = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
            self.blocks = blocks  # after the adapters

        def forward(self, input_ids, **keywords):
            for adapter in self.adapters:
                adapter(self.embed(input_ids))
            return super().forward(input_ids, **keywords)

    toy = Adapted()
    assert models.dissect(toy, IDS, "toy").blocks == tuple(toy.blocks)


def test_a_model_without_a_module_list_called_once_a_layer_is_refused():
    with pytest.raises(UserError, match="check 'blocks' failed: no module list is called 2 times"):
        models.dissect(Toy(listed=False), IDS, "toy")


def test_a_model_that_calls_fewer_blocks_than_its_configuration_says_is_refused():
    toy = Toy()
    toy.config.num_hidden_layers = 3
    with pytest.raises(UserError, match="check 'blocks' failed: no module list is called 3 times"):
        models.dissect(toy, IDS, "toy")


def test_a_model_that_changes_the_state_between_two_blocks_is_refused():
    with pytest.raises(UserError, match="check 'chain' failed: block 2 is not fed with block 1's"):
        models.dissect(Toy(between=lambda states: states + 1e-3), IDS, "toy")


@pytest.mark.parametrize("place", ["before", "after"])  # the norm
def test_a_last_state_that_is_neither_the_last_layer_nor_a_norm_of_it_is_refused(place):
    with pytest.raises(UserError, match="check 'final norm' failed"):
        models.dissect(Toy(**{place: lambda states: 2 * states + 1}), IDS, "toy")


def test_a_last_state_that_one_module_makes_which_is_no_norm_is_refused():
    toy = Toy()
    toy.norm = nn.Tanh()
    with pytest.raises(UserError, match="check 'final norm' failed"):
        models.dissect(toy, IDS, "toy")


def test_a_model_that_has_no_last_state_is_refused():
    toy = Toy()
    toy.forward = lambda **keywords: SimpleNamespace(logits=torch.zeros(1, 4, 20))
    with pytest.raises(UserError, match=r"check 'forward' failed: .*last_hidden_state"):
        models.dissect(toy, IDS, "toy")


def test_a_model_that_needs_more_than_tokens_is_refused_with_its_own_words():
    def look(**keywords):
        raise ValueError("You have to specify pixel_values")

    toy = Toy()
    toy.forward = look
    with pytest.raises(UserError, match=r"check 'forward' failed: .*You have to specify pixel_val"):
        models.dissect(toy, IDS, "toy")


def test_a_model_that_reading_changes_is_refused_naming_what_changed():
    class Fickle(Block):
        mode = "sparse"

        def __init__(self) -> None:
            super().__init__()
            self.mode = "sparse"

        def forward(self, states):
            self.mode = "full"
            return super().forward(states)

    with pytest.raises(UserError, match=r"'steady' failed: .*0.mode from 'sparse' to 'full'"):
        models.dissect(Toy(block=Fickle), IDS, "toy")


def test_a_model_of_another_width_than_its_configuration_says_is_refused():
    toy = Toy()
    toy.config.hidden_size = 16
    with pytest.raises(UserError, match=r"check 'width' failed: 4 tokens .* not \(4, 16\)"):
        models.dissect(toy, IDS, "toy")


def test_a_model_whose_tokens_do_not_see_each_other_is_refused():
    class Alone(Block):
        def forward(self, states):
            return states + self.mix(states)

    with pytest.raises(UserError, match="check 'mixing' failed: no token's state depends on anoth"):
        models.dissect(Toy(block=Alone), IDS, "toy")


class Shown(nn.Module):
    """Show attention of two heads that is causal or not, whatever the states say."""

    later = False

    def forward(self, states):
        weights = torch.ones(1, 2, *2 * states.shape[1:2])
        weights = weights if self.later else weights.tril()
        return states, weights / weights.sum(dim=-1, keepdim=True)


class Attending(Block):
    def __init__(self) -> None:
        super().__init__()
        self.attend = Shown()

    def forward(self, states):
        return super().forward(self.attend(states)[0])


def test_heads_are_counted_where_the_configuration_does_not_say_how_many():
    assert models.dissect(Toy(block=Attending), IDS, "toy").heads == 2


def test_other_heads_than_the_configuration_says_are_refused():
    toy = Toy(block=Attending)
    toy.config.num_attention_heads = 4
    with pytest.raises(UserError, match=r"'heads' failed: the blocks show 2 heads, the .* 4"):
        models.dissect(toy, IDS, "toy")


def test_attention_to_later_tokens_is_refused_where_no_state_depends_on_them(monkeypatch):
    monkeypatch.setattr(Shown, "later", True)
    with pytest.raises(UserError, match=r"'causal' failed: queries see later keys, .* do not move"):
        models.dissect(Toy(block=Attending), IDS, "toy")


# --- checkpoints of a kind that is not read


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (
            {"auto_map": {"AutoModel": "modeling.MyModel"}},
            "check 'code' failed: config.json asks for Python code of its own (auto_map), which "
            "is never run",
        ),
        (
            {"quantization_config": {"quant_method": "gptq", "bits": 4}},
            "check 'quantisation' failed: the weights are quantised (quantization_config in "
            "config.json)",
        ),
        (
            {"model_type": "my_model"},
            "check 'architecture' failed: transformers has no base model of type 'my_model'",
        ),
        (
            {"is_encoder_decoder": True},
            "check 'one stack' failed: 'gpt2' is an encoder and a decoder, with two residual "
            "streams",
        ),
    ],
)
def test_a_checkpoint_of_another_kind_is_refused_before_it_is_loaded(
    change, what, tmp_path, refusal, monkeypatch
):
    folder = checkpoints.write("gpt2", tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    monkeypatch.delattr(transformers.AutoModel, "from_pretrained")
    assert refusal(folder).what == what


def test_a_bias_that_the_model_would_leave_out_is_refused(damaged, refusal):
    def add(tensors):
        tensors["layers.0.self_attn.q_proj.bias"] = torch.ones(checkpoints.WIDTH)

    assert refusal(damaged("llama", add)).what == (
        "the checkpoint has in modules that do not use them 1 tensors, first "
        "layers.0.self_attn.q_proj.bias"
    )


def test_tensors_of_a_head_and_of_old_checkpoints_are_no_fault(damaged, text):
    def add(tensors):
        tensors["lm_head.weight"] = torch.ones(10, checkpoints.WIDTH)
        tensors["h.0.attn.bias"] = torch.ones(1, 1, 8, 8)

    assert load(damaged("gpt2", add), text).attributes["layers"] == 2


def test_a_final_norm_without_parameters_is_followed_too(text, tmp_path, checkpoint):
    folder = tmp_path / "olmo"
    tokenizer = models.load_tokenizer(checkpoint("llama"))
    config = transformers.OlmoConfig(
        **checkpoints.SHAPE,
        vocab_size=len(tokenizer),
        num_hidden_layers=2,
        intermediate_size=2 * checkpoints.WIDTH,
    )
    transformers.AutoModel.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    run = load(folder, text)
    extraction.extract(run, tmp_path / "run.zarr.zip")
    assert run.attributes["final_norm"]
