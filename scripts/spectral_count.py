"""Count clusters by the eigengap of the Gram matrix's Laplacian, whole and within clusters."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from tokensphere import laplacian, sphere, store, tables

    labels = tables.read_labels(run.input.labels)
    with store.Activations(run.input.store) as activations:
        rows = [
            {"layer": layer, "state": state}
            | laplacian.summarise(sphere.gram(sphere.project(vectors)), labels[layer, state])
            for layer, state, vectors in run.progress(
                activations.states(), unit="layer", total=activations.n_states
            )
        ]
    tables.write(run.output.table, rows, keys=["layer", "state"])
