# From per-run tables to figures, one rule a figure, made from workflow/figures.yaml.
#
# Reads: results/metrics/{table}/{model}/{weights}/{prompt}.csv, exactly those that it draws,
#        and results/metrics/{arrays}/{model}/{weights}/{prompt}.npz
# Makes: results/figures/{figure}.{png,svg,pdf,csv,caption.rst}, the published reading, and
#        results/figures/{figure}_controlled.*, published left and controlled right


for figure in FIGURES:

    rule:
        name:
            figure.name
        input:
            **{
                table: [f"results/metrics/{table}/{run.path}.csv" for run in figure.runs]
                for table in figure.entry["tables"]
            },
            **{
                name: [f"results/metrics/{name}/{run.path}.npz" for run in figure.runs]
                for name in figure.entry.get("arrays", [])
            },
            matches=[
                f"results/metrics/{table}/{run.path}.csv"
                for table in figure.entry["tables"]
                for run in figure.matches
            ],
            template=here(HOME / f"workflow/report/{figure.entry['caption']}.rst"),
            code=code(f"draw_{figure.entry['draw']}.py"),
        output:
            png=report(
                f"results/figures/{figure.name}.png",
                caption=os.path.abspath(f"results/figures/{figure.name}.caption.rst"),
                category=figure.entry["category"],
                labels={"figure": figure.params["title"], "reading": "published"},
            ),
            svg=f"results/figures/{figure.name}.svg",
            pdf=f"results/figures/{figure.name}.pdf",
            csv=f"results/figures/{figure.name}.csv",
            caption=f"results/figures/{figure.name}.caption.rst",
            controlled_png=report(
                f"results/figures/{figure.name}_controlled.png",
                caption=os.path.abspath(f"results/figures/{figure.name}_controlled.caption.rst"),
                category=figure.entry["category"],
                labels={
                    "figure": figure.params["title"],
                    "reading": "published and controlled",
                },
            ),
            controlled_svg=f"results/figures/{figure.name}_controlled.svg",
            controlled_pdf=f"results/figures/{figure.name}_controlled.pdf",
            controlled_csv=f"results/figures/{figure.name}_controlled.csv",
            controlled_caption=f"results/figures/{figure.name}_controlled.caption.rst",
        log:
            f"results/logs/{figure.name}.log",
        benchmark:
            f"results/benchmarks/{figure.name}.tsv"
        conda:
            "../../envs/draw.yaml"
        resources:
            mem_mb=mb(resources.tables(len(figure.runs) + len(figure.matches))),
            runtime=minutes(resources.tables(len(figure.runs) + len(figure.matches))),
        params:
            draw=figure.entry["draw"],
            figure=figure.params,
            versions=versions(f"draw_{figure.entry['draw']}.py"),
        message:
            f"Draw {figure.name}"
        # By params: a name of the loop would be looked up when the job runs, after the loop.
        script:
            "../../scripts/draw_{params.draw}.py"
