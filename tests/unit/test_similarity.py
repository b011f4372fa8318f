"""CKA and nearest neighbours, against loops, exact fractions, known values and poor clouds."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokensphere import similarity, sphere

# Ratios of sums of at most a few hundred float64 products, in another order.
ROUNDING = 1e-11


def cloud(seed, tokens=9, width=5):
    """Draw token vectors of very different lengths."""
    random = np.random.default_rng(seed)
    return random.normal(size=(tokens, width)) * 10.0 ** random.uniform(-3, 3, (tokens, 1))


def integers(seed, tokens=7, width=4):
    """Draw a cloud whose every product is exact."""
    return np.random.default_rng(seed).integers(-5, 6, size=(tokens, width))


def points_of(*args, **sizes):
    return sphere.project(cloud(*args, **sizes))


def gram(states):
    return sphere.gram(sphere.project(states))


seeds = st.integers(0, 10**6)


def approx(expected):
    return pytest.approx(expected, rel=ROUNDING, abs=ROUNDING, nan_ok=True)


def rotation_of(width, random):
    return np.linalg.qr(random.normal(size=(width, width)))[0]


# --- twins: the definitions, in loops


def twin_cka(first, second):
    """The form of features: columns centred, squared Frobenius norms of their products."""

    def columns(cloud):
        means = [sum(column) / len(column) for column in np.transpose(cloud)]
        pairs = zip(np.transpose(cloud), means, strict=True)
        return [[x - mean for x in column] for column, mean in pairs]

    def square(one, two):
        return sum(
            sum(x * y for x, y in zip(p, q, strict=True)) ** 2
            for p in columns(one)
            for q in columns(two)
        )

    return square(first, second) / math.sqrt(square(first, first) * square(second, second))


def twin_hsic_1(first, second):
    """Song et al. (2012), equation 5, term by term and in fractions."""
    n = len(first)

    def kernel(cloud):
        return [
            [Fraction(0) if i == j else sum(map(Fraction, (x * y).tolist()))
             for j, y in enumerate(cloud)]
            for i, x in enumerate(cloud)
        ]  # fmt: skip

    k, other = kernel(first), kernel(second)
    trace = sum(k[i][j] * other[j][i] for i in range(n) for j in range(n))
    sums = sum(map(sum, k)) * sum(map(sum, other)) / ((n - 1) * (n - 2))
    chain = sum(sum(k[i]) * sum(other[i]) for i in range(n)) * Fraction(2, n - 2)
    return (trace + sums - chain) / (n * (n - 3))


def twin_debiased(first, second):
    itself = twin_hsic_1(first, first) * twin_hsic_1(second, second)
    return float(twin_hsic_1(first, second)) / math.sqrt(itself)


def twin_nearest(states):
    """The nearest neighbour by the angle itself; of equal ones the first."""
    found = []
    for i, x in enumerate(states):
        cosines = [
            (-(x @ y) / (np.linalg.norm(x) * np.linalg.norm(y)), j)
            for j, y in enumerate(states)
            if j != i
        ]
        found.append(min(cosines)[1])
    return found


@pytest.mark.parametrize("shape", [(9, 5), (4, 3), (2, 3), (5, 12)])
@pytest.mark.parametrize("seed", range(4))
def test_cka_is_the_ratio_of_products_of_centred_columns(seed, shape):
    first = cloud(seed, *shape) / 100
    second = points_of(seed + 50, shape[0], 3)  # another width
    assert similarity.linear_cka(first, second) == approx(twin_cka(first, second))


@pytest.mark.parametrize("tokens", [5, 7, 10])
@pytest.mark.parametrize("seed", range(4))
def test_debiased_cka_is_the_ratio_of_the_unbiased_estimators(seed, tokens):
    first, second = integers(seed, tokens), integers(seed + 50, tokens, 3)
    expected = twin_debiased(first, second)
    assert similarity.debiased_cka(first, second) == approx(expected)
    assert similarity.debiased_cka(second, first) == approx(expected)


def test_four_tokens_are_enough_for_the_unbiased_estimator():
    first, second = integers(1, 4), integers(2, 4)
    assert similarity.debiased_cka(first, second) == approx(twin_debiased(first, second))


@pytest.mark.parametrize("seed", range(6))
def test_the_nearest_neighbour_is_that_of_the_largest_cosine(seed):
    states = cloud(seed, tokens=12, width=3)
    neighbour, tied = similarity.nearest(gram(states))
    assert neighbour.tolist() == twin_nearest(states)
    assert not tied.any()


@pytest.mark.parametrize("seed", range(6))
def test_stability_is_the_share_of_tokens_that_keep_their_neighbour(seed):
    before = cloud(seed, tokens=12, width=3)
    after = sphere.project(before) + 0.4 * sphere.project(cloud(seed + 100, tokens=12, width=3))
    same = [a == b for a, b in zip(twin_nearest(before), twin_nearest(after), strict=True)]
    assert 0 < sum(same) < 12
    assert similarity.neighbours(gram(before), gram(after)) == {
        "n_tokens": 12,
        "stability": approx(sum(same) / 12),
        "ties": 0,
        "chance": approx(1 / 11),
        "reason": "",
    }


def test_a_comparison_puts_both_readings_side_by_side():
    before, points = points_of(0), points_of(1)
    assert similarity.cka(before, points) == {
        "n_tokens": 9,
        "cka": approx(twin_cka(before, points)),
        "cka_debiased": approx(twin_debiased(before, points)),  # fractions of float64 are exact
        "reason": "",
    }


# --- invariances


@given(seeds)
def test_cka_depends_on_no_rotation_scale_shift_or_order(seed):
    random = np.random.default_rng(seed)
    first, second = random.normal(size=(8, 4)), random.normal(size=(8, 3))
    order = random.permutation(8)
    other = (first @ rotation_of(4, random) * random.uniform(0.1, 10) + 3)[order]
    for measure in (similarity.linear_cka, similarity.debiased_cka):
        assert measure(other, second[order]) == approx(measure(first, second))


@given(seeds)
def test_no_comparison_depends_on_any_tokens_scale_or_on_the_order(seed):
    random = np.random.default_rng(seed)
    before, after = random.normal(size=(8, 4)), random.normal(size=(8, 4))
    order = random.permutation(8)
    rotation, lengths = rotation_of(4, random), 10.0 ** random.uniform(-3, 3, (8, 1))
    moved = (after @ rotation * lengths)[order]
    once = similarity.cka(sphere.project(before), sphere.project(after))
    again = similarity.cka(sphere.project(before[order]), sphere.project(moved))
    assert again == {
        name: value if name == "reason" else approx(value) for name, value in once.items()
    }
    # Cosines of such clouds differ by far more than the 1e-12 that make a tie.
    assert similarity.neighbours(gram(before[order]), gram(moved)) == similarity.neighbours(
        gram(before), gram(after)
    )


@given(seeds)
def test_cka_is_symmetric_1_with_itself_and_in_its_range(seed):
    first, second = points_of(seed, 8, 3), points_of(seed + 1, 8, 5)
    for measure in (similarity.linear_cka, similarity.debiased_cka):
        assert measure(first, second) == approx(measure(second, first))
        assert measure(first, first) == approx(1)
    # Clipped: rounding alone must not pass 1.
    assert 0 <= similarity.linear_cka(first, first) <= 1
    assert 0 <= similarity.linear_cka(first, second) <= 1


# --- closed forms and known values


def test_cka_of_the_known_pair(reference):
    entry, debiased = reference("cka_pair"), reference("cka_pair_debiased")
    x, y = entry["inputs"]["X"], entry["inputs"]["Y"]
    assert similarity.linear_cka(x, y) == pytest.approx(entry["value"], abs=entry["tolerance"])
    found = similarity.debiased_cka(x, y)
    assert found == pytest.approx(debiased["value"], abs=debiased["tolerance"])
    x, y = np.array(x, dtype=int), np.array(y, dtype=int)
    exact = [twin_hsic_1(*pair) for pair in ((x, y), (x, x), (y, y))]
    assert exact == [Fraction(-4, 15), Fraction(271, 90), Fraction(69, 10)]


def test_cka_is_blind_to_similarities_and_not_to_other_linear_maps(reference):
    entry = reference("cka_invariance")
    x = np.array(entry["inputs"]["X"])
    turned = 3 * x @ np.array([[0.6, -0.8], [0.8, 0.6]]) + [7, -2]
    stretched = x @ np.diag([1.0, 5.0])
    found = [similarity.linear_cka(x, other) for other in (turned, stretched)]
    assert found == pytest.approx(entry["value"], abs=entry["tolerance"])


def test_cka_of_orthonormal_features_counts_the_shared_ones(reference):
    entry = reference("cka_shared_columns")
    sign = np.array([[1, 1], [1, -1]])
    features = np.kron(np.kron(sign, sign), sign) / math.sqrt(8)
    found = similarity.linear_cka(features[:, 1:4], features[:, 3:7])
    assert found == pytest.approx(entry["value"], abs=entry["tolerance"])
    assert found == approx(1 / math.sqrt(3 * 4))


@pytest.mark.parametrize(
    "coarse, expected",
    [(np.repeat([0, 1], 6), 1 / math.sqrt(3)), (np.tile([0, 1, 2], 4), 0)],
)
def test_cka_of_four_clusters_with_two_coarser_ones_and_with_a_crossed_partition(coarse, expected):
    fine = np.eye(4)[np.repeat(range(4), 3)]
    assert similarity.linear_cka(fine, np.eye(3)[coarse]) == approx(expected)


def test_nearest_neighbours_of_the_known_example(reference):
    entry = reference("nn_stability_example")
    before, after = (
        gram(np.stack([np.cos(angles), np.sin(angles)], axis=1))
        for angles in (entry["inputs"]["angles1"], entry["inputs"]["angles2"])
    )
    row = similarity.neighbours(before, after)
    assert row["stability"] == pytest.approx(entry["value"], abs=entry["tolerance"])
    assert (row["ties"], row["chance"]) == (0, 0.2)


@pytest.mark.parametrize("seed", range(6))
def test_cka_of_unrelated_clouds_is_inflated_and_debiased_it_is_not(seed):
    random = np.random.default_rng(seed)
    row = similarity.cka(*(sphere.project(random.normal(size=(64, 64))) for _ in range(2)))
    # Biased: d / (n + d) = 1/2 up to terms of 1/n. Debiased: a correlation of n (n - 3) / 2 = 1952
    # numbers, so of standard deviation .023: .1 is more than four of them.
    assert row["cka"] == pytest.approx(0.5, abs=0.05)
    assert row["cka_debiased"] == pytest.approx(0, abs=0.1)


def test_independent_layers_keep_a_neighbour_by_chance():
    random = np.random.default_rng(0)
    rows = [
        similarity.neighbours(*(gram(random.normal(size=(6, 3))) for _ in range(2)))
        for _ in range(400)
    ]
    # 2400 tokens, correlated by sixes: a standard deviation of about .01.
    assert np.mean([row["stability"] for row in rows]) == pytest.approx(rows[0]["chance"], abs=0.04)


# --- ties


@pytest.mark.parametrize("seed", range(8))
def test_of_equally_near_tokens_the_first_counts_whatever_their_last_bits(seed):
    random = np.random.default_rng(seed)
    lengths = 10.0 ** random.uniform(-3, 3, (6, 1))
    neighbour, tied = similarity.nearest(gram(np.tile(random.normal(size=7), (6, 1)) * lengths))
    assert neighbour.tolist() == [1, 0, 0, 0, 0, 0]
    assert tied.all()


def test_neighbours_that_differ_by_more_than_rounding_do_not_tie():
    for nearer, tie in ((1e-11, False), (1e-13, True)):
        matrix = np.array([[1, 0.5, 0.5 + nearer], [0.5, 1, 0], [0.5 + nearer, 0, 1]])
        neighbour, tied = similarity.nearest(matrix)
        assert neighbour.tolist() == [1 if tie else 2, 0, 0]
        assert tied.tolist() == [tie, False, False]


def test_a_token_is_tied_that_has_several_nearest_ones_in_either_layer():
    clear = np.array([[1, 0.9, 0.1], [0.9, 1, 0.2], [0.1, 0.2, 1]])
    tied = np.array([[1, 0.5, 0.5], [0.5, 1, 0.1], [0.5, 0.1, 1]])
    for before, after, ties in (
        (clear, clear, 0),
        (clear, tied, 1),
        (tied, clear, 1),
        (tied, tied, 1),
    ):
        assert similarity.neighbours(before, after)["ties"] == ties
    assert similarity.neighbours(clear, np.eye(3)) == {
        "n_tokens": 3,
        "stability": approx(2 / 3),  # all tied, so 1, 0, 0 against 1, 0, 1
        "ties": 3,
        "chance": 0.5,
        "reason": "",
    }


# --- poor clouds


def undefined(row):
    return {name for name, value in row.items() if isinstance(value, float) and value != value}


@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 20])
def test_coincident_tokens_have_no_cka(tokens):
    points = sphere.project(np.tile([0.3, -2.0, 1.0], (tokens, 1)))
    other = points_of(0, tokens, 3)
    for pair in ((points, other), (other, points), (points, points)):
        row = similarity.cka(*pair)
        assert undefined(row) == {"cka", "cka_debiased"}
        assert row["reason"] == "a cloud has no spread: all its points coincide"


def test_two_distinct_tokens_are_always_alike():
    row = similarity.cka(points_of(0, 2), points_of(1, 2))
    assert row["cka"] == approx(1)
    assert undefined(row) == {"cka_debiased"}
    assert row["reason"] == "fewer than 4 tokens: HSIC_1 is undefined"


def test_three_tokens_have_no_debiased_cka():
    before, points = points_of(0, 3), points_of(1, 3)
    row = similarity.cka(before, points)
    assert row["cka"] == approx(twin_cka(before, points))
    assert undefined(row) == {"cka_debiased"}
    assert row["reason"] == "fewer than 4 tokens: HSIC_1 is undefined"


@pytest.mark.parametrize("tokens", [4, 9])
def test_equally_distant_tokens_have_spread_and_no_debiased_cka(tokens):
    # A U-centred Gram matrix of equal values is zero, and rounding alone must not pass for more.
    equal = np.eye(tokens) @ rotation_of(tokens, np.random.default_rng(0))
    row = similarity.cka(equal, equal)
    assert row["cka"] == approx(1)
    assert undefined(row) == {"cka_debiased"}
    assert row["reason"].startswith("HSIC_1 of a cloud with itself is 0")
    assert undefined(similarity.cka(equal, points_of(0, tokens))) == {"cka_debiased"}


@pytest.mark.parametrize("apart, defined", [(1.3e-3, False), (1.5e-3, True)])
def test_a_cloud_is_flat_below_a_denominator_of_1e_12(apart, defined):
    # Two tokens at a distance a have |Xc^T Xc| = a^2 / 2, so the denominator is a^4 / 4.
    assert math.isnan(similarity.linear_cka([[0.0], [apart]], [[0.0], [apart]])) is not defined


@pytest.mark.parametrize("measure", [similarity.linear_cka, similarity.debiased_cka])
def test_a_far_away_cloud_keeps_its_digits(measure):
    first, second = integers(0), integers(1)
    # 1e6 squared times 1e-16: without the shift to the mean a product would be off by 1e-4.
    assert measure(first + 10**6, second) == approx(measure(first, second))


def test_a_token_without_direction_leaves_everything_undefined():
    whole, broken = np.eye(3), sphere.project([[1.0, 0, 0], [0, 0, 0], [0, 0, 1]])
    for pair in ((whole, broken), (broken, whole)):
        row = similarity.cka(*pair)
        assert undefined(row) == {"cka", "cka_debiased"}
        assert row["reason"] == sphere.NO_DIRECTION
        row = similarity.neighbours(*(sphere.gram(points) for points in pair))
        assert undefined(row) == {"stability"}
        assert (row["chance"], row["ties"]) == (0.5, 0)
        assert row["reason"] == sphere.NO_DIRECTION


def test_one_token_has_no_neighbour():
    row = similarity.neighbours(np.ones((1, 1)), np.ones((1, 1)))
    assert undefined(row) == {"stability", "chance"}
    assert row["reason"] == "fewer than two tokens: there is no pair"


def test_two_tokens_are_each_others_neighbours():
    row = similarity.neighbours(gram(cloud(0, 2)), gram(cloud(1, 2)))
    assert (row["stability"], row["ties"], row["chance"], row["reason"]) == (1, 0, 1, "")


def test_coincident_tokens_keep_their_neighbour_by_the_rule_of_ties():
    row = similarity.neighbours(np.ones((5, 5)), np.ones((5, 5)))
    assert (row["stability"], row["ties"], row["reason"]) == (1, 5, "")


def test_the_clouds_are_left_as_they_were():
    before, points = points_of(0), points_of(1)
    matrix = sphere.gram(points)
    copies = before.copy(), points.copy(), matrix.copy()
    similarity.cka(before, points)
    similarity.neighbours(matrix, matrix)
    for one, copy in zip((before, points, matrix), copies, strict=True):
        np.testing.assert_array_equal(one, copy)
