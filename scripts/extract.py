"""Run one model with one weight set over one prompt and store its residual stream."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from pathlib import Path

    from tokensphere import baselines, extraction, hashes, prompts, sources
    from tokensphere.harness.errors import UserError

    place, settings, weights = run.params.where, run.params.settings, run.wildcards.weights
    known = hashes.Cache(Path(place["cache"]) / "hashes.json")
    folder = sources.locate(place["source"], run.name)
    if sources.identify(folder, known) != run.params.source:
        raise UserError(
            run.name, f"{folder} changed since the run was planned", "run the workflow again"
        )
    scheme, _, seed = weights.partition(".")
    if scheme != "trained":
        run.seeds["weights"] = int(seed)
        folder = baselines.ensure(
            Path(place["cache"]) / "weights",
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
