# What is about the results, not in them.
#
# Reads: results/figures/{figure}.png and its companion
# Makes: results/contact_sheet.png, all of them in small


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
        mem_mb=1500,
    params:
        versions=versions("contact_sheet.py"),
    message:
        "Put all figures on one sheet"
    script:
        "../../scripts/contact_sheet.py"


rule clean_cache:
    input:
        code=code("clean_cache.py"),
    log:
        "results/logs/clean_cache.log",
    conda:
        "../../envs/analyse.yaml"
    params:
        versions=versions("clean_cache.py"),
        where=lambda wildcards, input: {"cache": CONFIG["cache"]},
    message:
        "Delete the cache of random weights: nothing is computed again because of it"
    script:
        "../../scripts/clean_cache.py"
