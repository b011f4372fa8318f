"""Tiny checkpoints made in place: random weights and a tokenizer that works, in a second each.

    python tests/tools/checkpoints.py KIND FOLDER

writes one for a look by hand or for a configuration's `source: {local: FOLDER}`.

| kind     | block                          | final norm | tokenizer                            |
|----------|--------------------------------|------------|--------------------------------------|
| `gpt2`   | causal, pre-LayerNorm          | yes        | byte-level BPE, adds nothing         |
| `llama`  | causal, pre-RMSNorm            | yes        | BPE with ▁, adds `<s>` in front      |
| `bert`   | bidirectional, post-LayerNorm  | no         | WordPiece, adds `[CLS]` and `[SEP]`  |
| `albert` | as `bert`, one block shared    | no         | BPE with ▁, adds `[CLS]` and `[SEP]` |
"""

from __future__ import annotations

import argparse
import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import: nothing here needs a network

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, processors
from tokenizers.pre_tokenizers import BertPreTokenizer, ByteLevel, Metaspace
from tokenizers.trainers import BpeTrainer

PROMPTS = Path(__file__).resolve().parents[2] / "config" / "prompts"
# The token counts of the study's prompts, as texts of the same kind and length should have.
PROMPT_TOKENS = {
    "short_heterogeneous": 23,
    "wiki_paragraph": 450,
    "sullivan_ballou": 489,
    "paper_excerpt": 306,
    "homer_iliad": 512,
    "hdbscan_code": 438,
    "camus_letranger": 512,
    "latex_monograph": 496,
    "repeated_tokens": 264,
}
# What tokenizers are trained on, beside the letters of all prompts: two by name, so that another
# prompt hardly changes what they make of a text.
TRAINED_ON = ("short_heterogeneous.txt", "wiki_paragraph.txt")
VOCABULARY = 1000
POSITIONS = 512
WIDTH = 32
HEADS = 4


def _surround(tokenizer: Tokenizer, first: str, last: str | None = None) -> None:
    """Let a tokenizer add its special tokens around a text."""
    added = [token for token in (first, last) if token]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[first, "$A", *added[1:]],
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in added],
    )


def _byte_level(texts: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        texts,
        BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=["<|endoftext|>"],
            initial_alphabet=ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return tokenizer


def _metaspace(texts: list[str], special: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator(
        texts,
        BpeTrainer(
            vocab_size=VOCABULARY, special_tokens=["<unk>", "<pad>", *special], show_progress=False
        ),
    )
    _surround(tokenizer, *special)
    return tokenizer


def _word_piece(texts: list[str]) -> Tokenizer:
    # Not trained: the library's WordPiece trainer gives another vocabulary in every process.
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    normalizer, splitter = normalizers.BertNormalizer(lowercase=True), BertPreTokenizer()
    text = normalizer.normalize_str("\n".join(texts))
    words = {word for word, _ in splitter.pre_tokenize_str(text)}
    letters = {letter for word in words for letter in word}
    starts = letters | {word if len(word) <= 6 else word[:4] for word in words}
    continuations = letters | {word[4:] for word in words if len(word) > 6}
    pieces = [*special, *sorted(starts), *(f"##{piece}" for piece in sorted(continuations))]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.add_special_tokens(special)
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    tokenizer.decoder = decoders.WordPiece()
    _surround(tokenizer, "[CLS]", "[SEP]")
    return tokenizer


SHAPE = {
    "hidden_size": WIDTH,
    "num_attention_heads": HEADS,
    "max_position_embeddings": POSITIONS,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": None,
}

Train = Callable[[list[str]], Tokenizer]
Configure = Callable[..., Any]  # a class of configurations, or a function that makes one
KINDS: dict[str, tuple[Configure, dict[str, Any], Train]] = {
    "gpt2": (transformers.GPT2Config, SHAPE, _byte_level),
    "llama": (
        transformers.LlamaConfig,
        # Fewer key heads than heads, as in the trained models of this family.
        SHAPE | {"intermediate_size": 2 * WIDTH, "num_key_value_heads": HEADS // 2},
        lambda texts: _metaspace(texts, ["<s>"]),
    ),
    "bert": (transformers.BertConfig, SHAPE | {"intermediate_size": 2 * WIDTH}, _word_piece),
    "albert": (
        transformers.AlbertConfig,
        # Narrower embeddings than states: layer 0 is the mapped embedding.
        SHAPE | {"intermediate_size": 2 * WIDTH, "embedding_size": WIDTH // 2},
        lambda texts: _metaspace(texts, ["[CLS]", "[SEP]"]),
    ),
}

# Further families, for test_families.py: what a configuration says beside SHAPE, as each spells it.
WIDER = {"intermediate_size": 2 * WIDTH}
GROUPED = WIDER | {"num_key_value_heads": HEADS // 2, "head_dim": WIDTH // HEADS}
ENDLESS = {key: value for key, value in SHAPE.items() if key != "max_position_embeddings"}
# Shorter than every prompt, so that a window is seen.
WINDOW = 8


def _sentence_piece(texts: list[str]) -> Tokenizer:
    return _metaspace(texts, ["<s>", "</s>"])


def _images_too(**text: Any) -> Any:
    """Configure a model of texts and images, of which a text uses one half."""
    vision = {"image_size": 8, "patch_size": 4, "hidden_size": 8, "intermediate_size": 8}
    return transformers.Gemma3Config(
        text_config=text,
        vision_config=vision | {"num_attention_heads": 2, "num_hidden_layers": 2},
    )


FAMILIES: dict[str, tuple[Configure, dict[str, Any], Train]] = {
    **KINDS,
    "gptj": (transformers.GPTJConfig, SHAPE | {"rotary_dim": 4}, _byte_level),
    "gpt_neox": (transformers.GPTNeoXConfig, SHAPE | WIDER, _byte_level),
    "gpt_neo": (
        transformers.GPTNeoConfig,
        SHAPE | {"attention_types": [[["global", "local"], 1]], "window_size": WINDOW},
        _byte_level,
    ),
    "opt": (
        transformers.OPTConfig,
        SHAPE | {"ffn_dim": 2 * WIDTH, "word_embed_proj_dim": WIDTH},
        _byte_level,
    ),
    # As opt-350m: norms after the blocks' parts, and narrower embeddings than states.
    "opt (post-norm)": (
        transformers.OPTConfig,
        SHAPE
        | {
            "ffn_dim": 2 * WIDTH,
            "word_embed_proj_dim": WIDTH // 2,
            "do_layer_norm_before": False,
        },
        _byte_level,
    ),
    "qwen2": (transformers.Qwen2Config, SHAPE | GROUPED, _byte_level),
    "qwen3": (transformers.Qwen3Config, SHAPE | GROUPED, _byte_level),
    "gemma2": (
        transformers.Gemma2Config,
        SHAPE | GROUPED | {"sliding_window": WINDOW, "attn_logit_softcapping": 2.0},
        _sentence_piece,
    ),
    "gemma3": (_images_too, SHAPE | GROUPED | {"sliding_window": WINDOW}, _sentence_piece),
    "gemma3_text (bidirectional)": (
        transformers.Gemma3TextConfig,
        SHAPE | GROUPED | {"sliding_window": 2 * WINDOW, "use_bidirectional_attention": True},
        _sentence_piece,
    ),
    "gpt_oss": (
        transformers.GptOssConfig,
        SHAPE | GROUPED | {"num_local_experts": 4, "num_experts_per_tok": 2},
        _byte_level,
    ),
    "gpt_bigcode": (transformers.GPTBigCodeConfig, SHAPE, _byte_level),
    "openai-gpt": (transformers.OpenAIGPTConfig, SHAPE, _byte_level),
    "mistral": (
        transformers.MistralConfig,
        SHAPE | GROUPED | {"sliding_window": WINDOW},
        _sentence_piece,
    ),
    "mixtral": (
        transformers.MixtralConfig,
        SHAPE | GROUPED | {"num_local_experts": 4, "num_experts_per_tok": 2},
        _sentence_piece,
    ),
    "phi": (transformers.PhiConfig, SHAPE | WIDER, _byte_level),
    "falcon": (transformers.FalconConfig, SHAPE | {"alibi": False}, _byte_level),
    "falcon (alibi)": (transformers.FalconConfig, SHAPE | {"alibi": True}, _byte_level),
    "stablelm": (transformers.StableLmConfig, SHAPE | GROUPED, _byte_level),
    "olmo2": (transformers.Olmo2Config, SHAPE | WIDER, _byte_level),
    "codegen": (transformers.CodeGenConfig, SHAPE | {"rotary_dim": 4}, _byte_level),
    "bloom": (transformers.BloomConfig, ENDLESS, _byte_level),
    "mpt": (
        transformers.MptConfig,
        {"d_model": WIDTH, "n_heads": HEADS, "max_seq_len": POSITIONS},
        _byte_level,
    ),
    "roberta": (
        transformers.RobertaConfig,
        # Positions start after that of the padding token.
        SHAPE | WIDER | {"max_position_embeddings": POSITIONS + 2, "pad_token_id": 1},
        _sentence_piece,
    ),
    "xlm-roberta": (
        transformers.XLMRobertaConfig,
        SHAPE | WIDER | {"max_position_embeddings": POSITIONS + 2, "pad_token_id": 1},
        _sentence_piece,
    ),
    "fnet": (transformers.FNetConfig, SHAPE | WIDER, _sentence_piece),
    "convbert": (transformers.ConvBertConfig, SHAPE | WIDER, _word_piece),
    "distilbert": (
        transformers.DistilBertConfig,
        SHAPE | {"hidden_dim": 2 * WIDTH},
        _word_piece,
    ),
    "electra": (
        transformers.ElectraConfig,
        SHAPE | WIDER | {"embedding_size": WIDTH // 2},
        _word_piece,
    ),
    "mpnet": (
        transformers.MPNetConfig,
        SHAPE | WIDER | {"max_position_embeddings": POSITIONS + 2, "pad_token_id": 1},
        _sentence_piece,
    ),
    "deberta-v2": (
        transformers.DebertaV2Config,
        SHAPE
        | WIDER
        | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8},
        _sentence_piece,
    ),
    "modernbert": (
        transformers.ModernBertConfig,
        SHAPE | WIDER | {"local_attention": 2 * WINDOW, "global_attn_every_n_layers": 2},
        _sentence_piece,
    ),
    "xlnet": (
        transformers.XLNetConfig,
        ENDLESS | {"d_inner": 2 * WIDTH, "d_head": WIDTH // HEADS},
        _sentence_piece,
    ),
    "big_bird": (
        transformers.BigBirdConfig,
        SHAPE | WIDER | {"attention_type": "original_full"},
        _sentence_piece,
    ),
    "big_bird (sparse)": (
        transformers.BigBirdConfig,
        SHAPE | WIDER | {"attention_type": "block_sparse", "block_size": 4, "num_random_blocks": 1},
        _sentence_piece,
    ),
    "longformer": (
        transformers.LongformerConfig,
        SHAPE
        | WIDER
        | {"attention_window": WINDOW, "max_position_embeddings": POSITIONS + 2, "pad_token_id": 1},
        _sentence_piece,
    ),
    "xlm": (transformers.XLMConfig, {"emb_dim": WIDTH, "n_heads": HEADS}, _sentence_piece),
    "mamba": (transformers.MambaConfig, {"hidden_size": WIDTH, "state_size": 4}, _byte_level),
    "t5": (
        transformers.T5Config,
        {"d_model": WIDTH, "num_heads": HEADS, "d_kv": WIDTH // HEADS, "d_ff": 2 * WIDTH},
        _sentence_piece,
    ),
    "bart": (
        transformers.BartConfig,
        {"d_model": WIDTH, "encoder_ffn_dim": 2 * WIDTH, "decoder_ffn_dim": 2 * WIDTH},
        _sentence_piece,
    ),
}


def _fill(model: Any, seed: int) -> None:
    """Draw every parameter, norms and biases too: trained ones are not 1 and 0 either."""
    random = np.random.default_rng(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # 0.2: at this width a block then moves a state by about its own length.
            drawn = 0.2 * random.standard_normal(tuple(parameter.shape), dtype=np.float32)
            gain = parameter.dim() == 1 and name.endswith("weight")
            parameter.copy_(torch.from_numpy(drawn + np.float32(gain)))


@cache
def _trained(train: Train) -> Tokenizer:
    texts = {path.name: path.read_text(encoding="utf-8") for path in PROMPTS.glob("*.txt")}
    letters = sorted(set("".join("".join(texts.values()).split())))
    return train([*(texts[name] for name in TRAINED_ON), " ".join(letters)])


def build(kind: str, *, seed: int = 0, layers: int = 2, **config: Any) -> tuple[Any, Any]:
    """Make a model in memory, with eager attention, and its tokenizer; arguments as of `write`."""
    make_config, shape, train = FAMILIES[kind]
    tokenizer = _trained(train)
    shape = shape | {"vocab_size": tokenizer.get_vocab_size(), "num_hidden_layers": layers}
    model = transformers.AutoModel.from_config(
        make_config(**shape | config), dtype=torch.float32, attn_implementation="eager"
    )
    _fill(model, seed)
    return model.eval(), transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def write(kind: str, folder: str | Path, *, seed: int = 0, layers: int = 2, **config: Any) -> Path:
    """Write a checkpoint folder: `config.json`, `model.safetensors` and the tokenizer's files.

    Parameters
    ----------
    kind : str
        A key of `FAMILIES`, which holds `KINDS` too.
    folder : str or Path
        Made if it does not exist.
    seed : int
        Of the weights. The same seed and prompts give the same bytes.
    layers : int
        Blocks; for `albert` how often the one block is applied.
    **config
        Keys of the model's configuration that replace those of its family.

    Returns
    -------
    Path
        The folder.
    """
    folder = Path(folder)
    transformers.utils.logging.disable_progress_bar()
    for part in build(kind, seed=seed, layers=layers, **config):
        part.save_pretrained(folder)
    return folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kind", choices=FAMILIES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layers", type=int, default=2)
    arguments = parser.parse_args()
    write(arguments.kind, arguments.folder, seed=arguments.seed, layers=arguments.layers)
