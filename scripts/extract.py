"""Run one model with one weight set over one prompt, and store its residual stream or attention."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from tokensphere import extraction, prompts, weight_sets

    folder, facts = weight_sets.find(
        **run.params.where,
        revision=run.params.source,
        weights=run.wildcards.weights,
        where=run.name,
    )
    if "seed" in facts:
        run.seeds["weights"] = facts["seed"]
    run.external["checkpoint"], run.places["checkpoint"] = weight_sets.origin(
        **run.params.where, where=run.name
    )
    loaded = extraction.load(
        folder,
        prompts.read(run.input.text, run.name),
        **run.params.settings,
        describe={"model": run.wildcards.model, **facts, "prompt": run.wildcards.prompt},
        where=run.name,
    )
    run.facts["device"] = loaded.attributes["device"]
    extract = {"residual": extraction.extract, "attention": extraction.attend}[run.params.what]
    extract(loaded, run.output.store, progress=lambda layers: run.steps("layer", layers).step)
