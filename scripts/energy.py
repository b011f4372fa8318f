"""Measure the interaction energy, its fall from layer to layer, and the pairs that fall most."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from tokensphere import energy, sphere, store, tables

    constants = run.params.constants
    rows, pairs = [], []
    with store.Activations(run.input.store) as activations:
        for layer, state, before, vectors in run.progress(
            activations.successions(), unit="layer", total=activations.n_states
        ):
            gram = sphere.gram(sphere.project(vectors))
            earlier = None if before is None else sphere.gram(sphere.project(before))
            for beta in constants["beta"]:
                place = {"layer": layer, "state": state, "beta": float(beta)}
                rows.append(
                    place
                    | energy.summarise(
                        gram,
                        earlier,
                        beta,
                        drop=constants["energy_drop"],
                        drop_relative=constants["energy_drop_relative"],
                    )
                )
                if earlier is not None:
                    falls = energy.largest_falls(earlier, gram, beta, constants["energy_pairs"])
                    pairs += [
                        place | {"rank": rank, "i": i, "j": j, "change": change}
                        for rank, (i, j, change) in enumerate(falls, start=1)
                    ]
    tables.write(run.output.table, rows, keys=["layer", "state", "beta"])
    tables.write(
        run.output.pairs,
        pairs,
        keys=["layer", "state", "beta", "rank"],
        columns=["layer", "state", "beta", "rank", "i", "j", "change"],
    )
