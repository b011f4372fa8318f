"""Compare the attention that clustered and unclustered tokens receive, and who gives it."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from tokensphere import arrays, masks, received, store, tables

    profiles = arrays.read(run.input.profiles)
    labels = tables.read_labels(run.input.labels)
    with store.Activations(run.input.store) as activations:
        special = activations.special
        free = masks.content_free(len(special), activations.attributes["causal"])
    rows, heads, mass = [], [], []
    blocks = zip(profiles["received"], profiles["expected"], profiles["summed"], strict=True)
    for block, (own, expected, summed) in enumerate(
        run.progress(blocks, unit="block", total=len(profiles["received"])), start=1
    ):
        clustered = labels[block - 1, "residual"] >= 0  # of the states that the block reads
        place = {"layer": block}
        rows += [
            place | row
            for row in received.by_group(own.sum(axis=0), expected.sum(axis=0), clustered, special)
        ]
        heads += [place | row for row in received.by_head(own, expected[0], clustered, special)]
        mass += [place | row for row in received.mass(summed / len(own), free, clustered)]
    tables.write(run.output.table, rows, keys=["layer", "group"])
    tables.write(run.output.heads, heads, keys=["layer", "head", "group"])
    tables.write(run.output.mass, mass, keys=["layer", "from_group", "to_group"])
