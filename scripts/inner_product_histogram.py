"""Count the inner products in equal bins, layer by layer."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from tokensphere import sphere, store, tables

    with store.Activations(run.input.store) as activations:
        token_ids = activations.token_ids
        rows = [
            {"layer": layer, "state": state} | row
            for layer, state, vectors in run.progress(
                activations.states(), unit="layer", total=activations.n_states
            )
            for row in sphere.inner_product_histogram(
                sphere.project(vectors), token_ids, run.params.constants["histogram_bins"]
            )
        ]
    tables.write(run.output.table, rows, keys=["layer", "state", "bin"])
