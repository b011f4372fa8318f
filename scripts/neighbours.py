"""Measure which nearest neighbours and which clusters stay from one layer to the next."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from tokensphere import clusters, similarity, sphere, store, tables

    labels = tables.read_labels(run.input.labels)
    rows = []
    with store.Activations(run.input.store) as activations:
        for layer, state, before, vectors in run.progress(
            activations.successions(), unit="layer", total=activations.n_states
        ):
            if before is None:
                continue
            moved = similarity.neighbours(
                sphere.gram(sphere.project(before)), sphere.gram(sphere.project(vectors))
            )
            agreed = clusters.agreement(labels[layer - 1, "residual"], labels[layer, state])
            reasons = [moved.pop("reason"), agreed.pop("reason")]
            rows.append(
                {"layer": layer, "state": state}
                | moved
                | agreed
                | {"reason": "; ".join(filter(None, reasons))}
            )
    tables.write(run.output.table, rows, keys=["layer", "state"])
