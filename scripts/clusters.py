"""Find HDBSCAN clusters layer by layer: how many, how large, and each token's label."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from tokensphere import clusters, sphere, store, tables

    size = run.params.constants["min_cluster_size"]
    rows, labels_of = [], []
    with store.Activations(run.input.store) as activations:
        for layer, state, vectors in run.progress(
            activations.states(), unit="layer", total=activations.n_states
        ):
            labels = clusters.hdbscan_labels(sphere.project(vectors), size)
            place = {"layer": layer, "state": state}
            rows.append(place | clusters.summarise(labels))
            labels_of += [
                place | {"token": token, "label": int(label)} for token, label in enumerate(labels)
            ]
    tables.write(run.output.table, rows, keys=["layer", "state"])
    tables.write(run.output.labels, labels_of, keys=["layer", "state", "token"])
