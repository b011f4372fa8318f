"""Draw every head of a model as a cell of a map, trained and random, and its companion."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from functools import partial
    from pathlib import Path

    import pandas as pd

    from tokensphere.drawing import heads, readings

    figure = run.params.figure
    names, parts = {}, []
    for about, *paths in zip(
        figure["runs"], *(run.input[name] for name in figure["tables"]), strict=True
    ):
        weights = "trained" if about["weights"] == "trained" else "random"
        names[weights] = f"{about['label']}, {about['in_short']}, prompt {about['prompt']}"
        parts.append(
            heads.assemble(*(readings.read(path, about) for path in paths), weights=weights)
        )
    readings.write(
        run.output,
        pd.concat(parts, ignore_index=True),
        partial(
            heads.draw,
            names=names,
            titles={"published": "As published", "controlled": "Controlled"},
        ),
        keys=heads.KEYS,
        empty=heads.EMPTY,
        template=Path(run.input.template),
        facts=figure | {"names": names},
        stamp=run.stamp,
    )
