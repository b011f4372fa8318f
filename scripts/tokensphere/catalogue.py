"""The grid of runs, and which of them each figure draws.

A run is one (model, weights, prompt). The Snakefile reads this module while it plans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tokensphere import sources, sweeps, yaml_files
from tokensphere.config import SCHEMES

# Colour-blind safe (the values of seaborn's "colorblind" palette), in an order in which
# neighbours differ in lightness too.
COLOURS = (
    "#0173b2",
    "#de8f05",
    "#029e73",
    "#cc78bc",
    "#d55e00",
    "#56b4e9",
    "#ca9161",
    "#949494",
    "#fbafe4",
    "#ece133",
)


# What follows the title of a figure in which weights stand in for published ones.
STAND_IN = " (stand-in weights: no result)"

# A kind of weights in the catalogue: every random scheme that a model has.
EVERY = "every"
# The models of a figure in the catalogue: every revision of every sweep.
SWEEPS = "sweeps"


class Run(NamedTuple):
    """One model with one weight set on one prompt."""

    model: str
    weights: str
    prompt: str

    @property
    def path(self) -> str:
        """The part of a path that names the run."""
        return "/".join(self)


@dataclass(frozen=True)
class Figure:
    """A figure as a rule needs it.

    Attributes
    ----------
    name : str
    entry : dict
        Its entry in the catalogue.
    runs : tuple of Run
        The runs it draws, models in the order of the configuration.
    matches : tuple of Run
        Runs that it reads only for its axes.
    params : dict
        All that the drawing depends on beside its tables.
    """

    name: str
    entry: dict[str, Any]
    runs: tuple[Run, ...]
    matches: tuple[Run, ...]
    params: dict[str, Any] = field(hash=False)


def runs(config: Mapping[str, Any]) -> list[Run]:
    """List every run of a configuration."""
    return [
        Run(model, weights, prompt)
        for model, entry in config["models"].items()
        for weights in entry["weights"]
        for prompt in config["prompts"]
    ]


def weight_sets(config: Mapping[str, Any]) -> list[Run]:
    """List every weight set of a configuration, once: as runs without a prompt."""
    return list(dict.fromkeys(run._replace(prompt="") for run in runs(config)))


def asked(
    metrics: Mapping[str, Any], figures: Sequence[Figure], config: Mapping[str, Any]
) -> dict[str, list[Run]]:
    """Say which tables are asked for, and of which runs.

    Parameters
    ----------
    metrics : mapping
        The catalogue of metrics.
    figures : sequence of Figure
        As `chosen` returns them.
    config : mapping
        As `config.check` returns it.

    Returns
    -------
    dict
        Table -> its runs in the order of the configuration: with `tables: all`, every table of
        every run; else what is measured in one go with a table that a figure draws, of the runs
        that it draws.
    """
    asked: dict[str, list[Run]] = {}
    for metric in metrics.values():
        tables = {*metric["writes"].values()}
        drawn = {
            run
            for figure in figures
            if tables & {*figure.entry["tables"]}
            for run in (*figure.runs, *figure.matches)
        }
        wanted = [run for run in runs(config) if config["tables"] == "all" or run in drawn]
        if wanted:
            asked |= dict.fromkeys(metric["writes"].values(), wanted)
    return asked


def text_views(config: Mapping[str, Any]) -> list[Run]:
    """List the runs whose text view is made unasked: those that figures of one model draw."""
    return [
        Run(model, weights, config["figures"]["prompt"])
        for model in dict.fromkeys(config["roles"].values())
        for kind in ("trained", "baseline")
        for weights in _weights(kind, "first", model, config)
    ]


def load(path: Path) -> dict[str, dict[str, Any]]:
    """Read a catalogue, of metrics or of figures."""
    entries: dict[str, dict[str, Any]] = yaml_files.read(path)
    return entries


def chosen(
    catalogue: Mapping[str, Any],
    metrics: Mapping[str, Any],
    config: Mapping[str, Any],
    checkpoints: Mapping[str, sources.Checkpoint],
) -> tuple[list[Figure], list[str]]:
    """Choose the figures that a configuration asks for and has the runs for.

    Parameters
    ----------
    catalogue : mapping
        Of figures, as `load` returns it.
    metrics : mapping
        The catalogue of metrics.
    config : mapping
        As `config.check` returns it.
    checkpoints : mapping
        Model -> what is known of it.

    Returns
    -------
    figures : list of Figure
    skipped : list of str
        A sentence for each figure that lacks a run, and what to add; of a figure of sweeps only
        where `draw` names it, since most configurations have none and want none.
    """
    wanted = config["figures"]["draw"]
    figures, skipped = [], []
    for name, entry in catalogue.items():
        if wanted != "all" and name not in wanted:
            continue
        lacking = _lacking(entry, config, checkpoints)
        if lacking and wanted == "all" and not _models(entry, config):
            continue
        if lacking:
            skipped.append(f"{name} is skipped: {lacking}")
        else:
            figures.append(_figure(name, entry, metrics, config, checkpoints))
    return figures, skipped


def _models(entry: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    if entry["models"] == SWEEPS:
        return _revisions(config)
    if entry["models"] == "all":
        # Twenty revisions of one model would drown the others, so only those with a role are drawn.
        named = config["roles"].values()
        return [
            model
            for model, entry in config["models"].items()
            if "step" not in entry or model in named
        ]
    return list(dict.fromkeys(config["roles"][role] for role in entry["models"]))


def _revisions(config: Mapping[str, Any]) -> list[str]:
    """List the models of all sweeps, sweep by sweep, by their steps."""
    models = config["models"]
    named = list(dict.fromkeys(map(sweeps.sweep_of, models)))
    return sorted(
        (model for model, entry in models.items() if "step" in entry),
        key=lambda model: (named.index(sweeps.sweep_of(model)), int(models[model]["step"])),
    )


def _weights(kind: str, seeds: str, model: str, config: Mapping[str, Any]) -> list[str]:
    """List a model's weight sets of one kind, in the order of the configuration."""
    listed = [one.partition(".")[0] for one in config["models"][model]["weights"]]
    scheme = config["figures"]["baseline"] if kind == "baseline" else kind
    schemes = {*listed} - {"trained"} if kind == EVERY else {scheme}
    return [
        weights
        for place, weights in enumerate(config["models"][model]["weights"])
        if listed[place] in schemes and not (seeds == "first" and listed[place] in listed[:place])
    ]


def _lacking(
    entry: Mapping[str, Any],
    config: Mapping[str, Any],
    checkpoints: Mapping[str, sources.Checkpoint],
) -> str:
    """Say what a figure needs and the configuration lacks; empty if nothing."""
    models = _models(entry, config)
    if not models:
        return "add `revisions:` to a model (docs/sweeps.md)"
    listed = " or ".join(dict.fromkeys(map(sweeps.sweep_of, models)))
    both_ways = [model for model in models if not checkpoints[model].causal]
    if entry.get("causal") and both_ways:
        role = next(one for one in entry["models"] if config["roles"][one] == both_ways[0])
        return f"{both_ways[0]} is not causal; name a causal model as roles.{role}"
    for kind in entry["weights"]:
        if kind == EVERY:  # of one alone there is nothing to compare
            found = [_weights(kind, "first", model, config) for model in models]
            if max(map(len, found)) < 2:
                one = {weights.partition(".")[0] for weights in found[0]}
                other = next(f"{scheme}.0" for scheme in SCHEMES if scheme not in one)
                return f"add a second random scheme, such as {other!r}, to the weights of {listed}"
        elif not any(_weights(kind, entry["seeds"], model, config) for model in models):
            scheme = kind if kind == "trained" else f"{config['figures']['baseline']}.0"
            return f"add {scheme!r} to the weights of {listed}"
    return ""


def _figure(
    name: str,
    entry: dict[str, Any],
    metrics: Mapping[str, Any],
    config: Mapping[str, Any],
    checkpoints: Mapping[str, sources.Checkpoint],
) -> Figure:
    prompts = list(config["prompts"])
    if entry["prompts"] == "one":
        prompts = [config["figures"]["prompt"]]

    def select(kinds: list[str]) -> tuple[Run, ...]:
        return tuple(
            Run(model, weights, prompt)
            for model in _models(entry, config)
            for kind in kinds
            for weights in _weights(kind, entry["seeds"], model, config)
            for prompt in prompts
        )

    drawn = select(entry["weights"])
    drawn_from = {*entry["tables"], *entry.get("arrays", [])}
    params = {
        "title": entry["title"]
        + STAND_IN * any("stand_in" in checkpoints[run.model].source for run in drawn),
        "tables": entry["tables"],
        "options": entry["options"],
        "constants": {
            key: value
            for taker in (*metrics.values(), entry)
            if taker is entry
            or drawn_from & {*taker["writes"].values(), *taker.get("arrays", {}).values()}
            for key, value in constants(config, taker).items()
        },
        "runs": [_legend(run, config, checkpoints) for run in drawn],
        "prompt": config["figures"]["prompt"],
        "baseline": config["figures"]["baseline"],
        "controls": [prompt for prompt in prompts if config["prompts"][prompt]["control"]],
    }
    return Figure(name, entry, drawn, select(entry.get("matches", [])), params)


def _legend(
    run: Run,
    config: Mapping[str, Any],
    checkpoints: Mapping[str, sources.Checkpoint],
) -> dict[str, Any]:
    """Return what a figure says about a run, its model's colour, and where it is cut."""
    entry, checkpoint = config["models"][run.model], checkpoints[run.model]
    families = list(dict.fromkeys(map(sweeps.sweep_of, config["models"])))
    position = families.index(sweeps.sweep_of(run.model))
    return {
        "model": run.model,
        "weights": run.weights,
        "prompt": run.prompt,
        "label": label(run.model, config),
        "weights_are": weights_are(run, checkpoints),
        "in_short": weights_are(run, checkpoints, short=True),
        "colour": entry.get("colour", COLOURS[position % len(COLOURS)]),
        **{key: value for key, value in checkpoint.source.items() if key == "stand_in"},
        **(
            {"cut": cut(run.model, config), "trained_layers": checkpoint.layers}
            if "iterations" in entry
            else {}
        ),
        **(
            {"sweep": sweeps.sweep_of(run.model), "sweep_label": entry["label"]}
            | {"step": entry["step"]}
            if "step" in entry
            else {}
        ),
    }


def cut(model: str, config: Mapping[str, Any]) -> int:
    """Return the layer at which figures cut a model whose block is iterated; 0 for any other."""
    entry = config["models"][model]
    return int(entry.get("cut", entry.get("iterations", 0)))


def settings(model: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a forward pass takes from the configuration: it is part of what a store is."""
    entry = config["models"][model]
    found = {
        "device": config["device"],
        "threads": config["extraction_threads"],
        "max_tokens": config["max_tokens"],
        "iterations": entry.get("iterations", 0),
        "dtype": entry["dtype"],
    }
    if "device_map" in entry:
        found["device_map"] = entry["device_map"]
    if "max_memory" in entry:  # names of JSON, for records
        found["max_memory"] = {str(place): size for place, size in entry["max_memory"].items()}
    return found


def label(model: str, config: Mapping[str, Any]) -> str:
    """Return how figures and tables of its runs call a model: with its type, if it is not float32.

    All weight sets of a model run in it, trained and random ones.
    """
    dtype = config["models"][model].get("dtype", "float32")
    return name(model, config) + ("" if dtype == "float32" else f", in {dtype}")


def name(model: str, config: Mapping[str, Any]) -> str:
    """Return how tables of weights call a model: in float32, whatever it runs in."""
    entry = config["models"][model]
    named = str(entry.get("label", model))
    return f"{named}, step {entry['step']}" if "step" in entry else named


def training(model: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what collected tables say of a model's training: its `sweep` and `step`.

    Nothing where no model of the configuration is a revision: tables then have no such columns.
    Empty for a model that is none, beside one that is.
    """
    models = config["models"]
    if not any("step" in entry for entry in models.values()):
        return {}
    if "step" not in models[model]:
        return {"sweep": "", "step": ""}
    return {"sweep": sweeps.sweep_of(model), "step": models[model]["step"]}


def weights_are(
    run: Run, checkpoints: Mapping[str, sources.Checkpoint], *, short: bool = False
) -> str:
    """Return how figures and tables call the weights of a run.

    Parameters
    ----------
    run : Run
    checkpoints : mapping
        Model -> what is known of it.
    short : bool
        As there is room for in a picture: weights that stand in for published ones are then called
        no more than that.
    """
    source = checkpoints[run.model].source
    trained = "stand-in" if short and "stand_in" in source else sources.honest_weights(source)
    if run.weights == "trained":
        return trained
    return f"{run.weights} of {'a ' * short}{trained}" if "stand_in" in source else run.weights


def constants(config: Mapping[str, Any], metric: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constants that a metric or a figure takes: it depends on no others."""
    return {name: config["metrics"][name] for name in metric.get("constants", [])}
