"""Find the layers in which signals stand still, and those into which clusters merge."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from tokensphere import plateaus, tables

    # Signal -> its table, and its column as published and controlled.
    columns = {
        "mass_near_one": ("inner_products", "mass_near_one", "mass_near_one_distinct"),
        "effective_rank": ("effective_rank", "raw", "sphere"),
        "spectral_count": ("spectral_count", "eigengap", "eigengap"),
        "cluster_count": ("clusters", "count", "count"),
        "fiedler": ("fiedler", "published", "symmetrised"),
        "cka": ("cka", "cka", "cka_debiased"),
        "neighbours": ("neighbours", "stability", "label_ari"),
    }
    constants = run.params.constants
    rows = {table: tables.read(run.input[table]) for table, _, _ in columns.values()}
    layers = range(rows["clusters"]["layer"].max() + 1)
    events = tables.read(run.input.cluster_events)
    merged = events[events["event"] == "merge"].set_index(["layer", "state"]).index
    found, merges = [], []
    for place, reading in enumerate(("published", "controlled"), start=1):
        signals = {}
        for name, column in columns.items():
            table = rows[column[0]]
            if "state" in table:
                table = tables.states(table, reading)
            # Mean over heads, where there are several values a layer; none at layer 0 for some.
            signals[name] = table.groupby("layer")[column[place]].mean().reindex(layers)
        found += [
            {"reading": reading} | row
            for row in plateaus.find(
                signals,
                constants["plateau_tolerances"],
                window=constants["plateau_window"],
                together=constants["plateau_signals"],
            )
        ]
        # Clusters merge into the states that this reading looks at.
        states = tables.states(rows["clusters"], reading).set_index(["layer", "state"]).index
        merged_at = merged[merged.isin(states)].get_level_values("layer")
        merges += [
            {"reading": reading} | row
            for row in plateaus.merges(signals["mass_near_one"], merged_at, constants["merge_jump"])
        ]
    tables.write(
        run.output.table,
        found,
        keys=["reading", "signal", "start"],
        columns=["reading", "signal", "start", "end"],
    )
    tables.write(
        run.output.merges,
        merges,
        keys=["reading", "layer", "sign"],
        columns=["reading", "layer", "sign", "size"],
    )
