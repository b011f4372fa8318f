"""Schemes drawn: the numbers, the looks, the grid, captions that follow the csv."""

import math

import pandas as pd
import pytest
import yaml
from matplotlib.colors import to_hex

from tokensphere import catalogue, config
from tokensphere.drawing import schemes, style
from tools import captions

NAN = math.nan
WEIGHTS = ("trained", "norm_matched.0", "gaussian.3")
LOOKS = {
    "trained": {"colour": "#110000", "line": "solid"},
    "norm_matched": {"colour": "#220000", "line": "dashed"},
    "gaussian": {"colour": "#330000", "line": "dotted"},
    "shuffled": {"colour": "#440000", "line": "solid"},
}
COLUMNS = {
    ("published", "mass"): "mass_near_one",
    ("published", "rank"): "raw",
    ("controlled", "mass"): "mass_near_one_distinct",
    ("controlled", "rank"): "sphere",
}
LAYERS = 3


def approx(expected):
    return pytest.approx(expected, abs=1e-12, rel=0, nan_ok=True)


def states(final):
    found = [(layer, "residual") for layer in range(LAYERS + 1)]
    return found + ([(LAYERS, "final_norm")] if final else [])


# Every value its own, so that none is taken for another.
def value(run, place, column):
    return run / 10 + place / 100 + sorted(COLUMNS.values()).index(column) / 1000


def table(run, columns, final=True, **changes):
    return pd.DataFrame(
        [
            {"layer": layer, "state": state, "n_tokens": 12, "reason": ""}
            | {column: changes.get(column, value(run, place, column)) for column in columns}
            for place, (layer, state) in enumerate(states(final))
        ]
    )


def run(weights, model="gpt"):
    return {"model": model, "label": f"{model.upper()}_2*", "weights": weights}


def assemble(weights=WEIGHTS, models=("gpt",), final=True, **changes):
    runs = [run(one, model) for model in models for one in weights]
    products, ranks = (
        [
            table(place, columns, final, **changes.get(one["weights"].partition(".")[0], {}))
            for place, one in enumerate(runs)
        ]
        for columns in (["mass_near_one", "mass_near_one_distinct"], ["raw", "sphere"])
    )
    return schemes.assemble(products, ranks, runs)


def line(data, reading, measure, weights):
    chosen = (data["reading"] == reading) & (data["measure"] == measure)
    return data[chosen & (data["weights"] == weights)]


# --- the numbers


@pytest.mark.parametrize("place, weights", list(enumerate(WEIGHTS)))
@pytest.mark.parametrize("reading, measure", COLUMNS)
def test_each_reading_of_a_measure_is_its_column_of_that_run(reading, measure, place, weights):
    rows = line(assemble(final=False), reading, measure, weights)
    column = COLUMNS[reading, measure]
    assert rows["layer"].tolist() == [0, 1, 2, 3]
    assert rows["depth"].tolist() == approx([0, 1 / 3, 2 / 3, 1])
    assert rows["value"].tolist() == approx([value(place, one, column) for one in range(4)])


def test_the_final_norm_stands_for_the_last_layer_as_published_alone():
    data = assemble()
    published = line(data, "published", "rank", "gaussian.3")
    assert published["state"].tolist() == ["residual"] * 3 + ["final_norm"]
    assert published["value"].iloc[-1] == approx(value(2, 4, "raw"))
    controlled = line(data, "controlled", "rank", "gaussian.3")
    assert set(controlled["state"]) == {"residual"}
    assert controlled["value"].iloc[-1] == approx(value(2, 3, "sphere"))


def test_every_row_has_its_keys_and_columns():
    data = assemble(models=("gpt", "bert"))
    assert list(data) == schemes.COLUMNS
    assert not data.duplicated(["reading", *schemes.KEYS]).any()
    assert (data["n_tokens"] == 12).all()


# --- the picture


def draw(data, names=("published", "controlled")):
    return schemes.draw(data[data["reading"].isin(names)], names, title="Prompt wiki", looks=LOOKS)


def labelled(figure, reading, measure):
    label = schemes.PANELS[reading][measure][1]
    return [axes for axes in figure.axes if axes.get_ylabel() == label]


def test_the_published_reading_alone_has_a_row_a_model():
    figure = draw(assemble(models=("gpt", "bert")), ["published"])
    assert len(figure.axes) == 4
    assert [axes.get_title("left") for axes in figure.axes] == ["GPT_2*", "", "BERT_2*", ""]


def test_controls_stand_beside_what_they_control():
    figure = draw(assemble(models=("gpt", "bert")))
    figure.draw_without_rendering()
    for measure in schemes.MEASURES:
        pairs = zip(
            labelled(figure, "published", measure),
            labelled(figure, "controlled", measure),
            strict=True,
        )
        for published, controlled in pairs:
            one, other = published.get_position(), controlled.get_position()
            assert one.y0 == approx(other.y0)
            assert one.x1 < other.x0
    titles = [axes.get_title("left") for axes in figure.axes if axes.get_title("left")]
    assert titles == [
        "GPT_2*, as published", "GPT_2*, controlled",
        "BERT_2*, as published", "BERT_2*, controlled",
    ]  # fmt: skip


def test_every_weight_set_has_the_look_of_its_scheme_in_every_panel():
    data = assemble()
    figure = draw(data)
    for reading, measure in COLUMNS:
        (axes,) = labelled(figure, reading, measure)
        drawn = {to_hex(one.get_color()): one for one in axes.lines if len(one.get_xdata()) > 1}
        assert drawn.keys() == {LOOKS[schemes.scheme_of(one)]["colour"] for one in WEIGHTS}
        for weights in WEIGHTS:
            one = drawn[LOOKS[schemes.scheme_of(weights)]["colour"]]
            expected = line(data, reading, measure, weights)["value"]
            assert one.get_ydata().tolist() == approx(expected.tolist())


def test_shares_reach_from_0_to_1_and_ranks_to_the_largest():
    figure = draw(assemble(trained={"raw": 20.0}))
    for reading in ("published", "controlled"):
        (axes,) = labelled(figure, reading, "mass")
        assert axes.get_ylim() == approx((-0.03, 1.03))
    (axes,) = labelled(figure, "published", "rank")
    assert axes.get_ylim() == approx((-0.6, 20.6))


def test_the_legend_names_the_schemes_that_are_drawn():
    names = [text.get_text() for text in draw(assemble()).legends[0].get_texts()]
    assert names == ["trained", "norm_matched", "gaussian", "output of the final norm"]
    figure = draw(assemble(final=False))
    assert len(figure.legends[0].get_texts()) == 3


def test_what_is_undefined_is_grey():
    figure = draw(assemble(trained={"mass_near_one_distinct": NAN}))
    (axes,) = labelled(figure, "controlled", "mass")
    grey = [patch for patch in axes.patches if to_hex(patch.get_facecolor()) == style.UNDEFINED]
    assert len(grey) == LAYERS + 1
    (axes,) = labelled(figure, "published", "mass")
    assert not axes.patches


@pytest.mark.filterwarnings("error:constrained_layout not applied:UserWarning")
@pytest.mark.parametrize("names", [["published"], ["published", "controlled"]])
@pytest.mark.parametrize("models", [("gpt",), ("gpt", "bert")])
def test_the_layout_holds_within_the_tallest_figure(names, models):
    figure = draw(assemble(models=models), names)
    figure.draw_without_rendering()
    assert figure.get_figheight() <= style.TALLEST
    assert figure.legends[0].get_window_extent().x1 <= figure.bbox.x1
    for axes in figure.axes:  # no label is longer than its panel is high
        assert axes.yaxis.label.get_window_extent().height <= 1.05 * axes.bbox.height


def test_equal_pictures_are_equal_files(saved_twice):
    first, second = saved_twice(lambda: draw(assemble()))
    assert first == second


def test_the_catalogue_gives_every_scheme_a_look_of_its_own(root):
    figures = yaml.safe_load((root / "workflow/figures.yaml").read_text())
    looks = figures["fig22_random_schemes"]["options"]["looks"]
    assert list(looks) == ["trained", *config.SCHEMES]
    colours = [look["colour"] for look in looks.values()]
    assert len(set(colours)) == len(colours)
    # Those that the first two models have elsewhere are not among them.
    assert not set(colours) & set(catalogue.COLOURS[:2])


# --- the caption


@pytest.fixture
def caption(tmp_path):
    """Read the real caption of a csv."""

    def render(data, reading="controlled"):
        facts = {
            "title": "Random schemes",
            "prompt": "wiki_1",
            "constants": {"near_one": 0.9},
            "trained_as": dict.fromkeys(data["model"], "trained (4-bit weights, dequantised)"),
        }
        return captions.read(
            "schemes",
            data,
            reading,
            facts,
            tmp_path / "figure.csv",
            keys=schemes.KEYS,
            empty=schemes.EMPTY,
        )

    return render


def ending(**last):
    """Runs whose published mass ends in these numbers, whatever it was before."""
    data = assemble(weights=list(last), final=False)
    for weights, number in last.items():
        rows = line(data, "published", "mass", weights)
        data.loc[rows.index[-1], "value"] = number
    return data


def test_a_caption_states_the_last_value_of_each_scheme(caption):
    text = caption(assemble(), "published")
    assert "above 0.9) and" in text
    assert "prompt wiki_1 against depth" in text
    # Of run 0, 1 and 2 at the final norm, place 4.
    assert (
        "GPT_2* (12 tokens): mass near 1 trained (4-bit weights, dequantised) 0.0400, "
        "norm_matched.0 0.140, gaussian.3 0.240 (trained below every random scheme);"
    ) in text
    assert "gaussian: as the model's family" in text
    assert "shuffled:" not in text
    assert "controlled" not in text


@pytest.mark.parametrize(
    "trained, one, other, said",
    [
        (0.9, 0.1, 0.5, "trained above every random scheme"),
        (0.0, 0.1, 0.5, "trained below every random scheme"),
        (0.3, 0.1, 0.5, "random schemes reach from 0.100 to 0.500 and trained lies among them"),
        (0.5, 0.1, 0.5, "depends on the scheme"),
        (0.5, 0.5, 0.5, "all alike"),
        (NAN, 0.1, 0.5, "undefined for some"),
        (0.3, 0.1, NAN, "undefined for some"),
    ],
)
def test_a_caption_says_which_conclusion_depends_on_the_scheme(caption, trained, one, other, said):
    data = ending(**{"trained": trained, "norm_matched.0": one, "gaussian.0": other})
    sentence = caption(data, "published").partition("mass near 1 trained")[2].partition(";")[0]
    assert said in sentence


def test_a_caption_says_where_there_is_nothing_to_compare(caption):
    for weights in (["trained", "norm_matched.0"], ["trained"]):
        text = caption(assemble(weights=weights), "published")
        assert text.count("fewer than two random schemes") == 2
    assert caption(assemble(weights=["norm_matched.0"]), "published").count("no trained") == 2


def test_a_caption_follows_its_csv(caption):
    data = assemble()
    row = line(data, "controlled", "rank", "gaussian.3").index[-1]
    data.loc[row, "value"] = 17.5
    assert "gaussian.3 17.5 (trained below every random scheme)" in caption(data)
    assert "17.5" not in caption(assemble())


@pytest.mark.parametrize("final", [True, False])
def test_a_caption_mentions_the_final_norm_where_there_is_one(caption, final):
    assert ("final norm" in caption(assemble(final=final))) == final


def test_a_caption_says_what_grey_is_where_there_is_some(caption):
    assert "Grey" not in caption(assemble())
    assert caption(assemble(trained={"sphere": NAN})).endswith("Grey: undefined.")
