"""Ask every head how near it is to the Boolean attention of low rank that the theory predicts."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from tokensphere import leaders, store, tables

    with store.Attention(run.input.attention) as attention:
        rows = [
            {"layer": block} | row
            for block, weights in run.progress(
                attention.blocks(), unit="block", total=attention.layers
            )
            for row in leaders.leaders(weights, run.params.constants["leader_followers"])
        ]
    tables.write(run.output.table, rows, keys=["layer", "head"])
