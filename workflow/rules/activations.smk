# From prompts and checkpoints to stores.
#
# Reads: the prompt files and checkpoint folders of the configuration.
#        The Hugging Face hub, by download_models alone.
# Makes: results/prompts/{prompt}.txt
#        results/activations/{model}/{weights}/{prompt}.zarr.zip
#        results/attention/{model}/{weights}/{prompt}.zarr.zip


# What takes seconds runs where Snakemake does, not on a node of a cluster.
localrules:
    prompt,
    download_models,


rule prompt:
    input:
        # The source of an installed module is no file of the workflow: its sha256 is in params.
        text=lambda wildcards: CONFIG["prompts"][wildcards.prompt].get("file", []),
        code=code("prompt.py"),
    output:
        text="results/prompts/{prompt}.txt",
    log:
        "results/logs/prompt/{prompt}.log",
    benchmark:
        "results/benchmarks/prompt/{prompt}.tsv"
    conda:
        "../../envs/analyse.yaml"
    resources:
        mem_mb=mb(resources.SMALL),
        runtime=minutes(resources.SMALL),
    params:
        entry=lambda wildcards: {
            key: value
            for key, value in CONFIG["prompts"][wildcards.prompt].items()
            if key != "control"
        },
        versions=versions("prompt.py"),
    message:
        "Read the prompt {wildcards.prompt}"
    script:
        "../../scripts/prompt.py"


rule download_models:
    input:
        code=code("download_models.py"),
    log:
        "results/logs/download_models.log",
    conda:
        "../../envs/extract.yaml"
    resources:
        mem_mb=mb(resources.SMALL),
        runtime=minutes(resources.DOWNLOAD),
    params:
        versions=versions("download_models.py"),
        # Depending on `input` keeps it out of rerun triggers, as below.
        where=lambda wildcards, input: {
            "models": {
                name: dict(model["source"])
                for name, model in CONFIG["models"].items()
                if "hub" in model["source"]
            },
        },
    message:
        "Download the models of the Hugging Face hub, and pin their revisions"
    script:
        "../../scripts/download_models.py"


rule extract:
    input:
        text="results/prompts/{prompt}.txt",
        code=code("extract.py"),
    output:
        store=f"results/activations/{RUN}.zarr.zip",
    log:
        f"results/logs/extract/{RUN}.log",
    benchmark:
        f"results/benchmarks/extract/{RUN}.tsv"
    conda:
        "../../envs/extract.yaml"
    threads: CONFIG["extraction_threads"]
    resources:
        gpu=gpus,
        mem_mb=mb(resources.extraction),
        runtime=minutes(resources.extraction),
    params:
        what="residual",
        source=lambda wildcards: CHECKPOINTS[wildcards.model].identity,
        settings=lambda wildcards: catalogue.settings(wildcards.model, CONFIG),
        versions=versions("extract.py"),
        # Depending on `input` keeps it out of rerun triggers: a moved folder is the same source.
        where=lambda wildcards, input: {
            "source": CHECKPOINTS[wildcards.model].source,
            "cache": CONFIG["cache"],
            "cache_limit_gb": CONFIG.get("cache_limit_gb"),
        },
    message:
        "Extract {wildcards.model} ({wildcards.weights}) on {wildcards.prompt}"
    script:
        "../../scripts/extract.py"


ATTENTION = f"results/attention/{RUN}.zarr.zip"


# A forward pass of its own: what is done with attention never makes the states anew.
use rule extract as attention with:
    output:
        store=ATTENTION if CONFIG["keep_attention"] else temp(ATTENTION),
    log:
        f"results/logs/attention/{RUN}.log",
    benchmark:
        f"results/benchmarks/attention/{RUN}.tsv"
    resources:
        gpu=gpus,
        mem_mb=mb(resources.attention),
        runtime=minutes(resources.attention),
    params:
        what="attention",
        # Depending on `input` keeps it out of rerun triggers, too; records say what is gone and why.
        temporary=lambda wildcards, input: not CONFIG["keep_attention"],
    message:
        "Store the attention of {wildcards.model} ({wildcards.weights}) on {wildcards.prompt}"
