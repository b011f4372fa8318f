"""Measure in which share of the layers each token is clustered, and say what kind it is."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from tokensphere import pieces, populations, store, tables

    labels = tables.read_labels(run.input.labels)
    with store.Activations(run.input.store) as activations:
        tokens, special = activations.tokens, activations.special
        classes = pieces.classes(tokens, special, activations.attributes["piece_markers"])
        if not special[0]:
            classes[0] = pieces.FIRST
        last = run.params.cut or activations.layers
        residual = [(layer, "residual") for layer in range(last + 1)]
        # As published, the final norm stands in the place of the last layer.
        published = residual
        if activations.has_final_norm:
            published = [*residual[:-1], (activations.layers, "final_norm")]
    shares = [
        populations.shares_of_layers([labels[state] for state in states])
        for states in (published, residual)
    ]
    tables.write(
        run.output.table,
        [
            {
                "token": token,
                "piece": piece,
                "class": kind,
                "share_published": one,
                "share_residual": two,
            }
            for token, (piece, kind, one, two) in enumerate(
                zip(tokens, classes, *shares, strict=True)
            )
        ],
        keys=["token"],
    )
