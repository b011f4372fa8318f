"""Drawing: the expected numbers, equal pictures in equal files, captions that follow the csv."""

import math
from pathlib import Path
from types import SimpleNamespace

import jinja2
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from tokensphere import catalogue, statistics, tables
from tokensphere.drawing import captions, curves, histograms, readings, style
from tokensphere.harness import records
from tokensphere.sources import Checkpoint
from tools.captions import as_read

ROOT = Path(__file__).parents[2]
NAN = math.nan
CATALOGUE = catalogue.load(ROOT / "workflow/figures.yaml")
METRICS = catalogue.load(ROOT / "workflow/metrics.yaml")
# A handful of float64 operations on numbers of order 1.
ROUNDING = 1e-12


def approx(expected):
    return pytest.approx(expected, abs=ROUNDING, rel=0, nan_ok=True)


# --- curves: the numbers


def table(published, controlled=None, final=None, n_tokens=10):
    """A per-run table: one value a layer of each reading, and both of the final norm."""
    controlled = controlled or [0.0] * len(published)
    rows = [
        {"layer": layer, "state": "residual", "n_tokens": n_tokens, "all": one, "distinct": two}
        for layer, (one, two) in enumerate(zip(published, controlled, strict=True))
    ]
    if final is not None:
        last = rows[-1] | {"state": "final_norm", "all": final, "distinct": 99.0}
        rows.append(last)
    return pd.DataFrame(rows)


def run(model="gpt", weights="trained", prompt="wiki"):
    return {"model": model, "weights": weights, "prompt": prompt, "label": model.upper()}


PANELS = [
    {"reading": "published", "column": "all", "axis": "axis", "limits": [0, 1]},
    {"reading": "controlled", "column": "distinct", "axis": "axis", "limits": [0, 1]},
]


def placed(panels, **constants):
    """Place panels in their grid, as scripts/draw_curves.py does."""
    return curves.expand(panels, constants)


def assemble(*pairs, panels=PANELS, prompt="wiki", controls=(), table="states"):
    frames, runs = zip(*pairs, strict=True)
    return curves.assemble({table: frames}, runs, placed(panels), prompt=prompt, controls=controls)


def reading(data, name, series=None):
    data = data[data["reading"] == name]
    return data if series is None else data[data["series"] == series]


def test_the_published_curve_ends_in_the_final_norm():
    data = reading(assemble((table([0.1, 0.2, 0.3], final=0.9), run())), "published")
    assert data["layer"].tolist() == [0, 1, 2]
    assert data["state"].tolist() == ["residual", "residual", "final_norm"]
    assert data["depth"].tolist() == [0, 0.5, 1]
    assert data["value"].tolist() == approx([0.1, 0.2, 0.9])


def test_the_published_curve_of_a_model_without_a_final_norm_ends_in_its_last_layer():
    data = reading(assemble((table([0.1, 0.2, 0.3]), run("bert"))), "published")
    assert data["state"].tolist() == ["residual"] * 3
    assert data["value"].tolist() == approx([0.1, 0.2, 0.3])


def test_the_controlled_curve_is_the_raw_residual_stream():
    frame = table([0.1, 0.2, 0.3], [0.4, 0.5, 0.6], final=0.9)
    data = reading(assemble((frame, run())), "controlled")
    assert data["state"].tolist() == ["residual"] * 3
    assert data["value"].tolist() == approx([0.4, 0.5, 0.6])


def test_a_final_norm_in_one_model_moves_no_other_model():
    data = assemble((table([0.1, 0.2], final=0.9), run()), (table([0.3, 0.4]), run("bert")))
    bert = reading(data[data["model"] == "bert"], "published")
    assert bert["value"].tolist() == approx([0.3, 0.4])


def test_the_published_curve_is_of_one_prompt_alone():
    pairs = [(table([value, value]), run(prompt=name)) for name, value in (("a", 0.1), ("b", 0.7))]
    data = reading(assemble(*pairs, prompt="b"), "published")
    assert data["value"].tolist() == approx([0.7, 0.7])
    assert set(data["series"]) == {"b"}
    assert data["n_tokens"].tolist() == [10, 10]


def test_the_published_band_is_one_standard_deviation_over_seeds():
    data = assemble(
        (table([0.2, 0.2], final=0.5), run(weights="norm_matched.0")),
        (table([0.6, 0.2], final=0.7), run(weights="norm_matched.1")),
    )
    data = reading(data, "published")
    assert data["value"].tolist() == approx([0.4, 0.6])
    assert data["low"].tolist() == approx([0.2, 0.5])
    assert data["high"].tolist() == approx([0.6, 0.7])
    assert set(data["weights"]) == {"random"}
    assert set(data["seeds"]) == {2}


def test_one_seed_has_no_band():
    data = assemble((table([0.2, 0.2]), run(weights="norm_matched.0")))
    assert data[["low", "high"]].isna().all(axis=None)
    assert set(data["seeds"]) == {1}


PROMPTS = {"wiki": [0.1, 0.3], "code": [0.2, 0.1], "poem": [0.9, 0.8], "list": [0.4, 0.0]}


def over_prompts(names, **keywords):
    return assemble(
        *((table([0, 0], PROMPTS[name]), run(prompt=name)) for name in names), **keywords
    )


def test_the_controlled_curve_is_the_mean_and_bootstrap_band_over_prompts():
    data = reading(over_prompts(PROMPTS), "controlled")
    expected = statistics.over_prompts(list(PROMPTS.values()))
    assert data["value"].tolist() == approx([0.4, 0.3])
    assert data["low"].tolist() == approx(expected.low.tolist())
    assert data["high"].tolist() == approx(expected.high.tolist())
    assert set(data["series"]) == {"mean over prompts"}
    assert set(data["prompts"]) == {4}
    assert data["n_tokens"].isna().all()  # prompts differ in it


def test_three_prompts_have_a_mean_and_no_band():
    data = reading(over_prompts(["wiki", "code", "poem"]), "controlled")
    assert data["value"].tolist() == approx([0.4, 0.4])
    assert data[["low", "high"]].isna().all(axis=None)


def test_seeds_are_averaged_within_a_prompt_before_prompts_are_resampled():
    pairs = [
        (table([0, 0], [value + shift for value in values]), run(weights=weights, prompt=name))
        for weights, shift in (("norm_matched.0", -0.1), ("norm_matched.1", 0.1))
        for name, values in PROMPTS.items()
    ]
    data = reading(assemble(*pairs), "controlled")
    expected = statistics.over_prompts(list(PROMPTS.values()))
    assert data["value"].tolist() == approx([0.4, 0.3])
    assert data["low"].tolist() == approx(expected.low.tolist())
    assert set(data["prompts"]) == {4}
    assert set(data["seeds"]) == {2}


def test_a_control_prompt_is_a_curve_of_its_own_and_in_no_mean():
    data = reading(over_prompts(PROMPTS, controls=["poem"]), "controlled")
    usual = reading(data, "controlled", "mean over prompts")
    assert usual["value"].tolist() == approx([0.7 / 3, 0.4 / 3])
    assert set(usual["prompts"]) == {3}
    control = reading(data, "controlled", "poem")
    assert control["value"].tolist() == approx([0.9, 0.8])
    assert control["n_tokens"].tolist() == [10, 10]


def test_controls_alone_make_no_mean():
    data = reading(over_prompts(["wiki", "poem"], controls=["wiki", "poem"]), "controlled")
    assert data["series"].tolist() == ["wiki", "wiki", "poem", "poem"]


def test_an_undefined_value_stays_undefined_in_every_mean():
    values = [[0.1, NAN], [0.2, 0.4], [0.3, 0.6], [0.4, 0.8], [0.5, 1.0]]
    pairs = [
        (table(one, one), run(weights=f"norm_matched.{seed}", prompt=prompt))
        for prompt in PROMPTS
        for seed, one in enumerate(values)
    ]
    data = assemble(*pairs)
    for name in ("published", "controlled"):
        assert reading(data, name)["value"].tolist() == approx([0.3, NAN])
        assert reading(data, name)["layer"].tolist() == [0, 1]


def test_a_layer_that_is_undefined_everywhere_keeps_its_row():
    pairs = [(table([NAN, 0.5], [NAN, 0.5]), run(prompt=prompt)) for prompt in PROMPTS]
    data = assemble(*pairs)
    for name in ("published", "controlled"):
        assert reading(data, name)["value"].tolist() == approx([NAN, 0.5])


def test_the_order_of_a_tables_rows_does_not_matter():
    frame = table([0.1, 0.2, 0.3], [0.4, 0.5, 0.6], final=0.9)
    pd.testing.assert_frame_equal(assemble((frame[::-1], run())), assemble((frame, run())))


def test_trained_and_random_curves_of_a_model_follow_each_other_in_the_order_given():
    pairs = [
        (table([0.1, 0.2]), run(model, weights))
        for model, weights in (("b", "trained"), ("b", "norm_matched.0"), ("a", "trained"))
    ]
    data = reading(assemble(*pairs), "published")
    order = data[["model", "weights"]].drop_duplicates().to_numpy().tolist()
    assert order == [["b", "trained"], ["b", "random"], ["a", "trained"]]
    assert data["label"].str.lower().tolist() == data["model"].tolist()


# --- curves: several tables, gates, references, lengths


def panel(reading, column, **more):
    return {"reading": reading, "column": column, "axis": column, **more}


def ranks(rank, gates, gaussian=None, final=None):
    """A second table of states: layer, state, and columns that gate and accompany the first."""
    frame = table(rank, final=final).drop(columns=["distinct"]).rename(columns={"all": "rank"})
    gates = [*gates, True] if final is not None else gates
    return frame.assign(gate=gates, gaussian=0.5 if gaussian is None else gaussian)


def joined(panels, *pairs, prompt="wiki", controls=()):
    """Assemble a figure of two tables of states, `counts` and `ranks`."""
    counts_, ranks_, runs = zip(*pairs, strict=True)
    tables_ = {"counts": counts_, "ranks": ranks_}
    return curves.assemble(tables_, runs, placed(panels), prompt=prompt, controls=controls)


def test_tables_of_a_run_are_joined_by_layer_and_state_in_whatever_order():
    first = table([1.0, 2.0, 3.0], final=4.0)
    second = ranks([10.0, 20.0, 30.0], [True] * 3, final=40.0)
    panels = [panel("published", "all"), panel("published", "rank")]
    data = joined(panels, (first, second[::-1], run()))
    assert data["measure"].tolist() == ["all"] * 3 + ["rank"] * 3
    assert data["value"].tolist() == approx([1, 2, 4, 10, 20, 40])


def test_a_table_that_repeats_a_state_is_refused():
    twice = pd.concat([ranks([1.0, 2.0], [True, True])] * 2)
    with pytest.raises(pd.errors.MergeError):
        joined([panel("published", "all")], (table([1.0, 2.0]), twice, run()))


def test_a_value_whose_gate_is_closed_is_undefined():
    panels = [panel("published", "all"), panel("controlled", "distinct", gate="gate")]
    frame = table([0.1, 0.2, 0.3], [0.4, 0.5, 0.6])
    data = joined(panels, (frame, ranks([1, 2, 3], [False, True, False]), run()))
    assert reading(data, "published")["value"].tolist() == approx([0.1, 0.2, 0.3])
    assert reading(data, "controlled")["value"].tolist() == approx([NAN, 0.5, NAN])


def test_a_gate_that_is_closed_for_one_seed_undefines_the_mean():
    pairs = [
        (table([0, 0], [0.4, 0.6]), ranks([1, 2], gates), run(weights=f"norm_matched.{seed}"))
        for seed, gates in enumerate([[True, True], [True, False]])
    ]
    data = joined([panel("controlled", "distinct", gate="gate")], *pairs)
    assert data["value"].tolist() == approx([0.4, NAN])


def test_a_reference_is_the_mean_over_the_runs_of_its_curve():
    pairs = [
        (table([0, 0], [0.4, 0.6]), ranks([1, 2], [True, True], [gaussian, 0.3]), run(prompt=name))
        for name, gaussian in (("wiki", 0.2), ("code", 0.6))
    ]
    panels = [panel("controlled", "distinct", reference="gaussian"), panel("controlled", "rank")]
    data = joined(panels, *pairs)
    assert data["reference"].tolist() == approx([0.4, 0.3, NAN, NAN])


BY_LENGTH = panel("controlled", "count", x="n_tokens")


def lengths(values):
    """A table of lengths: tokens -> the values of its layers."""
    return pd.DataFrame(
        [
            {"layer": layer, "tokens": tokens, "count": one}
            for tokens, layers in values.items()
            for layer, one in enumerate(layers)
        ]
    )


def over_lengths(*pairs, controls=()):
    return assemble(*pairs, panels=[BY_LENGTH], controls=controls)


def test_a_curve_over_lengths_is_the_mean_over_layers_then_over_the_prompts_that_are_so_long():
    data = over_lengths(
        # Their own lengths, 200 and 150, are left out: one prompt would carry them alone.
        (lengths({64: [1, 3], 128: [5, 7], 200: [8, 8]}), run(prompt="wiki")),
        (lengths({64: [4, 4], 128: [8, 10], 150: [9, 9]}), run(prompt="code")),
    )
    assert data["n_tokens"].tolist() == [64, 128]
    assert data["value"].tolist() == approx([3.0, 7.5])
    assert data["prompts"].tolist() == [2, 2]
    assert set(data["series"]) == {"mean over prompts"}
    assert data[["layer", "depth"]].isna().all(axis=None)
    assert set(data["reading"]) == {"controlled"}


def test_a_curve_over_lengths_averages_seeds_within_a_prompt_and_has_the_bootstrap_band():
    values = {"wiki": [1, 3], "code": [4, 4], "poem": [9, 7], "list": [0, 2]}
    data = over_lengths(
        *(
            (lengths({64: [one + shift for one in layers]}), run(weights=weights, prompt=name))
            for name, layers in values.items()
            for weights, shift in (("norm_matched.0", -1), ("norm_matched.1", 1))
        )
    )
    expected = statistics.over_prompts([[2.0], [4.0], [8.0], [1.0]])
    assert data["value"].tolist() == approx([3.75])
    assert data["low"].tolist() == approx(expected.low.tolist())
    assert data["high"].tolist() == approx(expected.high.tolist())
    assert (data["seeds"].tolist(), data["prompts"].tolist()) == ([2], [4])


def test_a_control_has_a_curve_over_lengths_of_its_own():
    data = over_lengths(
        (lengths({64: [1, 3]}), run(prompt="wiki")),
        (lengths({64: [9, 9]}), run(prompt="poem")),
        controls=["poem"],
    )
    assert dict(zip(data["series"], data["value"], strict=True)) == {"wiki": 2.0, "poem": 9.0}


def test_prompts_without_a_common_length_have_a_curve_over_lengths_each():
    data = over_lengths(
        (lengths({24: [1, 3]}), run(prompt="wiki")),
        (lengths({64: [4, 4], 150: [8, 10]}), run(prompt="code")),
    )
    found = data[["series", "n_tokens", "value", "prompts"]].to_numpy().tolist()
    assert found == [["wiki", 24, 2, 1], ["code", 64, 4, 1], ["code", 150, 9, 1]]


# --- curves: panels in a grid, and the rows that they draw


def test_panels_without_a_cell_stand_in_one_row_in_their_order():
    expanded = placed([panel("published", "all"), panel("controlled", "distinct")])
    assert [one["cell"] for one in expanded] == [(0, 0), (0, 1)]
    assert [one["where"] for one in expanded] == ["", ""]


def test_a_panel_is_repeated_below_itself_for_each_value_of_a_constant():
    panels = [
        panel("published", "energy", each="beta", cell=[0, 1], axis="β = {each:g}, {drop:g}"),
        panel("controlled", "energy", cell=[3, 0], axis="all"),
    ]
    expanded = placed(panels, beta=[0.5, 1.0, 2], drop=1e-6)
    assert [one["cell"] for one in expanded] == [(0, 1), (1, 1), (2, 1), (3, 0)]
    assert [one["where"] for one in expanded] == ["beta = 0.5", "beta = 1", "beta = 2", ""]
    assert [one["axis"] for one in expanded] == [
        "β = 0.5, 1e-06", "β = 1, 1e-06", "β = 2, 1e-06", "all",
    ]  # fmt: skip
    assert panels[0]["axis"] == "β = {each:g}, {drop:g}"  # the catalogue is left as it is


def test_a_panel_draws_the_rows_of_its_value_alone():
    frame = pd.concat(
        [table([beta, 10 * beta]).assign(beta=beta) for beta in (0.1, 1.0, 2.5)],
        ignore_index=True,
    )
    panels = curves.expand(
        [panel("published", "all", each="beta", cell=[0, 0])], {"beta": [2.5, 0.1, 1]}
    )
    data = curves.assemble({"energy": [frame]}, [run()], panels, prompt="wiki", controls=())
    shown = data.groupby("where", sort=False)["value"].apply(list).to_dict()
    assert shown == {
        "beta = 2.5": approx([2.5, 25]),
        "beta = 0.1": approx([0.1, 1]),
        "beta = 1": approx([1, 10]),
    }
    assert not data.duplicated(["reading", *curves.KEYS]).any()
    picture = draw_placed(data, panels, ["published"])
    drawn = [lines(axes)[0].get_ydata().tolist() for axes in picture.axes]
    assert drawn == [approx([2.5, 25]), approx([0.1, 1]), approx([1, 10])]


# --- curves: measures of heads


def of_two_heads(*values, **more):
    """A table of two heads: the values of a block are those of its heads."""
    return pd.DataFrame(
        [
            {"layer": block, "head": head, "n_tokens": 10, "all": value, "reason": "", **more}
            for block, pair in enumerate(values, start=1)
            for head, value in enumerate(pair)
        ]
    )


RANGE = panel("published", "all", range=True, range_says="lowest to highest head")


def test_a_value_of_heads_is_their_mean_with_the_least_and_the_most():
    data = assemble((of_two_heads((0.1, 0.3), (0.9, 0.5)), run()), panels=[RANGE])
    assert data["layer"].tolist() == [1, 2]
    assert data["depth"].tolist() == [0.5, 1.0]
    assert data["value"].tolist() == approx([0.2, 0.7])
    assert data["least"].tolist() == approx([0.1, 0.5])
    assert data["most"].tolist() == approx([0.3, 0.9])


def test_the_range_of_heads_is_averaged_over_runs_and_asked_for():
    seeds = [
        (of_two_heads((0.1, 0.3)), run(weights="norm_matched.0")),
        (of_two_heads((0.2, 0.8)), run(weights="norm_matched.1")),
    ]
    data = assemble(*seeds, panels=[RANGE])
    assert data[["value", "least", "most"]].iloc[0].tolist() == approx([0.35, 0.15, 0.55])
    data = assemble(*seeds, panels=[panel("published", "all")])
    assert data[["least", "most"]].isna().all(axis=None)


def test_a_head_without_a_value_undefines_the_mean():
    data = assemble((of_two_heads((0.1, NAN), (0.9, 0.5)), run()), panels=[RANGE])
    assert data["value"].tolist() == approx([NAN, 0.7])


def test_floors_are_panels_side_by_side_with_the_rows_of_theirs_alone():
    frame = pd.concat(
        [of_two_heads((floor, 3 * floor), floor=floor) for floor in (1e-16, 1e-8)],
        ignore_index=True,
    )
    across = panel("published", "all", each="floors", by="floor", across=True, cell=[1, 0])
    panels = curves.expand([across], {"floors": [1e-8, 1e-16]})
    assert [one["cell"] for one in panels] == [(1, 0), (1, 1)]
    data = curves.assemble({"floors": [frame]}, [run()], panels, prompt="wiki", controls=())
    shown = data.groupby("where", sort=False)["value"].apply(list).to_dict()
    assert list(shown) == ["floor = 1e-08", "floor = 1e-16"]
    # Values far below ROUNDING: relative.
    assert shown["floor = 1e-08"] == pytest.approx([2e-8], rel=1e-12)
    assert shown["floor = 1e-16"] == pytest.approx([2e-16], rel=1e-12)


def test_a_range_is_a_light_band_and_in_the_legend():
    data = assemble((of_two_heads((0.1, 0.3), (0.9, 0.5)), run()), panels=[RANGE])
    picture = draw_placed(data, placed([RANGE]), ["published"])
    bands = [band for band in picture.axes[0].collections if band.get_alpha() == 0.1]
    (extent,) = [band.get_datalim(picture.axes[0].transData) for band in bands]
    assert (extent.y0, extent.y1) == pytest.approx((0.1, 0.9))
    assert "lowest to highest head" in legend(picture)
    plain = panel("published", "all")
    without = draw_placed(assemble((of_two_heads((0.1, 0.3)), run()), panels=[plain]),
                          placed([plain]), ["published"])  # fmt: skip
    assert "lowest to highest head" not in legend(without)


def test_panels_that_are_alike_have_the_same_ends():
    panels = [
        panel("published", "all", alike="values"),
        panel("controlled", "distinct", alike="values"),
        panel("controlled", "distinct"),
    ]
    data = assemble((table([0.1, 0.2], [0.3, 0.8]), run()), panels=panels)
    one, two, three = draw_placed(data, placed(panels), ["published", "controlled"]).axes
    assert one.get_ylim() == two.get_ylim() == three.get_ylim()
    panels[1].pop("alike")
    one, two, _ = draw_placed(data, placed(panels), ["published", "controlled"]).axes
    assert one.get_ylim()[1] < two.get_ylim()[1]


def test_depth_is_counted_in_what_the_figure_is_of():
    data = assemble((table([0.1, 0.2]), run()))
    picture = draw_curves(data, ["published"], along="block")
    assert picture.axes[0].get_xlabel() == "depth (block / number of blocks)"


# --- a model whose block is iterated


def test_a_table_is_read_to_the_cut_of_its_run(tmp_path):
    frame = table([0.1, 0.2, 0.3, 0.4])
    tables.write(tmp_path / "a.csv", frame.to_dict("records"), ["layer", "state"])
    assert readings.read(tmp_path / "a.csv", {"cut": 2})["layer"].tolist() == [0, 1, 2]
    assert readings.read(tmp_path / "a.csv", {})["layer"].tolist() == [0, 1, 2, 3]
    tables.write(tmp_path / "b.csv", [{"token": 0, "share": 0.5}], ["token"])
    assert len(readings.read(tmp_path / "b.csv", {"cut": 2})) == 1


def test_the_depth_at_which_training_ends_is_marked_in_the_colour_of_its_model():
    data = assemble((table([0.1, 0.2]), run()), (table([0.3, 0.4]), run(model="bert")))

    def marks(depths):
        figure = draw_curves(data, trained_depths=depths)
        found = [
            (line.get_color(), line.get_xdata()[0])
            for line in figure.axes[0].lines
            if list(line.get_xdata()[:1]) == list(line.get_xdata()[1:])
        ]
        return found, "as deep as in training" in legend(figure)

    assert marks({"bert": 0.25}) == ([("#445566", 0.25)], True)
    # Drawn as deep as it was trained there is nothing to mark.
    assert marks({"bert": 1.0}) == ([], False)
    assert marks(None) == ([], False)


# --- curves: bins of a per-token share

BINS = panel("controlled", "share", bins=20)
BINS_AS_PUBLISHED = panel("published", "share", bins=20)


def shares(values):
    """A table of tokens."""
    return pd.DataFrame({"token": range(len(values)), "share": values})


def bins(*pairs, panels=(BINS,), controls=()):
    return assemble(*pairs, panels=panels, controls=controls, table="token_membership")


@pytest.mark.parametrize("place, share", [(0, 0), (3, 3 / 20), (7, 0.35), (12, 12 / 20), (19, 1.0)])
def test_a_share_on_an_edge_lies_in_the_bin_that_it_starts_and_1_in_the_last(place, share):
    data = bins((shares([share]), run()))
    assert data["value"].tolist() == [float(index == place) for index in range(20)]


def test_bins_are_equal_and_hold_the_share_of_the_runs_tokens():
    data = bins((shares([0, 0.04, 0.06, 1.0, 0.99, 0.5, 0.5, 0.5]), run()))
    assert data["bin_left"].tolist() == approx([index / 20 for index in range(20)])
    assert data["bin_right"].tolist() == approx([(index + 1) / 20 for index in range(20)])
    held = {0: 2 / 8, 1: 1 / 8, 10: 3 / 8, 19: 2 / 8}
    assert data["value"].tolist() == approx([held.get(index, 0) for index in range(20)])
    assert data["value"].sum() == approx(1)
    assert data[["layer", "depth"]].isna().all(axis=None)


def test_bins_are_the_mean_over_seeds_then_prompts_whatever_their_tokens():
    values = {"a": [0.0] * 4, "b": [0.0, 1.0], "c": [1.0] * 3, "d": [0.0, 0.0, 0.0, 1.0]}
    pairs = [
        (shares(one), run(weights="norm_matched.0", prompt=name)) for name, one in values.items()
    ]
    # In the other seed no token is in the first bin.
    pairs += [
        (shares([1.0] * len(one)), run(weights="norm_matched.1", prompt=name))
        for name, one in values.items()
    ]
    data = bins(*pairs)
    expected = statistics.over_prompts([[0.5], [0.25], [0.0], [0.375]])
    first = data.iloc[0]
    assert first["value"] == approx(expected.mean[0])
    assert (first["low"], first["high"]) == (approx(expected.low[0]), approx(expected.high[0]))
    assert (first["seeds"], first["prompts"], first["series"]) == (2, 4, "mean over prompts")
    assert data["value"].sum() == approx(1)


def test_published_bins_are_of_one_prompt_with_one_standard_deviation_over_seeds():
    pairs = [
        (shares(one), run(weights=f"norm_matched.{seed}"))
        for seed, one in enumerate([[0.0, 0.0], [0.0, 1.0]])
    ]
    pairs.append((shares([0.5]), run(weights="norm_matched.0", prompt="other")))
    first = bins(*pairs, panels=[BINS_AS_PUBLISHED]).iloc[0]
    assert (first["value"], first["low"], first["high"]) == approx((0.75, 0.5, 1.0))
    assert (first["series"], first["n_tokens"]) == ("wiki", 2)


def test_a_control_is_in_no_bin():
    data = bins((shares([0.0]), run()), (shares([1.0]), run(prompt="echo")), controls=["echo"])
    assert set(data["series"]) == {"wiki"}
    assert data["value"].tolist() == [1.0, *[0.0] * 19]


# --- curves: paired differences

DIFFERENCE = panel("controlled", "distinct", difference=True)


def pairs_of(trained, random, seeds=1):
    """Runs of the prompts; seeds of random weights lie around their mean."""
    shifts = [0.0] if seeds == 1 else [-0.5, 0.5]
    return [
        *((table([0, 0], one), run(prompt=name)) for name, one in trained.items()),
        *(
            (table([0, 0], [value + shift for value in one]),
             run(weights=f"norm_matched.{seed}", prompt=name))
            for name, one in random.items()
            for seed, shift in enumerate(shifts)
        ),
    ]  # fmt: skip


RANDOM = {"list": [0.1, 0.1], "poem": [0.3, 0.1], "code": [0.0, 0.4], "wiki": [0.2, 0.2]}


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_difference_is_paired_by_prompt_after_seeds_are_averaged(seeds):
    data = assemble(*pairs_of(PROMPTS, RANDOM, seeds), panels=[DIFFERENCE])
    differences = [
        [one - two for one, two in zip(PROMPTS[name], RANDOM[name], strict=True)]
        for name in PROMPTS  # whatever order the random runs come in
    ]
    expected = statistics.over_prompts(differences)
    depth = data[data["layer"].notna()]
    assert depth["value"].tolist() == approx(expected.mean.tolist())
    assert depth["low"].tolist() == approx(expected.low.tolist())
    assert depth["high"].tolist() == approx(expected.high.tolist())
    assert set(data["weights"]) == {"trained - random"}
    assert set(data["prompts"]) == {4}
    assert set(data["seeds"]) == {seeds}


def test_a_difference_has_its_mean_over_depth_with_its_interval():
    data = assemble(*pairs_of(PROMPTS, RANDOM), panels=[DIFFERENCE])
    means = [sum(PROMPTS[name]) / 2 - sum(RANDOM[name]) / 2 for name in PROMPTS]
    expected = statistics.over_prompts([[one] for one in means])
    (mean,) = data[data["series"] == "mean over depth"].to_dict("records")
    assert mean["value"] == approx(expected.mean[0])
    assert (mean["low"], mean["high"]) == (approx(expected.low[0]), approx(expected.high[0]))
    assert mean["prompts"] == 4
    assert all(math.isnan(mean[name]) for name in ("layer", "depth", "n_tokens"))


def test_a_depth_without_a_value_leaves_no_mean_over_depth():
    random = RANDOM | {"poem": [0.3, NAN]}
    data = assemble(*pairs_of(PROMPTS, random), panels=[DIFFERENCE])
    assert data["value"].tolist() == approx([data["value"].iloc[0], NAN, NAN])


def test_controls_are_in_no_difference():
    outlier = {"echo": [9.0, 9.0]}
    with_it = assemble(
        *pairs_of(PROMPTS | outlier, RANDOM | {"echo": [0.0, 0.0]}),
        panels=[DIFFERENCE],
        controls=["echo"],
    )
    pd.testing.assert_frame_equal(
        with_it, assemble(*pairs_of(PROMPTS, RANDOM), panels=[DIFFERENCE])
    )


@pytest.mark.parametrize("side", ["trained", "random"])
def test_a_prompt_that_only_one_of_the_weights_has_is_left_out(side):
    # It comes first: the pairs' series and tokens must not be taken from it.
    alone = {"alone": [9.0, 9.0]}
    trained, random = {"wiki": [0.5, 0.75]}, {"wiki": [0.25, 0.25]}
    if side == "trained":
        pairs = pairs_of(alone | trained, random)
    else:
        pairs = pairs_of(trained, alone | random)
    data = assemble(*pairs, panels=[DIFFERENCE])
    assert data["value"].tolist() == approx([0.25, 0.5, 0.375])
    assert set(data["prompts"]) == {1}
    assert data["series"].tolist() == ["wiki", "wiki", "mean over depth"]


def test_under_four_prompts_a_difference_has_no_interval():
    three = {name: PROMPTS[name] for name in ("wiki", "code", "poem")}
    data = assemble(*pairs_of(three, RANDOM), panels=[DIFFERENCE])
    assert data[["low", "high"]].isna().all(axis=None)
    assert data["value"].notna().all()
    assert set(data["prompts"]) == {3}


def test_a_model_without_random_weights_or_a_common_prompt_has_no_difference():
    trained = [(table([0, 0], [0.5, 0.5]), run("bert"))]
    apart = [
        (table([0, 0], [0.5, 0.5]), run("t5", prompt="code")),
        (table([0, 0], [0.5, 0.5]), run("t5", "norm_matched.0", prompt="poem")),
    ]
    gpt = pairs_of(PROMPTS, RANDOM)
    data = assemble(*trained, *apart, *gpt, panels=[DIFFERENCE])
    assert set(data["model"]) == {"gpt"}


def test_bins_have_a_difference_too_and_it_sums_to_nothing():
    pairs = [
        (shares([0.0, 0.0, 1.0, 1.0]), run()),
        (shares([0.0, 0.5]), run(weights="norm_matched.0")),
        (shares([1.0]), run(prompt="code")),
        (shares([1.0, 0.5]), run(weights="norm_matched.0", prompt="code")),
    ]
    data = bins(*pairs, panels=[panel("controlled", "share", bins=20, difference=True)])
    assert len(data) == 20  # no mean over depth
    assert data["value"].iloc[[0, 10, 19]].tolist() == approx([0, -0.5, 0.5])
    assert data["value"].sum() == approx(0)


# --- curves: marks


def violations(marks):
    """A table whose layers are marked where told."""
    return table([0.5] * len(marks), [0.5] * len(marks)).assign(falls=marks)


MARKED = [
    panel("published", "all", marks="falls", marks_say="it falls"),
    panel("controlled", "distinct", marks="falls"),
]


def marked(*runs, controls=()):
    return assemble(*runs, panels=MARKED, controls=controls)


FALLS = [
    (violations([False, True, True, True]), run(weights="norm_matched.0")),
    (violations([False, False, True, True]), run(weights="norm_matched.1")),
    (violations([False, False, False, True]), run(weights="norm_matched.0", prompt="code")),
    (violations([False, False, True, True]), run(weights="norm_matched.1", prompt="code")),
]


def test_marks_count_the_share_of_seeds_as_published_and_of_all_runs_controlled():
    data = marked(*FALLS)
    assert reading(data, "published")["violated"].tolist() == approx([0, 0.5, 1, 1])
    assert reading(data, "controlled")["violated"].tolist() == approx([0, 0.25, 0.75, 1])
    assert assemble(*FALLS)["violated"].isna().all()  # panels without marks


def triangles(axes):
    return [line for line in axes.lines if line.get_marker() == "v"]


def test_a_layer_is_marked_where_more_than_half_of_the_runs_are():
    figure = draw_curves(marked(*FALLS), panels=MARKED)
    for axes in figure.axes:
        (marks,) = triangles(axes)
        assert marks.get_xdata().tolist() == approx([2 / 3, 1])  # half of the seeds is not more
        assert marks.get_ydata().tolist() == approx([0.5, 0.5])
        assert marks.get_linestyle() == "None"
    assert legend(figure) == ["GPT, random", "it falls"]


def test_without_a_mark_that_is_drawn_the_legend_has_none():
    calm = (violations([False, False]), run())
    control = (violations([True, True]), run(prompt="echo"))
    data = marked(calm, control, controls=["poem", "echo"])
    figure = draw_curves(data, panels=MARKED, controls=["echo"])
    assert [triangles(axes) for axes in figure.axes] == [[], []]
    assert "it falls" not in legend(figure)


# --- curves: the picture


def draw_curves(data, names=("published", "controlled"), panels=PANELS, controls=("poem",), **more):
    return draw_placed(data, placed(panels), names, controls, **more)


def draw_placed(data, panels, names, controls=("poem",), **more):
    return curves.draw(
        data,
        names,
        panels=panels,
        colours={"gpt": "#112233", "bert": "#445566"},
        controls=controls,
        trained_as={"gpt": "trained", "bert": "trained (4-bit weights, dequantised)"},
        titles={name: f"title, {name}" for name in names},
        band_opacity=0.2,
        **more,
    )


def lines(axes):
    """The curves of a panel, as far as there is something to see.

    The open circle of a final norm is a line of one point, an absent reference one of NaN.
    """
    return [
        line
        for line in axes.lines
        if len(line.get_xdata()) > 1 and not np.isnan(line.get_ydata()).all()
    ]


def legend(figure):
    """What the legend says, in its order."""
    (one,) = figure.legends
    return [text.get_text() for text in one.get_texts()]


def test_a_random_curve_has_the_colour_of_its_model_and_is_dashed():
    data = assemble((table([0.1, 0.2]), run()), (table([0.3, 0.4]), run(weights="norm_matched.0")))
    trained, random = lines(draw_curves(data, ["published"]).axes[0])
    assert trained.get_color() == random.get_color() == "#112233"
    assert (trained.is_dashed(), random.is_dashed()) == (False, True)
    assert random.get_ydata().tolist() == approx([0.3, 0.4])


def test_a_control_prompt_is_a_thin_line_of_the_companion():
    data = over_prompts(["wiki", "code", "poem"], controls=["poem"])
    usual, control = lines(draw_curves(data).axes[1])
    assert control.get_linewidth() < usual.get_linewidth()
    assert control.get_ydata().tolist() == approx([0.9, 0.8])


def test_the_final_norm_is_an_open_circle():
    axes = draw_curves(assemble((table([0.1, 0.2], final=0.9), run()))).axes[0]
    (circle,) = [line for line in axes.lines if len(line.get_xdata()) == 1]
    assert (circle.get_xdata()[0], circle.get_ydata()[0]) == (1, 0.9)
    assert circle.get_markerfacecolor() == "white"


def test_undefined_depths_are_a_grey_band_and_no_gap():
    axes = draw_curves(assemble((table([0.1, NAN, 0.3, 0.4, NAN]), run()))).axes[0]
    bands = [
        patch.get_extents().transformed(axes.transData.inverted())
        for patch in axes.patches
        if to_hex(patch.get_facecolor()) == style.UNDEFINED
    ]
    # From halfway to the neighbour before to halfway to the one after.
    edges = [edge for band in bands for edge in (band.x0, band.x1)]
    assert edges == pytest.approx([0.125, 0.375, 0.875, 1.0])


def draw_broken(count):
    """Draw models, the first undefined at the end, the second in the middle and at the end."""
    values = [[0.1, 0.2, 0.3, NAN, NAN], [0.2, NAN, 0.4, 0.5, NAN]]
    models = [f"model{i}" for i in range(count)]
    runs = [{"model": one, "weights": "trained", "prompt": "wiki", "label": one} for one in models]
    read = [table(values[i] if i < 2 else [0.5] * 5) for i in range(count)]
    return curves.draw(
        curves.assemble({"inner_products": read}, runs, placed(PANELS), prompt="wiki", controls=[]),
        ["published"],
        panels=placed(PANELS),
        colours={model: f"#00000{i}" for i, model in enumerate(models)},
        controls=[],
        trained_as=dict.fromkeys(models, "trained"),
        titles={"published": "published"},
        band_opacity=0.2,
    )


def test_of_many_models_each_says_for_itself_where_it_is_undefined():
    figure = draw_broken(curves.FEW_MODELS + 1)
    axes = figure.axes[0]
    assert not axes.patches
    bars = [line for line in axes.lines if line.get_alpha() == curves.UNDEFINED_BAR["alpha"]]
    spans = [(line.get_color(), *line.get_xdata()) for line in bars]
    # From half-way to the neighbour, and in one piece where two neighbours are undefined.
    assert spans == [
        ("#000000", 0.625, 1), ("#000001", 0.125, 0.375), ("#000001", 0.875, 1)
    ]  # fmt: skip
    heights = [line.get_ydata()[0] for line in bars]
    assert heights[1] == heights[2] > heights[0] > 1  # above every value, a row a curve
    assert heights[1] < axes.get_ylim()[1]
    assert "bar: undefined" in legend(figure)


def test_of_few_models_a_band_says_where_one_is_undefined():
    figure = draw_broken(curves.FEW_MODELS)
    assert len(figure.axes[0].patches) == 4
    assert "bar: undefined" not in legend(figure)


def test_the_legend_stays_inside_the_picture():
    data = assemble(
        (table([0.1, 0.2]), run()),
        (table([0.1, 0.2]), run(prompt="poem")),
        (table([0.3, 0.4]), run("bert")),
        (table([0.3, 0.4]), run("bert", prompt="poem")),
        controls=["poem"],
    ).assign(label="SmolLM2-135M")
    figure = draw_curves(data)
    figure.draw_without_rendering()
    (shown,) = figure.legends
    assert shown.get_window_extent().x1 <= figure.bbox.x1


def test_every_curve_stands_in_the_legend():
    data = assemble(
        (table([0.1, 0.2]), run()),
        (table([0.1, 0.2]), run(prompt="poem")),
        (table([0.3, 0.4]), run("bert", "norm_matched.0")),
        (table([0.3, 0.4]), run("bert", "norm_matched.0", "poem")),
        controls=["poem"],
    )
    assert legend(draw_curves(data)) == [
        "GPT, trained",
        "BERT, random",
        "thin lines: poem (control)",
    ]


def test_both_panels_have_the_same_axes():
    left, right = draw_curves(assemble((table([0.1, 0.2]), run()))).axes
    assert left.get_ylim() == right.get_ylim()
    assert left.get_xlim() == right.get_xlim() == (0, 1)
    assert left.get_ylim()[0] <= 0
    assert left.get_ylim()[1] >= 1


def test_the_panels_of_the_readings_shown_stand_side_by_side_with_one_title_a_reading():
    panels = [
        panel("published", "all"),
        panel("controlled", "distinct", limits=[0, 1], line=0.5),
        panel("controlled", "rank", reference="gaussian", reference_says="a Gaussian cloud"),
    ]
    data = joined(panels, (table([1.0, 2.0], [0.4, 0.5]), ranks([3.0, 5.0], [True, True]), run()))
    both = draw_curves(data, panels=panels).axes
    assert [axes.get_ylabel() for axes in both] == ["all", "distinct", "rank"]
    assert [axes.get_title(loc="left") for axes in both] == [
        "title, published",
        "title, controlled",
        "",
    ]
    values = [lines(axes)[0].get_ydata().tolist() for axes in both]
    assert values == [[1, 2], [0.4, 0.5], [3, 5]]
    (alone,) = draw_curves(data, ["published"], panels).axes
    assert alone.get_ylabel() == "all"


# Two columns, three rows: bins above depth, and lengths below depth.
GRID = [
    panel("published", "all", cell=[0, 0], axis="0 0"),
    panel("published", "distinct", cell=[1, 0], axis="1 0"),
    panel("published", "share", bins=20, cell=[2, 0], axis="2 0"),
    panel("controlled", "all", cell=[0, 1], axis="0 1"),
    panel("controlled", "count", x="n_tokens", cell=[1, 1], axis="1 1"),
    panel("controlled", "distinct", difference=True, cell=[2, 1], axis="2 1"),
]


def grid(panels=GRID):
    kinds = [run(weights=weights) for weights in ("trained", "norm_matched.0")]
    return curves.assemble(
        {
            "clusters": [table([0.1, 0.2], [0.3, 0.4]), table([0.2, 0.3], [0.1, 0.1])],
            "cluster_length": [lengths({64: [1, 3], 100: [5, 7]})] * 2,
            "token_membership": [shares([0.0, 1.0])] * 2,
        },
        kinds,
        placed(panels),
        prompt="wiki",
        controls=(),
    )


def place(axes):
    """Row and column of a panel, by the space that it is given."""
    spec = axes.get_subplotspec()
    return spec.rowspan.start, spec.colspan.start


def test_a_panel_stands_in_its_cell():
    figure = draw_curves(grid(), panels=GRID)
    assert {axes.get_ylabel(): place(axes) for axes in figure.axes} == {
        f"{row} {column}": (row, column) for row in range(3) for column in range(2)
    }
    alone = draw_curves(grid(), ["published"], GRID)
    assert [axes.get_ylabel() for axes in alone.axes] == ["0 0", "1 0", "2 0"]


def test_only_the_lowest_panel_of_a_column_with_one_kind_of_x_names_it():
    figure = draw_curves(grid(), panels=GRID)
    named = {axes.get_ylabel(): axes.get_xlabel() for axes in figure.axes}
    depth = "depth (layer / number of layers)"
    assert named == {
        "0 0": "",
        "1 0": depth,
        "2 0": "share of layers in a cluster",
        "0 1": "",
        "1 1": "first tokens of each prompt",
        "2 1": depth,
    }


def test_a_difference_is_drawn_apart_from_its_curves_about_a_line_at_zero():
    panels = [panel("controlled", "distinct"), DIFFERENCE | {"cell": [0, 1]}]
    data = assemble(*pairs_of(PROMPTS, RANDOM), panels=panels)
    curve, difference = draw_curves(data, ["controlled"], panels).axes
    assert len(lines(curve)) == 2
    drawn, zero = lines(difference)
    assert drawn.get_ydata().tolist() == approx([0.25, 0.1])
    assert list(zero.get_ydata()) == [0, 0]
    assert drawn.get_linestyle() == "-"
    ends = data[data["series"] == "mean over depth"][["value", "low", "high"]].to_numpy()[0]
    value, low, high = (f"{end:+.2g}" for end in ends)
    assert difference.get_title(loc="left") == f"mean over depth:\n{value} [{low}, {high}]"


def test_a_difference_of_one_prompt_has_its_mean_over_depth_and_no_interval():
    one = {"wiki": [0.5, 0.75]}
    panels = [panel("controlled", "distinct"), DIFFERENCE | {"cell": [0, 1]}]
    data = assemble(*pairs_of(one, {"wiki": [0.25, 0.25]}), panels=panels)
    _, difference = draw_curves(data, ["controlled"], panels).axes
    assert difference.get_title(loc="left") == "mean over depth:\n+0.38"


def test_bins_are_steps_with_their_band():
    pairs = [
        (shares([0.0, 1.0]), run(weights="norm_matched.0")),
        (shares([1.0, 1.0]), run(weights="norm_matched.1")),
    ]
    data = bins(*pairs, panels=[BINS_AS_PUBLISHED])
    (axes,) = draw_curves(data, ["published"], [BINS_AS_PUBLISHED]).axes
    steps, band = [patch.get_data() for patch in axes.patches]
    assert steps.values.tolist() == approx([0.25, *[0] * 18, 0.75])
    assert steps.edges.tolist() == approx([index / 20 for index in range(21)])
    assert band.values[0] == approx(0.5)
    assert band.baseline[0] == approx(0)


def test_the_axis_follows_the_limits_or_starts_at_zero_and_holds_the_data():
    panels = [panel("published", "all"), panel("controlled", "distinct", limits=[0, 2])]
    data = assemble((table([10.0, 20.0], [0.4, 0.5]), run()), panels=panels)
    free, given = draw_curves(data, panels=panels).axes
    assert free.get_ylim()[0] <= 0
    assert 20 <= free.get_ylim()[1] < 25
    assert given.get_ylim() == pytest.approx((-0.06, 2.06))


@pytest.mark.parametrize(
    "values, free, holds_zero",
    [
        ([-5.0, -2.0], False, True),
        ([-5.0, 3.0], False, True),
        ([7.0, 9.0], False, True),
        ([7.0, 9.0], True, False),
        ([-5.0, -2.0], True, False),
    ],
)
def test_an_axis_shows_all_data_and_zero_unless_it_is_free(values, free, holds_zero):
    panels = [panel("published", "all", free=free)]
    data = assemble((table(values), run()), panels=panels)
    low, high = draw_curves(data, ["published"], panels).axes[0].get_ylim()
    assert low <= min(values)
    assert max(values) <= high
    assert (low <= 0 <= high) == holds_zero


def test_an_axis_shows_the_lower_end_of_a_band():
    pairs = [(table([one, one]), run(weights=f"norm_matched.{i}")) for i, one in enumerate([-3, 5])]
    panels = [panel("published", "all")]
    data = assemble(*pairs, panels=panels)
    low, high = draw_curves(data, ["published"], panels).axes[0].get_ylim()
    assert low <= -3
    assert high >= 5


def test_a_reference_is_dotted_beside_every_curve_but_a_controls():
    panels = [panel("controlled", "distinct", reference="gaussian", reference_says="a cloud")]
    data = joined(
        panels,
        *(
            (table([0, 0], values), ranks([1, 2], [True, True], cloud), run(weights=one, prompt=at))
            for one, at, values, cloud in (
                ("trained", "wiki", [0.4, 0.5], [0.7, 0.8]),
                ("norm_matched.0", "wiki", [0.1, 0.2], [0.3, 0.6]),
                ("trained", "poem", [0.5, 0.5], [0.9, 0.9]),
            )
        ),
        controls=["poem"],
    )
    figure = draw_curves(data, ["controlled"], panels)
    trained, of_trained, control, random, of_random = lines(figure.axes[0])
    assert trained.get_ydata().tolist() == approx([0.4, 0.5])
    assert of_trained.get_ydata().tolist() == approx([0.7, 0.8])
    assert control.get_ydata().tolist() == approx([0.5, 0.5])
    assert random.get_ydata().tolist() == approx([0.1, 0.2])
    assert of_random.get_ydata().tolist() == approx([0.3, 0.6])
    assert (trained.get_linestyle(), of_trained.get_linestyle()) == ("-", ":")
    assert of_random.get_linestyle() == ":"
    assert of_random.get_color() == random.get_color()
    assert "a cloud" in legend(figure)


def test_a_marked_value_is_a_line_across_the_panel():
    panels = [panel("published", "all", line=0.3)]
    data = assemble((table([0.1, 0.2]), run()), panels=panels)
    marked = [
        line.get_ydata() for line in draw_curves(data, ["published"], panels).axes[0].lines
        if to_hex(line.get_color()) == to_hex(style.MARK)
    ]  # fmt: skip
    assert [list(one) for one in marked] == [[0.3, 0.3]]


def test_a_measure_over_depth_and_over_lengths_is_drawn_once_in_each_panel():
    frame = table([5.0, 6.0]).rename(columns={"all": "count"})
    panels = [panel("published", "count"), panel("controlled", "count"), BY_LENGTH]
    data = curves.assemble(
        {"clusters": [frame], "cluster_length": [lengths({64: [1, 3], 100: [5, 7]})]},
        [run()],
        placed(panels),
        prompt="wiki",
        controls=(),
    )
    published, depth, length = draw_curves(data, panels=panels).axes
    assert [one.get_ydata().tolist() for one in lines(published)] == [[5, 6]]
    assert [one.get_ydata().tolist() for one in lines(depth)] == [[5, 6]]
    (drawn,) = lines(length)
    assert (drawn.get_xdata().tolist(), drawn.get_ydata().tolist()) == ([64, 100], [2, 6])
    assert length.get_xlim()[0] == 0
    assert length.get_xlabel() == "first tokens of each prompt"


def test_dequantised_weights_are_called_so_in_the_legend():
    figure = draw_curves(assemble((table([0.1, 0.2]), run("bert"))))
    assert legend(figure) == ["BERT, trained (4-bit weights, dequantised)"]


def draw_many(trained_as, names, count=8):
    """Draw many models, trained and random, with labels as long as the study's."""
    models = [f"model{i}" for i in range(count)]
    runs = [
        {"model": model, "weights": weights, "prompt": prompt, "label": f"ALBERT large {model[-1]}"}
        for model in models
        for weights in ("trained", "norm_matched.0")
        for prompt in ("wiki", "poem")
    ]
    data = curves.assemble(
        {"inner_products": [table([0.1, 0.2])] * len(runs)},
        runs,
        placed(PANELS),
        prompt="wiki",
        controls=["poem"],
    )
    return curves.draw(
        data,
        names,
        panels=placed(PANELS),
        colours={model: f"#00000{i}" for i, model in enumerate(models)},
        controls=["poem"],
        trained_as=dict(zip(models, trained_as, strict=True)),
        titles={name: name for name in names},
        band_opacity=0.2,
        trained_depths={models[0]: 0.25},
    )


@pytest.mark.parametrize("names", [["published"], ["published", "controlled"]])
def test_a_legend_of_many_models_names_each_once_and_lies_within_the_figure(names):
    figure = draw_many(["stand-in"] * 8, names)
    control = ["thin lines: poem (control)"] if len(names) > 1 else []
    models = [f"ALBERT large {i}" for i in range(8)]
    ending = ["stand-in", "random", *control, "as deep as in training"]
    assert legend(figure) == models + ending
    handles = figure.legends[0].get_lines()
    assert [line.get_color() for line in handles[:8]] == [f"#00000{i}" for i in range(8)]
    assert [line.is_dashed() for line in handles[8:10]] == [False, True]
    figure.canvas.draw()
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1
    assert min(axes.bbox.y0 for axes in figure.axes) > box.y1  # it covers no panel


def test_a_legend_of_many_models_says_whose_weights_are_not_as_the_others():
    said = legend(draw_many([*["trained"] * 7, "stand-in"], ["published"]))
    assert said[6:] == [
        "ALBERT large 6", "ALBERT large 7, stand-in", "trained", "random", "as deep as in training"
    ]  # fmt: skip


def test_columns_of_a_legend_fit_its_width():
    assert style.legend_columns(["a" * 10] * 8, 7.2) == 4
    assert style.legend_columns(["a" * 10] * 8, 3.5) == 2
    assert style.legend_columns(["a" * 30] * 8, 3.5) == 1
    assert style.legend_columns([*["a" * 10] * 4, "a" * 30], 3.5) == 1


# --- histograms: the numbers


def counts(last, bins=4, final=False, state_counts=None):
    """An `inner_product_histogram` table; `state_counts` gives a layer's counts."""
    edges = np.linspace(-1, 1, bins + 1)
    states = [(layer, "residual") for layer in range(last + 1)]
    states += [(last, "final_norm")] if final else []
    rows = []
    for layer, state in states:
        given = (state_counts or {}).get((layer, state), [1, 2, 3, 4][:bins])
        for index, count in enumerate(given):
            rows.append(
                {
                    "layer": layer,
                    "state": state,
                    "bin": index,
                    "bin_left": edges[index],
                    "bin_right": edges[index + 1],
                    "count": count,
                    "count_distinct": count // 2,
                }
            )
    return pd.DataFrame(rows)


def test_the_bars_are_counts_over_their_sum_and_width():
    data = histograms.assemble(counts(1), panels=2)
    first = data[(data["reading"] == "published") & (data["layer"] == 0)]
    assert first["bin_left"].tolist() == [-1, -0.5, 0, 0.5]
    assert first["count"].tolist() == [1, 2, 3, 4]
    assert first["density"].tolist() == approx([0.2, 0.4, 0.6, 0.8])
    controlled = data[(data["reading"] == "controlled") & (data["layer"] == 0)]
    assert controlled["count"].tolist() == [0, 1, 1, 2]
    assert controlled["density"].tolist() == approx([0, 0.5, 0.5, 1])


def test_every_panel_integrates_to_one():
    random = np.random.default_rng(0)
    table = counts(9, final=True).assign(
        count=random.integers(1, 99, 44), count_distinct=random.integers(1, 99, 44)
    )
    data = histograms.assemble(table, panels=8)
    area = data["density"] * (data["bin_right"] - data["bin_left"])
    integrals = area.groupby([data["reading"], data["layer"]]).sum()
    assert len(integrals) == 16
    assert integrals.tolist() == approx([1.0] * 16)


@pytest.mark.parametrize(
    "last, panels, layers",
    [
        (36, 8, [0, 5, 10, 15, 20, 25, 30, 36]),  # np.unique(int(linspace(0, L, 8))), as published
        (12, 8, [0, 1, 3, 5, 6, 8, 10, 12]),
        (3, 8, [0, 1, 2, 3]),
        (6, 2, [0, 6]),
    ],
)
def test_layers_are_chosen_evenly(last, panels, layers):
    data = histograms.assemble(counts(last), panels)
    assert data["layer"].unique().tolist() == layers
    assert data["depth"].unique().tolist() == approx([layer / last for layer in layers])


def test_the_final_norm_stands_in_the_last_layers_place_as_published_only():
    table = counts(2, final=True, state_counts={(2, "final_norm"): [0, 0, 0, 8]})
    data = histograms.assemble(table, panels=3)
    last = data[data["layer"] == 2]
    assert last.groupby("reading")["state"].unique().str.join(" ").to_dict() == {
        "controlled": "residual",
        "published": "final_norm",
    }
    assert last[last["reading"] == "published"]["count"].tolist() == [0, 0, 0, 8]
    assert last[last["reading"] == "controlled"]["count"].tolist() == [0, 1, 1, 2]
    assert set(data[data["layer"] < 2]["state"]) == {"residual"}


def test_the_density_of_no_pair_is_undefined():
    data = histograms.assemble(counts(1, state_counts={(0, "residual"): [0, 1, 1, 1]}), panels=2)
    nothing = data[(data["reading"] == "controlled") & (data["layer"] == 0)]
    assert nothing["count"].tolist() == [0, 0, 0, 0]
    assert nothing["density"].isna().all()


# --- histograms: the axis

FLAT = [10, 10, 10, 10]


def bars(first, second=FLAT):
    """Two panels, one reading, as `assemble` gives them."""
    table = counts(1, state_counts={(0, "residual"): first, (1, "residual"): second})
    data = histograms.assemble(table, panels=2)
    return data[data["reading"] == "published"]


def test_the_axis_is_linear_and_reaches_above_the_highest_bar():
    axis = histograms.density_axis([bars(FLAT)], hidden=0.2)
    assert axis["scale"] == "linear"
    assert axis["limits"] == approx((0, 0.5 * 1.05))


def test_the_axis_is_logarithmic_where_a_spike_hides_the_rest():
    # 95 bars, each 400 times lower than the spike, hold 95 of 495 pairs.
    many = [*[1] * 95, 400]
    table = counts(1, bins=96, state_counts={(0, "residual"): many, (1, "residual"): many})
    data = histograms.assemble(table, panels=2)
    data = data[data["reading"] == "published"]
    share = 95 / 495
    assert histograms.density_axis([data], hidden=share - 0.01)["scale"] == "log"
    assert histograms.density_axis([data], hidden=share + 0.01)["scale"] == "linear"
    low, high = histograms.density_axis([data], hidden=0)["limits"]
    assert 0 < low < data["density"].min()
    assert high > data["density"].max()


def test_a_bar_of_a_twentieth_of_the_axis_can_be_seen():
    # Densities 2 x 20/22 and 2 x 1/22: the lower bars are exactly a twentieth.
    assert histograms.density_axis([bars([1, 1, 0, 20])], hidden=0)["scale"] == "linear"
    assert histograms.density_axis([bars([1, 1, 0, 21])], hidden=0)["scale"] == "log"


def test_one_hidden_panel_of_one_run_is_enough():
    # Half of the first panel's pairs lie in bars that are low beside the second panel's spike.
    many, spike = [*[1] * 90, 90, 0], [*[0] * 91, 180]
    table = counts(1, bins=92, state_counts={(0, "residual"): many, (1, "residual"): spike})
    data = histograms.assemble(table, panels=2)
    hidden = data[data["reading"] == "published"]
    clear = hidden.copy()
    clear.loc[clear["layer"] == 0, ["count", "density"]] = [1, hidden["density"].max() / 2]
    assert histograms.density_axis([hidden], hidden=0.4)["scale"] == "log"
    assert histograms.density_axis([clear], hidden=0.4)["scale"] == "linear"
    assert histograms.density_axis([hidden, clear], hidden=0.4)["scale"] == "log"
    assert histograms.density_axis([clear, hidden], hidden=0.4)["scale"] == "log"


# --- histograms: the picture


def draw_histograms(data, names=("published", "controlled"), near_one=0.9):
    return histograms.draw(
        data[data["reading"].isin(names)],
        names,
        title="title",
        titles=dict.fromkeys(names, "reading"),
        axis={"scale": "linear", "limits": (0, 1)},
        near_one=near_one,
        bar_colour="#888888",
        near_one_colour="#d55e00",
    )


def test_bins_above_the_threshold_are_coloured_and_its_own_bin_is_hatched():
    table = counts(1, bins=50, state_counts={(0, "residual"): [1] * 50, (1, "residual"): [1] * 50})
    figure = draw_histograms(histograms.assemble(table, 2), ["published"])
    bars = figure.axes[0].patches
    left = [round(bar.get_x(), 2) for bar in bars]
    assert [x for x, bar in zip(left, bars, strict=True) if to_hex(bar.get_facecolor()) ==
            "#d55e00"] == [0.92, 0.96]  # fmt: skip
    assert [x for x, bar in zip(left, bars, strict=True) if bar.get_hatch()] == [0.88]


def test_a_bin_that_begins_at_the_threshold_is_above_it():
    table = counts(1, bins=20, state_counts={(0, "residual"): [1] * 20, (1, "residual"): [1] * 20})
    table["bin_left"] = table["bin_left"].where(table["bin_left"] < 0.85, 0.8999999999)
    figure = draw_histograms(histograms.assemble(table, 2), ["published"])
    bars = figure.axes[0].patches
    assert to_hex(bars[-1].get_facecolor()) == "#d55e00"
    assert not any(bar.get_hatch() for bar in bars)


def test_every_panel_has_the_same_axes_and_says_its_layer():
    figure = draw_histograms(histograms.assemble(counts(2, final=True), 3))
    shown = [axes for block in figure.subfigs for axes in block.axes if axes.get_visible()]
    assert [axes.get_title(loc="left") for axes in shown] == [
        "layer 0, depth 0.00",
        "layer 1, depth 0.50",
        "final norm, depth 1.00",
        "layer 0, depth 0.00",
        "layer 1, depth 0.50",
        "layer 2, depth 1.00",
    ]
    assert {(axes.get_xlim(), axes.get_ylim()) for axes in shown} == {((-1, 1), (0, 1))}


# --- files


def save(figure, folder):
    folder.mkdir()
    paths = [folder / f"figure.{kind}" for kind in ("png", "svg", "pdf")]
    style.save(figure, *paths, stamp=STAMP)
    return [path.read_bytes() for path in paths]


STAMP = records.stamp("0f" * 32, "fig01", ["tiny/trained", "gpt2@step1/orthogonal.0"], ["a.b", "c"])


def test_every_format_carries_its_stamp(tmp_path):
    save(style.new(1, 1), tmp_path / "drawn")
    for kind in ("png", "svg", "pdf"):
        assert records.read_stamp(tmp_path / f"drawn/figure.{kind}") == {
            "input_id": "0f" * 32,
            "figure": "fig01",
            "models": ["tiny/trained", "gpt2@step1/orthogonal.0"],
            "prompts": ["a.b", "c"],
        }


@pytest.mark.parametrize(
    "draw",
    [
        lambda: draw_curves(assemble((table([0.1, NAN, 0.3], final=0.9), run()))),
        lambda: draw_histograms(histograms.assemble(counts(1), panels=2)),
    ],
    ids=["curves", "histograms"],
)
def test_equal_pictures_are_equal_files(draw, saved_twice):
    first, second = saved_twice(draw)
    assert first == second


def test_every_format_is_laid_out_alike(tmp_path, monkeypatch):
    figure, places, savefig = draw_curves(grid(), panels=GRID), [], Figure.savefig

    def placed_after(self, *arguments, **options):
        savefig(self, *arguments, **options)
        places.append([axes.get_position().bounds for axes in self.axes])

    monkeypatch.setattr(Figure, "savefig", placed_after)
    save(figure, tmp_path / "figure")
    assert len(places) == 3
    assert places[0] == places[1] == places[2]


def test_text_in_an_svg_stays_text(tmp_path):
    _, svg, _ = save(draw_curves(assemble((table([0.1, 0.2]), run()))), tmp_path / "figure")
    assert b">GPT, trained</text>" in svg


def test_a_saved_figure_is_closed(tmp_path):
    save(style.new(1, 1), tmp_path / "figure")
    assert plt.get_fignums() == []


def test_a_file_that_was_not_written_whole_is_refused(tmp_path, monkeypatch):
    def truncated(self, path, **_):
        path.write_bytes(b"half a picture")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", truncated)
    with pytest.raises(RuntimeError, match=r"figure\.png was not written whole"):
        save(style.new(1, 1), tmp_path / "figure")


def test_a_figure_and_its_companion_hold_exactly_what_they_show(tmp_path):
    kinds = ["png", "svg", "pdf", "csv", "caption"]
    output = SimpleNamespace(
        **{f"{one}{kind}": tmp_path / f"{one}figure.{kind}" for one in ("", "controlled_")
           for kind in kinds}
    )  # fmt: skip
    template = tmp_path / "template.rst"
    template.write_text("{{ reading }}: {{ data.reading.unique() | join(' ') }}, {{ title }}.")
    drawn = []

    def draw(data, names):
        drawn.append((sorted(set(data["reading"])), list(names)))
        return style.new(1, 1)

    data = assemble((table([0.1, 0.2]), run()))
    readings.write(
        output,
        data,
        draw,
        keys=curves.KEYS,
        empty=curves.EMPTY,
        template=template,
        facts={"title": "mass"},
        stamp="a stamp",
    )
    assert drawn == [
        (["published"], ["published"]),
        (["controlled", "published"], ["published", "controlled"]),
    ]
    assert all(path.stat().st_size for path in vars(output).values())
    assert set(tables.read(output.csv)["reading"]) == {"published"}
    pd.testing.assert_frame_equal(
        tables.read(output.controlled_csv), data, check_dtype=False, rtol=0, atol=0
    )
    assert output.caption.read_text() == "published: published, mass.\n"
    assert output.controlled_caption.read_text() == "controlled: published controlled, mass.\n"


@pytest.mark.parametrize("columns", [["model"], []])
def test_a_figure_of_weights_that_stand_in_says_so_in_picture_csv_and_caption(tmp_path, columns):
    output = SimpleNamespace(
        **{f"{one}{kind}": tmp_path / f"{one}figure.{kind}" for one in ("", "controlled_")
           for kind in ["png", "svg", "pdf", "csv", "caption"]}
    )  # fmt: skip
    template = tmp_path / "template.rst"
    template.write_text("**Mass.** Of {{ data | length }} rows.")
    data = pd.DataFrame({"reading": "published", "model": ["gpt", "bert"], "value": [1, 2]})
    runs = [{"model": "gpt", "stand_in": "random weights in place of zoo/gpt_2"}, {"model": "bert"}]
    if not columns:  # a figure of one model may not name it
        data, runs = data.drop(columns="model"), runs[:1]
    readings.write(
        output,
        data,
        lambda data, names: style.new(3.5, 2),
        keys=["value"],
        empty=[],
        template=template,
        facts={"runs": runs},
        stamp="a stamp",
    )
    said = tables.read(output.csv)["stand_in"].tolist()
    rest = "none" if columns else "random weights in place of zoo/gpt_2"
    assert said == ["random weights in place of zoo/gpt_2", rest]
    for caption in (output.caption, output.controlled_caption):
        assert as_read(caption.read_text()).startswith(
            "No result. Drawn with random weights in place of zoo/gpt_2: whatever is called trained"
        )
    for picture in (output.svg, output.controlled_svg):
        assert "stand-in weights" in picture.read_text()
        assert "no result" in picture.read_text()


# --- captions

# Every character that means something to reStructuredText or to Jinja.
LABEL = r"GPT_2* `large` |x| \y {{ z }} {% if %} <a@b.c> [1]_ ref_ :role:`t`"
SHOWN = LABEL.replace("{", "(").replace("}", ")")


def configuration(label="GPT", seeds=1, prompts=2, controls=0, model="gpt"):
    names = ["wiki_1", *(f"prompt_{i}" for i in range(2, prompts + 1))]
    return {
        "models": {
            model: {
                "source": {"local": "/data/checkpoints"},
                "weights": ["trained", *(f"norm_matched.{seed}" for seed in range(seeds))],
                "label": label,
            }
        },
        "prompts": {
            **{name: {"control": False} for name in names},
            **{f"control_{i}*": {"control": True} for i in range(controls)},
        },
        "roles": {"focus": model, "second": model},
        "figures": {"prompt": "wiki_1", "baseline": "norm_matched", "draw": "all"},
        "metrics": {
            "near_one": 0.9,
            "histogram_bins": 4,
            "beta": [1, 2],
            "energy_drop": 1e-6,
            "energy_drop_relative": 1e-3,
            "energy_pairs": 10,
            "min_cluster_size": 2,
            "sinkhorn_floor": 1e-12,
            "sinkhorn_floors": [1e-16, 1e-8],
            "sinkhorn_tolerance": 1e-6,
            "sinkhorn_sweeps": 100,
            "track_overlap": 0.1,
            "track_permutations": 20,
            "track_seed": 0,
            "tsne_perplexity": 30,
            "umap_neighbours": 15,
            "projection_seed": 42,
        },
    }


def per_run(name, panels, final):
    """A table of a run, with what the panels of a figure of curves read from it.

    Whichever table the others are joined to, it has the columns of all. A column that several
    panels read has the values of the first one's reading; a table with a constant that panels
    choose rows by (`where`) has rows for each of its values, and they differ.
    """
    if name == "cluster_length":
        places = [(layer, tokens) for layer in range(3) for tokens in (64, 100)]
        return pd.DataFrame(
            [{"layer": layer, "tokens": tokens, "count": tokens / 4} for layer, tokens in places]
        )
    if name == "token_membership":
        shares = {panel["column"]: [0, 0.5, 1, 1] for panel in panels if "bins" in panel}
        return pd.DataFrame({"token": range(4), **shares})
    if name in ("fiedler", "fiedler_floors"):
        return of_heads([one for one in panels if (name == "fiedler_floors") == ("by" in one)])
    by_depth = [one for one in panels if one.get("x", "depth") == "depth" and "bins" not in one]
    frame = table([0.25, 0.5, 0.75], [0.125, 0.375, 0.625], 0.875 if final else None)
    columns = {}
    for panel in by_depth:
        value = frame["all" if panel["reading"] == "published" else "distinct"]
        columns.setdefault(panel["column"], value)
        columns |= {panel[key]: True for key in ("gate",) if key in panel}
        columns |= {panel[key]: frame["layer"] == 1 for key in ("marks",) if key in panel}
        columns |= {panel[key]: 0.5 for key in ("reference",) if key in panel}
    frame = frame.drop(columns=["all", "distinct"]).assign(**columns)
    parts = [frame]
    for where in dict.fromkeys(panel["where"] for panel in by_depth if panel["where"]):
        constant, _, value = where.partition(" = ")
        measured = {
            panel["column"]: frame[panel["column"]] * float(value)
            for panel in by_depth
            if panel["where"] == where
        }
        parts.append(frame.assign(**measured, **{constant: float(value)}))
    return pd.concat(parts[1:] or parts, ignore_index=True)


def of_heads(panels):
    """A table of two heads and three blocks, of as many floors as panels choose rows by."""
    rows = []
    for where in dict.fromkeys(panel["where"] for panel in panels):
        size = 2 if where == panels[-1]["where"] else 1
        for layer in (1, 2, 3):
            for head in (0, 1):
                value = size * (layer / 4 + head / 8)
                row = {"layer": layer, "head": head, "n_tokens": 10, "reason": ""}
                row |= {panel["column"]: value for panel in panels if panel["where"] == where}
                row |= {panel["reference"]: 0.5 for panel in panels if "reference" in panel}
                rows.append(row | ({"floor": float(where.partition(" = ")[2])} if where else {}))
    return pd.DataFrame(rows)


def real_figure(name, config, final=False, scale="linear", matched=True):
    """A figure of the real catalogue: its numbers, assembled, and what its script knows of it."""
    known = {
        model: Checkpoint(entry["source"], None, "", causal=True, mb=0)
        for model, entry in config["models"].items()
    }
    chosen, _ = catalogue.chosen(CATALOGUE, METRICS, config, known)
    (figure,) = [one for one in chosen if one.name == name]
    facts, options = figure.params, figure.params["options"]
    if figure.entry["draw"] == "histograms":
        counted = {(1, "residual"): [0, 5, 5, 30], (1, "final_norm"): [0, 0, 0, 40]}
        table_of_counts = counts(1, final=final, state_counts=counted)
        # Four bins would all lie below .9: the last one stands in for the bins above it.
        table_of_counts["bin_left"] = table_of_counts["bin_left"].replace(0.5, 0.92)
        data = histograms.assemble(table_of_counts, options["panels"])
        return data, facts | {"scale": scale, "matched": matched}
    # As scripts/draw_curves.py does.
    panels = placed(options["panels"], **facts["constants"])
    rest = {key: value for key, value in options.items() if key != "panels"}
    trained_as = {
        one["model"]: one["weights_are"] for one in facts["runs"] if one["weights"] == "trained"
    }
    data = curves.assemble(
        {one: [per_run(one, panels, final) for _ in figure.runs] for one in facts["tables"]},
        facts["runs"],
        panels,
        prompt=facts["prompt"],
        controls=facts["controls"],
    )
    filled = captions.filled(rest, facts["constants"]) | {"panels": panels}
    states = "fiedler" not in facts["tables"]
    return data, facts | {"options": filled, "trained_as": trained_as, "states": states}


@pytest.fixture
def rendered(root, tmp_path):
    """Render a real template from a csv with the rows of a reading."""

    def render(name, data, facts, reading):
        shown = ["published"] if reading == "published" else ["published", "controlled"]
        rows = data[data["reading"].isin(shown)].to_dict("records")
        csv = tmp_path / "figure.csv"
        tables.write(csv, rows, keys=list(rows[0]), empty=list(rows[0]))
        template = root / f"workflow/report/{CATALOGUE[name]['caption']}.rst"
        return captions.render(template, csv, reading, facts)

    return render


@pytest.fixture
def caption(rendered):
    """Render a figure's real caption: from the real catalogue, template and assembled numbers."""

    def render(name, config, reading, final=False, change=None, **axis):
        data, facts = real_figure(name, config, final, **axis)
        return rendered(name, change(data) if change else data, facts, reading)

    return render


# Every figure that is drawn here, so that a new one is covered on its own.
FIGURES = [name for name, entry in CATALOGUE.items() if entry["draw"] in ("curves", "histograms")]
CURVES = [name for name in FIGURES if CATALOGUE[name]["draw"] == "curves"]
# What only the caption of a companion says.
COMPANION = {"curves": "controlled: ", "histogram": "distinct token ids"}
OF_BLOCKS = ("fig11_fiedler_causal", "fig12_fiedler_second")


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("reading", ["published", "controlled"])
def test_a_caption_mentions_the_final_norm_where_there_is_one(caption, name, reading, final):
    text = as_read(caption(name, configuration(), reading, final))
    assert ("final norm" in text) == (final and name not in OF_BLOCKS)
    companion = COMPANION[CATALOGUE[name]["caption"]]
    assert (companion in text) == (reading == "controlled")


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("reading", ["published", "controlled"])
def test_any_label_is_shown_as_it_is(caption, name, reading):
    text = as_read(caption(name, configuration(LABEL, controls=1), reading))
    assert SHOWN in text
    assert "wiki_1" in text


@pytest.mark.parametrize(
    "prompts, says",
    [
        (1, "One prompt: too few for a band."),
        (3, "Mean over 3 prompts: too few for a band."),
        (4, "Mean over 4 prompts, band: bootstrap 95% over prompts."),
    ],
)
def test_a_caption_says_what_the_band_over_prompts_is(caption, prompts, says):
    config = configuration(prompts=prompts)
    assert says in as_read(caption("fig03_mass_near_one", config, "controlled"))
    assert says not in as_read(caption("fig03_mass_near_one", config, "published"))


@pytest.mark.parametrize(
    "seeds, says",
    [(1, "GPT, random: one seed, so no band."), (3, "GPT, random: mean and ±1 SD over 3 seeds.")],
)
def test_a_caption_says_what_the_band_over_seeds_is(caption, seeds, says):
    assert says in as_read(caption("fig03_mass_near_one", configuration(seeds=seeds), "published"))


@pytest.mark.parametrize(
    "controls, says",
    [
        (1, "Thin lines: control_0*, a control kept out of the mean."),
        (2, "Thin lines: control_0* and control_1*, a control kept out of the mean."),
    ],
)
def test_a_caption_names_the_controls_of_the_companion(caption, controls, says):
    config = configuration(prompts=4, controls=controls)
    companion = as_read(caption("fig03_mass_near_one", config, "controlled"))
    assert companion.endswith(says)
    assert "Mean over 4 prompts" in companion
    assert "Thin lines" not in as_read(caption("fig03_mass_near_one", config, "published"))


def test_controls_alone_have_no_mean_to_speak_of(caption):
    config = configuration(prompts=1)
    config["prompts"]["wiki_1"]["control"] = True
    text = as_read(caption("fig03_mass_near_one", config, "controlled"))
    assert "nan" not in text
    assert "Mean over" not in text
    assert text.endswith("Thin lines: wiki_1, a control kept out of the mean.")


def test_two_models_of_one_label_are_two_models(caption):
    config = configuration()
    config["models"]["other"] = dict(config["models"]["gpt"])

    def differ(data):
        end = (data["model"] == "other") & (data["depth"] == 1)
        return data.assign(value=data["value"].mask(end, 0.0625))

    text = as_read(caption("fig03_mass_near_one", config, "published", change=differ))
    same = "from 0.250 to 0.750"
    assert f"GPT (10 tokens): trained {same}, random {same}." in text
    other = "from 0.250 to 0.0625"
    assert f"GPT (10 tokens): trained {other}, random {other}." in text


def test_a_caption_states_the_numbers_of_its_csv(caption):
    published = as_read(caption("fig03_mass_near_one", configuration(), "published", final=True))
    ends = "from 0.250 to 0.875"
    assert f"GPT (10 tokens): trained {ends}, random {ends}." in published
    companion = as_read(caption("fig03_mass_near_one", configuration(), "controlled", final=True))
    ends = "from 0.125 to 0.625"
    assert f"mass near 1 of distinct pairs, GPT: trained {ends}, random {ends}." in companion
    histogram = as_read(caption("fig05_histogram_trained", configuration(), "published"))
    assert "from 0.400 at layer 0 to 0.750 at layer 1." in histogram
    assert "(40 pairs a layer)" in histogram


def test_a_caption_calls_dequantised_weights_so(caption):
    config = configuration()
    config["models"]["gpt"]["source"] = {"package": "x", "gguf": "GPT.Q4_1.gguf"}
    for name in ("fig03_mass_near_one", "fig05_histogram_trained"):
        for which in ("published", "controlled"):
            assert "trained (4-bit weights, dequantised)" in as_read(caption(name, config, which))


def test_a_caption_says_what_is_drawn_with_the_constants_of_the_configuration(caption):
    config = configuration()
    config["metrics"] |= {"near_one": 0.75, "min_cluster_size": 7}
    assert "is above 0.75, against" in as_read(caption("fig03_mass_near_one", config, "published"))
    assert "at least 7 tokens" in as_read(caption("fig09_cluster_count", config, "published"))


def test_a_caption_of_several_controlled_panels_states_the_numbers_of_each(caption):
    text = as_read(caption("fig10_effective_rank", configuration(), "controlled"))
    ends = "GPT: trained from 0.125 to 0.625, random from 0.125 to 0.625."
    assert f"effective rank on the sphere, {ends}" in text
    assert f"its share of min(n, d), {ends}" in text
    counted = as_read(caption("fig09_cluster_count", configuration(), "controlled"))
    assert f"clusters per 100 tokens, {ends}" in counted


def test_a_caption_names_the_prompts_that_no_mean_over_lengths_holds(caption):
    def part(data):
        of_lengths = data["layer"].isna() & data["n_tokens"].notna()
        series = data["n_tokens"].map({64: "a_prompt", 100: "another"})
        return data.assign(series=data["series"].mask(of_lengths, series))

    says = "from left to right, a_prompt and another."
    name = "fig09_cluster_count"
    assert says in as_read(caption(name, configuration(), "controlled", change=part))
    assert says not in as_read(caption(name, configuration(), "published", change=part))
    for prompts in (1, 2):  # no mean is needed, or there is one
        text = as_read(caption(name, configuration(prompts=prompts), "controlled"))
        assert "from left to right" not in text


def test_constants_are_filled_into_every_text_of_nested_options():
    options = {"a": "above {near_one:g}", "b": [{"c": "{size} tokens"}, 3, [0, 1]], "d": 0.5}
    assert captions.filled(options, {"near_one": 0.9, "size": 2, "unused": 1}) == {
        "a": "above 0.9",
        "b": [{"c": "2 tokens"}, 3, [0, 1]],
        "d": 0.5,
    }


def edited(column, where, value):
    """Change one number of the csv."""

    def change(data):
        place = data.query(where).index[-1]
        data = data.copy()
        data.loc[place, column] = value
        return data

    return change


@pytest.mark.parametrize(
    "name, reading, change, says",
    [
        ("fig03_mass_near_one", "published",
         edited("value", "reading == 'published' and weights == 'trained'", 0.0123),
         "trained from 0.250 to 0.0123, random from 0.250 to 0.750."),
        ("fig03_mass_near_one", "controlled",
         edited("value", "reading == 'controlled' and weights == 'random'", NAN),
         "trained from 0.125 to 0.625, random from 0.125 to undefined."),
        ("fig05_histogram_trained", "published",
         edited("count", "reading == 'published'", 0), "to 0.00 at layer 1"),
        ("fig05_histogram_trained", "controlled",
         edited("count", "reading == 'controlled'", 0), "to 0.00."),
    ],
)  # fmt: skip
def test_a_caption_follows_its_csv(caption, name, reading, change, says):
    before = as_read(caption(name, configuration(), reading))
    after = as_read(caption(name, configuration(), reading, change=change))
    assert says not in before
    assert says in after


def told(panel):
    """The rows of a panel of which a caption says the last value of trained weights."""
    rows = (
        "reading == @panel['reading'] and measure == @panel['column'] and where_ == @panel['where']"
    )
    if panel.get("difference"):
        return f"{rows} and series == 'mean over depth'"
    along = "bin_left" if "bins" in panel else "layer"
    return f"{rows} and weights == 'trained' and {along}.notna()"


@pytest.mark.parametrize("shown", ["published", "controlled"])
@pytest.mark.parametrize("name", CURVES)
def test_every_panels_last_value_is_told_from_the_csv(rendered, name, shown):
    data, facts = real_figure(name, configuration(prompts=4))
    tried = 0
    for panel in facts["options"]["panels"]:
        # Bins have no mean over depth; of a curve over lengths no number is told.
        nothing = panel.get("difference") and "bins" in panel
        if panel["reading"] != shown or nothing or panel.get("x") == "n_tokens":
            continue
        rows = data.rename(columns={"where": "where_"}).query(told(panel)).index
        before = as_read(rendered(name, data, facts, shown))
        changed = data.copy()
        changed.loc[rows[-1], "value"] = 0.0123
        after = as_read(rendered(name, changed, facts, shown))
        assert "0.0123" not in before
        assert after.count("0.0123") == 1, panel
        tried += 1
    assert tried


@pytest.mark.parametrize("shown", ["published", "controlled"])
@pytest.mark.parametrize("name", [name for name in FIGURES if name not in CURVES])
def test_every_histograms_last_count_is_told_from_the_csv(caption, name, shown):
    before = as_read(caption(name, configuration(), shown))
    change = edited("count", f"reading == '{shown}'", 0)
    after = as_read(caption(name, configuration(), shown, change=change))
    assert before != after
    assert "to 0.00" in after
    assert "to 0.00" not in before


@pytest.mark.parametrize(
    "prompts, says",
    [
        (2, "0.0123; 2 prompts, with which a sign test can reach p = 0.500 at best."),
        (4, "0.0123, 95% interval 0.00100 to 0.0222; 4 prompts, with which a sign test can reach "
            "p = 0.125 at best."),
        (8, "0.0123, 95% interval 0.00100 to 0.0222; 8 prompts, with which a sign test can reach "
            "p = 0.00781 at best."),
    ],
)  # fmt: skip
def test_a_caption_states_a_difference_its_interval_and_the_smallest_p(caption, prompts, says):
    def change(data):
        mean = data["series"] == "mean over depth"
        new = data.assign(value=data["value"].mask(mean, 0.0123))
        banded = mean & new["low"].notna()
        return new.assign(low=new["low"].mask(banded, 0.001), high=new["high"].mask(banded, 0.0222))

    config = configuration(prompts=prompts)
    text = as_read(caption("fig08_membership", config, "controlled", change=change))
    assert f"GPT, trained minus random membership, mean over depth: {says}" in text
    published = as_read(caption("fig08_membership", config, "published", change=change))
    assert "minus random membership" not in published


def test_a_caption_tells_the_outer_bins(caption):
    text = as_read(caption("fig08_membership", configuration(), "published"))
    outer = (
        "0.250 of the tokens are clustered in less than 0.0500 of the layers, 0.500 in at least "
        "0.950."
    )
    assert f"GPT, trained: {outer}" in text
    assert f"GPT, random: {outer}" in text


def test_a_caption_counts_the_marked_layers(caption):
    name, config = "fig14_energy_second", configuration(seeds=2)
    for which in ("published", "controlled"):
        before = as_read(caption(name, config, which))
        assert "at β = 1, GPT" in before
        assert "at β = 2, GPT" in before
        assert "▼ at 0 of 2 layers" not in before
        rows = f"reading == '{which}' and violated == 1 and weights == 'random'"
        for share, counted in ((0.5, 0), (0.51, 1)):  # half is not more than half
            text = as_read(caption(name, config, which, change=edited("violated", rows, share)))
            assert ("▼ at 0 of 2 layers" in text) == (counted == 0), which


@pytest.mark.parametrize("name", [one for one in CURVES if one != "fig14_energy_second"])
def test_a_caption_without_marks_counts_none(caption, name):
    marks = any("marks" in one for one in CATALOGUE[name]["options"]["panels"])
    assert ("▼ at 1 of 2 layers" in caption(name, configuration(), "controlled")) == marks


@pytest.mark.filterwarnings("error:constrained_layout not applied:UserWarning")
@pytest.mark.parametrize("names", [["published"], ["published", "controlled"]])
@pytest.mark.parametrize("name", CURVES)
def test_every_figure_of_curves_has_its_layout_and_stays_on_the_page(name, names):
    config = configuration(prompts=4, controls=1)
    config["metrics"]["beta"] = [0.1, 1, 2, 5]  # four rows, as the default configuration has
    data, facts = real_figure(name, config, final=True)
    figure = curves.draw(
        data[data["reading"].isin(names)],
        names,
        panels=facts["options"]["panels"],
        colours={one["model"]: one["colour"] for one in facts["runs"]},
        controls=facts["controls"],
        trained_as=facts["trained_as"],
        titles=dict.fromkeys(names, "title"),
        band_opacity=facts["options"]["band_opacity"],
    )
    figure.draw_without_rendering()
    width, height = figure.get_size_inches()
    columns = 1 + max(place(axes)[1] for axes in figure.axes)
    assert width == (style.COLUMN if columns == 1 else style.PAGE)
    assert height <= style.TALLEST
    (shown,) = figure.legends
    under = shown.get_window_extent()
    assert under.y0 >= 0
    assert all(axes.get_window_extent().y0 >= under.y1 for axes in figure.axes)
    assert all(axes.lines or axes.patches for axes in figure.axes)


def test_rows_and_a_long_legend_make_a_figure_no_taller_than_the_tallest():
    rows = [panel("published", "all", cell=[row, 0]) for row in range(4)]
    data = assemble((table([0.1, 0.2]), run()), panels=rows[:1])
    heights = [
        draw_curves(data, ["published"], rows[:count]).get_size_inches()[1] for count in (1, 2, 4)
    ]
    assert heights[0] < heights[1] < heights[2] <= style.TALLEST
    many = pd.concat([data.assign(label=f"model {index}", model="gpt", weights=weights)
                      for index in range(9) for weights in ("trained", "random")])  # fmt: skip
    many["model"] = many["label"]
    figure = curves.draw(
        many,
        ["published"],
        panels=placed(rows),
        colours=dict.fromkeys(many["model"], "#112233"),
        controls=[],
        trained_as=dict.fromkeys(many["model"], "trained"),
        titles={"published": "title"},
        band_opacity=0.2,
    )
    assert figure.get_size_inches()[1] == style.TALLEST


def test_two_models_of_one_label_have_a_difference_each(rendered):
    data, facts = real_figure("fig08_membership", configuration(prompts=4))
    other = data.assign(model="other")
    mean = other["series"] == "mean over depth"
    other["value"] = other["value"].mask(mean, 0.0123)
    facts["trained_as"]["other"] = "trained"
    both = pd.concat([data, other], ignore_index=True)
    text = as_read(rendered("fig08_membership", both, facts, "controlled"))
    assert text.count("GPT, trained minus random membership, mean over depth:") == 2
    assert "mean over depth: 0.0123" in text


def test_a_caption_that_asks_for_what_is_not_there_is_refused(tmp_path):
    (tmp_path / "template.rst").write_text("{{ absent }}")
    (tmp_path / "figure.csv").write_text("value\n1\n")
    with pytest.raises(jinja2.UndefinedError, match="absent"):
        captions.render(tmp_path / "template.rst", tmp_path / "figure.csv", "published", {})


@pytest.mark.parametrize(
    "value, text",
    [
        (0, "0.00"),
        (1, "1.00"),
        (1 / 3, "0.333"),
        (99.94, "99.9"),
        (394.2, "394"),
        (0.00012345, "0.000123"),
        (NAN, "undefined"),
    ],
)
def test_numbers_have_three_significant_digits(value, text):
    assert captions.number(value) == text


def test_words_are_listed_as_a_sentence_does():
    assert captions.listed(["a"]) == "a"
    assert captions.listed(["a", "b"]) == "a and b"
    assert captions.listed(["a", "b", "c"]) == "a, b and c"


@pytest.mark.parametrize(
    ("scale", "matched", "sentence"),
    [
        ("linear", False, "The density axis is the same in all panels."),
        (
            "log",
            True,
            "The density axis is logarithmic and the same in all panels and in the figure of the "
            "other weights.",
        ),
    ],
)
def test_a_histogram_says_what_its_axis_is(caption, scale, matched, sentence):
    shown = caption(
        "fig05_histogram_trained", configuration(), "published", scale=scale, matched=matched
    )
    assert as_read(shown).endswith(sentence)


def test_every_caption_template_is_rendered_in_a_test(root):
    used = {CATALOGUE[name]["caption"] for name in FIGURES}
    # In test_drawing_{...}.py:
    used |= {"populations", "rivers", "projections", "groups", "heads", "schemes", "steps"}
    used |= {"text_view"}  # no template: the report shows it as it is
    assert {path.stem for path in (root / "workflow/report").glob("*.rst")} == used
