"""Project the tokens of the drawn layers to two dimensions by PCA, t-SNE and UMAP."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from tokensphere import arrays, projections, sphere, store

    constants, cut = run.params.constants, run.params.cut
    run.seeds["projections"] = constants["projection_seed"]
    with store.Activations(run.input.store) as activations:
        states = projections.drawn_layers(cut or activations.layers)
        if activations.has_final_norm:
            states.append("final_norm")
        found = {}
        for name in run.progress(states, unit="state", total=len(states)):
            vectors = (
                activations.final_norm() if name == "final_norm" else activations.residual(name)
            )
            places = projections.project(
                sphere.project(vectors),
                perplexity=constants["tsne_perplexity"],
                neighbours=constants["umap_neighbours"],
                seed=constants["projection_seed"],
            )
            found |= {f"{method}_{name}": places[method] for method in projections.METHODS}
    arrays.write(run.output.arrays, found)
