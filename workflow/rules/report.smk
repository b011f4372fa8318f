# What is about the results, not in them.
#
# Reads: results/figures/{figure}.png and its companion
#        results/activations/{model}/{weights}/{prompt}.zarr.zip
#        results/metrics/cluster_{labels,tracks,events}/{model}/{weights}/{prompt}.csv
# Makes: results/contact_sheet.png, all figures in small
#        results/text/{model}/{weights}/{prompt}.html, the prompt coloured by its clusters
#        results/audit.html, whether all results are what their records say; only when asked for


localrules:
    contact_sheet,
    clean_cache,


rule contact_sheet:
    input:
        figures=[
            f"results/figures/{figure.name}{reading}.png"
            for figure in FIGURES
            for reading in ("", "_controlled")
        ],
        code=code("contact_sheet.py"),
    output:
        png="results/contact_sheet.png",
    log:
        "results/logs/contact_sheet.log",
    benchmark:
        "results/benchmarks/contact_sheet.tsv"
    conda:
        "../../envs/draw.yaml"
    resources:
        mem_mb=mb(resources.pictures(2 * len(FIGURES))),
        runtime=minutes(resources.pictures(2 * len(FIGURES))),
    params:
        versions=versions("contact_sheet.py"),
    message:
        "Put all figures on one sheet"
    script:
        "../../scripts/contact_sheet.py"


rule text_view:
    input:
        store=SOURCES["store"],
        labels=SOURCES["labels"],
        tracks=f"results/metrics/cluster_tracks/{RUN}.csv",
        events=f"results/metrics/cluster_events/{RUN}.csv",
        template=here(HOME / "workflow/report/text_view.html"),
        code=code("text_view.py"),
    output:
        html=report(
            f"results/text/{RUN}.html",
            caption="../report/text_view.rst",
            category="Text views",
            labels={"model": "{model}", "weights": "{weights}", "prompt": "{prompt}"},
        ),
    log:
        f"results/logs/text_view/{RUN}.log",
    benchmark:
        f"results/benchmarks/text_view/{RUN}.tsv"
    conda:
        "../../envs/analyse.yaml"
    resources:
        mem_mb=mb(resources.geometry),
        runtime=minutes(resources.geometry),
    params:
        label=lambda wildcards: catalogue.label(wildcards.model, CONFIG),
        weights_are=lambda wildcards: catalogue.weights_are(catalogue.Run(*wildcards), CHECKPOINTS),
        # Depending on `input` keeps it out of rerun triggers: it changes no view, it refuses one.
        where=lambda wildcards, input: {"redact": CONFIG["redact"]},
        versions=versions("text_view.py"),
    message:
        "Show the text of {wildcards.prompt} in {wildcards.model} ({wildcards.weights})"
    script:
        "../../scripts/text_view.py"


localrules:
    audit,


# It reads whatever is there, out of date or not: inputs would be made anew before it looks. Its page
# is no output, since Snakemake deletes the outputs of a job that fails, and this one fails when
# there is something to read.
rule audit:
    input:
        template=here(HOME / "workflow/report/audit.html"),
        code=code("audit.py"),
    log:
        "results/logs/audit.log",
    conda:
        "../../envs/audit.yaml"
    resources:
        mem_mb=mb(resources.SMALL),
        runtime=minutes(resources.SMALL),
    params:
        versions=versions("audit.py"),
        where=lambda wildcards, input: {
            "workflow": here(HOME),
            "page": "results/audit.html",
        },
    message:
        "Audit all results: results/audit.html"
    script:
        "../../scripts/audit.py"


rule clean_cache:
    input:
        code=code("clean_cache.py"),
    log:
        "results/logs/clean_cache.log",
    conda:
        "../../envs/analyse.yaml"
    resources:
        mem_mb=mb(resources.SMALL),
        runtime=minutes(resources.SMALL),
    params:
        versions=versions("clean_cache.py"),
        where=lambda wildcards, input: {"cache": CONFIG["cache"]},
    message:
        "Delete the cache of random weights: nothing is computed again because of it"
    script:
        "../../scripts/clean_cache.py"
