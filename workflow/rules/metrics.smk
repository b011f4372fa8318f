# From stores to tables, one rule a metric, made from workflow/metrics.yaml.
#
# Reads: results/activations/{model}/{weights}/{prompt}.zarr.zip
#        results/attention/{model}/{weights}/{prompt}.zarr.zip
#        results/metrics/{table}/{model}/{weights}/{prompt}.csv of other metrics
# Makes: results/metrics/{table}/{model}/{weights}/{prompt}.csv, one a run
#        results/metrics/{arrays}/{model}/{weights}/{prompt}.npz, only those asked for
#        results/tables/{table}.csv, its runs together; for people, no rule reads it

SOURCES = {
    "store": f"results/activations/{RUN}.zarr.zip",
    "attention": f"results/attention/{RUN}.zarr.zip",
    "labels": f"results/metrics/cluster_labels/{RUN}.csv",
    "profiles": f"results/metrics/attention_profiles/{RUN}.npz",
} | {
    table: f"results/metrics/{table}/{RUN}.csv"
    for metric in METRICS.values()
    for table in metric["writes"].values()
}

for name, metric in METRICS.items():

    rule:
        name:
            name
        input:
            **{source: SOURCES[source] for source in metric["reads"]},
            code=code(f"{name}.py"),
        output:
            **{
                output: f"results/metrics/{table}/{RUN}.csv"
                for output, table in metric["writes"].items()
            },
            **{
                output: f"results/metrics/{name}/{RUN}.npz"
                for output, name in metric.get("arrays", {}).items()
            },
        log:
            f"results/logs/{name}/{RUN}.log",
        benchmark:
            f"results/benchmarks/{name}/{RUN}.tsv"
        conda:
            "../../envs/analyse.yaml"
        resources:
            mem_mb=mb(need_of(metric)),
            runtime=minutes(need_of(metric)),
        params:
            metric=name,
            constants=catalogue.constants(CONFIG, metric),
            cut=cuts(metric),
            versions=versions(f"{name}.py"),
        message:
            metric["message"] + " of {wildcards.model} ({wildcards.weights}) on {wildcards.prompt}"
        # By params: a name of the loop would be looked up when the job runs, after the loop.
        script:
            "../../scripts/{params.metric}.py"


localrules:
    collect,


rule collect:
    input:
        tables=lambda wildcards: [
            f"results/metrics/{wildcards.table}/{run.path}.csv"
            for run in collected(wildcards.table)
        ],
        code=code("collect.py"),
    output:
        table="results/tables/{table}.csv",
    log:
        "results/logs/collect/{table}.log",
    benchmark:
        "results/benchmarks/collect/{table}.tsv"
    conda:
        "../../envs/analyse.yaml"
    resources:
        mem_mb=mb(resources.SMALL),
        runtime=minutes(resources.tables(len(RUNS))),
    params:
        runs=lambda wildcards: [
            {
                **run._asdict(),
                "label": catalogue.label(run.model, CONFIG),
                "weights_are": catalogue.weights_are(run, CHECKPOINTS),
                **catalogue.training(run.model, CONFIG),
            }
            for run in collected(wildcards.table)
        ],
        versions=versions("collect.py"),
    message:
        "Collect {wildcards.table} of its runs"
    script:
        "../../scripts/collect.py"
