"""How long an extraction takes beside a bare forward pass of the same model.

    python tests/tools/benchmark.py CHECKPOINT [--tokens 512] [--repeats 3] [--threads 2]

The bare pass keeps the same states in memory; an extraction streams them into a store, opens it
again and checks it. Both are timed in turn, in one process, after the model is loaded twice (the
second load finds the file in memory). Then an extraction alone, in a process of its own, says how
much memory it takes.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))  # before an installed one, of another checkout

from tokensphere import extraction, models, store  # noqa: E402

TEXT = (ROOT / "config/prompts/camus_letranger.txt").read_text(encoding="utf-8")


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that a piece of work takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def load(folder: Path, tokens: int, threads: int) -> extraction.Run:
    """Load a checkpoint, and a prompt of so many tokens: a text, over and over."""
    return extraction.load(
        folder,
        TEXT * (1 + tokens // 100),
        device="cpu",
        threads=threads,
        max_tokens=tokens,
        describe={"model": folder.name, "weights": "trained", "prompt": "benchmark"},
        where=str(folder),
    )


def bare(run: extraction.Run) -> object:
    """Run the model once, and keep every state in memory."""
    kept = []
    blocks = run.anatomy.blocks
    with models.residual_stream(blocks, lambda layer, states: kept.append(states.clone())):
        kept.append(models.forward(run.model, run.tokens.ids))
    return kept


def main() -> None:
    """Measure, and print what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    arguments = (given.checkpoint, given.tokens, given.threads)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "run.zarr.zip"
        if given.once:
            extraction.extract(load(*arguments), path)
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)
            return
        cold = timed(lambda: load(*arguments))
        warm = timed(lambda: load(*arguments))
        run = load(*arguments)
        passes, stores = [], []
        for _ in range(given.repeats):
            passes.append(timed(lambda: bare(run)))
            stores.append(timed(lambda: extraction.extract(run, path)))
            size = path.stat().st_size / 1e6
            path.unlink()
    peak = subprocess.run(
        [sys.executable, __file__, *sys.argv[1:], "--once"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()[-1]
    facts = run.attributes
    print(f"{given.checkpoint.name}: {facts['layers']} layers, width {facts['width']}, "
          f"{facts['n_tokens']} tokens, schema {store.SCHEMA}")  # fmt: skip
    print(f"load, with checks {cold:.1f} s, again {warm:.1f} s")
    print(f"bare pass {min(passes):.2f} s (median {median(passes):.2f})")
    print(f"extraction {min(stores):.2f} s (median {median(stores):.2f}), {size:.0f} MB on disk")
    print(
        f"ratio {min(stores) / min(passes):.2f} (of medians {median(stores) / median(passes):.2f})"
    )
    print(f"peak memory of a load and an extraction {float(peak):.0f} MB")


if __name__ == "__main__":
    main()
