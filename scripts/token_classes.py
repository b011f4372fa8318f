"""Count what kinds of token are in clusters and what kinds are in none."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from tokensphere import pieces, received, store, tables

    labels = tables.read_labels(run.input.labels)
    with store.Activations(run.input.store) as activations:
        classes = pieces.classes(
            activations.tokens, activations.special, activations.attributes["piece_markers"]
        )
    rows = [
        {"layer": layer, "state": state} | row
        for (layer, state), clusters in labels.items()
        for row in received.classes(classes, clusters >= 0)
    ]
    tables.write(run.output.table, rows, keys=["layer", "state", "group"])
