"""tokensphere: how token representations cluster in transformers.

snakemake --cores 8 --resources gpu=1      every table and figure of the configuration
snakemake --cores 8 fig03_mass_near_one    one figure
"""

from snakemake.utils import min_version

min_version("9.27")


# Snakemake would merge --configfile into this one; a configuration replaces, it never mixes.
if "models" not in config:

    configfile: "config/config.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/activations.smk"
include: "workflow/rules/metrics.smk"
include: "workflow/rules/weights.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/report.smk"


refuse_unknown_rules(workflow)


onstart:
    refuse_silent_slurm(workflow)


rule all:
    default_target: True
    input:
        # A table of one row a token is put together for nobody: it is made for each run.
        [
            path
            for table, runs in ASKED.items()
            for path in (
                [f"results/tables/{table}.csv"]
                if table in COLLECTED
                else [f"results/metrics/{table}/{run.path}.csv" for run in runs]
            )
        ],
        # No figure draws them.
        [f"results/tables/{table}.csv" for table in WEIGHT_TABLES if CONFIG["tables"] == "all"],
        [f"results/figures/{figure.name}.png" for figure in FIGURES],
        ["results/contact_sheet.png"] if FIGURES else [],
        [
            f"results/text/{run.path}.html"
            for run in catalogue.text_views(CONFIG)
            if not CONFIG["redact"]
        ],
