# What is about the results, not in them.


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
