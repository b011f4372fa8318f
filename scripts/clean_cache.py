"""Delete the cache: random weight sets and file hashes. Both are made again when needed."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    import shutil
    from pathlib import Path

    shutil.rmtree(Path(run.params.where["cache"]), ignore_errors=True)
