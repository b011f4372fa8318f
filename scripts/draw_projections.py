"""Draw tokens in two dimensions: three layers by PCA, t-SNE and UMAP, a block for each run."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from functools import partial
    from pathlib import Path

    import pandas as pd

    from tokensphere import arrays, tables
    from tokensphere.drawing import projections, readings, style

    figure = run.params.figure
    names, parts = {}, []
    for about, embeddings, labels, tracks in zip(
        figure["runs"],
        run.input.projections,
        run.input.cluster_labels,
        run.input.cluster_tracks,
        strict=True,
    ):
        place = {"model": about["model"], "weights": about["weights"]}
        names[tuple(place.values())] = (
            f"{about['label']}, {about['in_short']}, prompt {about['prompt']}"
        )
        parts.append(
            projections.assemble(
                arrays.read(embeddings),
                {
                    (layer, state): found
                    for (layer, state), found in tables.read_labels(labels).items()
                    if layer <= about.get("cut", layer)
                },
                readings.read(tracks, about),
                **place,
            )
        )
    data = pd.concat(parts, ignore_index=True)
    normed = bool((data["state"] == projections.FINAL).any())
    readings.write(
        run.output,
        data,
        partial(
            projections.draw,
            names=names,
            titles={
                "published": "As published: PCA not centred" + ", final norm" * normed,
                "controlled": "Controlled: PCA centred" + ", raw last layer" * normed,
            },
        ),
        keys=projections.KEYS,
        empty=projections.EMPTY,
        template=Path(run.input.template),
        facts=figure | {"names": names, "looks": style.LOOKS},
        stamp=run.stamp,
    )
