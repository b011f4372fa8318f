# The grid and the paths: what every rule file uses.
#
# Reads: the configuration, its schema, the catalogue of figures, the checkpoints' files (hashes).
# Gives: CONFIG, RUNS, FIGURES, ASKED, and the helpers below.

import functools
import os
import sys
from pathlib import Path

from snakemake.logging import logger

HOME = Path(workflow.basedir)
SCRIPTS = HOME / "scripts"
# Before any other: an installed tokensphere of another checkout must not be planned with.
sys.path.insert(0, str(SCRIPTS))

from tokensphere import catalogue, config as configuration, hashes, resources, sources
from tokensphere.harness import closure, cluster
from tokensphere.harness.errors import UserError

os.environ.update(
    # Scripts end when this process does (tokensphere.harness.lifeline),
    TOKENSPHERE_DRIVER=str(os.getpid()),
    # and import the library beside them.
    PYTHONPATH=os.pathsep.join(filter(None, [str(SCRIPTS), os.environ.get("PYTHONPATH")])),
)

RUN = "{model}/{weights}/{prompt}"
LOCK = HOME / "requirements.lock"


wildcard_constraints:
    # NAME, or NAME@REVISION of a sweep.
    model=r"[A-Za-z0-9._-]+(@[A-Za-z0-9._-]+)?",
    weights=rf"trained|({'|'.join(configuration.SCHEMES)})\.\d+",
    prompt=r"[A-Za-z0-9._-]+",
    table=r"[a-z_]+",


def here(path):
    """Return a path of this workflow relative to the working directory, as inputs need it."""
    return os.path.relpath(path)


def code(script):
    """List a script and every library module that it imports, for `input.code`."""
    return [here(path) for path in closure.code(SCRIPTS / script)]


def versions(script):
    """Look up the locked versions of the packages that a script's code imports."""
    return closure.versions(SCRIPTS / script, LOCK)


def cuts(metric):
    """Look up where figures cut a model, for the metrics that depend on it; 0, nowhere."""
    if metric.get("cut"):
        return lambda wildcards: catalogue.cut(wildcards.model, CONFIG)
    return 0


def collected(table):
    """List the runs of a collected table: those asked for, all of a table asked for by name."""
    return ASKED.get(table, RUNS)


def mb(need):
    """Return what `mem_mb` is: what is needed, times the attempt.

    A second attempt was killed for memory or time; one large step, for each costs a wait in a queue.
    """
    return lambda wildcards, attempt: attempt * _need(need, wildcards).mb


def minutes(need):
    """Return what `runtime` is, in minutes, likewise."""
    return lambda wildcards, attempt: attempt * _need(need, wildcards).minutes


def gpus(wildcards):
    """Count the GPUs that a forward pass asks for: one, or those that max_memory names."""
    room = CONFIG["models"][wildcards.model].get("max_memory", {})
    named = [one for one in room if one != "cpu"]
    return 0 if CONFIG["device"] == "cpu" else max(1, len(named))


def need_of(metric):
    """Return what a metric's jobs need: it reads attention (or its sums), states, or tables alone."""
    if {"attention", "profiles"} & {*metric["reads"]}:
        return resources.of_attention
    return resources.geometry


def _need(need, wildcards):
    """Look up a need that is the same for all jobs of a rule, or depends on the model."""
    if isinstance(need, resources.Need):
        return need
    return need(work_on(wildcards.model, wildcards.weights))


@functools.cache
def work_on(model, weights):
    """Put together what decides the needs of the jobs on one model."""
    return resources.work(
        CHECKPOINTS[model], weights, CONFIG["max_tokens"], CONFIG["models"][model]
    )


def refuse_silent_slurm(workflow):
    """Stop before a run that would hang without a word on SLURM, and tell of jobs that do."""
    if workflow.executor_plugin.name == "slurm":
        try:
            cluster.refuse_silence(workflow.executor_settings.status_command)
            accounts = {rule.resources.get("slurm_account").raw for rule in workflow.rules}
            for account in accounts:
                if not callable(account):
                    cluster.refuse_unknown_accounts(account)
        except UserError as error:
            sys.exit(str(error))
        cluster.watch(os.getcwd(), logger.warning)


def refuse_unknown_rules(workflow):
    """Stop where resources are set for a rule that is none; of figures, for one that is none."""
    known = {rule.name for rule in workflow.rules} | {*FIGURE_CATALOGUE, "all"}
    try:
        cluster.refuse_unknown_rules(workflow.resource_settings.overwrite_resources, known)
    except UserError as error:
        sys.exit(str(error))


WHERE = ", ".join(here(file) for file in workflow.configfiles) or "config"
try:
    METRICS = catalogue.load(HOME / "workflow/metrics.yaml")
    FIGURE_CATALOGUE = catalogue.load(HOME / "workflow/figures.yaml")
    CONFIG = configuration.check(
        config,
        schema=HOME / "workflow/schemas/config.schema.yaml",
        figures=FIGURE_CATALOGUE,
        where=WHERE,
    )
    KNOWN = hashes.Cache(Path(CONFIG["cache"]) / "hashes.json")
    CHECKPOINTS = sources.look_up_all(CONFIG, WHERE, KNOWN, download="download_models" in sys.argv)
    KNOWN.save()
except UserError as error:
    sys.exit(str(error))

# What records say of the configuration (tokensphere.harness.job). It is not named where --config
# added to it: no file then says what was asked for.
NAMED = [] if workflow.config_settings.config else map(here, workflow.configfiles)
os.environ.update(
    TOKENSPHERE_CONFIG=os.pathsep.join(NAMED),
    TOKENSPHERE_REDACT="yes" if CONFIG["redact"] else "",
)

RUNS = catalogue.runs(CONFIG)
FIGURES, SKIPPED = catalogue.chosen(FIGURE_CATALOGUE, METRICS, CONFIG, CHECKPOINTS)
ASKED = catalogue.asked(METRICS, FIGURES, CONFIG)
COLLECTED = {table for metric in METRICS.values() for table in metric["collect"]}
for sentence in SKIPPED:
    logger.warning(sentence)
