"""Random baselines: weights drawn to compare a trained model with, kept in a cache.

Every tensor is drawn in float32 by NumPy from a generator seeded by (scheme, seed, tensor
name): no draw depends on another, on the number of threads, or on the kind of processor.

That holds for `gaussian`, too, which is the initialisation that the model's family has in
transformers: the family's own code runs, module by module, but every random number that it asks
torch for comes from the generator of the tensor that it is for. What the code decides is kept as
it is: the distribution of each tensor (GPT-2 draws c_proj narrower, by the number of layers),
its constants (gains 1, biases 0), a row of zeros for a padding token. The random numbers are not
those that torch would have drawn.
"""

from __future__ import annotations

import hashlib
import math
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch.utils._python_dispatch import TorchDispatchMode

from tokensphere import hashes, models, sources, weight_cache
from tokensphere.harness.errors import UserError

Draw = Callable[[NDArray[np.float32], np.random.Generator], NDArray[np.float32]]
Tensors = Mapping[str, NDArray[np.float32]]
Generators = Callable[[str], np.random.Generator]


def generator(scheme: str, seed: int, tensor: str) -> np.random.Generator:
    """Return the random generator of one tensor."""
    digest = hashlib.sha256(f"{scheme}.{seed}:{tensor}".encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "big")))


def frobenius_norm(tensor: NDArray[np.float32]) -> float:
    """Return the Frobenius norm, summed in float64."""
    return float(np.sqrt(np.sum(np.square(tensor, dtype=np.float64))))


def norm_matched(trained: NDArray[np.float32], random: np.random.Generator) -> NDArray[np.float32]:
    """Draw a Gaussian tensor with the Frobenius norm of the trained one.

    Its operator norm is about half the trained one: a trained matrix has a few directions far
    above the rest, a Gaussian one has none.
    """
    drawn = random.standard_normal(trained.shape, dtype=np.float32)
    return (drawn * np.float64(frobenius_norm(trained) / frobenius_norm(drawn))).astype(np.float32)


def orthogonal(trained: NDArray[np.float32], random: np.random.Generator) -> NDArray[np.float32]:
    """Draw a matrix whose singular values are all 1, uniformly (Haar).

    The Q of a Gaussian matrix, the signs of R's diagonal taken out, in float64. A tensor with
    more than two axes is a matrix of its first axis against all others.
    """
    rows, columns = trained.shape[0], trained[0].size
    gaussian = random.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(gaussian)
    q = q * np.sign(np.diagonal(r))
    drawn = q if rows >= columns else q.T
    return np.ascontiguousarray(drawn.reshape(trained.shape), dtype=np.float32)


def small_gaussian(
    trained: NDArray[np.float32], random: np.random.Generator
) -> NDArray[np.float32]:
    """Draw from N(0, 0.02), the embeddings of the orthogonal scheme."""
    return np.float32(0.02) * random.standard_normal(trained.shape, dtype=np.float32)


def shuffled(trained: NDArray[np.float32], random: np.random.Generator) -> NDArray[np.float32]:
    """Permute the entries of a tensor: the same values, in no order."""
    return random.permutation(trained.reshape(-1)).reshape(trained.shape)


def plain_norms(model: Any, trained: Tensors) -> dict[str, NDArray[np.float32]]:
    """Set what is no matrix: norms to gain 1 and bias 0, other biases to 0."""
    norms = {
        name for name, module in model.named_modules() if "norm" in type(module).__name__.lower()
    }
    plain = {}
    for name, tensor in trained.items():
        owner, _, kind = name.rpartition(".")
        if owner in norms and kind == "weight":
            plain[name] = np.ones_like(tensor)
        elif owner in norms or tensor.ndim < 2:
            plain[name] = np.zeros_like(tensor)
    return plain


def one_by_one(
    model: Any, trained: Tensors, random: Generators, *, matrix: Draw, embedding: Draw
) -> None:
    """Draw each matrix and each embedding by itself; norms and biases become plain."""
    plain = plain_norms(model, trained)
    embeddings = {
        name for name, module in model.named_modules() if isinstance(module, torch.nn.Embedding)
    }
    for name, parameter in model.named_parameters():
        draw = embedding if name.rpartition(".")[0] in embeddings else matrix
        drawn = plain[name] if name in plain else draw(trained[name], random(name))
        parameter.copy_(torch.from_numpy(drawn))


def shuffle(model: Any, trained: Tensors, random: Generators) -> None:
    """Permute the entries of every tensor, those of norms and biases too."""
    for name, parameter in model.named_parameters():
        parameter.copy_(torch.from_numpy(shuffled(trained[name], random(name))))


class Draws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Where torch is asked for random numbers, take those of the tensor that they are for.

    Parameters
    ----------
    model : nn.Module
        Each parameter with a memory of its own, by which it is told.
    random : callable (name) -> numpy.random.Generator
    """

    def __init__(self, model: Any, random: Generators) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._random = random
        self._names = {
            parameter.untyped_storage().data_ptr(): (name, parameter.shape)
            for name, parameter in model.named_parameters()
        }

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in function.tags:
            return function(*args, **kwargs)
        if function not in DRAWN:
            raise _unsupported(f"draws by {function}")
        tensor, *arguments = args
        name, shape = self._names.get(tensor.untyped_storage().data_ptr(), ("", None))
        if not name:
            raise _unsupported("draws numbers that are for no tensor of the model")
        if tensor.shape != shape:  # a part of a tensor is seeded by where it starts
            name += f"[{tensor.storage_offset()}]"
        numbers = DRAWN[function](self._random(name), tensor.shape, *arguments)
        return tensor.copy_(torch.from_numpy(numbers.astype(np.float32, copy=False)))


def _normal(
    random: np.random.Generator, shape: tuple[int, ...], mean: float = 0.0, sd: float = 1.0
) -> NDArray[np.float32]:
    drawn = np.float32(sd) * random.standard_normal(shape, dtype=np.float32)
    return drawn + np.float32(mean)


def _uniform(
    random: np.random.Generator, shape: tuple[int, ...], low: float = 0.0, high: float = 1.0
) -> NDArray[np.float32]:
    drawn = np.float32(high - low) * random.random(shape, dtype=np.float32)
    return drawn + np.float32(low)


DRAWN = {torch.ops.aten.normal_.default: _normal, torch.ops.aten.uniform_.default: _uniform}


def initialise(model: Any, trained: Tensors, random: Generators) -> None:
    """Initialise a model as its family in transformers does, drawing tensor by tensor.

    Raises
    ------
    UserError
        If the family draws otherwise than by normal or uniform numbers, or sets a tensor
        nowhere but in its constructor.
    """
    for one in (*model.modules(), *model.parameters(), *model.buffers()):
        one._is_hf_initialized = False  # loading has marked what it read
    for parameter in model.parameters():
        parameter.fill_(math.nan)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # what the code computes from the numbers, in the same order
    try:
        with Draws(model, random):
            model.initialize_weights()
    finally:
        torch.set_num_threads(threads)
    for name, parameter in model.named_parameters():
        if parameter.isnan().any():
            raise _unsupported(f"does not set {name}")


def _unsupported(what: str) -> UserError:
    return UserError(
        "the scheme gaussian",
        f"this family's initialisation {what}",
        "use another random scheme for this model",
    )


# Scheme -> how it replaces the tensors of a model, given the trained ones and the generators.
SCHEMES: dict[str, Callable[[Any, Tensors, Generators], None]] = {
    "norm_matched": partial(one_by_one, matrix=norm_matched, embedding=norm_matched),
    "orthogonal": partial(one_by_one, matrix=orthogonal, embedding=small_gaussian),
    "gaussian": initialise,
    "shuffled": shuffle,
}


def randomise(model: Any, scheme: str, seed: int) -> list[dict[str, Any]]:
    """Replace the weights of a model by random ones, in place.

    Each tensor is replaced as the model holds it: one that two modules share stays shared.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        With the trained weights, on the CPU.
    scheme : str
        A key of `SCHEMES`.
    seed : int

    Returns
    -------
    list of dict
        One a tensor: `tensor`, `trained_norm`, `random_norm` (Frobenius).

    Raises
    ------
    RuntimeError
        If a drawn matrix equals the trained one, unless all entries of that are the same.
    """
    trained = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
    report = []
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.data = torch.empty_like(parameter, memory_format=torch.contiguous_format)
        SCHEMES[scheme](model, trained, partial(generator, scheme, seed))
        for name, parameter in model.named_parameters():
            before, drawn = trained[name], parameter.numpy()
            if drawn.ndim > 1 and np.array_equal(drawn, before) and np.ptp(before) > 0:
                raise RuntimeError(f"{scheme}.{seed}: {name} is still the trained tensor")
            report.append(
                {
                    "tensor": name,
                    "trained_norm": frobenius_norm(before),
                    "random_norm": frobenius_norm(drawn),
                }
            )
    return report


def ensure(
    cache: Path,
    source: str,
    folder: Path,
    scheme: str,
    seed: int,
    *,
    known: hashes.Cache,
    where: str,
) -> Path:
    """Return the checkpoint folder of a random weight set, drawing it if it is not there yet.

    Parameters
    ----------
    cache : Path
        The folder of all cached weight sets.
    source : str
        Identity of the trained checkpoint (`sources.identify`).
    folder : Path
        The trained checkpoint.
    scheme, seed : str, int
    known : hashes.Cache
        Hashes of files that did not change since they were last read.
    where : str
        How errors call the model.
    """
    if scheme not in SCHEMES:
        raise UserError(
            where, f"{scheme!r} is no random scheme", f"use one of {', '.join(SCHEMES)}"
        )

    def write(part: Path) -> dict[str, Any]:
        model = models.load(folder, "cpu", where)
        tensors = randomise(model, scheme, seed)
        model.save_pretrained(part)
        for path in sources.tokenizer_files(folder):
            shutil.copy(path, part / path.name)
        return {"source": source, "scheme": scheme, "seed": seed, "tensors": tensors}

    code = [hashes.of_file(__file__), f"transformers {transformers.__version__}"]
    return weight_cache.ensure(cache, [source, scheme, seed, *code], write, known)
