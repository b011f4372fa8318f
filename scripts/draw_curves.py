"""Draw a figure of curves: every model against depth, and its controlled companion."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from functools import partial
    from pathlib import Path

    from tokensphere.drawing import captions, curves, readings

    figure = run.params.figure
    options = captions.filled(
        {key: value for key, value in figure["options"].items() if key != "panels"},
        figure["constants"],
    )
    options["panels"] = curves.expand(figure["options"]["panels"], figure["constants"])
    trained_as = {
        one["model"]: one["weights_are"] for one in figure["runs"] if one["weights"] == "trained"
    }
    in_short = {
        one["model"]: one["in_short"] for one in figure["runs"] if one["weights"] == "trained"
    }
    read = {
        name: [
            readings.read(path, about)
            for path, about in zip(run.input[name], figure["runs"], strict=True)
        ]
        for name in figure["tables"]
    }
    # Tables of heads are of blocks, all others of states.
    states = "head" not in read[figure["tables"][0]][0]
    data = curves.assemble(
        read,
        figure["runs"],
        options["panels"],
        prompt=figure["prompt"],
        controls=figure["controls"],
    )
    readings.write(
        run.output,
        data,
        partial(
            curves.draw,
            panels=options["panels"],
            colours={one["model"]: one["colour"] for one in figure["runs"]},
            controls=figure["controls"],
            trained_as=in_short,
            titles={
                "published": f"As published:\nprompt {figure['prompt']}",
                "controlled": f"Controlled:\n{'raw residual stream, ' * states}all prompts",
            },
            band_opacity=options["band_opacity"],
            along="layer" if states else "block",
            trained_depths={
                one["model"]: one["trained_layers"] / one["cut"]
                for one in figure["runs"]
                if "cut" in one
            },
        ),
        keys=curves.KEYS,
        empty=curves.EMPTY,
        template=Path(run.input.template),
        facts=figure | {"options": options, "trained_as": trained_as, "states": states},
        stamp=run.stamp,
    )
