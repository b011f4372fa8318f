"""Draw a figure of groups: the attention that clustered and unclustered tokens of a run receive."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from functools import partial
    from pathlib import Path

    from tokensphere.drawing import groups, readings

    figure = run.params.figure
    (about,) = figure["runs"]
    # The counterpart's tables come as the figure's own do: one of each, in their order.
    own = [path for name in figure["tables"] for path in run.input[name]]
    data, *counterpart = (
        groups.assemble(*(readings.read(path, about) for path in paths))
        for paths in (own, *([run.input.matches] if run.input.matches else []))
    )
    readings.write(
        run.output,
        data,
        partial(
            groups.draw,
            title=f"{about['label']}, {about['in_short']}, prompt {about['prompt']}",
            titles={
                "published": "As published",
                "controlled": "Controlled: the mask and position 0",
            },
            limit=groups.shared_limits([data, *counterpart]),
            colours=figure["options"]["colours"],
        ),
        keys=groups.KEYS,
        empty=groups.EMPTY,
        template=Path(run.input.template),
        facts=figure | {"matched": bool(counterpart)},
        stamp=run.stamp,
    )
