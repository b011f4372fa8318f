"""Downloads: the only module that talks to a network, when it is asked to."""

from __future__ import annotations

from collections.abc import Mapping

import yaml
from huggingface_hub import HfApi, errors, snapshot_download

from tokensphere import hashes, sources
from tokensphere.harness.errors import UserError

# What decides numbers, and nothing that could run code.
WANTED = [sources.CONFIG, sources.WEIGHTS, f"{sources.WEIGHTS}.index.json", *sources.TOKENIZER]


def fetch(repository: str, revision: str | None, where: str) -> str:
    """Download a repository's checkpoint into huggingface_hub's cache, with a progress bar.

    Parameters
    ----------
    repository : str
        `owner/name`.
    revision : str or None
        The commit, branch or tag; None for the newest.
    where : str
        How errors call the model.

    Returns
    -------
    str
        The commit that was fetched. What is in the cache is not fetched again, and what was
        interrupted goes on.

    Raises
    ------
    UserError
        If the repository, the revision or the network is not there, or the checkpoint has no
        safetensors file.
    """
    try:
        commit = HfApi().model_info(repository, revision=revision).sha
        snapshot_download(repository, revision=commit, allow_patterns=WANTED)
    except (errors.HfHubHTTPError, errors.LocalEntryNotFoundError, OSError, ValueError) as error:
        wanted = f"{repository}@{revision}" if revision else repository
        raise UserError(
            where,
            f"{wanted} cannot be downloaded ({' '.join(str(error).split())[:200]})",
            "check the name, the revision and the network (HF_TOKEN opens gated models); or copy "
            "the checkpoint to DIR/NAME, NAME as in models:, and write `local_models: DIR`",
        ) from error
    assert commit is not None
    sources.locate({"hub": repository, "revision": commit}, where)
    return commit


def pin(revisions: Mapping[str, str]) -> None:
    """Write which commit of each repository, branch or tag is meant, for every later run."""
    sources.REVISIONS.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(dict(revisions), sort_keys=True)
    hashes.write_atomically(
        sources.REVISIONS, f"# The commits that `snakemake download_models` pinned.\n{text}"
    )
