"""Count the clusters of average linkage at several cosine distances, layer by layer."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from tokensphere import partitions, sphere, store, tables

    with store.Activations(run.input.store) as activations:
        rows = [
            {"layer": layer, "state": state} | row
            for layer, state, vectors in run.progress(
                activations.states(), unit="layer", total=activations.n_states
            )
            for row in partitions.agglomerative(
                sphere.project(vectors), run.params.constants["agglomerative_thresholds"]
            )
        ]
    tables.write(run.output.table, rows, keys=["layer", "state", "threshold"])
