"""Draw a figure of pair populations: one run's pairs and energy by depth, and its companion."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from functools import partial
    from pathlib import Path

    from tokensphere.drawing import populations, readings

    figure = run.params.figure
    (about,) = figure["runs"]
    # The counterpart's tables come as the figure's own do: one of each, in their order.
    data, *counterpart = (
        populations.assemble(readings.read(pairs, about), readings.read(energies, about))
        for pairs, energies in (
            (*run.input.pair_populations, *run.input.energy),
            *([run.input.matches] if run.input.matches else []),
        )
    )
    readings.write(
        run.output,
        data,
        partial(
            populations.draw,
            title=f"{about['label']}, {about['in_short']}, prompt {about['prompt']}",
            titles={
                "published": "As published: all pairs",
                "controlled": "Controlled: pairs of distinct token ids",
            },
            limits=populations.shared_limits([data, *counterpart]),
            near_one=figure["constants"]["near_one"],
            colours=figure["options"]["colours"],
        ),
        keys=populations.KEYS,
        empty=["beta", "value"],
        template=Path(run.input.template),
        facts=figure | {"matched": bool(counterpart)},
        stamp=run.stamp,
    )
