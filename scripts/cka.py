"""Compare each layer with the one before it by CKA, biased as published and debiased."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from tokensphere import similarity, sphere, store, tables

    with store.Activations(run.input.store) as activations:
        rows = [
            {"layer": layer, "state": state}
            | similarity.cka(sphere.project(before), sphere.project(vectors))
            for layer, state, before, vectors in run.progress(
                activations.successions(), unit="layer", total=activations.n_states
            )
            if before is not None
        ]
    tables.write(run.output.table, rows, keys=["layer", "state"])
