"""Projections against twins, their invariances, and the clouds that have no picture."""

import numpy as np
import pytest

from tokensphere import projections, sphere

# UMAP compiles for seconds at its first call: it is called seldom here, and on few tokens.
EVERY = ["pca", "pca_centred", "tsne", "umap"]
FITTED = ["tsne", "umap"]


def cloud(tokens, width=8, seed=0, shift=0.0):
    """Random points on the sphere; a shift moves them towards one direction."""
    vectors = np.random.default_rng(seed).normal(size=(tokens, width))
    vectors[:, 0] += shift
    return sphere.project(vectors)


def groups(tokens=30, width=8):
    """Two tight groups far from each other, and which token is in the first."""
    first = np.arange(tokens) % 2 == 0
    vectors = 0.05 * np.random.default_rng(1).normal(size=(tokens, width))
    vectors[first, 0] += 1
    vectors[~first, 1] += 1
    return sphere.project(vectors), first


def turned(angle, mirrored=False):
    matrix = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return matrix * [1, -1] if mirrored else matrix


# --- PCA


@pytest.mark.parametrize("method, centred", [("pca", False), ("pca_centred", True)])
@pytest.mark.parametrize("tokens", [5, 6, 40])
def test_pca_is_the_eigendecomposition_of_second_moments(method, centred, tokens):
    points = cloud(tokens, shift=1.5)
    rows = points - points.mean(axis=0) if centred else points
    _, vectors = np.linalg.eigh(rows.T @ rows)
    for axis, vector in enumerate((vectors[:, -1], vectors[:, -2])):
        sign = np.sign(vector[np.abs(vector).argmax()])
        found = getattr(projections, method)(points)[:, axis]
        np.testing.assert_allclose(found, sign * rows @ vector, atol=1e-10)


def test_published_pca_is_not_centred():
    points = cloud(20, shift=5)
    assert np.all(projections.pca(points)[:, 0] > 0.5)
    np.testing.assert_allclose(projections.pca_centred(points).mean(axis=0), 0, atol=1e-12)


@pytest.mark.parametrize("method", ["pca", "pca_centred"])
def test_pca_does_not_see_a_rotation_but_for_signs(method):
    points = cloud(20, shift=1)
    rotation, _ = np.linalg.qr(np.random.default_rng(2).normal(size=(8, 8)))
    found, again = (getattr(projections, method)(one) for one in (points, points @ rotation))
    np.testing.assert_allclose(np.abs(found), np.abs(again), atol=1e-10)


def test_a_cloud_on_one_line_has_no_second_component():
    places = projections.pca(sphere.project(np.array([[1.0], [2], [-1], [3], [-2]])))
    np.testing.assert_allclose(places, [[1, 0], [1, 0], [-1, 0], [1, 0], [-1, 0]], atol=1e-12)


# --- what is drawn


@pytest.mark.parametrize(
    "last, layers", [(36, [3, 22, 36]), (30, [2, 18, 30]), (6, [0, 4, 6]), (1, [0, 1]), (0, [0])]
)
def test_three_layers_are_drawn_or_fewer_of_a_flat_model(last, layers):
    assert projections.drawn_layers(last) == layers


# --- t-SNE and UMAP


@pytest.mark.parametrize("method", FITTED)
def test_neighbours_stay_neighbours(method):
    points, first = groups()
    places = getattr(projections, method)(points)
    middles = np.array([places[first].mean(axis=0), places[~first].mean(axis=0)])
    nearest = np.linalg.norm(places[:, None] - middles, axis=2).argmin(axis=1)
    assert np.array_equal(nearest == 0, first)


@pytest.mark.parametrize("method", FITTED)
def test_equal_seeds_give_equal_places_and_other_seeds_others(method):
    points = cloud(20)
    embed = getattr(projections, method)
    assert embed(points, seed=1).tobytes() == embed(points, seed=1).tobytes()
    if method == "umap":  # t-SNE from PCA draws nothing
        assert not np.array_equal(embed(points, seed=1), embed(points, seed=2))


@pytest.mark.parametrize("method", FITTED)
def test_only_directions_count(method):
    points = cloud(20)
    mirrored = points * np.where(np.arange(8) % 2, -1.0, 1.0)  # exact: signs alone change
    distances = [
        np.linalg.norm(places[:, None] - places, axis=2)
        for places in (getattr(projections, method)(one) for one in (points, mirrored))
    ]
    assert np.corrcoef(*map(np.ravel, distances))[0, 1] > 0.9


@pytest.mark.parametrize("method", FITTED)
def test_a_start_is_taken(method):
    points = cloud(20)
    embed = getattr(projections, method)
    assert not np.array_equal(embed(points, before=projections.pca(points)[::-1]), embed(points))


def test_umap_lies_around_the_origin():
    np.testing.assert_allclose(projections.umap(cloud(20)).mean(axis=0), 0, atol=1e-6)


# --- few tokens, equal tokens, tokens without direction


@pytest.mark.parametrize("method", EVERY)
@pytest.mark.parametrize("tokens", [1, 2, 3, 4])
def test_fewer_than_five_tokens_have_no_picture(method, tokens):
    places = getattr(projections, method)(cloud(tokens))
    assert places.shape == (tokens, 2)
    assert np.isnan(places).all()


@pytest.mark.parametrize("method", EVERY)
@pytest.mark.parametrize("tokens", [5, 15, 16])
def test_five_tokens_are_enough(method, tokens):
    places = getattr(projections, method)(cloud(tokens))
    assert places.shape == (tokens, 2)
    assert np.isfinite(places).all()
    assert len(np.unique(places, axis=0)) == tokens


@pytest.mark.parametrize("method", EVERY)
def test_equal_tokens_lie_in_one_place(method):
    points = np.repeat(cloud(1), 20, axis=0)
    # Not equal to the last bit: states are float32.
    points = sphere.project(points + 1e-8 * np.random.default_rng(0).normal(size=points.shape))
    places = getattr(projections, method)(points)
    assert np.ptp(places, axis=0).max() < 1e-6


@pytest.mark.parametrize("method", EVERY)
def test_a_token_without_direction_has_no_place_and_moves_no_other(method):
    points = cloud(20)
    holed = np.insert(points, 7, np.nan, axis=0)
    places = getattr(projections, method)(holed)
    assert np.isnan(places[7]).all()
    assert np.array_equal(np.delete(places, 7, axis=0), getattr(projections, method)(points))


@pytest.mark.parametrize("method", FITTED)
def test_a_start_that_tells_nothing_is_not_taken(method):
    points = cloud(20)
    embed = getattr(projections, method)
    for useless in (np.zeros((20, 2)), np.full((20, 2), np.nan)):
        assert np.array_equal(embed(points, before=useless), embed(points))


@pytest.mark.parametrize("method", FITTED)
def test_a_token_that_had_no_direction_before_is_placed(method):
    points = cloud(20)
    before = projections.pca(points)
    before[3] = np.nan
    assert np.isfinite(getattr(projections, method)(points, before=before)).all()


# --- alignment


@pytest.mark.parametrize("seed", range(5))
def test_no_other_rotation_or_reflection_is_nearer(seed):
    random = np.random.default_rng(seed)
    places, before = random.normal(size=(2, 12, 2))
    nearest = min(
        np.sum((places @ turned(angle, mirrored) - before) ** 2)
        for angle in np.linspace(0, 2 * np.pi, 2001)
        for mirrored in (False, True)
    )
    aligned = projections.align(places, before)
    found = np.sum((aligned - before) ** 2)
    assert found <= nearest + 1e-9
    assert found == pytest.approx(nearest, rel=1e-4)
    np.testing.assert_allclose(aligned @ aligned.T, places @ places.T, atol=1e-10)


@pytest.mark.parametrize("mirrored", [False, True])
def test_a_turned_picture_is_turned_back(mirrored):
    places = np.random.default_rng(0).normal(size=(10, 2))
    places[4] = np.nan
    np.testing.assert_allclose(
        projections.align(places @ turned(1.0, mirrored), places), places, atol=1e-12
    )


def test_a_picture_is_not_scaled():
    places = np.random.default_rng(0).normal(size=(10, 2))
    np.testing.assert_allclose(projections.align(3 * places, places), 3 * places, atol=1e-12)


def test_every_method_follows_the_layer_before():
    points, later = cloud(20), cloud(20, seed=0, shift=0.3)
    before = projections.project(points)
    assert tuple(before) == projections.METHODS
    before = {name: places @ turned(2.0, mirrored=True) for name, places in before.items()}
    found = projections.project(later, before=before)
    for name, alone in projections.project(later).items():
        far = [np.sum((one - before[name]) ** 2) for one in (found[name], alone)]
        assert far[0] < far[1], name
        nearest = projections.align(found[name], before[name])
        np.testing.assert_allclose(found[name], nearest, atol=1e-9, err_msg=name)


def test_the_constants_are_handed_on(monkeypatch):
    called = {}
    for name in FITTED:
        monkeypatch.setattr(
            projections, name, lambda *given, name=name: called.setdefault(name, given[1:])
        )
    projections.project(cloud(6), perplexity=7, neighbours=3, seed=9)
    assert called == {"tsne": (7, 9, None), "umap": (3, 9, None)}
