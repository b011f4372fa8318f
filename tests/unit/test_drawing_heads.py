"""Heads drawn: the cells of the maps, their colours, captions that follow the csv."""

import math

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from tokensphere.drawing import heads, style
from tools import captions

NAN = math.nan
BLOCKS, HEADS = 3, 2
NAMES = {"trained": "GPT_2*, trained", "random": "GPT_2*, norm_matched.0"}


def approx(expected):
    return pytest.approx(expected, abs=1e-12, rel=0, nan_ok=True)


def places():
    return [(block, head) for block in range(1, BLOCKS + 1) for head in range(HEADS)]


def fiedler(size=1.0):
    """Published block.head tenths, symmetrised five more."""
    return pd.DataFrame(
        [
            {
                "layer": block,
                "head": head,
                "published": size * (block + head / 10) / 10,
                "symmetrised": size * (5 + block + head / 10) / 10,
            }
            for block, head in places()
        ]
    )


def received(ratio=0.5):
    return pd.DataFrame(
        [
            {
                "layer": block,
                "head": head,
                "group": group,
                "published": ratio * block if group == "clustered" else 9.0,
                "mask_corrected": ratio * block + 0.125 if group == "clustered" else 9.0,
                "mask_corrected_without_first": ratio + 0.25 if group == "clustered" else 9.0,
            }
            for block, head in places()
            for group in ("clustered", "unclustered")
        ]
    )


def ranks(final=True):
    rows = [
        {"layer": layer, "state": "residual", "raw": 10.0 * (layer + 1), "sphere": 100.0 - layer}
        for layer in range(BLOCKS + 1)
    ]
    end = {"layer": BLOCKS, "state": "final_norm", "raw": 7.0, "sphere": 7.0}
    return pd.DataFrame([*rows, end] if final else rows)


def assemble(weights="trained", **changes):
    tables = {"fiedler": fiedler(), "received": received(), "ranks": ranks()}
    return heads.assemble(**tables | changes, weights=weights)


def both():
    random = assemble("random", fiedler=fiedler(0.5), received=received(1.0))
    return pd.concat([assemble(), random], ignore_index=True)


def rows(data, reading, measure):
    return data[(data["reading"] == reading) & (data["measure"] == measure)]


# --- the numbers


@pytest.mark.parametrize(
    ("reading", "first", "ratio"), [("published", 0.1, 0.5), ("controlled", 0.6, 0.75)]
)
def test_a_cell_is_the_value_of_its_head(reading, first, ratio):
    cells = rows(assemble(), reading, "fiedler")
    assert list(zip(cells["layer"], cells["head"], strict=True)) == places()
    expected = [first + (block - 1) / 10 + head / 100 for block, head in places()]
    assert cells["value"].tolist() == approx(expected)
    cells = rows(assemble(), reading, "received")
    assert len(cells) == BLOCKS * HEADS
    assert cells["value"].iloc[0] == approx(ratio)


@pytest.mark.parametrize(
    ("reading", "rank"), [("published", [10.0, 20.0, 30.0]), ("controlled", [100.0, 99.0, 98.0])]
)
@pytest.mark.parametrize("final", [True, False])
def test_the_mean_of_a_block_stands_against_the_rank_of_the_layer_that_it_reads(
    reading, rank, final
):
    points = rows(assemble(ranks=ranks(final)), reading, "fiedler_against_rank")
    assert points["layer"].tolist() == [1, 2, 3]
    assert points["rank"].tolist() == rank
    first = 0.105 if reading == "published" else 0.605
    assert points["value"].tolist() == approx([first, first + 0.1, first + 0.2])


def test_every_row_has_its_keys_and_columns():
    data = both()
    assert list(data) == heads.COLUMNS
    assert not data.duplicated(["reading", *heads.KEYS]).any()
    assert data["depth"].max() == 1


# --- the picture


def draw(data, names=("published", "controlled")):
    return heads.draw(
        data[data["reading"].isin(names)],
        names,
        names=NAMES,
        titles={name: f"title, {name}" for name in names},
    )


def maps(figure):
    return [image for axes in figure.axes for image in axes.images]


def test_a_map_has_a_row_for_each_head_and_a_column_for_each_block():
    data = both()
    trained, ratios = maps(draw(data, ["published"]))[:2]
    assert trained.get_array().shape == (HEADS, BLOCKS)
    assert trained.get_array()[1].tolist() == approx([0.11, 0.21, 0.31])
    assert ratios.get_array()[0].tolist() == approx([0.5, 1.0, 1.5])


def test_trained_and_random_maps_of_a_reading_have_the_same_colours():
    figure = draw(both())
    found = [(image.norm.vmin, image.norm.vmax) for image in maps(figure)]
    assert len(found) == 8
    fiedlers, ratios = found[::2], found[1::2]
    assert fiedlers == [approx((0, 0.31))] * 2 + [approx((0, 0.81))] * 2
    assert ratios == [(0.25, 4.0)] * 4
    # 1 is the middle of a map of ratios.
    assert maps(figure)[1].norm(1.0) == pytest.approx(0.5)


def test_a_head_without_a_clustered_token_is_grey():
    data = assemble(received=received(NAN))
    random = assemble("random")
    image = maps(draw(pd.concat([data, random])))[1]
    assert np.isnan(np.ma.filled(image.get_array(), np.nan)).all()
    assert to_hex(image.cmap.get_bad()) == style.UNDEFINED


@pytest.mark.filterwarnings("error:constrained_layout not applied:UserWarning")
@pytest.mark.parametrize("names", [["published"], ["published", "controlled"]])
def test_the_layout_holds_within_the_tallest_figure(names):
    figure = draw(both(), names)
    figure.draw_without_rendering()
    assert figure.get_figheight() <= style.TALLEST


def test_equal_pictures_are_equal_files(saved_twice):
    first, second = saved_twice(lambda: draw(both()))
    assert first == second


# --- the caption


@pytest.fixture
def caption(tmp_path):
    """Read the real caption of a csv."""

    def render(data, reading="controlled"):
        facts = {"title": "Heads", "names": NAMES, "constants": {"sinkhorn_floor": 1e-12}}
        return captions.read(
            "heads",
            data,
            reading,
            facts,
            tmp_path / "figure.csv",
            keys=heads.KEYS,
            empty=heads.EMPTY,
        )

    return render


def test_a_caption_states_the_numbers_of_its_csv(caption):
    text = caption(both())
    assert "of GPT_2*, trained and GPT_2*, norm_matched.0, one map" in text
    assert "raised to at least 1e-12" in text
    assert "trained: Fiedler value mean 0.205, from 0.100 to 0.310" in text
    assert "mean 1.00, from 0.500 to 1.50, above 1 in 2 of 6 heads" in text
    # The Fiedler value grows with depth, and so does the raw rank; that on the sphere falls.
    assert "over blocks 1.00; random:" in text
    assert "over blocks -1.00; random:" in text


def test_a_caption_follows_its_csv(caption):
    data = both()
    here = (data["measure"] == "received") & (data["weights"] == "random")
    changed = data.assign(value=data["value"].where(~here, 0.875))
    assert "mean 0.875, from 0.875 to 0.875, above 1 in 0 of 6 heads" in caption(changed)
    assert "0.875 to 0.875" not in caption(data)


def test_the_published_caption_speaks_of_no_control(caption):
    text = caption(both(), "published")
    assert "controlled" not in text
    assert "on the sphere" not in text


def test_no_cluster_at_all_is_spoken_of(caption):
    data = pd.concat([assemble(received=received(NAN)), assemble("random")], ignore_index=True)
    text = caption(data)
    assert "received by clustered tokens undefined, no token is clustered" in text
    assert "nan" not in text
