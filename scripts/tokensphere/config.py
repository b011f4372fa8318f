"""The configuration: checked against its closed schema and against the world before any job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from tokensphere import prompts, sweeps, yaml_files
from tokensphere.harness.errors import UserError, suggest

SCHEMES = ("norm_matched", "orthogonal", "gaussian", "shuffled")
# Schemes that need no trained weights, only their shapes.
FROM_SHAPES = ("orthogonal", "gaussian")
WEIGHTS = re.compile(rf"trained|(?:{'|'.join(SCHEMES)})\.(?:0|[1-9]\d*)")

Config = dict[str, Any]


def check(config: Mapping[str, Any], schema: Path, figures: Iterable[str], where: str) -> Config:
    """Check a configuration and fill in its defaults.

    Parameters
    ----------
    config : mapping
        As read from YAML.
    schema : Path
        The closed JSON schema, in YAML.
    figures : iterable of str
        The names of all figures.
    where : str
        The configuration file, for errors.

    Returns
    -------
    dict
        The configuration with every default in place, and one model for each revision of a sweep
        (`sweeps.expand`).

    Raises
    ------
    UserError
        That names key, value and what to write instead.
    """
    rules = yaml_files.read(schema)
    error = next(iter(_errors(config, rules)), None)
    if error is not None:
        raise _explain(error, rules, where)
    complete: Config = _with_defaults(deepcopy(dict(config)), rules, rules)
    _check_weights(complete, where)
    _check_cuts(complete, where)
    _check_memory(complete, where)
    complete["models"] = sweeps.expand(complete["models"], where)
    _check_references(complete, list(figures), where)
    for name, prompt in complete["prompts"].items():
        prompts.load(prompt, f"{where}: prompts.{name}")
    return complete


def _errors(config: Mapping[str, Any], rules: dict[str, Any]) -> list[ValidationError]:
    """List schema errors, the ones nearest to the top first.

    A misspelt key is both unknown and missing: what is missing comes last.
    """
    errors = Draft202012Validator(rules).iter_errors(config)
    return sorted(
        errors,
        key=lambda error: (
            len(error.absolute_path),
            error.validator == "required",
            str(error.message),
        ),
    )


def _explain(error: ValidationError, rules: Mapping[str, Any], where: str) -> UserError:
    """Turn a schema error into the key, what is wrong with it, and what to write instead."""
    schema: Any = error.schema
    hint = schema.get("description") or "see workflow/schemas/config.schema.yaml"
    known = _keys(schema, rules)
    unknown = _unknown(error.instance, known)
    if error.validator == "oneOf" and error.context and not unknown:
        error = _closest(error)
        schema = error.schema
        hint = schema.get("description") or hint
        known = _keys(schema, rules)
        unknown = _unknown(error.instance, known)
    path = ".".join(str(part) for part in error.absolute_path)
    place = f"{where}: {path}" if path else where
    instance: Any = error.instance
    if error.validator in ("additionalProperties", "oneOf") and unknown:
        return UserError(place, f"unknown key {unknown[0]!r}", suggest(str(unknown[0]), known))
    if error.validator == "required":
        missing = next(key for key in schema["required"] if key not in instance)
        entry = schema["properties"][missing]
        return UserError(place, f"the key {missing!r} is missing", _one_line(entry, "add it"))
    if error.validator in ("pattern", "enum", "const"):
        if error.validator == "enum":
            hint = suggest(str(instance), [str(value) for value in schema["enum"]])
        return UserError(place, f"{instance!r} is not a legal value", _first_line(hint))
    return UserError(place, _shorten(error.message), _first_line(hint))


def _keys(schema: Mapping[str, Any], rules: Mapping[str, Any]) -> list[str]:
    """List the keys that a schema knows, those of every alternative included."""
    alternatives = [_resolve(rule, rules) for rule in schema.get("oneOf", [])]
    return sorted({key for rule in (schema, *alternatives) for key in rule.get("properties", {})})


def _unknown(instance: Any, known: list[str]) -> list[Any]:
    return [key for key in instance if key not in known] if isinstance(instance, dict) else []


def _resolve(rule: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow a rule's reference into the definitions, where it is one."""
    if "$ref" not in rule:
        return rule
    definition: Mapping[str, Any] = root["$defs"][rule["$ref"].rpartition("/")[2]]
    return definition


def _closest(error: ValidationError) -> ValidationError:
    """Of the alternatives of a oneOf, take the error of the one that was most likely meant."""
    alternatives: dict[Any, list[ValidationError]] = {}
    for entry in error.context or ():
        alternatives.setdefault(entry.schema_path[0], []).append(entry)
    rank = {"type": 3, "const": 3, "required": 1, "additionalProperties": 2}
    costs = {
        key: sum(rank.get(str(entry.validator), 0) for entry in entries)
        for key, entries in alternatives.items()
    }
    entries = alternatives[min(costs, key=lambda key: costs[key])]
    return min(entries, key=lambda entry: rank.get(str(entry.validator), 0))


def _one_line(entry: Mapping[str, Any], fallback: str) -> str:
    return _first_line(str(entry.get("description", fallback)))


def _first_line(text: str) -> str:
    return " ".join(text.split())


def _shorten(text: str, most: int = 160) -> str:
    text = _first_line(text)
    return text if len(text) <= most else text[: most - 1] + "…"


def _with_defaults(value: Any, rule: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    """Fill in the defaults of a schema, all the way down."""
    rule = _resolve(rule, root)
    if not isinstance(value, dict):
        return value
    for alternative in rule.get("oneOf", []):
        option = _resolve(alternative, root)
        if set(option.get("required", [])) <= set(value):
            rule = option  # the configuration is valid, so only one alternative fits
    for key, entry in rule.get("properties", {}).items():
        if key not in value and "default" in (entry := _resolve(entry, root)):
            value[key] = deepcopy(entry["default"])
    for key in value:
        entry = rule.get("properties", {}).get(key, rule.get("additionalProperties"))
        if isinstance(entry, dict):
            value[key] = _with_defaults(value[key], entry, root)
    return value


def _check_weights(config: Config, where: str) -> None:
    for name, model in config["models"].items():
        for weights in model["weights"]:
            if not WEIGHTS.fullmatch(weights):
                scheme = weights.partition(".")[0]
                hint = suggest(scheme, ["trained", *SCHEMES])
                if scheme in SCHEMES:
                    hint = f"give a seed after the scheme: {scheme}.0"
                raise UserError(
                    f"{where}: models.{name}.weights",
                    f"{weights!r} is no weight set (trained, or SCHEME.SEED)",
                    hint,
                )
            if "architecture" in model["source"] and weights.partition(".")[0] not in FROM_SHAPES:
                raise UserError(
                    f"{where}: models.{name}.weights",
                    f"{weights!r} needs trained weights, and an architecture has none",
                    f"use {' or '.join(f'{scheme}.0' for scheme in FROM_SHAPES)}",
                )


def _check_cuts(config: Config, where: str) -> None:
    for name, model in config["models"].items():
        place = f"{where}: models.{name}.cut"
        if "cut" in model and "iterations" not in model:
            raise UserError(place, "a cut needs iterations", "set iterations to the largest cut")
        if model.get("cut", 0) > model.get("iterations", 0):
            raise UserError(
                place,
                f"the cut {model['cut']} lies beyond the {model['iterations']} iterations",
                f"set iterations to {model['cut']} or more",
            )


def _check_memory(config: Config, where: str) -> None:
    for name, model in config["models"].items():
        place = f"{where}: models.{name}.max_memory"
        if "max_memory" in model and "device_map" not in model:
            raise UserError(place, "max_memory needs a device_map", "add `device_map: auto`")
        gpus = [str(one) for one in model.get("max_memory", {}) if str(one) != "cpu"]
        if gpus and config["device"] == "cpu":
            raise UserError(
                place,
                f"GPU {gpus[0]} is named, but the device is cpu",
                "name cpu alone, or set device: auto or cuda",
            )


def _check_references(config: Config, figures: list[str], where: str) -> None:
    references = [
        ("roles.focus", config["roles"]["focus"], list(config["models"])),
        ("roles.second", config["roles"]["second"], list(config["models"])),
        ("figures.prompt", config["figures"]["prompt"], list(config["prompts"])),
    ]
    draw = config["figures"]["draw"]
    references += [("figures.draw", name, figures) for name in draw if draw != "all"]
    for key, value, known in references:
        if value not in known:
            revisions = [name for name in known if name.startswith(value + sweeps.AT)]
            hint = f"name a revision of it: {', '.join(revisions)}"
            raise UserError(
                f"{where}: {key}",
                f"there is no {value!r}",
                hint if revisions else suggest(value, known),
            )
