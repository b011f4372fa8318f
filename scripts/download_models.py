"""Download the hub models of the configuration into huggingface_hub's cache; pin their commits."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from tokensphere import downloads, sources

    models = run.params.where["models"]
    pinned = sources.revisions()
    for name, source in run.progress(models.items(), unit="model", total=len(models)):
        name_of_pin = sources.pinned_as(source)
        revision = source.get("revision") or pinned.get(name_of_pin) or source.get("ref")
        commit = downloads.fetch(source["hub"], revision, f"models.{name}.source")
        if "revision" not in source:
            pinned[name_of_pin] = commit
            downloads.pin(pinned)
