"""Sum up attention once, so that whatever looks at clusters need not read it again."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    import numpy as np

    from tokensphere import arrays, received, store

    with store.Attention(run.input.attention) as attention:
        sums = []
        profiles = []
        for _, weights in run.progress(attention.blocks(), unit="block", total=attention.layers):
            profiles.append(received.profile(weights))
            sums.append(weights.sum(axis=0, dtype=np.float64).astype(np.float32))
        expected = received.expected(weights.shape[1], attention.causal)
    arrays.write(
        run.output.arrays,
        {
            "received": np.stack(profiles),
            "expected": np.broadcast_to(expected, np.shape(profiles)).copy(),
            "summed": np.stack(sums),
        },
    )
