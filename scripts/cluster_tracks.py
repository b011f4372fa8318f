"""Follow clusters through depth: identities that stay, births, deaths, merges and splits."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from tokensphere import tables, tracking

    constants = run.params.constants
    labels = tables.read_labels(run.input.labels)
    identities, events = tracking.track(labels, constants["track_overlap"])
    tables.write(
        run.output.table,
        tracking.describe(labels, identities),
        keys=["layer", "state", "cluster"],
        columns=tracking.TRACK_COLUMNS,
    )
    tables.write(
        run.output.events,
        events,
        keys=["layer", "state", "event", "cluster", "into"],
        columns=tracking.EVENT_COLUMNS,
    )
    run.seeds["permutations"] = constants["track_seed"]
    tables.write(
        run.output.turnover,
        tracking.turnover(
            labels,
            permutations=constants["track_permutations"],
            seed=constants["track_seed"],
            least=constants["track_overlap"],
        ),
        keys=["layer", "state"],
    )
