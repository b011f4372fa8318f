"""The Laplacian and its gaps, against loops, SciPy, closed forms, known values and poor clouds."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csgraph

from tokensphere import laplacian, sphere

# An eigenvalue of a symmetric matrix of at most 20 tokens and norm 2 is right to about 1e-15.
ROUNDING = 1e-12

LOOPS = [False, True]


def cloud(seed, tokens=9, width=5):
    """Draw token vectors of very different lengths."""
    random = np.random.default_rng(seed)
    return random.normal(size=(tokens, width)) * 10.0 ** random.uniform(-3, 3, (tokens, 1))


def gram(states):
    return sphere.gram(sphere.project(states))


def approx(expected):
    return pytest.approx(expected, rel=ROUNDING, abs=ROUNDING, nan_ok=True)


def blocks(k, size, cosine):
    """The Gram matrix of k clusters of coincident tokens with one cosine between clusters."""
    centres = np.full((k, k), cosine) + (1 - cosine) * np.eye(k)
    return np.kron(centres, np.ones((size, size)))


# --- twins: the definitions, in loops


def twin_laplacian(weights, self_loops):
    n = len(weights)
    kept = [[w if self_loops or i != j else 0.0 for j, w in enumerate(row)]
            for i, row in enumerate(weights)]  # fmt: skip
    degrees = [sum(row) for row in kept]
    return [
        [
            (i == j) - kept[i][j] / math.sqrt(degrees[i] * degrees[j])
            if degrees[i] > 0 and degrees[j] > 0
            else 0.0
            for j in range(n)
        ]
        for i in range(n)
    ]


def twin_spectrum(matrix, self_loops):
    """Eigenvalues of the random walk I - D^-1 W: the same, by another route."""
    weights = np.maximum(matrix, 0)
    if not self_loops:
        weights = weights - np.diag(np.diag(weights))
    walk = weights / weights.sum(axis=1, keepdims=True)
    return np.sort(1 - np.linalg.eigvals(walk).real)


def twin_gaps(eigenvalues):
    # Gaps of small graphs often tie (0, 1, 2 of a path): to 10 digits they are equal.
    sizes = [
        (round(eigenvalues[k - 1] - eigenvalues[k], 10), k) for k in range(1, len(eigenvalues))
    ]
    return [k for _, k in sorted(sizes)[:2]]


@pytest.mark.parametrize("self_loops", LOOPS)
@pytest.mark.parametrize("seed", range(4))
def test_the_laplacian_is_scaled_by_the_roots_of_both_degrees(seed, self_loops):
    weights = np.maximum(gram(cloud(seed)), 0)
    found = laplacian.normalised(weights, self_loops)
    assert found == approx(np.array(twin_laplacian(weights, self_loops)))


@pytest.mark.parametrize("isolated", [None, 0, 4])
@pytest.mark.parametrize("seed", range(4))
def test_without_self_loops_the_laplacian_is_scipys(seed, isolated):
    weights = np.maximum(gram(cloud(seed)), 0)
    if isolated is not None:
        weights[isolated] = weights[:, isolated] = 0
    assert laplacian.normalised(weights, False) == approx(csgraph.laplacian(weights, normed=True))


@pytest.mark.parametrize("self_loops", LOOPS)
@pytest.mark.parametrize("seed", range(4))
def test_the_spectrum_is_that_of_the_random_walk_on_positive_products(seed, self_loops):
    matrix = gram(cloud(seed))
    assert matrix.min() < 0
    assert laplacian.spectrum(matrix, self_loops) == approx(twin_spectrum(matrix, self_loops))


@pytest.mark.parametrize("seed", range(8))
def test_gaps_are_ranked_by_size(seed):
    eigenvalues = np.sort(np.random.default_rng(seed).uniform(0, 2, 8))
    assert laplacian.gaps(eigenvalues) == twin_gaps(eigenvalues)


@pytest.mark.parametrize("seed", range(4))
def test_a_summary_puts_the_cloud_beside_its_clusters(seed):
    matrix = gram(cloud(seed, tokens=12))
    labels = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, -1, -1, -1])
    dropped, kept = (twin_spectrum(matrix, self_loops) for self_loops in LOOPS)
    count, second = twin_gaps(dropped)
    inside = [
        twin_gaps(np.linalg.eigvalsh(csgraph.laplacian(np.maximum(part, 0), normed=True)))
        for part in (matrix[:4, :4], matrix[4:7, 4:7])
    ]
    assert laplacian.summarise(matrix, labels) == {
        "n_tokens": 12,
        "eigengap": count,
        "gap": approx(dropped[count] - dropped[count - 1]),
        "second_gap": second,
        "eigengap_kept": twin_gaps(kept)[0],
        "within": approx((inside[0][0] + inside[1][0]) / 2),
        "within_clusters": 2,
        "reason": "",
    }


# --- invariances


@given(st.integers(0, 10**6))
def test_a_summary_does_not_depend_on_rotation_length_order_or_names(seed):
    random = np.random.default_rng(seed)
    states, labels = cloud(seed, 10, 4), random.integers(-1, 2, 10)
    rotation, _ = np.linalg.qr(random.normal(size=(4, 4)))
    order = random.permutation(10)
    other = (states @ rotation * 10.0 ** random.uniform(-3, 3, (10, 1)))[order]
    renamed = np.array([7, 3, -1])[labels[order]]  # -1 is the last one
    once, again = (
        laplacian.summarise(gram(states), labels),
        laplacian.summarise(gram(other), renamed),
    )
    assert again == {
        name: value if name == "reason" else approx(value) for name, value in once.items()
    }


@given(st.integers(0, 10**6))
def test_eigenvalues_lie_between_0_and_2_and_start_at_0(seed):
    for self_loops in LOOPS:
        found = laplacian.spectrum(gram(cloud(seed)), self_loops)
        assert (np.diff(found) >= 0).all()
        assert found[0] == approx(0)
        assert found[-1] <= 2 + ROUNDING


def test_negative_products_weigh_nothing_and_a_matrix_that_is_not_symmetric_is_made_so():
    matrix = np.array([[1, 0.8, -0.9], [0.2, 1, 0.4], [-0.9, 0.0, 1]])
    symmetric = np.array([[1, 0.5, 0], [0.5, 1, 0.2], [0, 0.2, 1]])
    for self_loops in LOOPS:
        found = laplacian.spectrum(matrix, self_loops)
        assert found == approx(twin_spectrum(symmetric, self_loops))


# --- closed forms and known values


def second(matrix):
    """The Fiedler value with self loops kept, and dropped."""
    return [np.linalg.eigvalsh(laplacian.normalised(matrix, loops))[1] for loops in (True, False)]


def test_uniform_attention_has_a_known_fiedler_value(reference):
    entry = reference("fiedler_uniform_bidir")
    n = entry["inputs"]["n"]
    found = second(np.full((n, n), 1 / n))
    assert found == pytest.approx(entry["value"], abs=entry["tolerance"])


def test_two_blocks_with_a_leak_have_a_known_fiedler_value(reference):
    entry = reference("fiedler_two_blocks")
    m, leak = entry["inputs"]["m"], entry["inputs"]["eps"]
    found = second(np.kron([[1 - leak, leak], [leak, 1 - leak]], np.ones((m, m)) / m))
    assert found == pytest.approx(entry["value"], abs=entry["tolerance"])


def test_equally_correlated_tokens_have_a_known_fiedler_value(reference):
    entry = reference("fiedler_equicorr_r0.2")
    n, r = entry["inputs"]["n"], entry["inputs"]["r"]
    found = second(blocks(n, 1, r))
    assert found == pytest.approx(entry["value"], abs=entry["tolerance"])
    for other in (0.5, 0.99):  # dropped, it is blind to the correlation
        kept = n * other / (1 + (n - 1) * other)
        assert second(blocks(n, 1, other)) == approx([kept, n / (n - 1)])


@pytest.mark.parametrize("name, self_loops", [("", False), ("_kept", True)])
def test_coincident_clusters_have_as_many_zeros_and_then_the_gap(reference, name, self_loops):
    entry = reference(f"eigengap_4blocks{name}")
    matrix = blocks(4, 5, 0)
    assert entry["inputs"]["sizes"] == [5] * 4
    found = laplacian.spectrum(matrix, self_loops)
    assert found == pytest.approx(entry["value"], abs=entry["tolerance"])
    assert laplacian.eigengap(matrix, self_loops) == 4


def test_leaky_clusters_have_a_known_spectrum_whose_largest_gap_is_the_first(reference):
    entry = reference("eigengap_leaky_blocks_dropped")
    matrix = blocks(*(entry["inputs"][name] for name in ("k", "m", "c")))
    found = laplacian.spectrum(matrix, False)
    assert found == pytest.approx(entry["value"], abs=entry["tolerance"])
    assert laplacian.gaps(found) == [1, 4]
    kept = laplacian.spectrum(matrix, True)
    assert np.diff(kept)[[0, 3]] == pytest.approx([12 / 19, 7 / 19], abs=1e-12)


@pytest.mark.parametrize("self_loops", LOOPS)
@pytest.mark.parametrize("size", [2, 5])
@pytest.mark.parametrize("k", [2, 3, 4, 7])
def test_the_eigengap_fails_once_clusters_share_a_cosine_of_1_over_k_plus_1(k, size, self_loops):
    # The gap at k is (1 - c) / (1 + (k-1) c), that at 1 k c / (1 + (k-1) c), both times m / (m -
    # 1 / (1 + (k-1) c)) without loops: on both sides by 1e-6, far above rounding and the 1e-9.
    for shift, count in ((-1e-6, k), (1e-6, 1)):
        matrix = blocks(k, size, 1 / (k + 1) + shift)
        assert laplacian.eigengap(matrix, self_loops) == count
        assert set(laplacian.gaps(laplacian.spectrum(matrix, self_loops))) == {1, k}
    # At 1 / (k + 1) itself both gaps are equal: the smaller count.
    assert laplacian.eigengap(blocks(k, size, 1 / (k + 1)), self_loops) == 1


def test_self_loops_are_dropped_unless_asked_for():
    # A leaky pair beside a single token: with its loop kept, the token is its own component.
    matrix = np.array([[1, 0.1, 0], [0.1, 1, 0], [0, 0, 1]])
    # Dropped: 0, 0, 2. Kept: 0, 0, 2/11.
    assert laplacian.spectrum(matrix, False) == approx([0, 0, 2])
    assert laplacian.spectrum(matrix, True) == approx([0, 0, 2 / 11])
    matrix = blocks(3, 1, 0.2) + 0.1 * np.diag([1, 1], 1) + 0.1 * np.diag([1, 1], -1)
    assert laplacian.eigengap(matrix) == laplacian.eigengap(matrix, False)


def test_the_whole_cloud_and_its_clusters_may_count_differently():
    # Two orthogonal trios under one label, a tight trio under another, a pair and a lone token.
    matrix = blocks(4, 3, 0)
    labels = [0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, -1]
    row = laplacian.summarise(matrix, labels)
    assert (row["eigengap"], row["eigengap_kept"], row["second_gap"]) == (4, 4, 1)
    assert row["gap"] == approx(3 / 2)
    assert (row["within"], row["within_clusters"]) == (1.5, 2)


# --- gaps that tie


@pytest.mark.parametrize(
    "eigenvalues, counts",
    [
        ([0, 0, 1, 1, 3], [4, 2]),
        ([0, 1, 2, 3], [1, 2]),
        ([0, 1, 1, 2], [1, 3]),
        ([0, 1, 2 + 5e-10], [1, 2]),  # rounding alone
        ([0, 1, 2 + 2e-9], [2, 1]),
        ([0, 0, 0, 0], [1, 2]),
        ([0, 0], [1]),
        ([0, 2], [1]),
        ([0], []),
    ],
)
def test_of_equal_gaps_the_smaller_count_stands_first(eigenvalues, counts):
    assert laplacian.gaps(np.array(eigenvalues, dtype=float)) == counts


# --- poor clouds


def undefined(row):
    return {name for name, value in row.items() if isinstance(value, float) and value != value}


NO_CLUSTER = "no cluster has 3 tokens"


def test_one_token_has_no_gap():
    row = laplacian.summarise(np.ones((1, 1)), [-1])
    assert undefined(row) == {"eigengap", "gap", "second_gap", "eigengap_kept", "within"}
    assert row["reason"] == "fewer than two tokens: there is no pair"
    assert row["within_clusters"] == 0


@pytest.mark.parametrize("cosine, gap", [(1, 2), (0.5, 2), (0, 0), (-1, 0)])
def test_two_tokens_have_one_gap_and_count_as_one_cluster(cosine, gap):
    row = laplacian.summarise(np.array([[1.0, cosine], [cosine, 1]]), [0, 0])
    assert (row["eigengap"], row["eigengap_kept"], row["within_clusters"]) == (1, 1, 0)
    assert row["gap"] == approx(gap)
    assert undefined(row) == {"second_gap", "within"}
    assert row["reason"] == f"two tokens: there is one gap; {NO_CLUSTER}"


def test_three_tokens_have_two_gaps():
    row = laplacian.summarise(np.array([[1.0, 0.9, 0], [0.9, 1, 0], [0, 0, 1]]), [0, 0, 0])
    assert (row["eigengap"], row["second_gap"]) == (2, 1)
    assert (row["within"], row["within_clusters"], row["reason"]) == (2, 1, "")


@pytest.mark.parametrize("tokens", [3, 5, 20])
def test_coincident_tokens_are_one_cluster(tokens):
    row = laplacian.summarise(gram(np.full((tokens, 3), 0.7)), [-1] * tokens)
    assert (row["eigengap"], row["eigengap_kept"], row["second_gap"]) == (1, 1, 2)
    assert row["gap"] == approx(tokens / (tokens - 1))
    assert undefined(row) == {"within"}
    assert row["reason"] == NO_CLUSTER


def test_orthogonal_tokens_are_components_of_their_own_and_have_no_gap():
    row = laplacian.summarise(np.eye(5), [0] * 5)
    assert (row["eigengap"], row["gap"], row["eigengap_kept"]) == (1, 0, 1)
    assert (row["within"], row["within_clusters"], row["reason"]) == (1, 1, "")


def test_an_isolated_token_is_a_zero_row():
    matrix = np.array([[0.0, 0, 0], [0, 1, 0.5], [0, 0.5, 1]])
    for self_loops in LOOPS:
        found = laplacian.normalised(matrix, self_loops)
        assert (found[0] == 0).all()
        assert (found[:, 0] == 0).all()
        assert found[1, 1] > 0


def test_a_token_without_direction_leaves_the_count_undefined():
    row = laplacian.summarise(gram([[1.0, 0], [0, 0], [0, 1]]), [0, 0, 0])
    assert undefined(row) == {"eigengap", "gap", "second_gap", "eigengap_kept", "within"}
    assert row["reason"] == "a token's vector is zero: it has no direction"
    assert row["within_clusters"] == 0


@pytest.mark.parametrize("labels", [[], [-1, -1], [0, 0, 0], [1, 0, -1, 1], [5, 2, 5, 9]])
def test_members_are_listed_by_label_and_the_unclustered_in_none(labels):
    found = laplacian.members_of(labels)
    expected = [
        [token for token, each in enumerate(labels) if each == label]
        for label in sorted(set(labels) - {-1})
    ]
    assert [members.tolist() for members in found] == expected


def test_the_matrix_is_left_as_it_was():
    matrix = np.abs(gram(cloud(0)))
    eigenvalues = np.array([0.0, 0.5, 2.0])
    copies = matrix.copy(), eigenvalues.copy()
    laplacian.summarise(matrix, [0] * 9)
    laplacian.normalised(matrix, False)
    laplacian.gaps(eigenvalues)
    np.testing.assert_array_equal(matrix, copies[0])
    np.testing.assert_array_equal(eigenvalues, copies[1])
