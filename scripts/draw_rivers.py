"""Draw tracked clusters through depth as rivers, trained above random."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from functools import partial
    from pathlib import Path

    import pandas as pd

    from tokensphere.drawing import readings, rivers

    figure = run.params.figure
    names, parts = {}, []
    for about, *paths in zip(
        figure["runs"], *(run.input[name] for name in figure["tables"]), strict=True
    ):
        read = {
            name: readings.read(path, about)
            for name, path in zip(figure["tables"], paths, strict=True)
        }
        weights = "trained" if about["weights"] == "trained" else "random"
        names[weights] = f"{about['label']}, {about['in_short']}, prompt {about['prompt']}"
        parts.append(
            rivers.assemble(
                read["cluster_tracks"],
                read["cluster_events"],
                read["cluster_turnover"],
                weights=weights,
                tokens=int(read["clusters"]["n_tokens"].iloc[0]),
            )
        )
    readings.write(
        run.output,
        pd.concat(parts, ignore_index=True),
        partial(
            rivers.draw,
            names=names,
            colour=figure["runs"][0]["colour"],
            least_layers=figure["options"]["least_layers"],
        ),
        keys=rivers.KEYS,
        empty=rivers.EMPTY,
        template=Path(run.input.template),
        facts=figure | {"names": names},
        stamp=run.stamp,
    )
