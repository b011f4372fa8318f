"""Run one model with one weight set over one prompt and store its residual stream."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from pathlib import Path

    from tokensphere import baselines, dequantised, extraction, hashes, prompts, sources
    from tokensphere.harness.errors import UserError

    place, settings, weights = run.params.where, run.params.settings, run.wildcards.weights
    known = hashes.Cache(Path(place["cache"]) / "hashes.json")
    folder = sources.locate(place["source"], run.name)
    if sources.identify(folder, known) != run.params.source:
        raise UserError(
            run.name, f"{folder} changed since the run was planned", "run the workflow again"
        )
    cache = Path(place["cache"]) / "weights"
    if folder.suffix == sources.GGUF:
        folder = dequantised.ensure(cache, run.params.source, folder, known)
    scheme, _, seed = weights.partition(".")
    if scheme != "trained":
        run.seeds["weights"] = int(seed)
        folder = baselines.ensure(
            cache,
            run.params.source,
            folder,
            scheme,
            int(seed),
            known=known,
            where=run.name,
        )
    files = sources.file_hashes(folder, known)
    known.save()
    attributes = extraction.extract(
        folder,
        prompts.read(run.input.text, run.name),
        run.output.store,
        device=settings["device"],
        threads=settings["threads"],
        max_tokens=settings["max_tokens"],
        describe={
            "model": run.wildcards.model,
            "weights": weights,
            "weights_are": "random" if seed else sources.honest_weights(place["source"]),
            "scheme": scheme,
            **({"seed": int(seed)} if seed else {}),
            "prompt": run.wildcards.prompt,
            "source": sources.describe(place["source"]),
            "revision": run.params.source,
            "files_sha256": files,
        },
        where=run.name,
        progress=lambda layers: run.steps("layer", layers).step,
    )
    run.facts["device"] = attributes["device"]
