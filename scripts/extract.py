"""Run one model with one weight set over one prompt, and store its residual stream or attention."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from contextlib import ExitStack
    from pathlib import Path

    from tokensphere import extraction, models, prompts, weight_cache, weight_sets

    weight_set = weight_sets.for_job(run)
    with ExitStack() as stack:
        offload = None
        if "device_map" in run.params.settings:
            cache = Path(run.params.where["cache"])
            offload = stack.enter_context(weight_cache.scratch(cache / "offload"))
        loaded = extraction.load(
            weight_set.folder,
            prompts.read(run.input.text, run.name),
            **run.params.settings,
            offload=offload,
            describe={
                "model": run.wildcards.model,
                **weight_set.facts,
                "prompt": run.wildcards.prompt,
            },
            where=run.name,
        )
        run.facts["device"] = loaded.attributes["device"]
        run.facts["device_map"] = models.placed(loaded.model)
        extract = {"residual": extraction.extract, "attention": extraction.attend}[run.params.what]
        extract(loaded, run.output.store, progress=lambda layers: run.steps("layer", layers).step)
