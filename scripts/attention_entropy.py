"""Measure how spread the attention of every head is, and how much of it position 0 has."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from tokensphere import leaders, store, tables

    with store.Attention(run.input.attention) as attention:
        rows = [
            {"layer": block} | row
            for block, weights in run.progress(
                attention.blocks(), unit="block", total=attention.layers
            )
            for row in leaders.entropy(weights, attention.causal)
        ]
    tables.write(run.output.table, rows, keys=["layer", "head"])
