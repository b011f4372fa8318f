"""What a job is expected to need: memory in MB, and minutes, from the shape of its model.

For schedulers alone: no number of a result depends on it. The Snakefile reads this module while it
plans, thousands of times, so it is arithmetic and nothing else. All of it is for a slow machine of
two cores without a GPU, and rather too much than too little: a job that is killed for memory costs
more than one that waits for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from tokensphere.sources import Checkpoint

# Where a configuration leaves a number of the shape to its family's default.
WIDTH, HEADS, LAYERS = 1024, 16, 24

PYTHON_MB = 400  # a process with numpy, pandas and their like: 150 measured, twice that in bursts
TORCH_MB = 700  # one with torch and transformers: 350 measured before it loads a model
FLOAT_MB = 4 / 10**6

# A slow disk, and a slow processor of two cores.
DISK_MB_A_SECOND = 50
OPERATIONS_A_SECOND = 5e9


class Need(NamedTuple):
    """What a job needs.

    Attributes
    ----------
    mb : int
        Memory, in MB.
    minutes : int
    """

    mb: int
    minutes: int


class Work(NamedTuple):
    """What decides the need of a job on one model: its shape, and how it is run.

    Attributes
    ----------
    weights : float
        In MB of float32.
    layers, width, heads, tokens : int
    random : bool
        The weights may have to be drawn first.
    half : bool
        The model runs in 16 bits.
    kept : float
        The most MB of weights that are kept in main memory, the others on the disk.
    """

    weights: float
    layers: int
    width: int
    heads: int
    tokens: int
    random: bool = False
    half: bool = False
    kept: float = math.inf

    @property
    def square(self) -> float:
        """MB of one matrix of tokens by tokens in float32."""
        return FLOAT_MB * self.tokens**2


def work(checkpoint: Checkpoint, weights: str, max_tokens: int, model: Mapping[str, Any]) -> Work:
    """Put together what decides the need of jobs on one model.

    Parameters
    ----------
    checkpoint : Checkpoint
    weights : str
        `trained`, or SCHEME.SEED.
    max_tokens : int
        Longer prompts are cut to it; how long they are is not known when the run is planned.
    model : mapping
        The model's entry in the configuration.
    """
    width = checkpoint.width or WIDTH
    return Work(
        weights=checkpoint.mb,
        layers=model.get("iterations", 0) or checkpoint.layers or LAYERS,
        width=width,
        heads=checkpoint.heads or max(HEADS, width // 64),
        tokens=min(max_tokens, checkpoint.positions or max_tokens),
        random=weights != "trained",
        half=model.get("dtype", "float32") != "float32",
        kept=_size_mb(model["max_memory"].get("cpu", "1MB")) if "max_memory" in model else math.inf,
    )


def _size_mb(size: str) -> float:
    """Return a size of the configuration, such as 4GB or 4GiB, in MB."""
    number, unit = size.rstrip("KMGiB"), size.lstrip("0123456789")
    base = 1024 if unit[1] == "i" else 1000
    return float(int(number)) * float(base) ** ("KMG".index(unit[0]) + 1) / 10**6


@cache
def extraction(work: Work) -> Need:
    """Return the need of a forward pass whose layers leave the model one by one.

    A block works on its states, the wider ones of its feed-forward part, and several copies of its
    own attention; trained weights are mapped from their file, or turned into another type.
    """
    block = FLOAT_MB * work.tokens * 16 * work.width + 5 * work.heads * work.square
    return Need(_loaded(work, block), _minutes(_pass_seconds(work)))


@cache
def attention(work: Work) -> Need:
    """Return the need of a forward pass that stores attention.

    Some families show their attention only all at once, which no configuration tells.
    """
    shown = (work.layers + 5) * work.heads * work.square
    block = FLOAT_MB * work.tokens * 16 * work.width + shown
    return Need(_loaded(work, block), _minutes(_pass_seconds(work) + shown / 10))


@cache
def weights(work: Work) -> Need:
    """Return the need of norms and radii of all tensors: decompositions of every matrix."""
    work = work._replace(tokens=0, half=False, kept=math.inf)
    seconds = _pass_seconds(work) + 4 * _matrix_seconds(work)
    # Beside the model, the largest tensor in float64, twice.
    return Need(_loaded(work, work.weights), _minutes(seconds))


@cache
def geometry(work: Work) -> Need:
    """Return the need of a measure of the states, one layer after another.

    The worst of them hold a dozen matrices of tokens by tokens in float64 (energy), or are cubic in
    the tokens (eigenvalues) and start from many places (k-means, t-SNE).
    """
    states = FLOAT_MB * work.tokens * work.width
    seconds = work.layers * (2 + 4 * (work.tokens / 512) ** 3 + states)
    return Need(round(PYTHON_MB + 16 * work.square + 8 * states), _minutes(seconds))


@cache
def of_attention(work: Work) -> Need:
    """Return the need of a measure of attention, one block after another.

    A block is held in float32 and in float64; sums over heads are kept for every block. The slowest
    scales each head a hundred times and finds its eigenvalues.
    """
    mb = PYTHON_MB + (8 * work.heads + 2 * work.layers) * work.square
    return Need(round(mb), _minutes(work.layers * work.heads * (work.tokens / 512) ** 3))


def tables(runs: int) -> Need:
    """Return the need of a job that reads the tables of so many runs, a few MB each."""
    return Need(2 * PYTHON_MB + 10 * runs, _minutes(5 * runs))


def pictures(count: int) -> Need:
    """Return the need of a sheet of so many pictures."""
    return Need(PYTHON_MB + 50 * count, _minutes(2 * count))


SMALL = Need(PYTHON_MB, 10)
DOWNLOAD = Need(PYTHON_MB, 24 * 60)  # a day, for the slowest of networks


def _loaded(work: Work, block: float) -> int:
    """Return the MB of a process that draws weights where it must, then loads and runs them."""
    used = min(work.weights * (0.5 if work.half else 1), work.kept)
    # A checkpoint in float32 is mapped; one in another type lies in memory beside its copy.
    loaded = TORCH_MB + 1.5 * used + block
    # Trained and random weights, and the bytes that are written; beside them one large tensor in
    # float64.
    drawn = TORCH_MB + 2.4 * work.weights if work.random else 0
    return round(max(loaded, drawn))


def _pass_seconds(work: Work) -> float:
    """Return the seconds of loading weights (drawing them, too) and of one pass over a prompt."""
    # Hashed and loaded; from the disk, read again by each pass, of which the checks make seven.
    files = work.weights / DISK_MB_A_SECOND * (10 if work.kept < work.weights else 2)
    shared = 12 * work.layers * work.width**2  # a block that is iterated counts as often
    operations = 2 * work.tokens * max(work.weights / FLOAT_MB, shared)
    operations += 4 * work.layers * work.tokens**2 * work.width
    halves = 8 if work.half else 1  # processors without instructions for them
    drawn = 3 * work.weights / DISK_MB_A_SECOND + _matrix_seconds(work) if work.random else 0
    return files + halves * operations / OPERATIONS_A_SECOND + drawn


def _matrix_seconds(work: Work) -> float:
    """Return the seconds of one decomposition of every matrix (that of random orthogonal ones)."""
    return 4 * work.weights / FLOAT_MB * work.width / OPERATIONS_A_SECOND


def _minutes(seconds: float) -> int:
    """Return minutes: three times what is expected, after ten to start in."""
    return 10 + round(3 * seconds / 60)
