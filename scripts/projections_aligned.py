"""Project the tokens of every layer so that each moves no more than it must: for animations."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from tokensphere import arrays, projections, sphere, store

    constants = run.params.constants
    run.seeds["projections"] = constants["projection_seed"]
    found, places = {}, {}
    with store.Activations(run.input.store) as activations:
        for layer, state, vectors in run.progress(
            activations.states(), unit="layer", total=activations.n_states
        ):
            # The final norm stands at layer L, so both follow layer L - 1.
            places[layer, state] = projections.project(
                sphere.project(vectors),
                perplexity=constants["tsne_perplexity"],
                neighbours=constants["umap_neighbours"],
                seed=constants["projection_seed"],
                before=places.get((layer - 1, "residual")),
            )
            name = layer if state == "residual" else state
            found |= {
                f"{method}_{name}": places[layer, state][method] for method in projections.METHODS
            }
    arrays.write(run.output.arrays, found)
