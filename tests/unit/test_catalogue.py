"""The catalogue: which runs a figure draws, and what else its drawing depends on."""

import re
from copy import deepcopy

import pytest
import yaml

from tokensphere import catalogue
from tokensphere.catalogue import Run
from tokensphere.drawing import curves
from tokensphere.sources import Checkpoint

CURVES = {
    "title": "Curves",
    "draw": "curves",
    "caption": "curves",
    "tables": ["inner_products"],
    "models": "all",
    "weights": ["trained", "baseline"],
    "seeds": "all",
    "prompts": "all",
    "options": {"limits": [0, 1]},
}
RANDOM = CURVES | {
    "title": "One random run",
    "tables": ["inner_product_histogram"],
    "models": ["focus"],
    "weights": ["baseline"],
    "matches": ["trained"],
    "seeds": "first",
    "prompts": "one",
}
TRAINED = RANDOM | {"models": ["second"], "weights": ["trained"], "matches": ["baseline"]}
FIGURES = {"curves": CURVES, "random": RANDOM, "trained": TRAINED}

METRICS = {
    "inner_products": {"constants": ["near_one"], "writes": {"table": "inner_products"}},
    "inner_product_histogram": {
        "constants": ["near_one", "histogram_bins"],
        "writes": {"table": "inner_product_histogram"},
    },
    "clusters": {
        "constants": ["min_cluster_size"],
        "writes": {"table": "clusters", "labels": "cluster_labels"},
    },
    "effective_rank": {"constants": [], "writes": {"table": "effective_rank"}},
}
LOCAL = {"local": "/data/checkpoints"}
QUANTISED = {"package": "somewhere", "gguf": "model.Q4_1.gguf"}


@pytest.fixture
def config():
    return {
        "models": {
            "gpt": {
                "source": LOCAL,
                "weights": ["trained", "norm_matched.3", "norm_matched.0"],
                "label": "GPT",
            },
            "bert": {
                "source": QUANTISED,
                "weights": ["norm_matched.1", "trained"],
                "colour": "#123456",
            },
        },
        "prompts": {"wiki": {"control": False}, "echo": {"control": True}},
        "roles": {"focus": "gpt", "second": "bert"},
        "figures": {"prompt": "wiki", "baseline": "norm_matched", "draw": "all"},
        "tables": "drawn",
        "metrics": {"near_one": 0.9, "histogram_bins": 50, "min_cluster_size": 2},
    }


def checkpoints_of(config, both_ways=()):
    return {
        model: Checkpoint(entry["source"], None, "", causal=model not in both_ways, mb=0, layers=12)
        for model, entry in config["models"].items()
    }


def choose(config, figures=FIGURES, metrics=METRICS, both_ways=()):
    chosen, skipped = catalogue.chosen(figures, metrics, config, checkpoints_of(config, both_ways))
    return {figure.name: figure for figure in chosen}, skipped


def test_runs_are_every_model_weights_and_prompt(config):
    assert catalogue.runs(config) == [
        Run("gpt", "trained", "wiki"),
        Run("gpt", "trained", "echo"),
        Run("gpt", "norm_matched.3", "wiki"),
        Run("gpt", "norm_matched.3", "echo"),
        Run("gpt", "norm_matched.0", "wiki"),
        Run("gpt", "norm_matched.0", "echo"),
        Run("bert", "norm_matched.1", "wiki"),
        Run("bert", "norm_matched.1", "echo"),
        Run("bert", "trained", "wiki"),
        Run("bert", "trained", "echo"),
    ]


def asked(config, *names):
    chosen, _ = choose(config, {name: FIGURES[name] for name in names})
    return {
        table: [run.path for run in runs]
        for table, runs in catalogue.asked(METRICS, [*chosen.values()], config).items()
    }


def test_only_the_runs_and_tables_that_figures_draw_are_asked_for(config):
    config["models"]["gpt"]["weights"].append("orthogonal.0")
    assert asked(config, "random") == {
        # The run drawn, and the one that gives it its axes.
        "inner_product_histogram": ["gpt/trained/wiki", "gpt/norm_matched.3/wiki"]
    }
    found = asked(config, "random", "trained", "curves")
    assert set(found) == {"inner_products", "inner_product_histogram"}
    assert not [run for runs in found.values() for run in runs if "orthogonal" in run]
    assert found["inner_products"] == [
        run.path for run in catalogue.runs(config) if run.weights != "orthogonal.0"
    ]


def test_what_is_measured_in_one_go_is_asked_for_together(config, monkeypatch):
    monkeypatch.setitem(FIGURES, "clusters", TRAINED | {"tables": ["clusters"]})
    assert set(asked(config, "clusters")) == {"clusters", "cluster_labels"}


def test_all_tables_are_those_of_every_run(config):
    config["tables"] = "all"
    everything = [run.path for run in catalogue.runs(config)]
    assert asked(config, "random") == dict.fromkeys(
        [table for metric in METRICS.values() for table in metric["writes"].values()], everything
    )


def test_text_views_are_of_the_models_with_a_role_trained_and_their_first_baseline(config):
    config["models"]["other"] = {"source": LOCAL, "weights": ["trained"]}
    config["models"]["gpt"]["weights"].insert(0, "orthogonal.0")
    assert catalogue.text_views(config) == [
        Run("gpt", "trained", "wiki"),
        Run("gpt", "norm_matched.3", "wiki"),
        Run("bert", "trained", "wiki"),
        Run("bert", "norm_matched.1", "wiki"),
    ]
    config["roles"]["focus"] = "bert"
    assert len(catalogue.text_views(config)) == 2
    config["models"]["bert"]["weights"] = ["orthogonal.0"]
    assert catalogue.text_views(config) == []


def test_an_iterated_model_is_drawn_to_its_cut_with_the_layers_of_its_training(config):
    def said(config):
        (runs,) = {
            tuple((run["model"], run.get("cut"), run.get("trained_layers")) for run in one)
            for one in [choose(config)[0]["curves"].params["runs"]]
        }
        return set(runs)

    assert said(config) == {("gpt", None, None), ("bert", None, None)}
    config["models"]["bert"]["iterations"] = 48
    assert said(config) == {("gpt", None, None), ("bert", 48, 12)}
    config["models"]["bert"]["cut"] = 24
    assert said(config) == {("gpt", None, None), ("bert", 24, 12)}
    assert catalogue.cut("bert", config) == 24
    assert catalogue.cut("gpt", config) == 0


def test_a_run_names_its_path():
    assert Run("gpt", "norm_matched.0", "wiki").path == "gpt/norm_matched.0/wiki"


def test_curves_draw_every_model_trained_first_with_all_seeds_and_prompts(config):
    figures, _ = choose(config)
    assert [run.path for run in figures["curves"].runs] == [
        "gpt/trained/wiki",
        "gpt/trained/echo",
        "gpt/norm_matched.3/wiki",
        "gpt/norm_matched.3/echo",
        "gpt/norm_matched.0/wiki",
        "gpt/norm_matched.0/echo",
        "bert/trained/wiki",
        "bert/trained/echo",
        "bert/norm_matched.1/wiki",
        "bert/norm_matched.1/echo",
    ]
    assert figures["curves"].matches == ()


def test_a_role_draws_one_model_its_first_seed_and_one_prompt(config):
    figures, _ = choose(config)
    assert figures["random"].runs == (Run("gpt", "norm_matched.3", "wiki"),)
    assert figures["random"].matches == (Run("gpt", "trained", "wiki"),)
    assert figures["trained"].runs == (Run("bert", "trained", "wiki"),)
    assert figures["trained"].matches == (Run("bert", "norm_matched.1", "wiki"),)


def test_a_list_of_roles_draws_their_models_in_its_order(config):
    entry = CURVES | {"models": ["second", "focus"], "prompts": "one", "seeds": "first"}
    figures, _ = choose(config, {"roles": entry})
    assert [run.path for run in figures["roles"].runs] == [
        "bert/trained/wiki",
        "bert/norm_matched.1/wiki",
        "gpt/trained/wiki",
        "gpt/norm_matched.3/wiki",
    ]


def test_a_model_of_two_roles_is_drawn_once(config):
    config["roles"]["second"] = "gpt"
    entry = CURVES | {"models": ["focus", "second"], "prompts": "one", "seeds": "first"}
    figures, _ = choose(config, {"roles": entry})
    assert [run.path for run in figures["roles"].runs] == [
        "gpt/trained/wiki",
        "gpt/norm_matched.3/wiki",
    ]


def test_another_scheme_is_no_baseline(config):
    config["models"]["gpt"]["weights"] += ["orthogonal.0", "norm_matched_twice.0"]
    figures, _ = choose(config)
    assert {run.weights for run in figures["curves"].runs} == {
        "trained", "norm_matched.3", "norm_matched.0", "norm_matched.1",
    }  # fmt: skip


EVERY = CURVES | {
    "models": ["focus", "second"],
    "weights": ["trained", "every"],
    "prompts": "one",
    "seeds": "first",
}


def test_every_random_scheme_is_drawn_by_its_first_seed(config):
    config["models"]["gpt"]["weights"] += ["shuffled.2", "orthogonal.0", "shuffled.1"]
    figures, skipped = choose(config, {"schemes": EVERY})
    assert [run.path for run in figures["schemes"].runs] == [
        "gpt/trained/wiki",
        "gpt/norm_matched.3/wiki",
        "gpt/shuffled.2/wiki",
        "gpt/orthogonal.0/wiki",
        "bert/trained/wiki",
        "bert/norm_matched.1/wiki",
    ]
    assert skipped == []


def test_every_random_scheme_is_drawn_with_all_its_seeds_where_asked_for(config):
    config["models"]["gpt"]["weights"] += ["shuffled.2", "shuffled.1"]
    figures, _ = choose(config, {"schemes": EVERY | {"seeds": "all", "models": ["focus"]}})
    assert [run.weights for run in figures["schemes"].runs] == [
        "trained", "norm_matched.3", "norm_matched.0", "shuffled.2", "shuffled.1",
    ]  # fmt: skip


def test_another_scheme_redraws_the_figure_of_every_scheme_alone(config):
    config["models"]["bert"]["weights"].append("shuffled.0")

    def add(other):
        other["models"]["gpt"]["weights"].append("orthogonal.0")

    assert changed(config, add, FIGURES | {"schemes": EVERY}) == {"schemes"}


def test_a_figure_of_every_scheme_needs_two_of_one_model(config):
    figures, skipped = choose(config, {"schemes": EVERY})
    assert figures == {}
    assert skipped == [
        "schemes is skipped: add a second random scheme, such as 'orthogonal.0', to the weights of "
        "gpt or bert"
    ]
    config["models"]["gpt"]["weights"].append("orthogonal.0")
    assert list(choose(config, {"schemes": EVERY})[0]) == ["schemes"]


def test_weight_sets_are_listed_once_whatever_the_prompts(config):
    assert [(run.model, run.weights) for run in catalogue.weight_sets(config)] == [
        ("gpt", "trained"),
        ("gpt", "norm_matched.3"),
        ("gpt", "norm_matched.0"),
        ("bert", "norm_matched.1"),
        ("bert", "trained"),
    ]


def test_params_are_all_that_the_drawing_depends_on(config):
    figures, _ = choose(config)
    assert figures["random"].params == {
        "title": "One random run",
        "tables": ["inner_product_histogram"],
        "options": {"limits": [0, 1]},
        "constants": {"near_one": 0.9, "histogram_bins": 50},
        "runs": [
            {
                "model": "gpt",
                "weights": "norm_matched.3",
                "prompt": "wiki",
                "label": "GPT",
                "weights_are": "norm_matched.3",
                "in_short": "norm_matched.3",
                "colour": catalogue.COLOURS[0],
            }
        ],
        "prompt": "wiki",
        "baseline": "norm_matched",
        "controls": [],
    }
    assert figures["curves"].params["controls"] == ["echo"]
    assert figures["curves"].params["constants"] == {"near_one": 0.9}


def test_a_model_has_its_own_colour_and_label_or_those_of_its_name_and_place(config):
    config["models"] |= {f"model{i}": {"source": LOCAL, "weights": ["trained"]} for i in range(9)}
    looks = {
        run["model"]: (run["label"], run["colour"])
        for run in choose(config)[0]["curves"].params["runs"]
    }
    assert looks["gpt"] == ("GPT", catalogue.COLOURS[0])
    assert looks["bert"] == ("bert", "#123456")
    assert looks["model0"] == ("model0", catalogue.COLOURS[2])
    assert looks["model8"] == ("model8", catalogue.COLOURS[0])  # ten colours, the eleventh model


def test_the_colours_differ():
    assert len(set(catalogue.COLOURS)) == len(catalogue.COLOURS)


def test_a_figure_of_several_tables_depends_on_the_constants_of_each_metric_that_writes_one(config):
    # The labels are the second table of their metric.
    entry = CURVES | {"tables": ["inner_products", "cluster_labels", "effective_rank"]}
    figures, _ = choose(config, {"both": entry})
    assert figures["both"].params["constants"] == {"near_one": 0.9, "min_cluster_size": 2}
    assert figures["both"].params["tables"] == entry["tables"]


def test_figures_and_tables_call_weights_what_they_are(config):
    figures, _ = choose(config)
    said = {run["weights"]: run["weights_are"] for run in figures["curves"].params["runs"]
            if run["model"] == "bert"}  # fmt: skip
    assert said == {
        "trained": "trained (4-bit weights, dequantised)",
        "norm_matched.1": "norm_matched.1",
    }
    assert catalogue.weights_are(Run("gpt", "trained", "wiki"), checkpoints_of(config)) == "trained"
    assert catalogue.label("gpt", config) == "GPT"
    assert catalogue.label("bert", config) == "bert"


def test_weights_that_stand_in_are_never_called_trained(config):
    config["models"]["bert"]["source"] = LOCAL | {"stand_in": "random weights in place of zoo/bert"}
    figures, _ = choose(config)
    runs = {
        (run["model"], run["weights"]): run
        for run in figures["curves"].params["runs"]
        if run["prompt"] == "wiki"
    }
    trained, random = runs["bert", "trained"], runs["bert", "norm_matched.1"]
    assert trained["weights_are"] == "random weights in place of zoo/bert"
    assert random["weights_are"] == "norm_matched.1 of random weights in place of zoo/bert"
    assert (trained["in_short"], random["in_short"]) == ("stand-in", "norm_matched.1 of a stand-in")
    assert trained["stand_in"] == random["stand_in"] == "random weights in place of zoo/bert"
    assert not any("stand_in" in run for (model, _), run in runs.items() if model == "gpt")
    # The title goes into the report's table, too.
    title = CURVES["title"]
    assert figures["curves"].params["title"] == f"{title} (stand-in weights: no result)"
    assert "stand-in" not in figures["random"].params["title"]  # it draws the other model


def test_tables_and_figures_say_in_which_type_a_model_runs(config):
    config["models"]["gpt"]["dtype"] = "bfloat16"
    figures, _ = choose(config)
    said = {run["model"]: run["label"] for run in figures["curves"].params["runs"]}
    assert said == {"gpt": "GPT, in bfloat16", "bert": "bert"}
    assert catalogue.label("gpt", config) == "GPT, in bfloat16"
    # Norms of weights are measured in float32.
    assert catalogue.name("gpt", config) == "GPT"
    config["models"]["gpt"]["dtype"] = "float32"
    assert catalogue.label("gpt", config) == "GPT"


def test_a_metric_takes_its_own_constants_alone(config):
    assert catalogue.constants(config, METRICS["clusters"]) == {"min_cluster_size": 2}
    assert catalogue.constants(config, METRICS["effective_rank"]) == {}


# --- what a change redraws


def changed(config, change, figures=FIGURES, metrics=METRICS):
    """The figures that another configuration draws differently."""
    before = choose(config, figures, metrics)[0]
    other = deepcopy(config)
    change(other)
    after = choose(other, figures, metrics)[0]
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def test_another_model_redraws_only_figures_of_all_models(config):
    def add(other):
        other["models"]["new"] = {"source": LOCAL, "weights": ["trained", "norm_matched.0"]}

    assert changed(config, add) == {"curves"}


@pytest.mark.parametrize("control", [True, False])
def test_another_prompt_redraws_only_figures_of_all_prompts(config, control):
    def add(other):
        other["prompts"]["new"] = {"control": control}

    assert changed(config, add) == {"curves"}


@pytest.mark.parametrize(
    "change, redrawn",
    [
        (lambda c: c["roles"].update(focus="bert"), {"random"}),
        (lambda c: c["figures"].update(prompt="echo"), {"curves", "random", "trained"}),
        (lambda c: c["models"]["gpt"].update(colour="#000000"), {"curves", "random"}),
        (lambda c: c["models"]["bert"].update(label="BERT"), {"curves", "trained"}),
        (lambda c: c["models"]["bert"].update(source=LOCAL), {"curves", "trained"}),
        (lambda c: c["metrics"].update(histogram_bins=20), {"random", "trained"}),
        (lambda c: c["metrics"].update(near_one=0.8), {"curves", "random", "trained"}),
        (lambda c: c["metrics"].update(min_cluster_size=5), set()),
        (lambda c: c["models"]["gpt"]["weights"].append("norm_matched.7"), {"curves"}),
        (lambda c: c["models"]["gpt"]["weights"].append("orthogonal.0"), set()),
    ],
)
def test_a_change_redraws_exactly_the_figures_that_show_it(config, change, redrawn):
    assert changed(config, change) == redrawn


def test_the_real_catalogue_redraws_many_model_figures_alone_for_a_new_model(root, config):
    real = catalogue.load(root / "workflow/figures.yaml")
    metrics = catalogue.load(root / "workflow/metrics.yaml")
    taken = [constant for metric in metrics.values() for constant in metric["constants"]]
    config["metrics"] = dict.fromkeys(taken, 1)
    many = {name for name, entry in real.items() if entry["models"] == "all"}

    def add(other):
        other["models"]["new"] = {"source": LOCAL, "weights": ["trained", "norm_matched.0"]}

    assert changed(config, add, real, metrics) == many


# --- what is not drawn


def test_only_the_figures_asked_for_are_drawn(config):
    config["figures"]["draw"] = ["trained", "curves"]
    figures, skipped = choose(config)
    assert list(figures) == ["curves", "trained"]
    assert skipped == []


def test_a_figure_that_lacks_its_runs_is_skipped_with_what_to_add(config):
    config["models"]["gpt"]["weights"] = ["trained"]
    figures, skipped = choose(config)
    assert list(figures) == ["curves", "trained"]  # bert has a baseline for the curves
    assert skipped == ["random is skipped: add 'norm_matched.0' to the weights of gpt"]


def test_a_figure_of_a_causal_model_is_skipped_where_its_model_looks_both_ways(config):
    entry = CURVES | {"models": ["focus"], "causal": True}
    figures, skipped = choose(config, {"causal": entry}, both_ways=["gpt"])
    assert figures == {}
    assert skipped == ["causal is skipped: gpt is not causal; name a causal model as roles.focus"]
    entry = CURVES | {"models": ["second"], "causal": True}
    _, skipped = choose(config, {"causal": entry}, both_ways=["bert"])
    assert skipped == ["causal is skipped: bert is not causal; name a causal model as roles.second"]


def test_only_the_model_of_a_figure_must_be_causal_and_only_where_it_says_so(config):
    causal = CURVES | {"models": ["focus"], "causal": True}
    either = CURVES | {"models": ["focus"]}
    figures, skipped = choose(config, {"causal": causal}, both_ways=["bert"])
    assert (list(figures), skipped) == (["causal"], [])
    figures, skipped = choose(config, {"either": either}, both_ways=["gpt", "bert"])
    assert (list(figures), skipped) == (["either"], [])


def test_a_figure_of_many_models_is_skipped_only_where_none_has_the_runs(config):
    config["models"]["gpt"]["weights"] = ["norm_matched.0"]
    config["models"]["bert"]["weights"] = ["norm_matched.0"]
    _, skipped = choose(config)
    assert "curves is skipped: add 'trained' to the weights of gpt or bert" in skipped
    assert "trained is skipped: add 'trained' to the weights of bert" in skipped


def test_a_figure_without_its_counterpart_is_drawn_on_its_own_axes(config):
    config["models"]["gpt"]["weights"] = ["norm_matched.0"]
    figures, _ = choose(config)
    assert figures["random"].matches == ()


def test_a_figure_that_is_not_asked_for_is_not_said_to_be_skipped(config):
    config["models"]["gpt"]["weights"] = ["trained"]
    config["figures"]["draw"] = ["curves"]
    assert choose(config)[1] == []


# --- sweeps

STEPS = CURVES | {"models": "sweeps", "weights": ["trained"], "seeds": "first"}


@pytest.fixture
def swept(config):
    """The configuration with revisions of a model between the two others."""
    models = config["models"]
    lion = {"source": LOCAL, "weights": ["trained", "norm_matched.0"], "label": "Lion"}
    config["models"] = {
        "gpt": models["gpt"],
        **{f"lion@step{step}": lion | {"step": step} for step in (300, 0, 20)},
        "bert": models["bert"],
    }
    return config


def test_a_figure_of_sweeps_draws_every_revision_by_its_step(swept):
    swept["models"]["ant@1"] = swept["models"]["lion@step0"] | {"step": 1}
    figures, skipped = choose(swept, {"steps": STEPS | {"prompts": "one"}})
    assert [run.path for run in figures["steps"].runs] == [
        "lion@step0/trained/wiki",
        "lion@step20/trained/wiki",
        "lion@step300/trained/wiki",
        "ant@1/trained/wiki",
    ]
    assert skipped == []


def test_a_figure_of_sweeps_is_told_the_step_and_the_sweep(swept):
    figures, _ = choose(swept, {"steps": STEPS, "curves": CURVES})
    told = figures["steps"].params["runs"][2]
    assert told["model"] == "lion@step20"
    assert (told["sweep"], told["sweep_label"], told["step"]) == ("lion", "Lion", 20)
    assert told["label"] == "Lion, step 20"
    assert "step" not in figures["curves"].params["runs"][0]


def test_a_figure_of_all_models_leaves_revisions_out_but_those_with_a_role(swept):
    drawn = dict.fromkeys(run.model for run in choose(swept)[0]["curves"].runs)
    assert list(drawn) == ["gpt", "bert"]
    swept["roles"]["second"] = "lion@step300"
    drawn = dict.fromkeys(run.model for run in choose(swept)[0]["curves"].runs)
    assert list(drawn) == ["gpt", "lion@step300", "bert"]
    assert {run.model for run in choose(swept)[0]["trained"].runs} == {"lion@step300"}


def test_revisions_have_the_colour_of_their_sweep_and_change_no_other(config, swept):
    swept["roles"]["second"] = "lion@step0"
    del swept["models"]["bert"]["colour"]
    params = choose(swept, {"steps": STEPS, "curves": CURVES})[0]
    colours = {run["model"]: run["colour"] for run in params["steps"].params["runs"]}
    assert set(colours.values()) == {catalogue.COLOURS[1]}
    colours = {run["model"]: run["colour"] for run in params["curves"].params["runs"]}
    assert colours["bert"] == catalogue.COLOURS[2]


def test_another_revision_redraws_figures_of_sweeps_alone(swept):
    def add(other):
        other["models"]["lion@step7"] = other["models"]["lion@step0"] | {"step": 7}

    assert changed(swept, add, FIGURES | {"steps": STEPS}) == {"steps"}


def test_a_figure_of_sweeps_is_missed_aloud_only_where_it_is_asked_for(config):
    assert choose(config, {"steps": STEPS}) == ({}, [])
    config["figures"]["draw"] = ["steps"]
    _, skipped = choose(config, {"steps": STEPS})
    assert skipped == ["steps is skipped: add `revisions:` to a model (docs/sweeps.md)"]


def test_a_sweep_without_trained_weights_is_said_by_its_name(swept):
    for model in swept["models"].values():
        model["weights"] = ["norm_matched.0"]
    skipped = choose(swept, {"steps": STEPS})[1]
    assert skipped == ["steps is skipped: add 'trained' to the weights of lion"]


def test_tables_name_sweep_and_step_where_there_is_a_sweep(config, swept):
    assert catalogue.training("lion@step20", swept) == {"sweep": "lion", "step": 20}
    # The same columns in every table.
    assert catalogue.training("gpt", swept) == {"sweep": "", "step": ""}
    swept["models"] = {name: swept["models"][name] for name in ("gpt", "bert")}
    assert catalogue.training("gpt", swept) == {}


# --- the real catalogue


def test_every_entry_names_things_that_exist(root):
    metrics = catalogue.load(root / "workflow/metrics.yaml")
    written = {table for metric in metrics.values() for table in metric["writes"].values()}
    arrays = {name for metric in metrics.values() for name in metric.get("arrays", {}).values()}
    for name, entry in catalogue.load(root / "workflow/figures.yaml").items():
        assert (root / f"scripts/draw_{entry['draw']}.py").is_file(), name
        assert (root / f"workflow/report/{entry['caption']}.rst").is_file(), name
        assert entry["tables"], name
        assert set(entry["tables"]) <= written, name
        assert set(entry.get("arrays", [])) <= arrays, name
        assert entry["models"], name
        many = entry["models"] in ("all", catalogue.SWEEPS)
        assert many or set(entry["models"]) <= {"focus", "second"}, name
        assert entry.get("causal", False) in (True, False), name
        kinds = {"trained", "baseline", catalogue.EVERY}
        assert {*entry["weights"], *entry.get("matches", [])} <= kinds, name
        assert entry["seeds"] in ("all", "first"), name
        assert entry["prompts"] in ("all", "one"), name


def test_the_panels_of_a_figure_fill_its_grid_and_say_what_their_marks_are(root):
    for name, entry in catalogue.load(root / "workflow/figures.yaml").items():
        if entry["draw"] != "curves":
            continue
        several = {key: [1, 2, 3] for key in ("beta", "sinkhorn_floors")}
        panels = curves.expand(
            entry["options"]["panels"], {"near_one": 0.9, "energy_drop": 0.1} | several
        )
        for readings in (["published"], ["published", "controlled"]):
            shown = [panel for panel in panels if panel["reading"] in readings]
            cells = [panel["cell"] for panel in shown]
            rows, columns = (1 + max(cell[axis] for cell in cells) for axis in (0, 1))
            grid = [(row, column) for row in range(rows) for column in range(columns)]
            assert sorted(map(tuple, cells)) == grid, name  # an empty cell is an empty frame
            marked = [panel for panel in shown if "marks" in panel]
            assert all("marks_say" in panel for panel in marked[:1]), name
            assert all("reference_says" in panel for panel in shown if "reference" in panel), name
            assert all("range_says" in panel for panel in shown if panel.get("range")), name


@pytest.fixture(scope="session")
def metrics(root):
    return catalogue.load(root / "workflow/metrics.yaml")


def test_every_metric_has_a_script_and_says_what_it_does(root, metrics):
    for name, metric in metrics.items():
        keys = {"message", "reads", "constants", "writes", "collect"}
        assert set(metric) - {"arrays", "cut"} == keys, name
        assert (root / f"scripts/{name}.py").is_file(), name
        assert metric["message"], name
        assert metric["reads"], name


def test_every_table_is_written_by_one_metric(metrics):
    written = [
        name
        for metric in metrics.values()
        for name in (*metric["writes"].values(), *metric.get("arrays", {}).values())
    ]
    assert len(written) == len(set(written))


def test_a_metric_collects_only_what_it_writes(metrics):
    for name, metric in metrics.items():
        assert set(metric["collect"]) <= set(metric["writes"].values()), name
    collected = {table for metric in metrics.values() for table in metric["collect"]}
    assert not collected & {"cluster_labels", "token_membership"}  # a row a token: too many


def test_every_constant_is_a_key_of_the_configuration_and_is_taken_by_a_metric(root, metrics):
    schema = yaml.safe_load((root / "workflow/schemas/config.schema.yaml").read_text())
    taken = {constant for metric in metrics.values() for constant in metric["constants"]}
    assert taken == set(schema["properties"]["metrics"]["properties"])


@pytest.mark.parametrize("name", ["inner_products", "energy", "clusters", "cluster_length"])
def test_a_script_reads_the_constants_that_its_metric_names_and_no_other(root, metrics, name):
    text = (root / f"scripts/{name}.py").read_text()
    assert set(re.findall(r'constants\["(\w+)"\]', text)) == set(metrics[name]["constants"])


def test_a_script_writes_every_table_that_its_metric_names(root, metrics):
    for name, metric in metrics.items():
        text = (root / f"scripts/{name}.py").read_text()
        for module, names in (("tables", metric["writes"]), ("arrays", metric.get("arrays", {}))):
            written = re.findall(rf"{module}\.write\(\s*run\.output\.(\w+)", text)
            assert sorted(written) == sorted(names), name
