# From checkpoints to tables of weights, without a prompt.
#
# Reads: the checkpoint folders of the configuration.
# Makes: results/weights/{model}/{weights}.csv, norms of every tensor
#        results/value_matrices/{model}/{weights}.csv, spectral radii of the value matrices
#        results/tables/{weights,value_matrices}.csv, all weight sets together; no rule reads them

WEIGHTS = "{model}/{weights}"
WEIGHT_TABLES = ["weights", "value_matrices"]


rule weights:
    input:
        # Beside random weights stand the trained norms.
        trained=lambda wildcards: (
            []
            if wildcards.weights == "trained" or CHECKPOINTS[wildcards.model].folder is None
            else f"results/weights/{wildcards.model}/trained.csv"
        ),
        code=code("weights.py"),
    output:
        table=f"results/weights/{WEIGHTS}.csv",
        values=f"results/value_matrices/{WEIGHTS}.csv",
    log:
        f"results/logs/weights/{WEIGHTS}.log",
    benchmark:
        f"results/benchmarks/weights/{WEIGHTS}.tsv"
    conda:
        "../../envs/extract.yaml"
    resources:
        mem_mb=mb(resources.weights),
        runtime=minutes(resources.weights),
    params:
        source=lambda wildcards: CHECKPOINTS[wildcards.model].identity,
        versions=versions("weights.py"),
        # Depending on `input` keeps it out of rerun triggers: a moved folder is the same source.
        where=lambda wildcards, input: {
            "source": CHECKPOINTS[wildcards.model].source,
            "cache": CONFIG["cache"],
            "cache_limit_gb": CONFIG.get("cache_limit_gb"),
        },
    message:
        "Measure the weights of {wildcards.model} ({wildcards.weights})"
    script:
        "../../scripts/weights.py"


localrules:
    collect_weights,


rule collect_weights:
    input:
        tables=expand(
            "results/{{table}}/{run.model}/{run.weights}.csv", run=catalogue.weight_sets(CONFIG)
        ),
        code=code("collect.py"),
    output:
        table="results/tables/{table}.csv",
    log:
        "results/logs/collect_weights/{table}.log",
    benchmark:
        "results/benchmarks/collect_weights/{table}.tsv"
    wildcard_constraints:
        table="|".join(WEIGHT_TABLES),
    conda:
        "../../envs/analyse.yaml"
    resources:
        mem_mb=mb(resources.SMALL),
        runtime=minutes(resources.tables(len(catalogue.weight_sets(CONFIG)))),
    params:
        runs=[
            {
                "model": run.model,
                "weights": run.weights,
                "label": catalogue.name(run.model, CONFIG),
                "weights_are": catalogue.weights_are(run, CHECKPOINTS),
                **catalogue.training(run.model, CONFIG),
            }
            for run in catalogue.weight_sets(CONFIG)
        ],
        versions=versions("collect.py"),
    message:
        "Collect {wildcards.table} of all weight sets"
    script:
        "../../scripts/collect.py"


ruleorder: collect_weights > collect
