"""The prompts that ship, under the tokenizers of the models that ship."""

import pytest
import transformers
import yaml

from tokensphere import models, prompts, sources
from tools import checkpoints

MOST = 512


@pytest.fixture(scope="session")
def config():
    root = checkpoints.PROMPTS.parents[1]
    return yaml.safe_load((root / "config/config.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def texts(config):
    read = {path.stem: prompts.read(path, "here") for path in checkpoints.PROMPTS.glob("*.txt")}
    entry = config["prompts"]["hdbscan_code"]
    return read | {"hdbscan_code": prompts.load(entry, "here")}


@pytest.fixture(scope="session", params=["smollm2", "minilm"])
def tokenizer(request, config):
    """Byte-level BPE out of a GGUF file (seconds to load: once a session), or WordPiece."""
    place = sources.locate(config["models"][request.param]["source"], "here")
    if place.suffix != sources.GGUF:
        return models.load_tokenizer(place)
    return transformers.AutoTokenizer.from_pretrained(
        place.parent, gguf_file=place.name, local_files_only=True
    )


def test_every_text_has_a_count(texts):
    assert texts.keys() == checkpoints.PROMPT_TOKENS.keys()


@pytest.mark.parametrize("name", list(checkpoints.PROMPT_TOKENS))
def test_a_text_is_within_10_percent_of_its_count_and_is_fed_whole(tokenizer, texts, name):
    tokens = prompts.tokenize(tokenizer, texts[name], MOST, "here")
    assert not tokens.truncated
    wanted = checkpoints.PROMPT_TOKENS[name]
    assert 0.9 * wanted <= len(tokens.ids) <= 1.1 * wanted


def test_the_control_is_one_token_repeated(tokenizer, texts):
    tokens = prompts.tokenize(tokenizer, texts["repeated_tokens"], MOST, "here")
    own = [token for token, special in zip(tokens.ids, tokens.special, strict=True) if not special]
    # The first has no space before it, which a byte-level tokenizer sees.
    assert len(set(own[1:])) == 1
