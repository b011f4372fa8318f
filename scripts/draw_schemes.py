"""Draw a figure of schemes: trained weights beside every random scheme."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from functools import partial
    from pathlib import Path

    from tokensphere.drawing import readings, schemes

    figure = run.params.figure
    products, ranks = (
        [
            readings.read(path, about)
            for path, about in zip(run.input[name], figure["runs"], strict=True)
        ]
        for name in ("inner_products", "effective_rank")
    )
    trained_as = {
        one["model"]: one["weights_are"] for one in figure["runs"] if one["weights"] == "trained"
    }
    trained = "stand-in" if any("stand_in" in one for one in figure["runs"]) else "trained"
    data = schemes.assemble(products, ranks, figure["runs"])
    readings.write(
        run.output,
        data,
        partial(
            schemes.draw,
            title=f"{trained.capitalize()} weights and random schemes, prompt {figure['prompt']}",
            trained=trained,
            looks=figure["options"]["looks"],
        ),
        keys=schemes.KEYS,
        empty=schemes.EMPTY,
        template=Path(run.input.template),
        facts=figure | {"trained_as": trained_as},
        stamp=run.stamp,
    )
