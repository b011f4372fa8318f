"""Clusters: cosine distances and HDBSCAN labels, against loops and scikit-learn's HDBSCAN."""

import os
import subprocess
import sys
from functools import partial
from unittest.mock import patch

import numpy as np
import pytest
from hdbscan import HDBSCAN
from hypothesis import given
from hypothesis import strategies as st
from sklearn import cluster
from sklearn.metrics import adjusted_rand_score

from tokensphere import clusters, sphere

# An inner product of unit vectors in float64, summed in another order.
ROUNDING = 1e-14


def partition(labels):
    """The clusters as sets of tokens: what they are numbered does not matter."""
    return {frozenset(np.flatnonzero(labels == label)) for label in set(labels) - {-1}}


KINDS = ("random", "clumps", "repeated", "grid")


def draw(seed):
    """Draw tokens: generic ones, clumps, repeated tokens, and vectors of -1, 0 and 1."""
    random = np.random.default_rng(seed)
    tokens, width = int(random.integers(4, 60)), int(random.integers(2, 16))
    match KINDS[seed % len(KINDS)]:
        case "random":
            return random.normal(size=(tokens, width))
        case "clumps":
            centres = random.normal(size=(5, width))[random.integers(5, size=tokens)]
            return centres + 0.1 * random.normal(size=(tokens, width))
        case "repeated":
            kinds = max(3, tokens // 3)
            return random.normal(size=(kinds, width))[random.integers(kinds, size=tokens)]
        case _:
            states = random.integers(-1, 2, size=(tokens, width)).astype(float)
            states[~states.any(axis=1), 0] = 1
            return states


def points_of(seed):
    return sphere.project(draw(seed))


def tight(centres, each=4, spread=1e-3, seed=0):
    """Tight clusters around centres."""
    random = np.random.default_rng(seed)
    centres = np.repeat(np.asarray(centres, dtype=float), each, axis=0)
    return sphere.project(centres + spread * random.normal(size=centres.shape))


# --- distances


@pytest.mark.parametrize("seed", range(8))
def test_distances_are_one_minus_the_cosine_of_each_pair(seed):
    states = draw(seed)
    expected = [
        [0.0 if i == j else 1 - x @ y / np.linalg.norm(x) / np.linalg.norm(y)
         for j, y in enumerate(states)]
        for i, x in enumerate(states)
    ]  # fmt: skip
    found = clusters.cosine_distances(sphere.project(states))
    assert found == pytest.approx(np.array(expected), abs=ROUNDING)


@pytest.mark.parametrize("seed", range(8))
def test_distances_are_symmetric_not_negative_and_zero_on_the_diagonal(seed):
    found = clusters.cosine_distances(points_of(seed))
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, found.T)
    assert (np.diagonal(found) == 0).all()
    assert found.min() >= 0
    assert found.max() <= 2


def test_opposite_tokens_are_2_apart_and_coincident_ones_0():
    points = sphere.project([[0.3, 0.4], [-3.0, -4.0], [30.0, 40.0]])
    expected = [[0, 2, 0], [2, 0, 2], [0, 2, 0]]
    assert clusters.cosine_distances(points) == pytest.approx(np.array(expected), abs=ROUNDING)


def test_distances_of_tokens_that_nearly_coincide_keep_their_digits():
    # In float32 the distance 5e-9 would be 0 or 6e-8.
    points = sphere.project([[1.0, 0.0], [1.0, 1e-4]])
    assert clusters.cosine_distances(points)[0, 1] == pytest.approx(5e-9, rel=1e-6)


# --- labels, beside scikit-learn's

SEEDS = range(200)


def fits(points):
    """HDBSCAN of both packages on the same distances; scikit-learn counts a token itself.

    Merges of equal height have no order of their own, and both packages sort them with NumPy's
    default sort, which orders ties by chance: here they keep theirs.
    """
    distances = clusters.cosine_distances(points)
    theirs = cluster.HDBSCAN(min_cluster_size=2, min_samples=3, metric="precomputed", copy=True)
    ours = HDBSCAN(min_cluster_size=2, metric="precomputed")
    with patch.object(np, "argsort", partial(np.argsort, kind="stable")):
        return ours.fit_predict(distances.copy()), theirs.fit_predict(distances.copy())


@pytest.mark.parametrize("seed", SEEDS)
def test_labels_are_those_of_both_packages(seed):
    points = points_of(seed)
    found, (ours, theirs) = clusters.hdbscan_labels(points), fits(points)
    np.testing.assert_array_equal(found, ours)
    assert partition(found) == partition(theirs)


@pytest.mark.parametrize("seed", range(4))
def test_the_points_are_left_as_they_were(seed):
    points = points_of(seed)
    copy = points.copy()
    clusters.hdbscan_labels(points)
    np.testing.assert_array_equal(points, copy)


@pytest.mark.parametrize("seed", range(4))
def test_labels_are_the_same_each_time(seed):
    points = points_of(seed)
    np.testing.assert_array_equal(clusters.hdbscan_labels(points), clusters.hdbscan_labels(points))


# --- labels of clear clouds


@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize("size", [2, 4])
def test_tight_clusters_far_apart_are_found(k, size):
    points = tight(np.eye(6)[:k], each=size + 2)
    labels = clusters.hdbscan_labels(points, size)
    groups = {frozenset(range(i * (size + 2), (i + 1) * (size + 2))) for i in range(k)}
    found = partition(labels)
    # At the smallest size a tight cluster may be split further, never across centres.
    assert all(any(one <= group for group in groups) for one in found)
    if size > 2:
        assert found == groups


def test_the_smallest_cluster_is_as_asked():
    points = tight(np.eye(4)[:3], each=4)
    assert len(partition(clusters.hdbscan_labels(points, 3))) == 3
    assert partition(clusters.hdbscan_labels(points, 5)) == set()


@given(st.integers(0, 10**6))
def test_clear_clusters_do_not_depend_on_the_order_of_tokens(seed):
    random = np.random.default_rng(seed)
    points = tight(np.eye(5)[:3], each=7, spread=0.05, seed=seed)
    order = random.permutation(len(points))
    once = partition(clusters.hdbscan_labels(points, 5))
    again = partition(clusters.hdbscan_labels(points[order], 5))
    assert {frozenset(order[list(one)]) for one in again} == once
    assert len(once) == 3


@given(st.integers(0, 10**6))
def test_clusters_do_not_depend_on_rotation_or_length(seed):
    random = np.random.default_rng(seed)
    points = tight(np.eye(5)[:3], each=7, spread=0.05, seed=seed)
    rotation, _ = np.linalg.qr(random.normal(size=(5, 5)))
    other = sphere.project(points @ rotation * 10.0 ** random.uniform(-3, 3, (len(points), 1)))
    once, again = (clusters.hdbscan_labels(one, 5) for one in (points, other))
    assert partition(once) == partition(again)


# --- poor clouds


@pytest.mark.parametrize("tokens", [1, 2, 3, 10])
def test_coincident_tokens_are_in_no_cluster(tokens):
    # One cloud is no cluster among others: HDBSCAN allows no single cluster by default.
    labels = clusters.hdbscan_labels(np.tile([0.6, 0.8], (tokens, 1)))
    assert labels.tolist() == [-1] * tokens


def test_no_token_at_all():
    assert clusters.hdbscan_labels(np.zeros((0, 3))).tolist() == []


def test_orthogonal_tokens_are_in_no_cluster():
    assert clusters.hdbscan_labels(np.eye(6)).tolist() == [-1] * 6


@pytest.mark.parametrize("where", [0, 5, 11])
def test_a_token_without_direction_is_in_no_cluster_and_moves_no_other(where):
    points = tight(np.eye(4)[:3])
    without = clusters.hdbscan_labels(points)
    labels = clusters.hdbscan_labels(np.insert(points, where, np.nan, axis=0))
    assert labels[where] == -1
    np.testing.assert_array_equal(np.delete(labels, where), without)
    assert set(without) - {-1}


def test_too_few_tokens_with_a_direction_are_in_no_cluster():
    points = np.full((6, 2), np.nan)
    points[:2] = [0.6, 0.8]
    assert clusters.hdbscan_labels(points).tolist() == [-1] * 6


def test_tokens_that_have_no_direction_at_all_are_in_no_cluster():
    points = sphere.project(np.zeros((4, 3)))
    assert clusters.hdbscan_labels(points).tolist() == [-1] * 4


# --- summaries


@pytest.mark.parametrize(
    "labels, count, clustered, largest",
    [
        ([0, 0, 1, 1, 1, -1, -1, -1], 2, 5, 3),
        ([-1, -1, -1], 0, 0, 0),
        ([0, 0, 0, 0], 1, 4, 4),
        ([-1], 0, 0, 0),
        ([2, 2, 0, 0, 1, 1, -1, 2], 3, 7, 3),
    ],
)
def test_a_summary_counts_clusters_and_their_members(labels, count, clustered, largest):
    n = len(labels)
    assert clusters.summarise(np.array(labels)) == {
        "n_tokens": n,
        "count": count,
        "membership": clustered / n,
        "largest": largest,
        "count_per_100_tokens": pytest.approx(100 * count / n, rel=1e-15),
    }


@pytest.mark.parametrize("seed", range(8))
def test_a_summary_of_real_labels_agrees_with_loops(seed):
    labels = clusters.hdbscan_labels(points_of(seed))
    found = partition(labels)
    row = clusters.summarise(labels)
    assert row["count"] == len(found)
    assert row["membership"] == sum(map(len, found)) / len(labels)
    assert row["largest"] == max(map(len, found), default=0)


# --- lengths


@pytest.mark.parametrize(
    "tokens, lengths",
    [
        (3, [3]),
        (63, [63]),
        (64, [64]),
        (65, [64, 65]),
        (128, [64, 128]),
        (264, [64, 128, 256, 264]),
        (512, [64, 128, 256, 512]),
        (1024, [64, 128, 256, 512, 1024]),
    ],
)
def test_clusters_are_counted_on_doubled_lengths_and_on_all_tokens(tokens, lengths):
    assert clusters.prefix_lengths(tokens) == lengths


# --- agreement of two layers

# Quotients of counts of pairs: two roundings.
EXACT = 1e-14


def twin_ari(one, two):
    """The share of pairs that both keep together, corrected for chance, over all pairs."""
    pairs = [(i, j) for i in range(len(one)) for j in range(i + 1, len(one))]
    first = [one[i] == one[j] for i, j in pairs]
    second = [two[i] == two[j] for i, j in pairs]
    both = sum(a and b for a, b in zip(first, second, strict=True))
    expected = sum(first) * sum(second) / len(pairs)
    most = (sum(first) + sum(second)) / 2
    return 1.0 if most == expected else (both - expected) / (most - expected)


def labels_of(seed, tokens=15):
    """Labels of two layers that agree on some tokens."""
    random = np.random.default_rng(seed)
    before = random.integers(-1, 3, tokens)
    return before, np.where(random.random(tokens) < 0.5, before, random.integers(-1, 4, tokens))


@pytest.mark.parametrize("seed", range(8))
def test_agreement_is_the_rand_index_of_all_tokens_and_of_those_clustered_in_both(seed):
    before, labels = labels_of(seed)
    both = [i for i in range(15) if before[i] >= 0 and labels[i] >= 0]
    assert clusters.agreement(before, labels) == {
        "label_ari": pytest.approx(twin_ari(before, labels), abs=EXACT),
        "label_ari_clustered": pytest.approx(twin_ari(before[both], labels[both]), abs=EXACT),
        "reason": "",
    }


@given(st.integers(0, 10**6))
def test_agreement_is_that_of_scikit_learn_to_the_last_bit(seed):
    random = np.random.default_rng(seed)
    one, two = random.integers(-1, random.integers(0, 5, 2)[:, None], (2, random.integers(2, 600)))
    assert clusters.agreement(one, two)["label_ari"] == adjusted_rand_score(one, two)


@given(st.integers(0, 10**6))
def test_agreement_depends_on_no_order_name_or_direction(seed):
    random = np.random.default_rng(seed)
    before, labels = labels_of(seed)
    order, names = random.permutation(15), np.append(random.permutation(9)[:4], -1)
    once = clusters.agreement(before, labels)
    for pair in ((names[before][order], labels[order]), (labels, before)):
        assert clusters.agreement(*pair) == {
            name: value if name == "reason" else pytest.approx(value, abs=EXACT, nan_ok=True)
            for name, value in once.items()
        }
    # Equal partitions agree wholly, whatever they are named.
    assert clusters.agreement(before, names[before])["label_ari"] == 1


def test_independent_partitions_agree_by_chance():
    random = np.random.default_rng(0)
    found = [clusters.agreement(*random.integers(-1, 4, (2, 60)))["label_ari"] for _ in range(200)]
    # The index of one such pair has a standard deviation of about .02, of the mean .0014.
    assert np.mean(found) == pytest.approx(0, abs=0.006)


def test_nothing_is_won_among_the_clustered_by_agreeing_on_who_is_not():
    before = np.array([0, 0, 1, 1] + [-1] * 12)
    labels = np.array([0, 1, 0, 1] + [-1] * 12)
    row = clusters.agreement(before, labels)
    # 66 unclustered pairs; of 120, 68 are together in each, 66 in both.
    assert row["label_ari"] == pytest.approx((66 - 68**2 / 120) / (68 - 68**2 / 120), abs=EXACT)
    # Among four tokens: 2 of 6 pairs in each, none in both.
    assert row["label_ari_clustered"] == pytest.approx((0 - 4 / 6) / (2 - 4 / 6), abs=EXACT)


@pytest.mark.parametrize(
    "before, labels, every, clustered",
    [
        ([0], [0], None, None),
        ([-1], [0], None, None),
        ([0, 0], [1, 1], 1, 1),
        ([0, 0], [0, 1], 0, 0),
        ([-1, -1, -1], [-1, -1, -1], 1, None),  # nobody is clustered
        ([0, 0, 0], [-1, -1, -1], 1, None),  # one group in both
        ([0, 0, -1], [-1, 0, 0], -0.5, None),  # one token in both
        ([0, 0, 0, 0], [3, 3, 3, 3], 1, 1),  # every token in one cluster
        ([0, 1, 2, 3], [1, 2, 3, 0], 1, 1),  # every token alone
        ([0, 0, 0, 0], [0, 1, 2, 3], 0, 0),
        ([0, 0, -1, -1], [-1, -1, 0, 0], 1, None),  # the same two groups
    ],
)
def test_agreement_of_poor_labels(before, labels, every, clustered):
    row = clusters.agreement(np.array(before), np.array(labels))
    expected = [np.nan if value is None else value for value in (every, clustered)]
    found = [row["label_ari"], row["label_ari_clustered"]]
    assert found == pytest.approx(expected, abs=EXACT, nan_ok=True)
    undefined = "no two tokens are clustered in both layers"
    assert row["reason"] == ("" if clustered is not None else undefined)


LABELS_OF_MANY = """
import os
import subprocess
import sys
from functools import partial
from unittest.mock import patch

import numpy as np
from tokensphere import clusters, sphere
for seed in range(12):
    points = sphere.project(np.random.default_rng(seed).standard_normal((80, 4)))
    print(*clusters.hdbscan_labels(points))
"""


def labels_of_many(root, **environment):
    done = subprocess.run(
        [sys.executable, "-c", LABELS_OF_MANY],
        env=os.environ | {"PYTHONPATH": str(root / "scripts")} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_ties_are_broken_the_same_way_whatever_the_processor(root):
    from numpy._core import _multiarray_umath as cpu

    present = [name for name in cpu.__cpu_dispatch__ if cpu.__cpu_features__.get(name)]
    if not present:
        pytest.skip("NumPy uses no optional processor feature here: there is nothing to switch off")
    plain = labels_of_many(root, NPY_DISABLE_CPU_FEATURES=" ".join(present))
    assert plain == labels_of_many(root)
