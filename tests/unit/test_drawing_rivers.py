"""Rivers drawn: bands that end at membership, their events, captions that follow the csv."""

import math

import pandas as pd
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex, to_rgb

from tokensphere import catalogue, tables, tracking
from tokensphere.drawing import captions, rivers, style
from tools.captions import as_read

NAN = math.nan
NAMES = {"trained": "GPT_2*, trained", "random": "GPT_2*, norm_matched.0"}


def approx(expected):
    return pytest.approx(expected, abs=1e-12, rel=0, nan_ok=True)


def layer(text):
    """The cluster of each token: a letter a cluster, a dot for none."""
    letters = sorted(set(text) - {"."})
    return [letters.index(one) if one != "." else -1 for one in text]


# 20 tokens. a (identity 0) and b (1) are there from the start; c (2) is born at layer 1; b merges
# into a at layer 2; d (3) is split off a at layer 3; c dies at layer 4; layer 5 has one like it was
# and layer 6 none.
LAYERS = [
    "aaaaaabbbb..........",
    "aaaaaabbbb....cccc..",
    "aaaaaaaaaa....cccc..",
    "aaaaaadddd....cccc..",
    "aaaaaadddd..........",
    "aaaaaadddd..........",
    "....................",
]


def run(layers=LAYERS, weights="trained", final=None):
    """Assemble a run from its clusters, through the real tracking."""
    labels = {(place, "residual"): layer(text) for place, text in enumerate(layers)}
    if final is not None:
        labels[len(layers) - 1, "final_norm"] = layer(final)
    identities, events = tracking.track(labels)
    moves = tracking.turnover(labels, permutations=5, seed=0)
    return rivers.assemble(
        pd.DataFrame(tracking.describe(labels, identities), columns=tracking.TRACK_COLUMNS),
        pd.DataFrame(events, columns=tracking.EVENT_COLUMNS),
        pd.DataFrame(moves),
        weights=weights,
        tokens=len(layers[0]),
    )


# --- the numbers


def test_bands_stack_in_the_order_of_their_tokens_and_end_at_membership():
    data = run()
    bands = data[data["kind"] == "band"]
    for place, text in enumerate(LAYERS):
        here = bands[bands["layer"] == place]
        bottoms, tops = here["bottom"].tolist(), here["top"].tolist()
        assert bottoms == approx([0, *tops[:-1]][: len(tops)])
        membership = 1 - text.count(".") / len(text)
        assert (tops or [0])[-1] == approx(membership)
    third = bands[bands["layer"] == 3]
    assert third["tracked"].tolist() == [0, 3, 2]  # not of identity: 3 lies before 2 in the text
    assert third["top"].tolist() == approx([0.3, 0.5, 0.7])
    assert third["depth"].tolist() == approx([0.5] * 3)


def test_the_place_of_a_band_is_the_same_in_every_layer():
    # 1 lies after 0 by its mean over layers, weighted by size, though before it at layer 0.
    data = run(["bb......aaa.........", "bb......aaabbbbbbbbb"])
    bands = data[data["kind"] == "band"]
    order = bands.groupby("layer")["tracked"].apply(list)
    assert order[0] == order[1]
    assert bands[bands["layer"] == 0]["top"].tolist() == approx([0.15, 0.25])


def test_what_happens_says_to_which_cluster_and_from_which():
    data = run()
    happened = data[~data["kind"].isin(["band", "kept"])]
    shown = [
        (row.layer, row.kind, row.tracked, row.from_tracked)
        for row in happened.fillna(-1).itertuples()
    ]
    assert shown == [
        (1, "birth", 2, -1),
        (2, "merge", 1, 0),  # 1 merges into 0
        (3, "split", 3, 0),  # 3 is split from 0
        (4, "death", 2, -1),
        (6, "death", 0, -1),
        (6, "death", 3, -1),
    ]
    assert set(happened["reading"]) == {"published"}


def test_the_share_that_stays_and_its_chance_are_of_the_clusters_before():
    tracks = pd.DataFrame([[0, "residual", 0, 0, 4, 1.5]], columns=tracking.TRACK_COLUMNS)
    events = pd.DataFrame([], columns=tracking.EVENT_COLUMNS)
    moves = pd.DataFrame(
        {
            "layer": [1, 2, 2],
            "state": ["residual", "residual", "final_norm"],
            "clusters": [8, 0, 8],
            "kept": [6, 0, 8],
            "kept_chance": [2.0, 0.0, 8.0],
        }
    )
    data = rivers.assemble(tracks, events, moves, weights="random", tokens=8)
    kept = data[data["kind"] == "kept"]
    assert kept["value"].tolist() == approx([0.75, NAN])  # of no cluster no share stays
    assert kept["chance"].tolist() == approx([0.25, NAN])
    assert kept["depth"].tolist() == approx([0.5, 1])
    assert set(kept["reading"]) == {"controlled"}
    assert set(data["weights"]) == {"random"}


def test_the_final_norm_is_no_part_of_a_river():
    pd.testing.assert_frame_equal(run(final="aaaaaaaaaaaaaaaaaaaa"), run())


def test_every_row_has_its_keys_and_columns():
    data = run()
    assert list(data) == rivers.COLUMNS
    assert not data.duplicated(["reading", *rivers.KEYS]).any()


# --- the picture


def draw(data, names=NAMES, several=True, least_layers=3):
    readings = ["published", "controlled"] if several else ["published"]
    return rivers.draw(
        data[data["reading"].isin(readings)],
        readings,
        names=names,
        colour="#112233",
        least_layers=least_layers,
    )


def both():
    return pd.concat([run(), run(LAYERS[:1] * 7, "random")], ignore_index=True)


def polygons(axes):
    """The tapers and the bodies of a river: vertices and colour."""
    parts = [one for one in axes.collections if isinstance(one, PolyCollection)]
    return [
        [
            (path.vertices.tolist(), to_hex(colour))
            for path, colour in zip(part.get_paths(), part.get_facecolors(), strict=False)
        ]
        for part in parts
    ]


def river(data, **more):
    return polygons(draw(data, {"trained": "GPT"}, several=False, **more).axes[0])


def test_a_body_runs_through_the_layers_of_its_cluster():
    _, bodies = river(run())
    assert len(bodies) == 4
    vertices, _ = bodies[2]  # identity 2 lives in layers 1 to 3
    assert vertices[:3] == [approx([1 / 6, 0.5]), approx([2 / 6, 0.5]), approx([0.5, 0.5])]
    assert vertices[3:6] == [approx([0.5, 0.7]), approx([2 / 6, 0.7]), approx([1 / 6, 0.7])]


def test_ends_taper_to_a_point_or_to_the_band_that_they_merge_into_or_are_split_from():
    tapers, _ = river(run())
    points = [vertices[2] for vertices, _ in tapers]
    reach = rivers.OPENING / 6
    expected = [
        [5 / 6 + reach, 0.15],  # 0 dies after layer 5
        [2 / 6, 0.25],  # 1 merges into the middle of 0
        [1 / 6 - reach, 0.6],  # 2 is born
        [3 / 6 + reach, 0.6],  # and dies
        [2 / 6, 0.25],  # 3 is split from the middle of 0
        [5 / 6 + reach, 0.4],
    ]
    assert [approx(one) for one in expected] == points


def test_a_river_that_ends_early_tapers_no_further_than_any_other():
    # The last row of the csv is at layer 1 of 6: its number does not tell how far layers lie apart.
    tapers, _ = river(run([LAYERS[0], *LAYERS[-1:] * 6]))
    assert {vertices[2][0] for vertices, _ in tapers} == {rivers.OPENING / 6}


def test_a_colour_depends_on_identity_alone():
    # Ten colours: identities 1 and 11 share one, neighbours never do.
    assert len(set(style.CLUSTERS)) == 10
    assert style.cluster_colour(11) == style.cluster_colour(1) == style.CLUSTERS[1]
    _, full = river(run(), least_layers=1)
    assert [colour for _, colour in full] == [style.CLUSTERS[i] for i in range(4)]
    data = run()
    _, some = river(data[~data["tracked"].isin([0, 1])], least_layers=1)
    assert [colour for _, colour in some] == [style.CLUSTERS[2], style.CLUSTERS[3]]


def test_short_lived_clusters_are_grey():
    tapers, bodies = river(run(), least_layers=3)
    grey = [colour == to_hex(style.SHORT_LIVED) for _, colour in bodies]
    assert grey == [False, True, False, False]  # 1 lives in two layers, 2 in three
    assert sum(colour == to_hex(style.SHORT_LIVED) for _, colour in tapers) == 1
    _, bodies = river(run(), least_layers=4)
    assert [colour for _, colour in bodies].count(to_hex(style.SHORT_LIVED)) == 3


def test_trained_lies_above_random_on_the_same_axes_and_the_kept_share_beside_each():
    figure = draw(both())
    trained, kept_trained, random, kept_random = figure.axes
    titles = [axes.get_title(loc="left") for axes in (trained, random)]
    assert titles == list(NAMES.values())
    assert trained.get_ylim() == random.get_ylim() == (0, 1)
    assert trained.get_xlim() == random.get_xlim() == (0, 1)
    assert len(polygons(trained)[1]) == 4
    assert len(polygons(random)[1]) == 2
    for axes, weights, dashed in ((kept_trained, "trained", False), (kept_random, "random", True)):
        rows = both()
        rows = rows[(rows["weights"] == weights) & (rows["kind"] == "kept")]
        value, chance = axes.lines
        assert value.get_ydata().tolist() == approx(rows["value"].tolist())
        assert chance.get_ydata().tolist() == approx(rows["chance"].tolist())
        assert to_rgb(value.get_color()) == to_rgb("#112233")
        assert value.is_dashed() == dashed
        assert chance.get_linestyle() == ":"
    assert len(draw(both(), several=False).axes) == 2


@pytest.mark.filterwarnings("error:constrained_layout not applied:UserWarning")
@pytest.mark.parametrize("several", [True, False])
def test_the_layout_holds_within_the_tallest_figure(several):
    figure = draw(both(), several=several)
    figure.draw_without_rendering()
    assert figure.get_size_inches()[0] == style.PAGE
    assert figure.get_size_inches()[1] <= style.TALLEST
    (legend,) = figure.legends
    assert legend.get_window_extent().x1 <= figure.bbox.x1


def test_equal_pictures_are_equal_files(saved_twice):
    first, second = saved_twice(lambda: draw(both()))
    assert first == second


# --- the caption


@pytest.fixture
def caption(root, tmp_path):
    """Render the real caption as a reader sees it, from a csv that the figure wrote."""
    entry = catalogue.load(root / "workflow/figures.yaml")["fig19_cluster_lives"]

    def render(data, reading="controlled", **constants):
        shown = ["published"] if reading == "published" else ["published", "controlled"]
        rows = data[data["reading"].isin(shown)].to_dict("records")
        csv = tmp_path / "figure.csv"
        tables.write(csv, rows, ["reading", *rivers.KEYS], empty=rivers.EMPTY)
        facts = {
            "title": entry["title"],
            "names": NAMES,
            "constants": {"track_overlap": 0.1, "track_permutations": 20} | constants,
        }
        template = root / f"workflow/report/{entry['caption']}.rst"
        return as_read(captions.render(template, csv, reading, facts))

    return render


@pytest.mark.parametrize("reading", ["published", "controlled"])
def test_a_caption_states_the_lives_and_events_of_its_csv(caption, reading):
    text = caption(both(), reading)
    assert (
        "GPT_2*, trained: 4 clusters live in all, the median one in 3.00 of 7 layers, the longest "
        "in 6; 1 births, 3 deaths, 1 merges, 1 splits."
    ) in text
    assert (
        "GPT_2*, norm_matched.0: 2 clusters live in all, the median one in 7.00 of 7 layers, the "
        "longest in 7; 0 births, 0 deaths, 0 merges, 0 splits."
    ) in text
    assert ("by chance" in text) == (reading == "controlled")


def test_a_caption_follows_its_csv(caption):
    data = both()
    before = caption(data)
    birth = data.index[data["kind"] == "birth"][0]
    assert "0 births, 4 deaths" in caption(data.assign(kind=data["kind"].where(
        data.index != birth, "death")))  # fmt: skip
    fewer = data[~((data["kind"] == "band") & (data["tracked"] == 3))]
    assert "trained: 3 clusters live in all" in caption(fewer)
    kept = (data["kind"] == "kept") & (data["weights"] == "random")
    changed = data.assign(value=data["value"].mask(kept, 0.0625))
    assert "random 0.0625, by chance" in caption(changed)
    changed = data.assign(chance=data["chance"].mask(kept, 0.125))
    assert "random 1.00, by chance 0.125." in caption(changed)
    assert "0.0625" not in before
    assert "0.125" not in before


def test_a_caption_says_the_constants_of_the_matching(caption):
    text = caption(both(), track_overlap=0.375, track_permutations=77)
    assert "(at least 0.375)" in text
    assert "(77 times)" in text


@pytest.mark.parametrize("reading", ["published", "controlled"])
def test_weights_without_any_cluster_are_still_spoken_of(caption, reading):
    data = pd.concat([run(), run(LAYERS[-1:] * 7, "random")], ignore_index=True)
    text = caption(data, reading)
    assert "GPT_2*, norm_matched.0: 0 clusters live in all; 0 births" in text
    assert "nan" not in text
    figure = draw(data, several=reading == "controlled")
    figure.draw_without_rendering()
    said = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert said == ["no cluster in any layer"]
