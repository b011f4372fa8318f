"""Put the per-run tables of one metric into one, each row with its run in front."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from tokensphere import tables

    tables.collect(run.input.tables, run.params.runs, run.output.table)
