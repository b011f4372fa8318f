"""Show a prompt as text, each token on the colour of its cluster, layer by layer."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from pathlib import Path

    from tokensphere.harness.errors import UserError

    if run.params.where["redact"]:
        raise UserError(
            run.name,
            "a text view shows the prompt, and the configuration says `redact: true`",
            "set `redact: false` to make text views",
        )

    from tokensphere import store, tables, text_view

    with store.Activations(run.input.store) as activations:
        shown = text_view.assemble(
            activations,
            tables.read_labels(run.input.labels),
            tables.read(run.input.tracks),
            tables.read(run.input.events),
            label=run.params.label,
        )
    template = Path(run.input.template).read_text(encoding="utf-8")
    run.output.html.write_text(text_view.page(template, shown), encoding="utf-8", newline="\n")
