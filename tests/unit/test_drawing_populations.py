"""Pair populations drawn: the numbers, the shared axes, the marks, captions that follow the csv."""

import math

import pandas as pd
import pytest
from matplotlib.colors import to_hex

from tokensphere import catalogue, tables
from tokensphere.drawing import captions, populations, style
from tokensphere.populations import POPULATIONS
from tokensphere.sources import Checkpoint
from tools.captions import as_read

NAN = math.nan
MEASURES = ["mean", "mass_near_one", "share"]
COLOURS = dict(
    zip([*POPULATIONS, "energy"], ["#110000", "#220000", "#330000", "#440000", "#550000"],
        strict=True)
)  # fmt: skip
NAMES = ("published", "controlled")


# Every value its own, so that none is taken for another: the state, the population's place and the
# measure's are its digits, and pairs of distinct ids have 0.05 more.
def value(state, population, measure):
    return state / 10 + POPULATIONS.index(population) / 100 + MEASURES.index(measure) / 1000


def pair_table(layers=3, final=True):
    """A `pair_populations` table; its final norm counts as one state more."""
    states = [(layer, "residual") for layer in range(layers)]
    states += [(layers - 1, "final_norm")] if final else []
    return pd.DataFrame(
        [
            {"layer": layer, "state": state, "n_tokens": 12, "population": population}
            | {measure: value(place, population, measure) for measure in MEASURES}
            | {f"{m}_distinct": 0.05 + value(place, population, m) for m in MEASURES}
            | {"reason": ""}
            for place, (layer, state) in enumerate(states)
            for population in POPULATIONS
        ]
    )


def energy_table(layers=3, final=True, betas=(0.1, 1, 2)):
    """An `energy` table: beta, and the state in its tenths."""
    states = [(layer, "residual") for layer in range(layers)]
    states += [(layers - 1, "final_norm")] if final else []
    return pd.DataFrame(
        [
            {
                "layer": layer,
                "state": state,
                "beta": beta,
                "n_tokens": 12,
                "energy": beta + place / 10,
            }
            for place, (layer, state) in enumerate(states)
            for beta in betas
        ]
    )


def assemble(pairs=None, energies=None):
    return populations.assemble(
        pair_table() if pairs is None else pairs, energy_table() if energies is None else energies
    )


def line(data, reading, population, measure):
    rows = data[(data["reading"] == reading) & (data["population"] == population)]
    return rows[rows["measure"] == measure]


def approx(expected):
    return pytest.approx(expected, abs=1e-12, rel=0, nan_ok=True)


# --- the numbers


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("population", POPULATIONS)
def test_the_published_line_is_of_all_pairs_and_ends_in_the_final_norm(population, measure):
    rows = line(assemble(), "published", population, measure)
    assert rows["layer"].tolist() == [0, 1, 2]
    assert rows["state"].tolist() == ["residual", "residual", "final_norm"]
    assert rows["depth"].tolist() == [0, 0.5, 1]
    expected = [value(state, population, measure) for state in (0, 1, 3)]
    assert rows["value"].tolist() == approx(expected)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("population", POPULATIONS)
def test_the_controlled_line_is_of_distinct_pairs_in_the_raw_residual_stream(population, measure):
    rows = line(assemble(), "controlled", population, measure)
    assert rows["state"].tolist() == ["residual"] * 3
    expected = [0.05 + value(state, population, measure) for state in (0, 1, 2)]
    assert rows["value"].tolist() == approx(expected)


def test_a_model_without_a_final_norm_ends_in_its_last_layer():
    data = assemble(pair_table(final=False), energy_table(final=False))
    rows = line(data, "published", "mixed", "mean")
    assert rows["state"].tolist() == ["residual"] * 3
    assert rows["value"].tolist() == approx([value(state, "mixed", "mean") for state in range(3)])


def test_the_energy_is_that_of_beta_1_in_the_state_of_the_reading():
    data = assemble()
    published = line(data, "published", "energy", "energy")
    controlled = line(data, "controlled", "energy", "energy")
    assert published["value"].tolist() == approx([1, 1.1, 1.3])
    assert controlled["value"].tolist() == approx([1, 1.1, 1.2])
    assert set(published["beta"]) == {1}
    assert set(published["n_tokens"]) == {12}
    assert data[data["measure"] != "energy"]["beta"].isna().all()


@pytest.mark.parametrize(
    "betas, taken", [((0.1, 2, 5), 0.1), ((5, 2), 2), ((1.5, 0.5), 0.5), ((3,), 3)]
)
def test_without_a_beta_of_1_the_nearest_is_taken(betas, taken):
    data = assemble(energies=energy_table(betas=betas))
    rows = line(data, "controlled", "energy", "energy")
    assert set(rows["beta"]) == {taken}
    assert rows["value"].tolist() == approx([taken, taken + 0.1, taken + 0.2])


def test_every_point_has_one_row_that_its_keys_name():
    data = assemble()
    assert len(data) == 2 * (4 * 3 + 1) * 3
    assert not data.duplicated(["reading", *populations.KEYS]).any()
    assert list(data) == populations.COLUMNS


def test_the_order_of_the_tables_rows_does_not_matter():
    turned = assemble(pair_table()[::-1], energy_table()[::-1])
    pd.testing.assert_frame_equal(turned, assemble())


def test_a_population_without_a_pair_keeps_its_row():
    pairs = pair_table()
    pairs.loc[(pairs["population"] == "between") & (pairs["layer"] == 1), "mean_distinct"] = NAN
    rows = line(assemble(pairs), "controlled", "between", "mean")
    assert rows["layer"].tolist() == [0, 1, 2]
    assert rows["value"].isna().tolist() == [False, True, False]


# --- the axes


def test_the_limits_hold_both_figures_and_do_not_depend_on_which_is_drawn():
    low = pair_table().assign(mean_distinct=-0.25)
    trained, random = assemble(), assemble(low, energy_table(betas=(1,)).assign(energy=0.25))
    limits = populations.shared_limits([trained, random])
    assert limits == populations.shared_limits([random, trained])
    assert limits["mean"] == (-0.25, 1)
    assert limits["mass_near_one"] == limits["share"] == (0, 1)
    assert limits["energy"] == approx((0.25, 1.3))


def test_an_energy_that_hardly_changes_does_not_fill_its_axis():
    flat = energy_table(betas=(1,)).assign(energy=0.5)
    flat.loc[0, "energy"] = 0.5 + 1e-9
    low, high = populations.shared_limits([assemble(energies=flat)])["energy"]
    assert high - low == pytest.approx(0.01)
    assert (low + high) / 2 == pytest.approx(0.5)


# --- the picture


def draw(data, names=NAMES, limits=None):
    return populations.draw(
        data,
        names,
        title="title",
        titles={name: f"title, {name}" for name in names},
        limits=limits or populations.shared_limits([data]),
        near_one=0.9,
        colours=COLOURS,
    )


def curve(axes, name):
    """The values of the line of a population, or of the energy."""
    (found,) = [
        one for one in axes.lines
        if to_hex(one.get_color()) == COLOURS[name] and len(one.get_xdata()) > 2
    ]  # fmt: skip
    return found.get_ydata().tolist()


def test_one_reading_has_three_panels_and_the_energy_on_an_axis_of_its_own():
    data = assemble()
    axes = draw(data, ["published"]).axes
    assert len(axes) == 4
    for panel, measure in zip(axes[:3], MEASURES, strict=True):
        for population in POPULATIONS:
            expected = line(data, "published", population, measure)["value"].tolist()
            assert curve(panel, population) == expected
    assert curve(axes[3], "energy") == approx([1, 1.1, 1.3])
    assert axes[3].get_ylabel() == "interaction energy E(β = 1)"
    assert axes[3].get_ylim() != axes[0].get_ylim()


def test_the_companion_has_a_column_for_each_reading_with_the_same_axes():
    figure = draw(assemble())
    assert figure.get_figheight() * style.DPI <= 1600
    panels = [axes for axes in figure.axes if not axes.get_ylabel().startswith("interaction")]
    left, right = panels[0::2], panels[1::2]
    assert [len(left), len(right)] == [3, 3]
    assert left[0].get_title(loc="left") == "title, published"
    assert right[0].get_title(loc="left") == "title, controlled"
    assert curve(left[0], "within") == approx([0, 0.1, 0.3])
    assert curve(right[0], "within") == approx([0.05, 0.15, 0.25])
    for one, other in zip(left, right, strict=True):
        assert one.get_ylim() == other.get_ylim()
    energies = [axes for axes in figure.axes if axes not in panels]
    assert energies[0].get_ylim() == energies[1].get_ylim()


def test_the_picture_follows_the_limits_it_is_given():
    limits = {"mean": (-1, 1), "mass_near_one": (0, 1), "share": (0, 1), "energy": (0, 4)}
    axes = draw(assemble(), ["published"], limits).axes
    assert axes[0].get_ylim() == pytest.approx((-1.06, 1.06))
    assert axes[3].get_ylim() == pytest.approx((-0.12, 4.12))


def test_the_axis_and_the_legend_say_which_beta_is_drawn():
    figure = draw(assemble(energies=energy_table(betas=(0.5, 4))))
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "interaction energy E(β = 0.5), right axis" in names
    assert "interaction energy E(β = 0.5)" in [axes.get_ylabel() for axes in figure.axes]


def test_the_final_norm_is_an_open_circle_that_the_legend_names():
    def circles(figure):
        return [
            one
            for axes in figure.axes
            for one in axes.lines
            if one.get_markerfacecolor() == "white"
        ]

    figure = draw(assemble())
    assert len(circles(figure)) == 4 * 3 + 1  # the published column alone
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "output of the final norm" in names
    without = draw(assemble(pair_table(final=False), energy_table(final=False)))
    assert circles(without) == []
    assert len(without.legends[0].get_texts()) == 5


def undefined(*where, layers=5):
    """Assemble with no pair of a population at a layer: (population, layer), ..."""
    pairs = pair_table(layers, final=False)
    for population, layer in where:
        there = (pairs["population"] == population) & (pairs["layer"] == layer)
        pairs.loc[there, ["mean", "mean_distinct"]] = NAN
    return assemble(pairs, energy_table(layers, final=False))


def grey(axes):
    """(left, right, bottom) of what is grey in a panel, in depth and shares of its height."""
    return [
        (patch.get_x(), patch.get_x() + patch.get_width(), patch.get_y())
        for patch in axes.patches
        if to_hex(patch.get_facecolor()) == style.UNDEFINED
    ]


def test_a_line_breaks_where_its_population_is_undefined_and_a_strip_above_marks_it():
    data = undefined(("between", 1), ("between", 2), ("mixed", 4))
    figure = draw(data, ["published"])
    mean, mass, share, _ = figure.axes
    assert [math.isnan(one) for one in curve(mean, "between")] == [False, True, True, False, False]
    strips = grey(mean)
    # From halfway to the neighbour before to halfway to the one after.
    assert [one[:2] for one in strips] == [pytest.approx((0.125, 0.625)), pytest.approx((0.875, 1))]
    assert strips[1][2] > strips[0][2] > 1
    marks = [one for one in mean.lines if len(one.get_xdata()) == 2]
    assert [to_hex(one.get_color()) for one in marks] == [COLOURS["between"], COLOURS["mixed"]]
    assert grey(mass) == grey(share) == []
    assert "grey strip: no such pair there" in [
        text.get_text() for text in figure.legends[0].get_texts()
    ]


def test_the_whole_panel_is_grey_where_no_line_is_defined():
    everything = [(population, 2) for population in POPULATIONS]
    data = undefined(*everything)
    data.loc[(data["measure"] == "energy") & (data["layer"] == 2), "value"] = NAN
    mean = draw(data, ["published"]).axes[0]
    assert [one[:2] for one in grey(mean) if one[2] == 0] == [pytest.approx((0.375, 0.625))]
    assert len([one for one in grey(mean) if one[2] > 1]) == 5


def test_a_value_between_two_undefined_ones_is_a_point():
    where = [("between", layer) for layer in range(20) if layer not in (7, 11, 12)]
    mean = draw(undefined(*where, layers=20), ["published"]).axes[0]
    (between,) = [
        one for one in mean.lines
        if to_hex(one.get_color()) == COLOURS["between"] and len(one.get_xdata()) > 2
    ]  # fmt: skip
    assert between.get_markevery() == [7]


def test_no_text_overlaps_another_and_none_is_cut_off():
    data = undefined(("between", 1), ("mixed", 2), ("within", 0))
    for names in (["published"], NAMES):
        figure = draw(data, names)
        figure.draw_without_rendering()
        texts = [figure._suptitle, *figure.legends[0].get_texts()]
        for axes in figure.axes:
            texts += [axes.xaxis.label, axes.yaxis.label, axes._left_title]
            for axis in (axes.xaxis, axes.yaxis):
                low, high = axis.get_view_interval()
                texts += [
                    one.label1 for one in axis.get_major_ticks() if low <= one.get_loc() <= high
                ]
                texts += [
                    one.label2 for one in axis.get_major_ticks() if low <= one.get_loc() <= high
                ]
        shown = [text for text in texts if text.get_visible() and text.get_text()]
        boxes = [text.get_window_extent() for text in shown]
        for place, box in enumerate(boxes):
            assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1
            assert figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1
            assert not [other for other in boxes[:place] if box.overlaps(other)]


def save(figure, folder):
    folder.mkdir()
    paths = [folder / f"figure.{kind}" for kind in ("png", "svg", "pdf")]
    style.save(figure, *paths, stamp="a stamp")
    return [path.read_bytes() for path in paths]


def test_equal_pictures_are_equal_files(saved_twice):
    data = undefined(("between", 1))
    first, second = saved_twice(lambda: draw(data))
    assert first == second


# --- captions


def configuration(label="GPT", source=None):
    return {
        "models": {
            "gpt": {
                "source": source or {"local": "/data/checkpoints"},
                "weights": ["trained", "norm_matched.0"],
                "label": label,
            }
        },
        "prompts": {"wiki_1": {"control": False}},
        "roles": {"focus": "gpt", "second": "gpt"},
        "figures": {
            "prompt": "wiki_1",
            "baseline": "norm_matched",
            "draw": ["fig06_pairs_random", "fig07_pairs_trained"],
        },
        "metrics": {
            "near_one": 0.75,
            "beta": [1],
            "energy_drop": 1e-6,
            "energy_drop_relative": 1e-3,
            "energy_pairs": 10,
        },
    }


@pytest.fixture
def caption(root, tmp_path):
    """Render a figure's real caption from assembled numbers, and read it as a reader does."""

    def render(reading, data, name="fig07_pairs_trained", config=None, matched=True):
        real = catalogue.load(root / "workflow/figures.yaml")
        metrics = catalogue.load(root / "workflow/metrics.yaml")
        config = config or configuration()
        source = config["models"]["gpt"]["source"]
        known = {"gpt": Checkpoint(source, None, "", causal=True, mb=0)}
        chosen, _ = catalogue.chosen(real, metrics, config, known)
        (figure,) = [one for one in chosen if one.name == name]
        shown = NAMES[:1] if reading == "published" else NAMES
        rows = data[data["reading"].isin(shown)].to_dict("records")
        csv = tmp_path / "figure.csv"
        tables.write(csv, rows, ["reading", *populations.KEYS], empty=["beta", "value"])
        template = root / f"workflow/report/{figure.entry['caption']}.rst"
        return as_read(
            captions.render(template, csv, reading, figure.params | {"matched": matched})
        )

    return render


def test_a_caption_states_the_numbers_of_its_csv(caption):
    text = caption("controlled", assemble())
    published, controlled = text.split("Right, controlled")
    assert "prompt wiki_1 (12 tokens) in GPT, weights trained" in published
    assert "within from 0.00 to 0.300, between from 0.0100 to 0.310" in published
    assert "mass near 1: within 0.301 (layer 2), between 0.311 (layer 2)" in published
    assert "share of pairs: within 0.302 (layer 2), between 0.312 (layer 2)" in published
    assert "Energy from 1.00 to 1.30." in published
    assert "within from 0.0500 to 0.250, between from 0.0600 to 0.260" in controlled
    assert "At layer 0 this takes the mean within from 0.00 to 0.0500" in controlled
    assert "its share of pairs from 0.00200 to 0.0520" in controlled
    assert "Energy from 1.00 to 1.20." in controlled
    assert "inner product above 0.75" in text


@pytest.mark.parametrize("reading", NAMES)
@pytest.mark.parametrize("population, measure", [
    ("within", "mean"), ("between", "mean"), ("mixed", "mean"), ("unclustered", "mean"),
    ("within", "mass_near_one"), ("between", "mass_near_one"),
    ("within", "share"), ("between", "share"), ("energy", "energy"),
])  # fmt: skip
def test_a_caption_follows_its_csv(caption, reading, population, measure):
    data = assemble()
    changed = data.copy()
    changed.loc[line(data, reading, population, measure).index[-1], "value"] = 0.777
    assert "0.777" not in caption(reading, data)
    assert "0.777" in caption(reading, changed)


@pytest.mark.parametrize("reading", NAMES)
def test_a_caption_says_what_it_shows_and_nothing_more(caption, reading):
    text = caption(reading, assemble())
    assert "near by construction" in text
    assert ("distinct token ids" in text) == (reading == "controlled")
    assert ("both columns" in text) == (reading == "controlled")
    assert "open circle is the output of the final norm" in text
    assert "grey strip" not in text
    assert "of the configuration's β" not in text
    assert "figure of the other weights" in text
    alone = caption(
        reading, assemble(pair_table(final=False), energy_table(final=False)), matched=False
    )
    assert "final norm" not in alone
    assert "figure of the other weights" not in alone


def test_a_caption_says_where_a_population_has_no_pair(caption):
    data = undefined(("between", 1), ("between", 2), ("unclustered", 4))
    text = caption("published", data)
    assert "between at 2 of 5 layers, both unclustered at 1 of 5 layers." in text
    assert "both unclustered from 0.0300 to undefined" in text


def test_a_caption_names_a_beta_that_is_not_1(caption):
    data = assemble(energies=energy_table(betas=(0.5, 4)))
    text = caption("published", data)
    assert "E(β = 0.5) of all tokens" in text
    assert "of the configuration's β the nearest to 1" in text


def test_any_label_is_shown_as_it_is_with_what_its_weights_are(caption):
    label = r"GPT_2* `large` |x| {{ z }} <a@b.c> ref_"
    source = {"package": "x", "gguf": "GPT.Q4_1.gguf"}
    config = configuration(label, source)
    text = caption("published", assemble(), config=config)
    assert label.replace("{", "(").replace("}", ")") in text
    assert "weights trained (4-bit weights, dequantised)" in text
    random = caption("published", assemble(), "fig06_pairs_random", config)
    assert "weights norm_matched.0" in random
