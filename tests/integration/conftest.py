"""What the integration tests share: tiny checkpoints, a prompt, and a process left as found."""

import logging
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tokensphere import prompts
from tools import checkpoints


@pytest.fixture(autouse=True)
def process_left_as_found(monkeypatch) -> Iterator[None]:
    """Undo what a job or an extraction sets for the rest of its process."""
    monkeypatch.delenv("TOKENSPHERE_DRIVER", raising=False)
    root, threads = logging.getLogger(), torch.get_num_threads()
    handlers, level = root.handlers[:], root.level
    yield
    logging.captureWarnings(False)
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers, root.level = handlers, level
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """Return a function from a kind of model to its checkpoint folder, not to be changed."""

    @cache
    def folder(kind: str) -> Path:
        return checkpoints.write(kind, tmp_path_factory.mktemp(kind))

    return folder


@pytest.fixture
def damaged(tmp_path):
    """Return a function that writes a checkpoint after changing its tensors, by name, in place."""

    def write(kind, change) -> Path:
        folder = checkpoints.write(kind, tmp_path / "damaged")
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return folder

    return write


@pytest.fixture(scope="session")
def text() -> str:
    return prompts.read(checkpoints.PROMPTS / "wiki_paragraph.txt", "wiki_paragraph")
