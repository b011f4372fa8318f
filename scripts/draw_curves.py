"""Draw a figure of curves: every model against depth, and its controlled companion."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from functools import partial
    from pathlib import Path

    from tokensphere import tables
    from tokensphere.drawing import curves, readings

    figure = run.params.figure
    options = figure["options"]
    data = curves.assemble(
        [tables.read(path) for path in run.input.tables],
        figure["runs"],
        published=options["published"],
        controlled=options["controlled"],
        prompt=figure["prompt"],
        controls=figure["controls"],
    )
    readings.write(
        run.output,
        data,
        partial(
            curves.draw,
            colours={one["model"]: one["colour"] for one in figure["runs"]},
            controls=figure["controls"],
            titles={
                "published": f"As published: prompt {figure['prompt']}",
                "controlled": "Controlled: raw residual stream, all prompts",
            },
            axes_labels={
                "published": options["axis"].format(**figure["constants"]),
                "controlled": options["axis_controlled"].format(**figure["constants"]),
            },
            limits=options["limits"],
            band_opacity=options["band_opacity"],
        ),
        keys=["model", "weights", "series", "layer"],
        empty=["n_tokens", "value", "low", "high"],
        template=Path(run.input.template),
        facts=figure,
    )
