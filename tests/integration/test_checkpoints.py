"""The tiny checkpoints that other tests are made of."""

import subprocess
import sys
from pathlib import Path

import pytest
import transformers

from tokensphere import hashes
from tools import checkpoints


def files(folder: Path) -> dict[str, str]:
    return {path.name: hashes.of_file(path) for path in folder.iterdir()}


@pytest.mark.parametrize("kind", checkpoints.KINDS)
def test_the_same_seed_gives_the_same_files(kind, tmp_path):
    one, two = (files(checkpoints.write(kind, tmp_path / name, seed=1)) for name in "ab")
    assert one == two


@pytest.mark.parametrize("kind", checkpoints.KINDS)
def test_another_seed_gives_other_weights_only(kind, tmp_path):
    one, two = (files(checkpoints.write(kind, tmp_path / str(seed), seed=seed)) for seed in (0, 1))
    assert {name for name in one if one[name] != two[name]} == {"model.safetensors"}


def test_the_command_line_writes_the_same_files_in_another_process(tmp_path):
    checkpoints.write("bert", tmp_path / "here", seed=2, layers=3)
    there = [str(tmp_path / "there"), "--seed", "2", "--layers", "3"]
    subprocess.run([sys.executable, checkpoints.__file__, "bert", *there], check=True)
    assert files(tmp_path / "here") == files(tmp_path / "there")


@pytest.mark.parametrize("kind", checkpoints.KINDS)
def test_the_tokenizer_knows_every_letter_of_the_prompts(kind, checkpoint):
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint(kind))
    for path in checkpoints.PROMPTS.glob("*.txt"):
        pieces = tokenizer.convert_ids_to_tokens(tokenizer(path.read_text())["input_ids"])
        assert not {"[UNK]", "<unk>"} & set(pieces), path.name
