"""Projections drawn: whose places, in which look, and captions that follow their csv."""

import io
import math

import docutils.core
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from tokensphere import catalogue, tables
from tokensphere.drawing import captions, projections, style

NAN = math.nan
TOKENS = 6
METHODS = ["pca", "pca_centred", "tsne", "umap"]
NAMES = {("gpt", "trained"): "GPT, trained, prompt wiki"}
TITLES = {"published": "As published", "controlled": "Controlled"}
BOTH = ["published", "controlled"]
# Clusters by (layer, state): label -> identity, and each token's label.
LABELS = {
    (0, "residual"): [0, 0, 1, 1, -1, -1],
    (1, "residual"): [1, 1, 0, 0, 0, -1],
    (2, "residual"): [-1, -1, -1, -1, 0, 0],
    (2, "final_norm"): [0, 0, -1, -1, -1, -1],
}
IDENTITIES = {
    (0, "residual"): {0: 0, 1: 1},
    (1, "residual"): {0: 1, 1: 0},
    (2, "residual"): {0: 12},
    (2, "final_norm"): {0: 0},
}


def labels(tokens=TOKENS, final=True):
    return {
        place: np.array(values)[:tokens]
        for place, values in LABELS.items()
        if final or place[1] == "residual"
    }


def tracks(identities=IDENTITIES):
    return pd.DataFrame(
        [
            {"layer": layer, "state": state, "cluster": cluster, "tracked": tracked}
            for (layer, state), clusters in identities.items()
            for cluster, tracked in clusters.items()
        ],
        columns=["layer", "state", "cluster", "tracked"],
    )


def place(method, suffix, token):
    """Every place its own, so that none is taken for another."""
    state = 3 if suffix == "final_norm" else int(suffix)
    return 100 * METHODS.index(method) + 10 * state + token


def embeddings(tokens=TOKENS, final=True, layers=(0, 1, 2)):
    suffixes = [*map(str, layers), *(["final_norm"] if final else [])]
    rows = range(tokens)
    return {
        f"{method}_{suffix}": np.array(
            [[place(method, suffix, i), -place(method, suffix, i) / (i + 2)] for i in rows],
            dtype=float,
        )
        for suffix in suffixes
        for method in METHODS
    }


def assemble(weights="trained", identities=IDENTITIES, **change):
    kept = {key: change[key] for key in ("tokens", "final") if key in change}
    return projections.assemble(
        change.get("embeddings", embeddings(**kept)),
        labels(**kept),
        tracks(identities),
        model="gpt",
        weights=weights,
    )


def draw(data, readings=BOTH, names=NAMES):
    shown = data[data["reading"].isin(readings)]
    return projections.draw(shown, readings, names=names, titles=TITLES)


def panel(figure, row, column, columns=3):
    return figure.axes[row * columns + column]


def looks(axes):
    """The looks in a panel: the place of a token -> its colour and shape."""
    found = {}
    for collection in axes.collections:
        colours = collection.get_facecolors()
        colours = colours if len(colours) else collection.get_edgecolors()
        shape = len(collection.get_paths()[0].vertices)
        for index, (x, _) in enumerate(collection.get_offsets()):
            found[float(x)] = (to_hex(colours[index % len(colours)]), shape)
    return found


# --- the numbers


@pytest.mark.parametrize("layer, suffix", [(0, "0"), (1, "1"), (2, "final_norm")])
@pytest.mark.parametrize("method", ["pca", "tsne", "umap"])
def test_published_places_end_in_the_final_norm(layer, suffix, method):
    data = assemble()
    rows = data[(data["reading"] == "published") & (data["layer"] == layer)]
    rows = rows[rows["method"] == method]
    assert rows["token"].tolist() == list(range(TOKENS))
    assert rows["x"].tolist() == [place(method, suffix, token) for token in range(TOKENS)]
    assert rows["y"].tolist() == [-x / (i + 2) for i, x in enumerate(rows["x"])]
    assert set(rows["state"]) == {"residual" if suffix.isdigit() else suffix}
    assert set(rows["depth"]) == {layer / 2}


@pytest.mark.parametrize("method", ["pca_centred", "tsne", "umap"])
def test_controlled_places_are_centred_and_raw(method):
    data = assemble()
    rows = data[(data["reading"] == "controlled") & (data["method"] == method)]
    assert set(rows["state"]) == {"residual"}
    expected = [place(method, suffix, token) for suffix in "012" for token in range(TOKENS)]
    assert rows["x"].tolist() == expected


def test_readings_have_their_own_pca_alone():
    methods = assemble().groupby("reading")["method"].unique()
    assert methods["published"].tolist() == ["pca", "tsne", "umap"]
    assert methods["controlled"].tolist() == ["pca_centred", "tsne", "umap"]


def test_a_model_without_a_final_norm_ends_in_its_last_layer():
    assert set(assemble(final=False)["state"]) == {"residual"}


def test_labels_become_identities_of_the_same_state():
    data = assemble()
    for (layer, state), here in data.groupby(["layer", "state"]):
        once = here[(here["method"] == "umap") & (here["reading"] == here["reading"].iloc[0])]
        assert once["label"].tolist() == LABELS[layer, state]
        expected = [IDENTITIES[layer, state].get(label, -1) for label in LABELS[layer, state]]
        assert once["tracked"].tolist() == expected


def test_a_run_without_clusters_is_all_unclustered():
    none = {place: np.full(TOKENS, -1) for place in LABELS}
    data = projections.assemble(embeddings(), none, tracks({}), model="gpt", weights="trained")
    assert set(data["tracked"]) == {-1}
    draw(data)


# --- looks


def test_the_look_of_a_cluster_depends_on_its_identity_alone():
    every = [(style.cluster_colour(i), style.cluster_marker(i)) for i in range(style.LOOKS)]
    assert len(set(every)) == style.LOOKS
    assert style.cluster_marker(style.LOOKS + 3) == every[3][1]


def test_a_cluster_keeps_its_look_in_every_panel_and_reading():
    figure = draw(assemble())
    seen = {}
    data = assemble()
    for row, column, reading in [(r, c, b) for b in (0, 1) for r in range(3) for c in range(3)]:
        # A half of the figure has its panels together.
        axes = figure.axes[9 * reading + 3 * row + column]
        rows = data[(data["reading"] == BOTH[reading]) & (data["layer"] == row)]
        method = projections.SHOWN[BOTH[reading]][column]
        for token in rows[rows["method"] == method].to_dict("records"):
            seen.setdefault(token["tracked"], set()).add(looks(axes)[token["x"]])
    assert sorted(seen) == [-1, 0, 1, 12]
    assert all(len(found) == 1 for found in seen.values())
    assert len(set.union(*seen.values())) == 4
    assert {colour for colour, _ in seen[-1]} == {style.UNCLUSTERED}
    assert {colour for colour, _ in seen[12]} == {style.cluster_colour(12)}


def test_every_token_is_drawn_once():
    axes = panel(draw(assemble(), ["published"]), 1, 2)
    assert sorted(looks(axes)) == [place("umap", "1", token) for token in range(TOKENS)]


# --- panels


def test_axes_without_meaning_have_no_ticks():
    figure = draw(assemble(), ["published"])
    for row in range(3):
        ticks = [len(panel(figure, row, column).get_xticks()) for column in range(3)]
        assert ticks[0] > 0
        assert ticks[1:] == [0, 0]
        assert "component 2" in panel(figure, row, 0).get_ylabel()
    assert panel(figure, 2, 0).get_xlabel() == "component 1"
    assert "final norm" in panel(figure, 2, 0).get_ylabel()
    assert [panel(figure, 0, c).get_title() for c in range(3)] == ["PCA", "t-SNE", "UMAP"]


def test_ticks_of_a_collapsed_cloud_are_whole_numbers_of_their_axis():
    close = {name: 0.9999 + 1e-6 * places for name, places in embeddings().items()}
    figure = draw(assemble(embeddings=close), ["published"])
    figure.draw_without_rendering()
    axis = panel(figure, 2, 0).xaxis
    assert "+" not in axis.get_offset_text().get_text()
    assert any(label.get_text().startswith("0.9999") for label in axis.get_ticklabels())


def test_a_cloud_without_places_says_so():
    few = {name: np.full((4, 2), NAN) for name in embeddings()}
    figure = draw(assemble(tokens=4, embeddings=few))
    assert len(figure.axes) == 18
    for axes in figure.axes:
        assert [text.get_text() for text in axes.texts] == ["too few\ntokens"]
        assert not axes.collections


def test_a_token_without_place_is_left_out():
    holed = embeddings()
    holed["umap_1"][2] = NAN
    axes = panel(draw(assemble(embeddings=holed), ["published"]), 1, 2)
    assert len(looks(axes)) == TOKENS - 1
    assert not axes.texts


@pytest.mark.parametrize("readings", [["published"], BOTH])
@pytest.mark.parametrize("runs", [1, 2])
def test_a_figure_is_no_taller_than_the_page(readings, runs):
    weights = ["trained", "norm_matched.0"][:runs]
    data = pd.concat([assemble(weights=one) for one in weights], ignore_index=True)
    figure = draw(data, readings, {("gpt", one): one for one in weights})
    assert figure.get_size_inches()[0] == style.PAGE
    assert figure.get_size_inches()[1] <= style.TALLEST
    assert len(figure.axes) == 9 * runs * len(readings)


def test_equal_numbers_make_equal_pictures():
    def picture():
        file = io.BytesIO()
        draw(assemble()).savefig(file, format="png")
        return file.getvalue()

    assert picture() == picture()


# --- captions


def caption(root, tmp_path, data, reading="published", names=NAMES):
    shown = data[data["reading"].isin(BOTH if reading == "controlled" else [reading])]
    tables.write(
        tmp_path / "figure.csv",
        [dict(row) for row in shown.to_dict("records")],
        ["reading", *projections.KEYS],
        empty=projections.EMPTY,
    )
    entry = catalogue.load(root / "workflow/figures.yaml")["fig01_projections_random"]
    facts = {
        "title": entry["title"],
        "runs": [{"prompt": "wiki_paragraph"}],
        "constants": {
            "min_cluster_size": 2,
            "tsne_perplexity": 30,
            "umap_neighbours": 15,
            "projection_seed": 42,
        },
        "names": names,
        "looks": style.LOOKS,
    }
    text = captions.render(
        root / "workflow/report/projections.rst", tmp_path / "figure.csv", reading, facts
    )
    docutils.core.publish_string(text, settings_overrides={"halt_level": 2, "report_level": 2})
    return text


def test_a_caption_counts_what_its_csv_holds(root, tmp_path):
    text = caption(root, tmp_path, assemble())
    assert (
        "GPT, trained, prompt wiki (6 tokens): layer 0 (depth 0.00): 2 clusters, 2 tokens" in text
    )
    assert "layer 1 (depth 0.500): 2 clusters, 1 token in none" in text
    assert "layer 2 (depth 1.00, output of the final norm): 1 cluster, 4 tokens in none." in text
    assert "perplexity 1)" in text
    assert "5 neighbours" in text
    assert "Controlled" not in text


def test_the_caption_of_the_companion_says_what_differs(root, tmp_path):
    text = caption(root, tmp_path, assemble(), "controlled")
    assert "PCA of the centred points, and the raw residual stream" in text
    assert "trained, layer 2 (depth 1.00): 1 cluster, 4 tokens in none." in text
    plain = caption(root, tmp_path, assemble(final=False), "controlled")
    assert "PCA of the centred points. PCA is linear" in plain
    assert "final norm" not in plain


def test_a_caption_says_when_looks_are_shared(root, tmp_path):
    many = IDENTITIES | {(2, "residual"): {0: style.LOOKS}}
    said = "a few clusters of this run share theirs"
    assert said in caption(root, tmp_path, assemble(identities=many), "controlled")
    assert said not in caption(root, tmp_path, assemble(), "controlled")


def test_a_caption_of_two_runs_says_that_looks_do_not_cross(root, tmp_path):
    names = NAMES | {("gpt", "norm_matched.0"): "GPT, norm_matched.0, prompt wiki"}
    data = pd.concat([assemble(), assemble(weights="norm_matched.0")], ignore_index=True)
    text = caption(root, tmp_path, data, names=names)
    assert r"GPT, norm\_matched.0, prompt wiki (6 tokens)" in text
    assert "A look says nothing across weights" in text
    assert "across weights" not in caption(root, tmp_path, assemble())


def test_a_caption_says_what_is_not_drawn(root, tmp_path):
    few = {name: np.full((4, 2), NAN) for name in embeddings()}
    text = caption(root, tmp_path, assemble(tokens=4, embeddings=few))
    assert "Too few tokens to project." in text
    holed = embeddings()
    holed["umap_1"][2] = NAN
    assert "without direction" in caption(root, tmp_path, assemble(embeddings=holed))
