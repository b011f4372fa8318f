"""k-means and average linkage, against loops, scikit-learn, clear clouds and poor ones."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import cluster
from threadpoolctl import threadpool_limits

from tokensphere import clusters, partitions, sphere

# Means of a few dozen cosine distances, in another order.
ROUNDING = 1e-12

THRESHOLDS = np.linspace(0.05, 0.6, 12)  # as published


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Keep k-means to one thread: where the cores are busy, several wait for each other."""
    with threadpool_limits(1):
        yield


@pytest.fixture(autouse=True)
def no_warning():
    """Let no warning escape, of any package."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    assert [str(warning.message) for warning in caught] == []


def points_of(seed, tokens=14, width=4):
    random = np.random.default_rng(seed)
    return sphere.project(random.normal(size=(tokens, width)) + random.normal(size=width))


def tight(k, each=4, spread=0.02, seed=0):
    """Tight clusters around orthogonal centres, in turn."""
    random = np.random.default_rng(seed)
    centres = np.tile(np.eye(k + 1)[:k], (each, 1))
    return sphere.project(centres + spread * random.normal(size=centres.shape))


def lengths(tokens, seed=0):
    return 10.0 ** np.random.default_rng(seed).uniform(-3, 3, (tokens, 1))


def approx(expected):
    return pytest.approx(expected, abs=ROUNDING, rel=0, nan_ok=True)


def undefined(row):
    return {name for name, value in row.items() if isinstance(value, float) and value != value}


def silhouettes(points, **options):
    return {row["k"]: row["silhouette"] for row in partitions.kmeans(points, **options)}


def counts(points, thresholds=THRESHOLDS):
    return [row["count"] for row in partitions.agglomerative(points, thresholds)]


# --- twins: the definitions, in loops


def twin_silhouette(points, labels):
    """Rousseeuw's s(i) = (b - a) / max(a, b), 0 for a token alone; its mean."""
    total = 0.0
    for i, x in enumerate(points):
        means = {}
        for label in set(labels):
            others = [1 - x @ y for j, y in enumerate(points) if labels[j] == label and j != i]
            means[label] = sum(others) / len(others) if others else None
        a = means.pop(labels[i])
        b = min(means.values())
        total += 0 if a is None else (b - a) / max(a, b)
    return total / len(points)


def twin_counts(points, thresholds):
    """Join the two clusters of the smallest mean distance until it passes the threshold."""
    found = []
    for threshold in thresholds:
        groups = [[i] for i in range(len(points))]
        while len(groups) > 1:
            mean, p, q = min(
                (np.mean([1 - points[i] @ points[j] for i in groups[p] for j in groups[q]]), p, q)
                for p in range(len(groups))
                for q in range(p + 1, len(groups))
            )
            if mean > threshold:
                break
            groups[p] += groups.pop(q)
        found.append(len(groups))
    return found


@pytest.mark.parametrize("starts, seed", [(3, 42), (1, 7)])
@pytest.mark.parametrize("cloud", range(4))
def test_each_k_has_the_cosine_silhouette_of_its_tightest_start(cloud, starts, seed):
    points = points_of(cloud)
    expected = []
    for k in range(2, 10):
        fits = cluster.KMeans(k, n_init=starts, random_state=seed).fit_predict(points)
        expected.append(twin_silhouette(points, fits.tolist()))
    best = max(range(8), key=lambda index: expected[index])
    assert partitions.kmeans(points, starts=starts, seed=seed) == [
        {"n_tokens": 14, "k": k, "silhouette": approx(value), "best": k == best + 2, "reason": ""}
        for k, value in zip(range(2, 10), expected, strict=True)
    ]


@pytest.mark.parametrize("seed", range(4))
def test_the_defaults_are_the_published_ones(seed):
    points = points_of(seed)
    assert partitions.kmeans(points) == partitions.kmeans(points, largest=9, starts=3, seed=42)


@pytest.mark.parametrize("seed", range(4))
def test_counts_are_those_of_average_linkage(seed):
    points = points_of(seed)
    found = counts(points)
    assert found == twin_counts(points, THRESHOLDS)
    assert len(set(found)) > 3
    for threshold, count in zip(THRESHOLDS, found, strict=True):
        model = cluster.AgglomerativeClustering(
            n_clusters=None, metric="precomputed", linkage="average", distance_threshold=threshold
        )
        assert model.fit(clusters.cosine_distances(points)).n_clusters_ == count


def test_rows_name_their_threshold():
    assert partitions.agglomerative(np.eye(3), [0.5, 1]) == [
        {"n_tokens": 3, "threshold": 0.5, "count": 3, "reason": ""},
        {"n_tokens": 3, "threshold": 1.0, "count": 1, "reason": ""},
    ]


# --- invariances


@given(st.integers(0, 10**6))
@settings(max_examples=8)
def test_no_partition_depends_on_rotation_length_or_order(seed):
    random = np.random.default_rng(seed)
    clear, noisy = tight(3, seed=seed), points_of(seed)
    for points in (clear, noisy):
        rotation, _ = np.linalg.qr(random.normal(size=(4, 4)))
        moved = points @ rotation * lengths(len(points), seed)
        other = sphere.project(moved)[random.permutation(len(points))]
        assert counts(other) == counts(points)
        if points is clear:  # elsewhere the starts, and so the partition, follow the order
            assert silhouettes(other)[3] == approx(silhouettes(points)[3])


@pytest.mark.parametrize("seed", range(3))
def test_the_same_points_have_the_same_partition_each_time(seed):
    points = points_of(seed)
    assert partitions.kmeans(points) == partitions.kmeans(points)


# --- clear clouds


@pytest.mark.parametrize("k", [2, 3, 5])
def test_tight_clusters_at_right_angles_are_found(k):
    points = tight(k)
    (best,) = (row["k"] for row in partitions.kmeans(points) if row["best"])
    assert best == k
    # Distances within are about 1e-3, between about 1.
    assert silhouettes(points)[k] > 0.99
    assert counts(points) == [k] * 12


@pytest.mark.parametrize(
    "tokens, ks",
    [(3, [2]), (4, [2, 3]), (9, [*range(2, 9)]), (10, [*range(2, 10)]), (20, [*range(2, 10)])],
)
def test_k_runs_from_2_to_9_or_one_less_than_the_tokens(tokens, ks):
    assert [*silhouettes(points_of(0, tokens))] == ks
    assert [*silhouettes(points_of(0, tokens), largest=4)] == [k for k in ks if k <= 4]


def test_clusters_are_joined_up_to_the_threshold():
    points = sphere.project([[1.0, 0.0], [0.6, 0.8]])
    height = clusters.cosine_distances(points)[0, 1]
    assert counts(points, [np.nextafter(height, 0), height]) == [2, 1]


def test_linkage_goes_by_the_mean_distance():
    # A pair, and a third at angles 40 and 60 degrees: single linkage joins it at .234, complete
    # at .5, the average at .367.
    angles = np.radians([0.0, 20.0, 60.0])
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    mean = 1 - (math.cos(angles[2]) + math.cos(angles[2] - angles[1])) / 2
    assert counts(points, [mean - 1e-9, mean + 1e-9]) == [2, 1]


# --- poor clouds


@pytest.mark.parametrize("tokens", [1, 2])
def test_fewer_than_three_tokens_have_no_k(tokens):
    (row,) = partitions.kmeans(np.eye(2)[:tokens])
    assert (row["k"], row["best"], row["n_tokens"]) == (0, False, tokens)
    assert undefined(row) == {"silhouette"}
    assert row["reason"] == "fewer than three tokens: there is no k from 2 to n - 1"


def test_one_token_has_nothing_to_join_and_two_may_be_joined():
    for row in partitions.agglomerative(np.eye(2)[:1], THRESHOLDS):
        assert undefined(row) == {"count"}
        assert row["reason"] == "fewer than two tokens: there is no pair"
    assert counts(np.eye(2)) == [2] * 12
    assert counts(np.eye(2)[[0, 0]]) == [1] * 12


def test_three_tokens_have_one_k():
    # Two 1e-2 apart and one at a right angle: (b - a) / b = 1 - a, twice, and 0 for the one alone.
    points = sphere.project([[1.0, 0.0], [1.0, 0.01], [0.0, 1.0]])
    (row,) = partitions.kmeans(points)
    assert (row["k"], row["best"], row["reason"]) == (2, True, "")
    assert row["silhouette"] == approx(twin_silhouette(points, [0, 0, 1]))


@pytest.mark.parametrize("tokens", [3, 5, 20])
def test_coincident_tokens_have_no_partition_whatever_their_last_bits(tokens):
    points = sphere.project(np.tile([0.3, -2.0, 1.0], (tokens, 1)) * lengths(tokens))
    rows = partitions.kmeans(points)
    assert [row["k"] for row in rows] == [*range(2, min(9, tokens - 1) + 1)]
    for row in rows:
        assert undefined(row) == {"silhouette"}
        assert row["reason"] == "k-means found fewer than k distinct groups: points coincide"
        assert not row["best"]
    assert counts(points) == [1] * 12


@pytest.mark.parametrize("seed", range(6))
def test_repeated_tokens_have_no_more_groups_than_kinds_whatever_their_last_bits(seed):
    kinds = np.random.default_rng(seed).normal(size=(3, 7))[np.arange(12) % 3]
    rows = partitions.kmeans(sphere.project(kinds * lengths(12, seed)))
    assert [row["k"] for row in rows if not undefined(row)] == [2, 3]
    assert [row["k"] for row in rows if row["best"]] == [3]
    assert rows[1]["silhouette"] == approx(1)
    assert all(bool(undefined(row)) == bool(row["reason"]) for row in rows)


def test_of_equal_silhouettes_the_smaller_k_is_best(monkeypatch):
    monkeypatch.setattr("sklearn.metrics.silhouette_score", lambda *_, **__: 0.5)
    assert [row["k"] for row in partitions.kmeans(points_of(0)) if row["best"]] == [2]


def test_a_token_without_direction_leaves_the_partitions_undefined():
    points = sphere.project([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    (row,) = partitions.kmeans(points)
    assert (row["k"], row["best"], undefined(row)) == (0, False, {"silhouette"})
    assert row["reason"] == "a token's vector is zero: it has no direction"
    for row in partitions.agglomerative(points, THRESHOLDS):
        assert undefined(row) == {"count"}
        assert row["reason"] == "a token's vector is zero: it has no direction"


def test_the_points_are_left_as_they_were():
    points = points_of(0)
    copy = points.copy()
    partitions.kmeans(points)
    partitions.agglomerative(points, THRESHOLDS)
    np.testing.assert_array_equal(points, copy)
