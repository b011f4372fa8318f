"""A tiny GGUF file made in place: a Llama of 4-bit weights with a byte-level tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np

from tools import checkpoints

LAYERS, WIDTH, HEADS, KEY_HEADS, INNER = 2, 32, 4, 2, 64


def write(file: str | Path, tokenizer: Path, *, seed: int = 0) -> Path:
    """Write a GGUF file: matrices as Q4_1, norms as float32.

    Parameters
    ----------
    file : str or Path
    tokenizer : Path
        A checkpoint folder of kind `gpt2`, whose tokenizer goes into the file.
    seed : int
        Of the weights.
    """
    model = json.loads((tokenizer / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(checkpoints.POSITIONS)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL, *[gguf.TokenType.NORMAL] * (len(tokens) - 1)])
    writer.add_token_merges(
        [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    )
    for add in (writer.add_bos_token_id, writer.add_eos_token_id, writer.add_unk_token_id):
        add(0)
    random = np.random.default_rng(seed)
    for name, shape in _shapes(len(tokens)).items():
        drawn = 0.2 * random.standard_normal(shape, dtype=np.float32)
        if len(shape) == 1:
            writer.add_tensor(name, drawn + np.float32(1))
        else:
            kind = gguf.GGMLQuantizationType.Q4_1
            writer.add_tensor(name, gguf.quantize(drawn, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return Path(file)


def _shapes(vocabulary: int) -> dict[str, tuple[int, ...]]:
    narrow = WIDTH * KEY_HEADS // HEADS
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd": (vocabulary, WIDTH),
        "output_norm": (WIDTH,),
    }
    for layer in range(LAYERS):
        shapes |= {
            f"blk.{layer}.{name}": shape
            for name, shape in {
                "attn_norm": (WIDTH,),
                "attn_q": (WIDTH, WIDTH),
                "attn_k": (narrow, WIDTH),
                "attn_v": (narrow, WIDTH),
                "attn_output": (WIDTH, WIDTH),
                "ffn_norm": (WIDTH,),
                "ffn_gate": (INNER, WIDTH),
                "ffn_up": (INNER, WIDTH),
                "ffn_down": (WIDTH, INNER),
            }.items()
        }
    return {f"{name}.weight": shape for name, shape in shapes.items()}
