"""Measure the inner products of pairs within a cluster, between two, and outside, by layer."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from tokensphere import populations, sphere, store, tables

    labels = tables.read_labels(run.input.labels)
    with store.Activations(run.input.store) as activations:
        token_ids = activations.token_ids
        rows = [
            {"layer": layer, "state": state} | row
            for layer, state, vectors in run.progress(
                activations.states(), unit="layer", total=activations.n_states
            )
            for row in populations.pair_populations(
                sphere.project(vectors),
                token_ids,
                labels[layer, state],
                run.params.constants["near_one"],
            )
        ]
    tables.write(run.output.table, rows, keys=["layer", "state", "population"])
