"""Measure the effective rank of the raw states and of the sphere points, and its gates."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from tokensphere import spectrum, sphere, store, tables

    with store.Activations(run.input.store) as activations:
        rows = [
            {"layer": layer, "state": state} | spectrum.summarise(vectors, sphere.project(vectors))
            for layer, state, vectors in run.progress(
                activations.states(), unit="layer", total=activations.n_states
            )
        ]
    tables.write(run.output.table, rows, keys=["layer", "state"])
