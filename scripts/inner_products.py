"""Measure mean, spread and mass near 1 of the inner products, layer by layer."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from tokensphere import sphere, store, tables

    with store.Activations(run.input.store) as activations:
        token_ids = activations.token_ids
        rows = [
            {"layer": layer, "state": state}
            | sphere.inner_products(
                sphere.project(vectors), token_ids, run.params.constants["near_one"]
            )
            for layer, state, vectors in run.progress(
                activations.states(), unit="layer", total=activations.n_states
            )
        ]
    tables.write(run.output.table, rows, keys=["layer", "state"])
