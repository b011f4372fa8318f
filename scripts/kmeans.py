"""Partition each layer by k-means and judge each k by its silhouette."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from tokensphere import partitions, sphere, store, tables

    constants = run.params.constants
    run.seeds["kmeans"] = constants["kmeans_seed"]
    with store.Activations(run.input.store) as activations:
        rows = [
            {"layer": layer, "state": state} | row
            for layer, state, vectors in run.progress(
                activations.states(), unit="layer", total=activations.n_states
            )
            for row in partitions.kmeans(
                sphere.project(vectors),
                largest=constants["kmeans_largest"],
                starts=constants["kmeans_starts"],
                seed=constants["kmeans_seed"],
            )
        ]
    tables.write(run.output.table, rows, keys=["layer", "state", "k"])
