"""Read one prompt, check its text, and put it where every job reads it."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from tokensphere import prompts

    prompts.write(run.output.text, prompts.load(run.params.entry, where=run.name))
