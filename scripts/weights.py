"""Measure a weight set: norms of every tensor beside the trained ones, radii of value matrices."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from tokensphere import models, tables, weight_sets, weight_tables

    weight_set = weight_sets.for_job(run)
    trained = None if run.wildcards.weights == "trained" else {}
    if run.input.trained:
        frame = tables.read(run.input.trained)
        norms = zip(frame["trained_norm"], frame["trained_operator_norm"], strict=True)
        trained = dict(zip(frame["tensor"], norms, strict=True))
    model = models.load(weight_set.folder, "cpu", run.name)
    tables.write(run.output.table, weight_tables.norms(model, trained), keys=["tensor"])
    tables.write(
        run.output.values,
        weight_tables.value_radii(model),
        keys=["layer", "tensor"],
        columns=weight_tables.VALUES,
    )
