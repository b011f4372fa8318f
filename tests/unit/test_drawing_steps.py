"""Training steps drawn: the numbers, the panels, captions that follow the csv."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import yaml
from matplotlib.colors import to_hex

from tokensphere.drawing import steps, style
from tools import captions

NAN = math.nan
SHADES = ["#100000", "#200000", "#300000", "#400000"]
CONTROLS = ["echo"]
COLUMNS = {
    ("published", "mass"): "mass_near_one",
    ("published", "rank"): "raw",
    ("published", "membership"): "membership",
    ("controlled", "mass"): "mass_near_one_distinct",
    ("controlled", "rank"): "sphere",
    ("controlled", "membership"): "membership",
}
NAMES = sorted(set(COLUMNS.values()))
PROMPTS = ("wiki", "camus", "iliad", "code", "echo")


def approx(expected):
    return pytest.approx(expected, abs=1e-12, rel=0, nan_ok=True)


# Every value its own, so that none is taken for another.
def value(step, prompt, layer, column, normed=False):
    return (
        NAMES.index(column) / 10
        + PROMPTS.index(prompt) / 100
        + layer / 1000
        + (step % 97) / 1e5
        + normed / 1e7
    )


def tables(step, prompt, layers, final, closed):
    states = [(layer, "residual") for layer in range(layers + 1)]
    states += [(layers, "final_norm")] if final else []
    frames = []
    for columns in (["mass_near_one", "mass_near_one_distinct"], ["raw", "sphere"], ["membership"]):
        frames.append(
            pd.DataFrame(
                {"layer": layer, "state": state, "n_tokens": 12, "reason": ""}
                | {one: value(step, prompt, layer, one, state == "final_norm") for one in columns}
                | ({"gate_sphere_3": (step, layer) not in closed} if "raw" in columns else {})
                for layer, state in states
            )
        )
    return frames


def assemble(at=(0, 10, 1000), prompts=PROMPTS, sweeps=("lion",), layers=6, final=True, closed=()):
    runs = [
        {
            "model": f"{sweep}@step{step}",
            "sweep": sweep,
            "sweep_label": f"{sweep.upper()}_2*",
            "step": step,
            "prompt": prompt,
        }
        for sweep in sweeps
        for step in at
        for prompt in prompts
    ]
    read = [tables(run["step"], run["prompt"], layers, final, closed) for run in runs]
    return steps.assemble(
        list(zip(*read, strict=True)), runs, depths=len(SHADES), prompt="wiki", controls=CONTROLS
    )


def line(data, reading, measure, place, series=None):
    chosen = (data["reading"] == reading) & (data["measure"] == measure) & (data["place"] == place)
    return data[chosen & ((data["series"] == series) if series else True)].sort_values("step")


# --- the numbers


@pytest.mark.parametrize("place, layer", [(0, 0), (1, 2), (2, 4), (3, 6)])
@pytest.mark.parametrize("measure", steps.MEASURES)
def test_the_published_reading_is_one_prompt(measure, place, layer):
    rows = line(assemble(final=False), "published", measure, place)
    column = COLUMNS["published", measure]
    assert rows["step"].tolist() == [0, 10, 1000]
    assert set(rows["layer"]) == {layer}
    assert rows["depth"].tolist() == approx([layer / 6] * 3)
    assert rows["value"].tolist() == approx(
        [value(s, "wiki", layer, column) for s in (0, 10, 1000)]
    )
    assert set(rows["series"]) == {"wiki"}
    assert set(rows["n_tokens"]) == {12}
    assert rows[["low", "high"]].isna().all(axis=None)


@pytest.mark.parametrize("measure", steps.MEASURES)
def test_the_controlled_reading_is_the_mean_over_prompts_without_controls(measure):
    data = assemble()
    column = COLUMNS["controlled", measure]
    rows = line(data, "controlled", measure, 1, steps.MEAN)
    expected = [np.mean([value(s, one, 2, column) for one in PROMPTS[:4]]) for s in (0, 10, 1000)]
    assert rows["value"].tolist() == approx(expected)
    assert (rows["prompts"] == 4).all()
    assert (rows["low"] < rows["value"]).all()
    assert (rows["high"] > rows["value"]).all()
    apart = line(data, "controlled", measure, 1, "echo")
    assert apart["value"].tolist() == approx([value(s, "echo", 2, column) for s in (0, 10, 1000)])
    assert (apart["prompts"] == 1).all()


def test_fewer_than_four_prompts_make_no_band():
    rows = line(assemble(prompts=("wiki", "camus", "iliad")), "controlled", "rank", 0)
    assert (rows["prompts"] == 3).all()
    assert rows[["low", "high"]].isna().all(axis=None)


def test_the_final_norm_stands_for_the_last_layer_as_published_alone():
    data = assemble()
    published = line(data, "published", "rank", 3)
    assert set(published["state"]) == {"final_norm"}
    assert published["value"].iloc[0] == approx(value(0, "wiki", 6, "raw", True))
    assert set(data[data["reading"] == "controlled"]["state"]) == {"residual"}


def test_membership_is_undefined_where_the_gate_is_closed_as_controlled_alone():
    data = assemble(closed=[(10, 6)])
    rows = line(data, "controlled", "membership", 3, steps.MEAN)
    assert rows["value"].isna().tolist() == [False, True, False]
    for reading, measure in COLUMNS:
        if (reading, measure) != ("controlled", "membership"):
            assert line(data, reading, measure, 3)["value"].notna().all()


def test_one_undefined_prompt_leaves_no_mean():
    frames = [tables(0, one, 6, False, [(0, 6)] if one == "camus" else []) for one in PROMPTS[:2]]
    run = {"model": "a@0", "sweep": "a", "sweep_label": "A", "step": 0}
    runs = [run | {"prompt": one} for one in PROMPTS[:2]]
    data = steps.assemble(
        list(zip(*frames, strict=True)), runs, depths=4, prompt="wiki", controls=[]
    )
    assert line(data, "controlled", "membership", 3)["value"].isna().all()
    assert line(data, "controlled", "membership", 2)["value"].notna().all()


@pytest.mark.parametrize(
    "layers, expected",
    [(1, [0, 1]), (2, [0, 1, 2]), (6, [0, 2, 4, 6]), (12, [0, 4, 8, 12]), (32, [0, 11, 21, 32])],
)
def test_the_layers_are_equally_spaced_and_each_drawn_once(layers, expected):
    assert assemble(layers=layers)["layer"].unique().tolist() == expected


def test_every_row_has_its_keys_and_columns():
    data = assemble(sweeps=("lion", "bear"))
    assert list(data) == steps.COLUMNS
    assert not data.duplicated(["reading", *steps.KEYS]).any()


# --- the picture


def draw(data, names=("published", "controlled")):
    return steps.draw(
        data[data["reading"].isin(names)],
        names,
        titles={"published": "Prompt wiki", "controlled": "Prompt wiki; all prompts"},
        shades=SHADES,
        controls=CONTROLS,
        band_opacity=0.2,
    )


def labelled(figure, reading, measure):
    (axes,) = [
        axes for axes in figure.axes if axes.get_ylabel() == steps.PANELS[reading][measure][1]
    ][slice(0, 1) if measure != "membership" else slice(reading == "controlled", None)][:1]
    return axes


def curves(axes, thin=False):
    """The lines of a panel, by the place of their shade."""
    width = 0.7 if thin else style.RC["lines.linewidth"]
    return {
        SHADES.index(to_hex(one.get_color())): one
        for one in axes.lines
        if one.get_linestyle() == "-" and one.get_linewidth() == width
    }


@pytest.mark.parametrize("reading, measure", COLUMNS)
def test_a_panel_has_a_line_a_depth_with_its_numbers(reading, measure):
    data = assemble()
    drawn = curves(labelled(draw(data), reading, measure))
    assert drawn.keys() == {0, 1, 2, 3}
    for place, one in drawn.items():
        series = "wiki" if reading == "published" else steps.MEAN
        rows = line(data, reading, measure, place, series)
        assert one.get_xdata().tolist() == [0, 10, 1000]
        assert one.get_ydata().tolist() == approx(rows["value"].tolist())


def test_controls_are_thin_lines_of_the_controlled_reading():
    figure = draw(assemble())
    assert curves(labelled(figure, "controlled", "mass"), thin=True).keys() == {0, 1, 2, 3}
    assert curves(labelled(figure, "published", "mass"), thin=True) == {}


def test_step_0_is_on_the_axis_and_the_labels_are_steps():
    figure = draw(assemble(at=(0, 512, 1000, 143000)))
    axes = labelled(figure, "published", "membership")
    assert axes.get_xscale() == "symlog"
    assert axes.get_xlim() == (0, 143000)
    figure.canvas.draw()
    said = [text.get_text() for text in axes.get_xticklabels()]
    assert said[0] == "0"
    assert said[-1] == "143k"
    assert set(said) <= {"0", "512", "1k", "143k"}


@pytest.mark.parametrize(
    "at", [(0, 1, 2, 3), (1000, 2000), (5,), (0,), tuple(range(0, 20000, 500))]
)
@pytest.mark.parametrize("names", [["published"], ["published", "controlled"]])
def test_labels_of_steps_do_not_meet(at, names):
    figure = draw(assemble(at=at, prompts=("wiki",)), names)
    figure.canvas.draw()
    axes = next(axes for axes in figure.axes if axes.get_xlabel())
    boxes = [text.get_window_extent() for text in axes.get_xticklabels() if text.get_text()]
    assert boxes
    for one, other in itertools.pairwise(boxes):
        assert one.x1 < other.x0


def test_what_is_undefined_is_grey_around_its_step():
    figure = draw(assemble(closed=[(10, 6)]))
    axes = labelled(figure, "controlled", "membership")
    (grey,) = [one for one in axes.patches if to_hex(one.get_facecolor()) == style.UNDEFINED]
    # From half-way between 0 and 10 to half-way between 10 and 1000, as the axis shows them.
    assert grey.get_x() == approx(5)
    assert grey.get_x() + grey.get_width() == pytest.approx(100)
    assert not labelled(figure, "published", "membership").patches


def test_an_undefined_control_is_no_grey():
    data = assemble()
    control = (data["series"] == "echo") & (data["measure"] == "mass")
    data.loc[control, "value"] = NAN
    assert not labelled(draw(data), "controlled", "mass").patches


def test_controls_stand_beside_what_they_control():
    figure = draw(assemble())
    figure.draw_without_rendering()
    for measure in steps.MEASURES:
        one = labelled(figure, "published", measure).get_position()
        other = labelled(figure, "controlled", measure).get_position()
        assert one.y0 == approx(other.y0)
        assert one.x1 < other.x0


def test_sweeps_stand_in_columns_on_one_scale():
    data = assemble(sweeps=("lion", "bear"))
    data.loc[(data["sweep"] == "bear") & (data["measure"] == "rank"), "value"] = 20.0
    figure = draw(data)
    titles = [axes.get_title("left") for axes in figure.axes if axes.get_title("left")]
    assert titles == [
        "LION_2*\nas published", "BEAR_2*\nas published",
        "LION_2*\ncontrolled", "BEAR_2*\ncontrolled",
    ]  # fmt: skip
    assert len(figure.axes) == 12
    assert [axes.get_ylim() for axes in figure.axes[4:8]] == [approx((-0.6, 20.6))] * 4


@pytest.mark.filterwarnings("error:constrained_layout not applied:UserWarning")
@pytest.mark.parametrize("names", [["published"], ["published", "controlled"]])
@pytest.mark.parametrize("sweeps", [1, 2, 3, 4])
def test_the_layout_holds_within_the_tallest_figure(names, sweeps):
    figure = draw(assemble(sweeps=[f"a_sweep_of_{one}" for one in range(sweeps)]), names)
    figure.draw_without_rendering()
    assert figure.get_figheight() <= style.TALLEST
    assert figure.legends[0].get_window_extent().x1 <= figure.bbox.x1
    assert len([axes for axes in figure.axes if axes.get_title("left")]) == sweeps * len(names)
    for axes in figure.axes:  # no label is longer than its panel is high
        assert axes.yaxis.label.get_window_extent().height <= 1.05 * axes.bbox.height
    shown = [axes.title for axes in figure.axes] + [axes._left_title for axes in figure.axes]
    boxes = [one.get_window_extent() for one in shown if one.get_text()]
    for place, one in enumerate(boxes):
        assert not any(one.overlaps(other) for other in boxes[place + 1 :])


def test_the_legend_names_depths_as_they_are():
    def names(data):
        return [text.get_text() for text in draw(data).legends[0].get_texts()]

    assert names(assemble()) == [
        "depth 0 (embedding output)", "depth 0.33", "depth 0.67", "depth 1 (last layer)",
        "output of the final norm", "thin lines: echo (control)",
    ]  # fmt: skip
    two = assemble(layers=2, final=False, prompts=("wiki",))
    assert names(two) == ["depth 0 (embedding output)", "depth 0.5", "depth 1 (last layer)"]
    both = pd.concat([assemble(layers=4, sweeps=("lion",)), assemble(sweeps=("bear",))])
    assert names(both)[1:3] == ["depth 0.25 to 0.33", "depth 0.67 to 0.75"]


def test_equal_pictures_are_equal_files(saved_twice):
    first, second = saved_twice(lambda: draw(assemble()))
    assert first == second


def test_the_shades_of_the_catalogue_differ(root):
    figures = yaml.safe_load((root / "workflow/figures.yaml").read_text())
    shades = figures["fig23_training_steps"]["options"]["shades"]
    light = [sum(int(one[place : place + 2], 16) for place in (1, 3, 5)) for one in shades]
    assert light == sorted(set(light), reverse=True)


# --- the caption


@pytest.fixture
def caption(tmp_path):
    """Read the real caption of a csv."""

    def render(data, reading="controlled"):
        facts = {
            "title": "Training steps",
            "prompt": "wiki",
            "constants": {"near_one": 0.9, "min_cluster_size": 2},
            "controls": CONTROLS,
        }
        return captions.read(
            "steps",
            data,
            reading,
            facts,
            tmp_path / "figure.csv",
            keys=steps.KEYS,
            empty=steps.EMPTY,
        )

    return render


def course(data, reading, measure, numbers):
    """Give the last layer these values, by step."""
    series = "wiki" if reading == "published" else steps.MEAN
    rows = line(data, reading, measure, 3, series)
    data.loc[rows.index, "value"] = numbers
    return data


def test_a_caption_says_what_the_last_layer_did(caption):
    data = course(assemble(final=False), "published", "mass", [0.25, 0.75, 0.5])
    text = caption(data, "published")
    assert "above 0.9)" in text
    assert "LION_2*: 3 revisions, layers 0, 2, 4 and 6." in text
    assert "the prompt wiki (12 tokens): all pairs, raw states." in text
    assert (
        "LION_2*: mass near 1 from 0.250 (step 0) to 0.500 (step 1,000), most 0.750 (step 10);"
    ) in text
    assert ", least" not in text
    assert "ontrolled" not in text
    assert "Grey" not in text
    assert "final norm" not in text


def test_a_caption_says_least_where_a_measure_falls_and_rises(caption):
    data = course(assemble(), "controlled", "rank", [9.0, 2.0, 5.0])
    assert (
        "rank on the sphere from 9.00 (step 0) to 5.00 (step 1,000), least 2.00 (step 10);"
    ) in caption(data)


def test_a_caption_says_band_controls_and_the_final_norm(caption):
    text = caption(assemble())
    assert "Mean over 4 prompts, band: bootstrap 95% over prompts." in text
    assert text.endswith("Thin lines: echo, a control kept out of the mean.")
    assert "an open circle is the output of the final norm" in text
    few = caption(assemble(prompts=("wiki", "camus")))
    assert "Mean over 2 prompts: too few for a band." in few
    assert "Thin" not in few
    assert "One prompt: too few for a band." in caption(assemble(prompts=("wiki",)))


def test_a_caption_says_what_is_undefined(caption):
    data = assemble(closed=[(10, 6)])
    assert "Grey: undefined" in caption(data)
    assert "Grey" not in caption(data, "published")
    nothing = course(assemble(), "controlled", "membership", [NAN, NAN, NAN])
    assert "membership undefined." in caption(nothing)
    first = course(assemble(), "controlled", "membership", [NAN, 0.5, 0.25])
    assert (
        "membership from undefined (step 0) to 0.250 (step 1,000), most 0.500 (step 10)."
    ) in caption(first)
