"""Count HDBSCAN clusters of the first 64, 128, 256, ... tokens: the count grows with the number."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from tokensphere import clusters, sphere, store, tables

    size = run.params.constants["min_cluster_size"]
    rows = []
    with store.Activations(run.input.store) as activations:
        for layer in run.progress(
            range(activations.layers + 1), unit="layer", total=activations.layers + 1
        ):
            points = sphere.project(activations.residual(layer))
            for length in clusters.prefix_lengths(len(points)):
                found = clusters.summarise(clusters.hdbscan_labels(points[:length], size))
                rows.append(
                    {
                        "layer": layer,
                        "tokens": length,
                        "count": found["count"],
                        "membership": found["membership"],
                    }
                )
    tables.write(run.output.table, rows, keys=["layer", "tokens"])
