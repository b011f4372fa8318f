# From stores to tables, one rule a metric.
#
# Reads: results/activations/{model}/{weights}/{prompt}.zarr.zip
# Makes: results/metrics/{metric}/{model}/{weights}/{prompt}.csv, one a run
#        results/tables/{metric}.csv, all runs together; for people, no rule reads it


rule inner_products:
    input:
        store=f"results/activations/{RUN}.zarr.zip",
        code=code("inner_products.py"),
    output:
        table=f"results/metrics/inner_products/{RUN}.csv",
    log:
        f"results/logs/inner_products/{RUN}.log",
    benchmark:
        f"results/benchmarks/inner_products/{RUN}.tsv"
    conda:
        "../../envs/analyse.yaml"
    resources:
        mem_mb=1000,
    params:
        constants=catalogue.constants(CONFIG, "inner_products"),
        versions=versions("inner_products.py"),
    message:
        "Measure inner products of {wildcards.model} ({wildcards.weights}) on {wildcards.prompt}"
    script:
        "../../scripts/inner_products.py"


rule inner_product_histogram:
    input:
        store=f"results/activations/{RUN}.zarr.zip",
        code=code("inner_product_histogram.py"),
    output:
        table=f"results/metrics/inner_product_histogram/{RUN}.csv",
    log:
        f"results/logs/inner_product_histogram/{RUN}.log",
    benchmark:
        f"results/benchmarks/inner_product_histogram/{RUN}.tsv"
    conda:
        "../../envs/analyse.yaml"
    resources:
        mem_mb=1000,
    params:
        constants=catalogue.constants(CONFIG, "inner_product_histogram"),
        versions=versions("inner_product_histogram.py"),
    message:
        "Count inner products of {wildcards.model} ({wildcards.weights}) on {wildcards.prompt}"
    script:
        "../../scripts/inner_product_histogram.py"


rule collect:
    input:
        tables=expand("results/metrics/{{metric}}/{run}.csv", run=[run.path for run in RUNS]),
        code=code("collect.py"),
    output:
        table="results/tables/{metric}.csv",
    log:
        "results/logs/collect/{metric}.log",
    benchmark:
        "results/benchmarks/collect/{metric}.tsv"
    conda:
        "../../envs/analyse.yaml"
    params:
        runs=[{**run._asdict(), "label": catalogue.label(run.model, CONFIG)} for run in RUNS],
        versions=versions("collect.py"),
    message:
        "Collect {wildcards.metric} of all runs"
    script:
        "../../scripts/collect.py"
