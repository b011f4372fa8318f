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


onstart:
    refuse_silent_slurm(workflow)


rule all:
    default_target: True
    input:
        [
            f"results/tables/{table}.csv"
            for metric in METRICS.values()
            for table in metric["collect"]
        ],
        [f"results/tables/{table}.csv" for table in WEIGHT_TABLES],
        # What is never collected is made for each run.
        [
            f"results/metrics/{table}/{run.path}.csv"
            for metric in METRICS.values()
            for table in metric["writes"].values()
            if table not in metric["collect"]
            for run in RUNS
        ],
        [f"results/figures/{figure.name}.png" for figure in FIGURES],
        ["results/contact_sheet.png"] if FIGURES else [],
        [f"results/text/{run.path}.html" for run in catalogue.text_views(CONFIG)],
