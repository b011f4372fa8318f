"""Inner products on the sphere, against plain double loops, closed forms and poor clouds."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tokensphere import sphere

# Sums of at most a few dozen float64 products of numbers in [-1, 1], in another order: each
# rounds by 1e-16, so 1e-13 is far above rounding and far below any real difference.
ROUNDING = 1e-13

UNDEFINED = float("nan")


def cloud(seed, tokens=12, width=5, kinds=4):
    """Draw token vectors of very different lengths, and ids of which several repeat."""
    random = np.random.default_rng(seed)
    lengths = 10.0 ** random.uniform(-3, 3, (tokens, 1))
    return random.normal(size=(tokens, width)) * lengths, random.integers(kinds, size=tokens)


clouds = st.builds(cloud, st.integers(0, 10**6), tokens=st.integers(2, 12), width=st.integers(1, 8))


def approx(expected):
    return pytest.approx(expected, abs=ROUNDING, rel=0, nan_ok=True)


# --- twins: the definitions, in loops


def direction(vector):
    length = math.sqrt(sum(x * x for x in vector))
    return [x / length for x in vector]


def twin_pairs(states, ids):
    points = [direction(vector) for vector in states]
    values, distinct = [], []
    for i in range(len(points)):
        for j in range(i + 1, len(points)):
            product = sum(a * b for a, b in zip(points[i], points[j], strict=True))
            values.append(max(-1.0, min(1.0, product)))
            distinct.append(bool(ids[i] != ids[j]))
    return values, distinct


def twin_inner_products(states, ids, near_one):
    values, distinct = twin_pairs(states, ids)
    unlike = [value for value, differs in zip(values, distinct, strict=True) if differs]
    mean = sum(values) / len(values)
    return {
        "n_tokens": len(states),
        "mean": mean,
        "sd": math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)),
        "mass_near_one": sum(value > near_one for value in values) / len(values),
        "mean_distinct": sum(unlike) / len(unlike),
        "mass_near_one_distinct": sum(value > near_one for value in unlike) / len(unlike),
    }


def twin_histogram(states, ids, bins):
    every, unlike = [0] * bins, [0] * bins
    for value, differs in zip(*twin_pairs(states, ids), strict=True):
        index = min(int((value + 1) / 2 * bins), bins - 1)
        every[index] += 1
        unlike[index] += differs
    return every, unlike


@pytest.mark.parametrize("seed", range(5))
def test_project_divides_each_token_by_its_length(seed):
    states, _ = cloud(seed)
    assert sphere.project(states) == approx(np.array([direction(vector) for vector in states]))


@pytest.mark.parametrize("seed", range(5))
def test_gram_holds_every_inner_product(seed):
    points = sphere.project(cloud(seed)[0])
    twin = [[sum(a * b for a, b in zip(x, y, strict=True)) for y in points] for x in points]
    assert sphere.gram(points) == approx(np.array(twin))


@pytest.mark.parametrize("seed", range(5))
def test_pairs_lists_each_pair_once_in_order(seed):
    states, ids = cloud(seed)
    values, distinct = sphere.pairs(sphere.project(states), ids)
    twin_values, twin_distinct = twin_pairs(states, ids)
    assert values == approx(np.array(twin_values))
    assert distinct.tolist() == twin_distinct


@pytest.mark.parametrize("near_one", [0.9, 0.0, -0.5])
@pytest.mark.parametrize("seed", range(5))
def test_inner_products_summarise_all_pairs_and_distinct_pairs(seed, near_one):
    states, ids = cloud(seed)
    row = sphere.inner_products(sphere.project(states), ids, near_one)
    assert row.pop("reason") == ""
    assert row == approx(twin_inner_products(states, ids, near_one))


@pytest.mark.parametrize("bins", [50, 7])
@pytest.mark.parametrize("seed", range(5))
def test_histogram_counts_all_pairs_and_distinct_pairs(seed, bins):
    states, ids = cloud(seed)
    rows = sphere.inner_product_histogram(sphere.project(states), ids, bins)
    every, unlike = twin_histogram(states, ids, bins)
    assert [row["count"] for row in rows] == every
    assert [row["count_distinct"] for row in rows] == unlike
    assert [row["bin"] for row in rows] == list(range(bins))
    edges = [-1 + 2 * index / bins for index in range(bins + 1)]
    assert [row["bin_left"] for row in rows] == approx(edges[:-1])
    assert [row["bin_right"] for row in rows] == approx(edges[1:])


# --- invariances


@given(clouds, st.integers(0, 10**6))
def test_a_rotation_changes_no_inner_product(drawn, seed):
    states, ids = drawn
    width = states.shape[1]
    rotation, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(width, width)))
    before, _ = sphere.pairs(sphere.project(states), ids)
    after, _ = sphere.pairs(sphere.project(states @ rotation), ids)
    assert after == approx(before)


@given(clouds, st.lists(st.floats(1e-100, 1e100), min_size=12, max_size=12))
def test_the_length_of_a_token_does_not_matter(drawn, scales):
    states, _ = drawn
    scaled = states * np.array(scales[: len(states)])[:, None]
    assert sphere.project(scaled) == approx(sphere.project(states))


@given(clouds, st.randoms(use_true_random=False))
def test_the_order_of_tokens_does_not_matter(drawn, random):
    states, ids = drawn
    order = list(range(len(ids)))
    random.shuffle(order)
    points = sphere.project(states)
    # Rounding may carry a pair that lies on the threshold to its other side.
    assume(np.abs(sphere.pairs(points, ids)[0] - 0.9).min() > ROUNDING)
    before = sphere.inner_products(points, ids)
    after = sphere.inner_products(points[order], ids[order])
    assert after.pop("reason") == before.pop("reason")
    assert after == approx(before)


@given(clouds)
def test_every_pair_is_in_exactly_one_bin(drawn):
    states, ids = drawn
    rows = sphere.inner_product_histogram(sphere.project(states), ids)
    values, distinct = sphere.pairs(sphere.project(states), ids)
    assert sum(row["count"] for row in rows) == len(values)
    assert sum(row["count_distinct"] for row in rows) == distinct.sum()


# --- closed forms and published values


def test_project_keeps_huge_and_tiny_vectors_in_range():
    states = [[3e300, 4e300], [3e-300, 4e-300], [0, 5e-324]]
    # Exact up to the rounding of one division.
    assert sphere.project(states) == approx(np.array([[0.6, 0.8], [0.6, 0.8], [0, 1]]))


def test_project_computes_in_float64_from_float32_states():
    points = sphere.project(np.array([[1, 2, 3]], dtype=np.float32))
    assert points.dtype == np.float64
    assert points == approx(np.array([[1, 2, 3]]) / math.sqrt(14))


def test_mass_near_one_of_planted_clusters(reference):
    entry = reference("mass_near_one")
    sizes = entry["inputs"]["sizes"]
    states = np.repeat(np.eye(len(sizes)), sizes, axis=0)
    points, n = sphere.project(states), sum(sizes)
    off_diagonal = sphere.inner_products(points, range(n), near_one=0.999)["mass_near_one"]
    assert off_diagonal == pytest.approx(entry["value"][0], abs=entry["tolerance"])
    with_diagonal = (sphere.gram(points) > 0.999).mean()
    assert with_diagonal == pytest.approx(entry["value"][1], abs=entry["tolerance"])


def test_mean_of_equicorrelated_tokens_gives_the_order_parameter(reference):
    entry = reference("order_param_equicorr")
    n, r = entry["inputs"]["n"], entry["inputs"]["r"]
    states = np.linalg.cholesky(np.full((n, n), r) + (1 - r) * np.eye(n))
    mean = sphere.inner_products(sphere.project(states), range(n))["mean"]
    # |mean of the s_i|^2 is the mean of the whole Gram matrix: n ones, and n (n - 1) pairs.
    order = (1 + (n - 1) * mean) / n
    assert order == pytest.approx(entry["value"], abs=entry["tolerance"])


@pytest.mark.parametrize("width", [2, 3, 64, 768])
def test_moments_of_random_inner_products(reference, width):
    second, fourth = reference(f"random_ip_moments_d{width}")["value"]
    states = np.random.default_rng(width).normal(size=(400, width))
    values, _ = sphere.pairs(sphere.project(states), range(len(states)))
    # Given s_i, the other directions are independent and uniform: any two pairs are
    # uncorrelated, so a mean over N pairs has variance Var / N, and Var <.,.>^4 follows from the
    # eighth moment 105 / (d(d+2)(d+4)(d+6)). Six standard errors; the seed is fixed.
    eighth = fourth * 35 / ((width + 4) * (width + 6))
    for moment, mean, square in ((2, second, fourth), (4, fourth, eighth)):
        error = math.sqrt((square - mean**2) / len(values))
        assert (values**moment).mean() == pytest.approx(mean, abs=6 * error)
    row = sphere.inner_products(sphere.project(states), range(len(states)))
    error = math.sqrt(second / len(values))
    assert row["mean"] == pytest.approx(0, abs=6 * error)
    assert row["sd"] ** 2 + row["mean"] ** 2 == pytest.approx((values**2).mean(), rel=1e-12)


def polygon(corners):
    angles = 2 * np.pi * np.arange(corners) / corners
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def icosahedron():
    golden = (1 + math.sqrt(5)) / 2
    corners = [(0, one, two * golden) for one in (-1, 1) for two in (-1, 1)]
    return np.array([np.roll(corner, turn) for corner in corners for turn in range(3)])


@pytest.mark.parametrize(
    "width, states", [(2, polygon(7)), (3, icosahedron())], ids=["heptagon", "icosahedron"]
)
def test_designs_have_the_moments_of_the_uniform_sphere_exactly(reference, width, states):
    # Both are spherical designs of strength >= 4: averages of degree 4 over all ordered pairs,
    # the diagonal included, are those of the sphere.
    entry = reference(f"random_ip_moments_d{width}")
    values = sphere.gram(sphere.project(states))
    moments = [(values**2).mean(), (values**4).mean()]
    assert moments == pytest.approx(entry["value"], abs=entry["tolerance"])


@pytest.mark.parametrize("width", [64, 768])
def test_the_cross_polytope_has_the_second_moment_exactly(reference, width):
    entry = reference(f"random_ip_moments_d{width}")
    states = np.concatenate([np.eye(width), -np.eye(width)])
    row, n = sphere.inner_products(sphere.project(states), range(2 * width)), 2 * width
    square = row["sd"] ** 2 + row["mean"] ** 2
    assert (1 + (n - 1) * square) / n == pytest.approx(entry["value"][0], abs=entry["tolerance"])


def test_near_one_means_strictly_greater():
    points = np.array([[1.0, 0.0], [0.6, 0.8]])  # their inner product is 0.6 to the last bit
    assert sphere.inner_products(points, [0, 1], near_one=0.6)["mass_near_one"] == 0
    assert sphere.inner_products(points, [0, 1], near_one=0.6)["mass_near_one_distinct"] == 0
    below = math.nextafter(0.6, 0)
    assert sphere.inner_products(points, [0, 1], near_one=below)["mass_near_one"] == 1
    assert sphere.inner_products(points, [0, 1], near_one=below)["mass_near_one_distinct"] == 1


def test_near_one_is_nine_tenths_unless_said():
    points = np.array([[1.0, 0.0], [0.9, math.sqrt(0.19)], [0.91, math.sqrt(1 - 0.91**2)]])
    # 0.9 and 0.91 from the first, 0.9997 between the others.
    assert sphere.inner_products(points, range(3))["mass_near_one"] == pytest.approx(2 / 3)


def twins_whose_product_exceeds_one():
    for seed in range(100):
        points = sphere.project(np.tile(np.random.default_rng(seed).normal(size=7), (2, 1)))
        if (points @ points.T)[0, 1] > 1:
            return points
    raise AssertionError("no product of equal points rounds above 1 here")


def test_a_product_that_rounds_above_one_counts_as_one():
    points = twins_whose_product_exceeds_one()
    assert sphere.gram(points).max() == 1
    assert sphere.inner_products(points, [0, 1])["mean"] == 1
    rows = sphere.inner_product_histogram(points, [0, 1])
    assert rows[-1]["count"] == 1  # np.histogram alone would drop the pair
    opposite = sphere.inner_product_histogram(points * [[1], [-1]], [0, 1])
    assert opposite[0]["count"] == 1


def test_bins_are_closed_on_the_left_and_the_last_one_holds_one():
    points = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [1.0, 0.0]])
    # Products: 0, -1, 1, 0, 0, -1.
    counts = [row["count"] for row in sphere.inner_product_histogram(points, range(4), bins=2)]
    assert counts == [2, 4]


def test_fifty_bins_unless_said():
    assert len(sphere.inner_product_histogram(np.eye(3), range(3))) == 50


# --- poor clouds: each answer, and its reason

X, Y, ZERO = [2.0, 0.0], [0.0, 3.0], [0.0, 0.0]


@pytest.mark.parametrize(
    "states, ids, mean, sd, mass, mean_distinct, mass_distinct, reason",
    [
        ([X], [1], *[UNDEFINED] * 5, sphere.NO_PAIR),
        ([ZERO], [1], *[UNDEFINED] * 5, sphere.NO_PAIR),
        ([X, Y], [1, 2], 0, 0, 0, 0, 0, ""),
        ([X, X], [1, 2], 1, 0, 1, 1, 1, ""),
        ([X, X], [1, 1], 1, 0, 1, UNDEFINED, UNDEFINED, sphere.NO_DISTINCT_PAIR),
        ([X, X, Y], [1, 1, 2], 1 / 3, math.sqrt(2) / 3, 1 / 3, 0, 0, ""),
        ([X, X, X], [1, 2, 3], 1, 0, 1, 1, 1, ""),
        ([X, X, Y], [1, 1, 1], 1 / 3, math.sqrt(2) / 3, 1 / 3, *[UNDEFINED] * 2,
         sphere.NO_DISTINCT_PAIR),
        ([X, Y, ZERO], [1, 2, 3], *[UNDEFINED] * 5, sphere.NO_DIRECTION),
        ([X, Y, ZERO], [1, 1, 1], *[UNDEFINED] * 5, sphere.NO_DIRECTION),
    ],
    ids=[
        "one token", "one zero token", "two tokens", "two equal points", "one id twice",
        "three tokens", "all points equal", "all ids equal", "a zero vector",
        "a zero vector and all ids equal",
    ],
)  # fmt: skip
def test_poor_clouds(states, ids, mean, sd, mass, mean_distinct, mass_distinct, reason):
    row = sphere.inner_products(sphere.project(states), ids)
    assert row.pop("reason") == reason
    expected = {
        "n_tokens": len(states),
        "mean": mean,
        "sd": sd,
        "mass_near_one": mass,
        "mean_distinct": mean_distinct,
        "mass_near_one_distinct": mass_distinct,
    }
    assert row == approx(expected)


def test_a_pair_with_a_zero_vector_is_in_no_bin():
    rows = sphere.inner_product_histogram(sphere.project([X, Y, ZERO]), [1, 2, 3])
    assert sum(row["count"] for row in rows) == 1
    assert sum(row["count_distinct"] for row in rows) == 1


def test_no_token_makes_no_pair():
    points = sphere.project(np.empty((0, 4)))
    assert sphere.inner_products(points, [])["reason"] == sphere.NO_PAIR
    assert all(row["count"] == 0 for row in sphere.inner_product_histogram(points, []))


def test_a_zero_vector_has_no_direction():
    assert np.isnan(sphere.project([ZERO, X])).tolist() == [[True, True], [False, False]]


def test_states_must_be_a_matrix():
    with pytest.raises(ValueError, match=r"shape \(tokens, width\), not \(3,\)"):
        sphere.project([1.0, 2.0, 3.0])


def test_every_point_needs_a_token_id():
    with pytest.raises(ValueError, match=r"2 points need as many token ids, not \(3,\)"):
        sphere.pairs(np.eye(2), [1, 2, 3])
