"""Download the hub models of the configuration into huggingface_hub's cache; pin their commits."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from tokensphere import downloads, sources

    models = run.params.where["models"]
    pinned = sources.revisions()
    for name, source in run.progress(models.items(), unit="model", total=len(models)):
        revision = source.get("revision") or pinned.get(source["hub"])
        pinned[source["hub"]] = downloads.fetch(source["hub"], revision, f"models.{name}.source")
        downloads.pin(pinned)
