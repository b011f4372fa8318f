"""Measure the Fiedler value of every head at several floors: under a causal mask it is theirs."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from tokensphere import routing, store, tables

    constants = run.params.constants
    with store.Attention(run.input.attention) as attention:
        rows = [
            {"layer": block} | row
            for block, weights in run.progress(
                attention.blocks(), unit="block", total=attention.layers
            )
            for row in routing.floors(
                weights,
                attention.causal,
                floors=constants["sinkhorn_floors"],
                tolerance=constants["sinkhorn_tolerance"],
                most=constants["sinkhorn_sweeps"],
                row_sum=attention.row_tolerance,
            )
        ]
    tables.write(run.output.table, rows, keys=["layer", "head", "floor"])
