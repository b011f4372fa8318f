"""Stores: the activations of one run in one zarr file, and its attention in another.

A store is a zarr (format 3) group in one zip archive, one layer a chunk:

=============  ==========================  ===========================================
array          shape, type                 what
=============  ==========================  ===========================================
residual       (L + 1, tokens, width) f32  raw residual stream, layer 0 = embedding output
final_norm     (tokens, width) f32         after the last norm, where the model has one
token_ids      (tokens,) i64               ids as fed
tokens         (tokens,) str               readable pieces
special        (tokens,) bool              added by the tokenizer
=============  ==========================  ===========================================

and that of the attention holds one array, block l at index l - 1:

=============  ==================================  =======================================
attention      (L, heads, tokens, tokens) f32      rows are queries, columns keys; rows sum to 1
=============  ==================================  =======================================

The attributes say everything else, and imply the exact list of the archive's members: zarr
reads a missing chunk as zeros without a word, so a store opens only if that list is complete.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import BloscCodec
from zarr.storage import ZipStore

from tokensphere.harness.errors import UserError

SCHEMA = 2
RESIDUAL, FINAL_NORM, ATTENTION = "residual", "final_norm", "attention"
LAYERED = (RESIDUAL, ATTENTION)

# A row of float32 softmax weights adds up to 1 but for the rounding of each of its entries. In 16
# bits each entry is rounded by half an eps (2^-7, 2^-10) of itself at most, so the row by half an
# eps of 1; as much again is for what a softmax in 16 bits rounds on its way.
ROW_TOLERANCE = {"float32": 1e-5, "bfloat16": 2.0**-7, "float16": 2.0**-10}

Arrays = dict[str, tuple[tuple[int, ...], Any]]  # name -> (shape, type)

State = Literal["residual", "final_norm"]


class StoreError(UserError):
    """A store is damaged, incomplete, or holds values that no model can have made."""

    def __init__(self, path: str | Path, what: str) -> None:
        super().__init__(str(path), what, "delete the file and run the workflow again")


def _activations(attributes: Mapping[str, Any]) -> Arrays:
    """Return the arrays that the attributes of a store of activations imply."""
    layers, tokens, width = (attributes[key] for key in ("layers", "n_tokens", "width"))
    arrays: Arrays = {
        "token_ids": ((tokens,), "int64"),
        "tokens": ((tokens,), str),
        "special": ((tokens,), "bool"),
        RESIDUAL: ((layers + 1, tokens, width), "float32"),
    }
    if attributes["final_norm"]:
        arrays[FINAL_NORM] = ((tokens, width), "float32")
    return arrays


def _attention(attributes: Mapping[str, Any]) -> Arrays:
    """Return the array that the attributes of a store of attention imply."""
    # `causal` decides no shape, but without it the array cannot be understood.
    layers, heads, tokens, _ = (
        attributes[key] for key in ("layers", "heads", "n_tokens", "causal")
    )
    return {ATTENTION: ((layers, heads, tokens, tokens), "float32")}


def _members(arrays: Arrays) -> set[str]:
    """Return the members of an archive that holds these arrays."""
    members = {"zarr.json"}
    for name, (shape, _) in arrays.items():
        members.add(f"{name}/zarr.json")
        rest = "/0" * (len(shape) - 1)
        layers = range(shape[0]) if name in LAYERED else (0,)
        members |= {f"{name}/c/{layer}{rest}" for layer in layers}
    return members


class _Writer:
    """Write a store array by array; the arrays are those that `_implied` returns."""

    @staticmethod
    def _implied(attributes: Mapping[str, Any]) -> Arrays:
        raise NotImplementedError

    def __init__(self, path: str | Path, attributes: Mapping[str, Any]) -> None:
        self.attributes = {"schema": SCHEMA, **attributes}
        self._zip = ZipStore(path, mode="w")
        group = zarr.create_group(self._zip, attributes=self.attributes)
        self._arrays: dict[str, Any] = {}
        for name, (shape, dtype) in self._implied(self.attributes).items():
            self._arrays[name] = group.create_array(
                name,
                shape=shape,
                chunks=(1, *shape[1:]) if name in LAYERED else shape,
                dtype=dtype,
                compressors=_compressors(name, dtype),
                config={"write_empty_chunks": True},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._zip.close()


def _compressors(name: str, dtype: Any) -> Any:
    """Choose how an array is compressed: activations hardly shrink, masked attention halves."""
    if name == ATTENTION:
        return BloscCodec(cname="zstd", clevel=1, shuffle="shuffle", typesize=4)
    return None if dtype == "float32" else "auto"


class Writer(_Writer):
    """Write a store of activations layer by layer.

    Parameters
    ----------
    path : str or Path
        The file to write; the caller moves it into place once it is complete.
    attributes : mapping
        All facts about the run, JSON values only. `layers` (L), `n_tokens`, `width` and
        `final_norm` (bool) decide the arrays. They must be known now: a zip archive cannot
        replace a member, so attributes cannot be added later.
    """

    _implied = staticmethod(_activations)

    def write_tokens(self, ids: list[int], pieces: list[str], special: list[bool]) -> None:
        """Write the three arrays that describe the tokens."""
        self._arrays["token_ids"][:] = np.asarray(ids, dtype=np.int64)
        self._arrays["tokens"][:] = np.asarray(pieces, dtype=np.dtypes.StringDType())
        self._arrays["special"][:] = np.asarray(special, dtype=bool)

    def write_residual(self, layer: int, states: NDArray[np.float32]) -> None:
        """Write the residual stream of one layer, shape (tokens, width)."""
        self._arrays[RESIDUAL][layer] = states

    def write_final_norm(self, states: NDArray[np.float32]) -> None:
        """Write the output of the final norm, shape (tokens, width)."""
        self._arrays[FINAL_NORM][:] = states


class AttentionWriter(_Writer):
    """Write a store of attention block by block.

    Parameters
    ----------
    path : str or Path
    attributes : mapping
        As `Writer` takes them; `layers` (L), `heads` and `n_tokens` decide the array, `causal`
        (bool) what is allowed in it.
    """

    _implied = staticmethod(_attention)

    def write_attention(self, block: int, weights: NDArray[np.float32]) -> None:
        """Write the attention of one block 1..L, shape (heads, tokens, tokens)."""
        self._arrays[ATTENTION][block - 1] = weights


class _Store:
    """Read a store; its arrays are those that `_implied` returns."""

    @staticmethod
    def _implied(attributes: Mapping[str, Any]) -> Arrays:
        raise NotImplementedError

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            with zipfile.ZipFile(self.path) as archive:
                members = archive.namelist()
            self._zip = ZipStore(self.path, mode="r")
            self._group = zarr.open_group(self._zip, mode="r", zarr_format=3)
            self.attributes: dict[str, Any] = dict(self._group.attrs)
            schema = self.attributes["schema"]
            self._arrays = self._implied(self.attributes)
            expected = _members(self._arrays)
        except (zipfile.BadZipFile, OSError) as error:
            raise StoreError(path, f"it is no complete zip archive ({error})") from error
        except (KeyError, ValueError, TypeError) as error:
            raise StoreError(path, f"its attributes cannot be read ({error})") from error
        if schema != SCHEMA:
            raise StoreError(path, f"it has schema {schema}, this version reads schema {SCHEMA}")
        try:
            self._refuse_wrong_members(members, expected)
        except StoreError:
            self._zip.close()
            raise
        self.layers: int = self.attributes["layers"]

    def _refuse_wrong_members(self, members: list[str], expected: set[str]) -> None:
        if missing := sorted(expected - set(members)):
            raise StoreError(self.path, f"{len(missing)} members are missing, first {missing[0]}")
        if surplus := sorted(set(members) - expected):
            raise StoreError(self.path, f"{len(surplus)} members too many, first {surplus[0]}")
        if len(members) != len(expected):
            raise StoreError(self.path, "a member was written twice")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._zip.close()

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        try:
            yield
        except (zipfile.BadZipFile, zlib.error, ValueError, RuntimeError) as error:
            raise StoreError(self.path, f"array {name} cannot be read ({error})") from error

    def _read(self, name: str, selection: Any = slice(None)) -> NDArray[Any]:
        with self._reading(name):
            return np.asarray(self._group[name][selection])

    def refuse_wrong_arrays(self) -> None:
        """Refuse arrays whose shape or type is not what the attributes imply."""
        for name, (shape, dtype) in self._arrays.items():
            with self._reading(name):
                array: Any = self._group[name]
            if array.shape != shape:
                raise StoreError(self.path, f"{name} has shape {array.shape}, not {shape}")
            if dtype is not str and array.dtype != dtype:
                raise StoreError(self.path, f"{name} has type {array.dtype}, not {dtype}")


class Activations(_Store):
    """Read a store of activations; use it as a context manager.

    Parameters
    ----------
    path : str or Path

    Attributes
    ----------
    attributes : dict
    layers : int
        L; the residual stream has layers 0..L.

    Raises
    ------
    StoreError
        If the file is no complete zip archive, has another schema, or its members are not
        exactly those that its attributes imply.
    """

    _implied = staticmethod(_activations)

    @property
    def has_final_norm(self) -> bool:
        """Whether the model has a norm after its last block."""
        return bool(self.attributes["final_norm"])

    @property
    def token_ids(self) -> NDArray[np.int64]:
        """Token ids as fed, shape (tokens,)."""
        return self._read("token_ids")

    @property
    def tokens(self) -> list[str]:
        """Readable pieces, one a token."""
        return [str(piece) for piece in self._read("tokens")]

    @property
    def special(self) -> NDArray[np.bool_]:
        """Which tokens the tokenizer added, shape (tokens,)."""
        return self._read("special")

    def residual(self, layer: int) -> NDArray[np.float32]:
        """Raw residual stream of one layer 0..L, shape (tokens, width)."""
        return self._read(RESIDUAL, layer)

    def final_norm(self) -> NDArray[np.float32]:
        """Output of the final norm, shape (tokens, width)."""
        return self._read(FINAL_NORM)

    @property
    def n_states(self) -> int:
        """How many states `states` yields."""
        return self.layers + 1 + self.has_final_norm

    def states(self) -> Iterator[tuple[int, State, NDArray[np.float32]]]:
        """Yield (layer, state, vectors) of residual layers 0..L, then of the final norm.

        The final norm, where there is one, stands at layer L beside the raw residual stream,
        never in its place.
        """
        for layer in range(self.layers + 1):
            yield layer, "residual", self.residual(layer)
        if self.has_final_norm:
            yield self.layers, "final_norm", self.final_norm()

    def successions(
        self,
    ) -> Iterator[tuple[int, State, NDArray[np.float32] | None, NDArray[np.float32]]]:
        """Yield (layer, state, vectors before, vectors) of every state and the one before it.

        Before residual layer l comes residual layer l - 1, before layer 0 None; before the final
        norm comes residual layer L - 1, as before residual layer L: both stand at layer L.
        """
        last = [self.residual(0)]
        yield 0, "residual", None, last[0]
        for layer in range(1, self.layers + 1):
            last = [last[-1], self.residual(layer)]
            yield layer, "residual", last[0], last[1]
        if self.has_final_norm:
            yield self.layers, "final_norm", last[0], self.final_norm()


class Attention(_Store):
    """Read a store of attention; use it as a context manager.

    Parameters
    ----------
    path : str or Path

    Attributes
    ----------
    attributes : dict
    layers : int
        L; the blocks are 1..L.
    heads : int
    causal : bool
        A query gives weight to no later key.
    row_tolerance : float
        By how much a row may miss 1, in the type that the model ran in.

    Raises
    ------
    StoreError
        As `Activations` does.
    """

    _implied = staticmethod(_attention)

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self.heads: int = self.attributes["heads"]
        self.causal: bool = self.attributes["causal"]
        self.row_tolerance = ROW_TOLERANCE[self.attributes.get("dtype", "float32")]

    def block(self, block: int) -> NDArray[np.float32]:
        """Attention of one block 1..L, shape (heads, queries, keys)."""
        return self._read(ATTENTION, block - 1)

    def blocks(self) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Yield (block, attention) of blocks 1..L; the input of block l is layer l - 1."""
        for block in range(1, self.layers + 1):
            yield block, self.block(block)


def check(path: str | Path) -> None:
    """Re-open a store of activations that was just written and read all of it.

    Raises
    ------
    StoreError
        If a member is missing or damaged, a shape or type is not what the attributes imply, or
        a state is not finite; the message names the array and the layer.
    """
    with Activations(path) as activations:
        activations.refuse_wrong_arrays()
        for name in ("token_ids", "tokens", "special"):
            activations._read(name)
        for layer, state, vectors in activations.states():
            if not np.isfinite(vectors).all():
                place = f"residual layer {layer}" if state == "residual" else "the final norm"
                raise StoreError(path, f"{place} holds values that are not finite")


def check_attention(path: str | Path) -> None:
    """Re-open a store of attention that was just written and read all of it.

    Raises
    ------
    StoreError
        As `check` does; also if a weight is negative, a row does not add up to 1, or a query of a
        causal model gives weight to a later key.
    """
    with Attention(path) as attention:
        attention.refuse_wrong_arrays()
        for block, weights in attention.blocks():
            if problem := attention_problem(
                weights, attention.causal, attention.attributes.get("dtype", "float32")
            ):
                raise StoreError(path, f"block {block}, {problem}")


def attention_problem(weights: NDArray[np.float32], causal: bool, dtype: str = "float32") -> str:
    """Say what is wrong with the attention of one block, '' if nothing is.

    Parameters
    ----------
    weights : array, shape (heads, queries, keys)
    causal : bool
    dtype : str
        The type that the model ran in; it decides how exactly rows add up to 1.
    """
    for head, matrix in enumerate(weights):
        place = f"head {head}"
        if not np.isfinite(matrix).all():
            return f"{place}: a weight is not finite"
        if (matrix < 0).any():
            return f"{place}: a weight is negative"
        error = np.abs(matrix.sum(axis=1, dtype=np.float64) - 1)
        if error.max() > ROW_TOLERANCE[dtype]:
            query = int(error.argmax())
            return f"{place}: the row of query {query} adds up to 1 but for {error[query]:.3g}"
        if causal and np.triu(matrix, 1).any():
            return f"{place}: a query sees a later key, though the model is causal"
    return ""
