"""Draw a figure of histograms: one run's inner products, layer by layer, and its companion."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from functools import partial
    from pathlib import Path

    from tokensphere.drawing import histograms, readings

    figure = run.params.figure
    options = figure["options"]
    (about,) = figure["runs"]
    data, *counterpart = (
        histograms.assemble(readings.read(path, about), options["panels"])
        for path in [*run.input.inner_product_histogram, *run.input.matches]
    )
    axis = histograms.density_axis([data, *counterpart], options["hidden"])
    readings.write(
        run.output,
        data,
        partial(
            histograms.draw,
            title=f"{about['label']}, {about['in_short']}, prompt {about['prompt']}",
            titles={
                "published": "As published: all pairs",
                "controlled": "Controlled: pairs of distinct token ids",
            },
            axis=axis,
            near_one=figure["constants"]["near_one"],
            bar_colour=options["bars"],
            near_one_colour=options["near_one"],
        ),
        keys=["layer", "state", "bin_left"],
        empty=["density"],
        template=Path(run.input.template),
        facts=figure | {"scale": axis["scale"], "matched": bool(counterpart)},
        stamp=run.stamp,
    )
