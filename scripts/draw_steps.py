"""Draw a figure of training steps: every sweep at a few depths, and its controlled companion."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from functools import partial
    from pathlib import Path

    from tokensphere.drawing import readings, steps

    figure = run.params.figure
    options = figure["options"]
    data = steps.assemble(
        [
            [
                readings.read(path, about)
                for path, about in zip(run.input[name], figure["runs"], strict=True)
            ]
            for name in figure["tables"]
        ],
        figure["runs"],
        depths=len(options["shades"]),
        prompt=figure["prompt"],
        controls=figure["controls"],
    )
    readings.write(
        run.output,
        data,
        partial(
            steps.draw,
            titles={
                "published": f"Training steps, prompt {figure['prompt']}",
                "controlled": f"Training steps: left, prompt {figure['prompt']} as published; "
                "right, all prompts, controlled",
            },
            shades=options["shades"],
            controls=figure["controls"],
            band_opacity=options["band_opacity"],
        ),
        keys=steps.KEYS,
        empty=steps.EMPTY,
        template=Path(run.input.template),
        facts=figure,
        stamp=run.stamp,
    )
