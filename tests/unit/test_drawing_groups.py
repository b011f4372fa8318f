"""Groups drawn: the numbers, the shared axes, what is undefined, captions that follow the csv."""

import math

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from tokensphere.drawing import groups, style
from tools import captions

NAN = math.nan
COLOURS = {"clustered": "#110000", "unclustered": "#220000"}
RECEIVED = [
    "published",
    "published_without_first",
    "mask_corrected",
    "mask_corrected_without_first",
]
BLOCKS = 3


def approx(expected):
    return pytest.approx(expected, abs=1e-12, rel=0, nan_ok=True)


# Every value its own, so that none is taken for another.
def value(block, group, column):
    return block / 10 + groups.GROUPS.index(group) / 100 + RECEIVED.index(column) / 1000


def received(**changes):
    return pd.DataFrame(
        [
            {"layer": block, "group": group, "tokens": 4, "reason": ""}
            | {column: changes.get(group, value(block, group, column)) for column in RECEIVED}
            for block in range(1, BLOCKS + 1)
            for group in groups.GROUPS
        ]
    )


def heads(published=(2.0, 0.5), corrected=(0.5, 2.0)):
    """Two heads a block; each pair is what unclustered tokens receive, clustered ones get 1."""
    return pd.DataFrame(
        [
            {
                "layer": block,
                "head": head,
                "group": group,
                "published": published[head] if group == "unclustered" else 1.0,
                "mask_corrected_without_first": corrected[head] if group == "unclustered" else 1.0,
            }
            for block in range(1, BLOCKS + 1)
            for head in (0, 1)
            for group in groups.GROUPS
        ]
    )


def entropy():
    return pd.DataFrame(
        [
            {
                "layer": block,
                "head": head,
                "first_token_share": block / 10 + head / 5,
                "first_token_expected": 0.05,
            }
            for block in range(1, BLOCKS + 1)
            for head in (0, 1)
        ]
    )


def states(final=True):
    found = [(layer, "residual") for layer in range(BLOCKS + 1)]
    return found + ([(BLOCKS, "final_norm")] if final else [])


def classes(final=True):
    return pd.DataFrame(
        [
            {
                "layer": layer,
                "state": state,
                "group": group,
                "punctuation": place / 10 + groups.GROUPS.index(group) / 100,
            }
            for place, (layer, state) in enumerate(states(final))
            for group in groups.GROUPS
        ]
    )


def clusters(final=True):
    return pd.DataFrame(
        [
            {"layer": layer, "state": state, "n_tokens": 12, "membership": place / 10}
            for place, (layer, state) in enumerate(states(final))
        ]
    )


def assemble(final=True, **changes):
    tables = {
        "received": received(),
        "heads": heads(),
        "entropy": entropy(),
        "classes": classes(final),
        "clusters": clusters(final),
    }
    return groups.assemble(**tables | changes)


def line(data, measure, name):
    return data[(data["measure"] == measure) & (data["line"] == name)]


# --- the numbers


@pytest.mark.parametrize("group", groups.GROUPS)
@pytest.mark.parametrize("measure", groups.RECEIVED)
def test_attention_received_is_that_of_its_column_block_by_block(measure, group):
    rows = line(assemble(), measure, group)
    column = groups.RECEIVED[measure]
    assert rows["layer"].tolist() == [1, 2, 3]
    assert rows["depth"].tolist() == approx([1 / 3, 2 / 3, 1])
    assert rows["value"].tolist() == approx([value(block, group, column) for block in (1, 2, 3)])
    assert set(rows["reading"]) == {"published" if measure == "received" else "controlled"}


def test_the_study_drew_three_panels_the_others_are_controls():
    data = assemble()
    published = data[data["reading"] == "published"]["measure"].unique().tolist()
    assert published == ["received", "punctuation", "unclustered"]
    assert set(data["measure"]) == set(groups.PANELS)


@pytest.mark.parametrize("final", [True, False])
def test_shares_of_tokens_end_in_the_final_norm_where_there_is_one(final):
    last = 4 if final else 3
    data = assemble(final)
    punctuation = line(data, "punctuation", "unclustered")
    assert punctuation["value"].tolist() == approx([0.01, 0.11, 0.21, last / 10 + 0.01])
    assert punctuation["state"].iloc[-1] == ("final_norm" if final else "residual")
    loose = line(data, "unclustered", "all tokens")
    assert loose["value"].tolist() == approx([1.0, 0.9, 0.8, 1 - last / 10])


def test_the_weight_of_position_0_is_its_mean_over_heads_beside_what_the_mask_gives():
    data = assemble()
    assert line(data, "first", "published")["value"].tolist() == approx([0.2, 0.3, 0.4])
    assert line(data, "first", "content-free")["value"].tolist() == approx([0.05] * 3)


def test_heads_are_counted_in_which_unclustered_tokens_receive_more():
    data = assemble(heads=heads(published=(2.0, 3.0), corrected=(1.0, 1.5)))
    assert line(data, "heads", "published")["value"].tolist() == [1.0] * 3
    # Equal is not more.
    assert line(data, "heads", groups.CORRECTED)["value"].tolist() == [0.5] * 3


def test_heads_without_one_of_the_groups_are_undefined():
    data = assemble(heads=heads(published=(NAN, NAN)))
    assert line(data, "heads", "published")["value"].isna().all()
    assert line(data, "heads", groups.CORRECTED)["value"].tolist() == [0.5] * 3


def test_every_row_has_its_keys_and_columns():
    data = assemble()
    assert list(data) == groups.COLUMNS
    assert not data.duplicated(["reading", *groups.KEYS]).any()
    assert (data["n_tokens"] == 12).all()


def test_the_axis_of_received_attention_reaches_the_largest_value_of_all_runs_and_parity():
    assert groups.shared_limits([assemble()]) == 1.0
    far = assemble(received=received(clustered=2.5))
    assert groups.shared_limits([assemble(), far]) == 2.5
    # A share of heads of 1 is no received attention.
    assert groups.shared_limits([assemble(heads=heads(published=(9.0, 9.0)))]) == 1.0
    assert groups.shared_limits([assemble(received=received(clustered=NAN, unclustered=NAN))]) == 1


# --- the picture


def draw(data, names=("published", "controlled"), limit=2.0):
    return groups.draw(
        data[data["reading"].isin(names)],
        names,
        title="GPT, trained",
        titles={name: f"title, {name}" for name in names},
        limit=limit,
        colours=COLOURS,
    )


def axes_of(figure, label):
    (axes,) = [axes for axes in figure.axes if axes.get_ylabel() == label]
    return axes


def test_the_published_reading_alone_has_its_three_panels_in_a_row():
    figure = draw(assemble(), ["published"])
    assert len(figure.axes) == 3
    assert len({round(axes.get_position().y0, 3) for axes in figure.axes}) == 1


def test_every_measure_has_its_panel_with_its_lines():
    data = assemble()
    figure = draw(data)
    for measure, (_, _, label) in groups.PANELS.items():
        axes = axes_of(figure, label)
        drawn = {to_hex(one.get_color()): one for one in axes.lines if len(one.get_xdata()) > 2}
        for name, points in data[data["measure"] == measure].groupby("line"):
            if name in COLOURS:
                ys = drawn[COLOURS[name]].get_ydata()
                assert ys.tolist() == approx(points["value"].tolist())


def test_panels_of_received_attention_share_their_axis_and_mark_parity():
    figure = draw(assemble(), limit=2.0)
    for measure, (_, _, label) in groups.PANELS.items():
        axes = axes_of(figure, label)
        parity = [one for one in axes.lines if set(one.get_ydata()) == {1.0}]
        if measure in groups.RECEIVED:
            assert axes.get_ylim() == approx((-0.06, 2.06))
            assert parity
        else:
            assert axes.get_ylim() == approx((-0.03, 1.03))


def test_a_final_norm_is_an_open_circle_and_in_the_legend():
    names = [text.get_text() for text in draw(assemble()).legends[0].get_texts()]
    assert "output of the final norm" in names
    figure = draw(assemble(final=False))
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "output of the final norm" not in names
    assert names == ["clustered", "unclustered", "published", "content-free", groups.CORRECTED]


def test_depths_at_which_no_line_is_defined_are_grey():
    data = assemble(received=received(clustered=NAN, unclustered=NAN))
    axes = axes_of(draw(data), groups.PANELS["received"][2])
    grey = [patch for patch in axes.patches if to_hex(patch.get_facecolor()) == style.UNDEFINED]
    assert len(grey) == BLOCKS
    one = assemble(received=received(clustered=NAN))
    assert not axes_of(draw(one), groups.PANELS["received"][2]).patches


@pytest.mark.filterwarnings("error:constrained_layout not applied:UserWarning")
@pytest.mark.parametrize("names", [["published"], ["published", "controlled"]])
def test_the_layout_holds_within_the_tallest_figure(names):
    figure = draw(assemble(), names)
    figure.draw_without_rendering()
    assert figure.get_figheight() <= style.TALLEST
    assert figure.legends[0].get_window_extent().x1 <= figure.bbox.x1


def test_equal_pictures_are_equal_files(saved_twice):
    first, second = saved_twice(lambda: draw(assemble()))
    assert first == second


# --- the caption


@pytest.fixture
def caption(tmp_path):
    """Read the real caption of a csv."""

    def render(data, reading="controlled", matched=True):
        run = {"prompt": "wiki_1", "label": "GPT_2*", "weights_are": "trained"}
        facts = {"title": "Attention received", "runs": [run], "matched": matched}
        return captions.read(
            "groups",
            data,
            reading,
            facts,
            tmp_path / "figure.csv",
            keys=groups.KEYS,
            empty=groups.EMPTY,
        )

    return render


def test_a_caption_states_the_numbers_of_its_csv(caption):
    text = caption(assemble())
    assert "wiki_1 (12 tokens) in GPT_2*, weights trained" in text
    assert "clustered 0.200 (0.200 halfway), unclustered 0.210 (0.210 halfway);" in text
    # (0 + .1 + .2 + .4) / 4 unclustered tokens are clustered.
    assert "unclustered 0.825 (0.800 halfway) of the tokens" in text
    assert "is 0.0100 as published, 0.0100 without position 0" in text
    assert "position 0 has 0.300 (0.300 halfway) of all attention" in text
    assert "would give it 0.0500" in text
    assert "0.500 (0.500 halfway) as published, 0.500 (0.500 halfway) with both" in text
    assert text.endswith("in all panels and in the figure of the other weights.")


def test_a_caption_follows_its_csv(caption):
    data = assemble()
    here = (data["measure"] == "mask_corrected") & (data["line"] == "unclustered")
    changed = data.assign(value=data["value"].where(~here, 1.75))
    assert "unclustered 1.75 (1.75 halfway); both" in caption(changed)
    assert "unclustered 1.75" not in caption(data)


def test_the_published_caption_speaks_of_no_control(caption):
    text = caption(assemble(), "published", matched=False)
    assert "As published, means over depth" in text
    assert "controlled" not in text
    assert "content-free" not in text
    assert text.endswith("are the same in all panels.")


@pytest.mark.parametrize("final", [True, False])
def test_a_caption_mentions_the_final_norm_where_there_is_one(caption, final):
    assert ("final norm" in caption(assemble(final))) == final


def test_a_caption_says_where_a_group_has_no_token(caption):
    assert "A line breaks" not in caption(assemble())
    lacking = received()
    lacking.loc[(lacking["layer"] == 2) & (lacking["group"] == "clustered"), RECEIVED] = NAN
    text = caption(assemble(received=lacking))
    assert "where its group has no token (1 of 4 layers at most)" in text
    assert "nan" not in text


def test_no_cluster_at_all_is_drawn_and_spoken_of(caption):
    data = assemble(
        received=received(clustered=NAN),
        heads=heads(published=(NAN, NAN), corrected=(NAN, NAN)),
        clusters=clusters().assign(membership=0.0),
    )
    text = caption(data)
    assert "clustered undefined" in text
    draw(data).draw_without_rendering()
    assert np.isfinite(groups.shared_limits([data]))
