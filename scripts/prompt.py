"""Read one prompt, check its text, and put it where every job reads it."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from tokensphere import prompts

    entry = run.params.entry
    prompts.write(run.output.text, prompts.load(entry, where=run.name))
    if "module" in entry:
        run.external["module"] = {f"{entry['module']}:{entry['lines']}": entry["sha256"]}
        run.places["module"] = {"file": str(prompts.find_module(entry["module"], run.name))}
