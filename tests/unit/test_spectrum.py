"""Effective rank, against eigenvalues, closed forms, known values and poor clouds."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokensphere import spectrum, sphere

# A singular value of these clouds is right to about 1e-15 of the largest; entropies add a few.
ROUNDING = 1e-11

UNDEFINED = float("nan")


def cloud(seed, tokens=9, width=5):
    """Draw token vectors of somewhat different lengths."""
    random = np.random.default_rng(seed)
    return random.normal(size=(tokens, width)) * 10.0 ** random.uniform(-1, 1, (tokens, 1))


clouds = st.builds(cloud, st.integers(0, 10**6), tokens=st.integers(1, 12), width=st.integers(1, 8))


def approx(expected):
    return pytest.approx(expected, rel=ROUNDING, abs=ROUNDING, nan_ok=True)


def rank(states, power=1):
    return spectrum.effective_rank(spectrum.singular_values(states), power)


# --- twins: the definitions, in loops


def jacobi_singular_values(states):
    """One-sided Jacobi: rotate pairs of columns until all are orthogonal; their lengths."""
    columns = [list(column) for column in np.asarray(states, dtype=float).T]
    for _ in range(60):
        for p in range(len(columns)):
            for q in range(p + 1, len(columns)):
                a = sum(x * x for x in columns[p])
                b = sum(x * x for x in columns[q])
                c = sum(x * y for x, y in zip(columns[p], columns[q], strict=True))
                if abs(c) <= 1e-17 * math.sqrt(a * b) or min(a, b) < 1e-40:  # one is zero
                    continue
                zeta = (b - a) / (2 * c)
                t = math.copysign(1, zeta) / (abs(zeta) + math.hypot(1, zeta))
                cosine = 1 / math.hypot(1, t)
                sine = cosine * t
                columns[p], columns[q] = (
                    [cosine * x - sine * y for x, y in zip(columns[p], columns[q], strict=True)],
                    [sine * x + cosine * y for x, y in zip(columns[p], columns[q], strict=True)],
                )
    return sorted((math.sqrt(sum(x * x for x in column)) for column in columns), reverse=True)


def twin_rank(values, power):
    kept = [value**power for value in values if value > 1e-10]
    shares = [value / sum(kept) for value in kept]
    return math.exp(-sum(share * math.log(share) for share in shares))


def twin_participation(states):
    squares = [sum(x * x for x in vector) for vector in states]
    return sum(squares) ** 2 / (len(squares) * sum(square**2 for square in squares))


@pytest.mark.parametrize("shape", [(9, 5), (5, 9), (6, 6), (1, 4), (4, 1)])
@pytest.mark.parametrize("seed", range(3))
def test_singular_values_are_those_of_the_matrix(seed, shape):
    states = cloud(seed, *shape)
    expected = jacobi_singular_values(states)[: min(shape)]
    assert spectrum.singular_values(states) == approx(np.array(expected))


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("seed", range(5))
def test_effective_rank_is_the_exponential_of_the_entropy(seed, power):
    states = cloud(seed)
    assert rank(states, power) == approx(twin_rank(jacobi_singular_values(states), power))


@pytest.mark.parametrize("seed", range(5))
def test_the_squared_rank_is_that_of_the_gram_matrixs_eigenvalues(seed):
    states = cloud(seed)
    eigenvalues = np.linalg.eigvalsh(states.T @ states)
    assert rank(states, 2) == approx(twin_rank(eigenvalues, 1))


@pytest.mark.parametrize("seed", range(5))
def test_norm_participation_is_the_share_of_tokens_that_carry_the_norm(seed):
    states = cloud(seed)
    assert spectrum.norm_participation(states) == approx(twin_participation(states))


@pytest.mark.parametrize("seed", range(3))
def test_a_summary_puts_raw_sphere_and_gaussian_side_by_side(seed):
    states = cloud(seed, tokens=6, width=4)
    points = sphere.project(states)
    row = spectrum.summarise(states, points)
    gaussian = spectrum.gaussian_rank(6, 4)
    raw, on_sphere = (jacobi_singular_values(one) for one in (states, points))
    assert row == {
        "n_tokens": 6,
        "raw": approx(twin_rank(raw, 1)),
        "sphere": approx(twin_rank(on_sphere, 1)),
        "raw_squared": approx(twin_rank(raw, 2)),
        "sphere_squared": approx(twin_rank(on_sphere, 2)),
        "norm_participation": approx(twin_participation(states)),
        "raw_share": approx(twin_rank(raw, 1) / 4),
        "sphere_share": approx(twin_rank(on_sphere, 1) / 4),
        "raw_gaussian": gaussian,
        "gaussian_share": gaussian / 4,
        "gate_raw_3": row["raw"] >= 3,
        "gate_raw_2": row["raw"] >= 2,
        "gate_sphere_3": row["sphere"] >= 3,
        "reason": "",
    }


# --- invariances


@given(clouds, st.integers(0, 10**6))
def test_rank_does_not_depend_on_rotation_or_order(states, seed):
    random = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(random.normal(size=(states.shape[1],) * 2))
    other = (states @ rotation)[random.permutation(len(states))]
    for power in (1, 2):
        assert rank(other, power) == approx(rank(states, power))
    assert spectrum.norm_participation(other) == approx(spectrum.norm_participation(states))


@given(clouds, st.floats(-4, 4))
def test_raw_rank_does_not_depend_on_a_common_scale(states, exponent):
    # The 1e-10 below which values are dropped is absolute: 1e-4 times a singular value of these
    # clouds is still above it, and one near it would have a share of 1e-6.
    for power in (1, 2):
        scaled = rank(states * 10.0**exponent, power)
        assert scaled == pytest.approx(rank(states, power), rel=1e-6)


@given(clouds, st.integers(0, 10**6))
def test_rank_on_the_sphere_does_not_depend_on_any_tokens_scale(states, seed):
    lengths = 10.0 ** np.random.default_rng(seed).uniform(-6, 6, (len(states), 1))
    one, other = sphere.project(states), sphere.project(states * lengths)
    for power in (1, 2):
        assert rank(other, power) == approx(rank(one, power))


@given(clouds)
def test_ranks_and_participation_stay_in_their_ranges(states):
    row = spectrum.summarise(states, sphere.project(states))
    most = min(states.shape) * (1 + 1e-12)
    for name in ("raw", "sphere", "raw_squared", "sphere_squared", "raw_gaussian"):
        assert 1 - 1e-12 <= row[name] <= most, name
    # A sharper distribution has a lower entropy.
    assert row["raw_squared"] <= row["raw"] * (1 + 1e-12)
    assert row["sphere_squared"] <= row["sphere"] * (1 + 1e-12)
    for name in ("raw_share", "sphere_share", "gaussian_share"):
        assert 0 < row[name] <= 1 + 1e-12, name
    assert 1 / len(states) * (1 - 1e-12) <= row["norm_participation"] <= 1 + 1e-12


# --- closed forms and known values


@pytest.mark.parametrize("k", [1, 2, 5])
def test_k_orthogonal_tokens_of_one_length_have_rank_k(k):
    states = np.eye(8)[:k] * 3.0
    assert rank(states) == approx(k)
    assert rank(states, 2) == approx(k)
    assert spectrum.norm_participation(states) == approx(1)


def test_equal_orthogonal_clusters_have_the_rank_of_their_number(reference):
    entry = reference("erank_equal_clusters")
    states = np.repeat(np.eye(entry["inputs"]["d"])[:4], entry["inputs"]["sizes"], axis=0)
    assert [rank(states), rank(states, 2)] == pytest.approx(entry["value"], abs=entry["tolerance"])


@pytest.mark.parametrize("name", ["n10_r0.5", "n64_r0.9"])
def test_rank_of_equally_correlated_tokens(reference, name):
    entry = reference(f"erank_equicorr_{name}")
    n, r = entry["inputs"]["n"], entry["inputs"]["r"]
    points = np.linalg.cholesky(np.full((n, n), r) + (1 - r) * np.eye(n))
    assert [rank(points), rank(points, 2)] == pytest.approx(entry["value"], abs=entry["tolerance"])


def test_two_lengths_give_the_entropy_of_two_shares():
    shares = (0.75, 0.25)
    expected = math.exp(-sum(share * math.log(share) for share in shares))
    assert rank(np.diag([3.0, 1.0])) == approx(expected)
    assert rank(np.diag([math.sqrt(3), 1.0]), 2) == approx(expected)
    assert spectrum.norm_participation(np.diag([3.0, 1.0])) == approx(100 / (2 * 82))


def test_one_token_of_30_times_the_norm_lowers_the_raw_rank_and_not_the_sphere():
    states = np.random.default_rng(0).normal(size=(512, 768))
    heavy = states.copy()
    heavy[7] *= 30
    even, uneven = (spectrum.summarise(one, sphere.project(one)) for one in (states, heavy))
    assert uneven["sphere"] == approx(even["sphere"])
    assert uneven["sphere_squared"] == approx(even["sphere_squared"])
    # As published, by sigma, it is hardly seen; by sigma^2 the token has 900 of 1411 parts.
    assert 0.8 * even["raw"] < uneven["raw"] < even["raw"]
    assert uneven["raw_squared"] < 0.05 * even["raw_squared"]
    assert uneven["norm_participation"] == pytest.approx(1411**2 / (512 * 810511), rel=0.1)
    assert even["norm_participation"] > 0.99


def test_values_up_to_1e_10_are_dropped():
    assert spectrum.effective_rank(np.array([1.0, 1.0, 1e-10])) == approx(2)
    assert spectrum.effective_rank(np.array([1e-9, 1e-9, 1e-10])) == approx(2)
    assert spectrum.effective_rank(np.array([1e-9, 1e-9, 1.0000001e-10])) > 2
    assert math.isnan(spectrum.effective_rank(np.array([1e-10, 0.0])))
    assert math.isnan(spectrum.effective_rank(np.zeros(0)))


def test_a_value_whose_square_underflows_has_no_share():
    assert spectrum.effective_rank(np.array([1e153, 2e-10]), 2) == approx(1)


# --- gates


def spread(rank_wanted):
    """Orthogonal tokens whose effective rank is a given number between 2 and 4."""
    low, high = 1e-9, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        value = rank(np.diag([1.0, 1.0, middle, middle]))
        low, high = (middle, high) if value < rank_wanted else (low, middle)
    return np.diag([1.0, 1.0, high, high])


@pytest.mark.parametrize(
    "raw, gates", [(2.001, (True, False)), (2.999, (True, False)), (3.001, (True, True))]
)
def test_gates_open_where_the_rank_is_high_enough(raw, gates):
    states = spread(raw)
    row = spectrum.summarise(states, sphere.project(states))
    assert row["raw"] == approx(raw)
    assert (row["gate_raw_2"], row["gate_raw_3"]) == gates
    assert row["gate_sphere_3"]  # four orthogonal directions, whatever their lengths


def test_the_gate_of_the_sphere_follows_the_points_and_the_raw_gates_the_states():
    plane = sphere.project([[1, 0, 0, 0], [0, 1, 0, 0], [1, 1, 0, 0], [1, -1, 0, 0]])
    row = spectrum.summarise(np.eye(4), plane)
    assert (row["gate_raw_2"], row["gate_raw_3"], row["gate_sphere_3"]) == (True, True, False)


# --- the Gaussian cloud beside it


def test_the_gaussian_cloud_has_one_value_in_every_process():
    # Of a fixed seed; NumPy's PCG64 streams do not change. Another LAPACK rounds by 1e-15.
    assert spectrum.gaussian_rank(8, 5) == spectrum.gaussian_rank(8, 5)
    spectrum.gaussian_rank.cache_clear()
    cloud = np.random.default_rng(spectrum.GAUSSIAN_SEED).standard_normal((8, 5))
    assert spectrum.gaussian_rank(8, 5) == approx(rank(cloud))


@pytest.mark.parametrize("seed", range(1, 4))
def test_another_gaussian_cloud_of_a_prompts_size_differs_by_less_than_a_unit(seed):
    # What the docstring says: the entropy is a mean over 512 singular values, whose shape the
    # Marchenko-Pastur law fixes, so draws differ by far less than one of 400 and more.
    other = rank(np.random.default_rng(seed).standard_normal((512, 576)))
    assert other == pytest.approx(spectrum.gaussian_rank(512, 576), abs=1)
    assert 300 < other < 512


def test_the_gaussian_rank_is_bounded_by_the_tokens_and_hardly_depends_on_the_width():
    narrow, wide = (spectrum.gaussian_rank(64, width) for width in (768, 3072))
    assert narrow < wide < 64
    assert wide - narrow < 4


# --- poor clouds


@pytest.mark.parametrize("tokens", [1, 2, 3, 20])
def test_coincident_tokens_have_rank_1(tokens):
    states = np.tile([0.3, -2.0, 1.0], (tokens, 1))
    row = spectrum.summarise(states, sphere.project(states))
    assert row["n_tokens"] == tokens
    # Rounding leaves singular values of 1e-16: those are dropped.
    for name in ("raw", "sphere", "raw_squared", "sphere_squared", "norm_participation"):
        assert row[name] == approx(1), name
    assert row["raw_share"] == approx(1 / min(tokens, 3))
    assert not any(row[gate] for gate in ("gate_raw_3", "gate_raw_2", "gate_sphere_3"))
    assert row["reason"] == ""


def test_opposite_tokens_have_rank_1():
    assert rank([[1.0, 0.0], [-2.0, 0.0], [3.0, 0.0]]) == approx(1)


def test_a_token_without_direction_leaves_the_sphere_undefined_and_the_raw_rank_defined():
    states = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    row = spectrum.summarise(states, sphere.project(states))
    assert row["reason"] == "a token's vector is zero: it has no direction"
    assert row["raw"] == approx(2)
    assert row["norm_participation"] == approx(4 / (3 * 2))
    assert all(math.isnan(row[key]) for key in ("sphere", "sphere_squared", "sphere_share"))
    assert row["gate_sphere_3"] is False


def test_a_cloud_of_zeros_has_no_rank_at_all():
    row = spectrum.summarise(np.zeros((3, 2)), sphere.project(np.zeros((3, 2))))
    assert row["reason"] == "a token's vector is zero: it has no direction"
    undefined = {key for key, value in row.items() if isinstance(value, float) and value != value}
    assert undefined == {
        "raw", "sphere", "raw_squared", "sphere_squared", "norm_participation", "raw_share",
        "sphere_share",
    }  # fmt: skip
    assert not any(row[gate] for gate in ("gate_raw_3", "gate_raw_2", "gate_sphere_3"))


def test_the_states_are_left_as_they_were():
    states = cloud(0).astype(np.float32)
    points = sphere.project(states)
    copies = states.copy(), points.copy()
    spectrum.summarise(states, points)
    np.testing.assert_array_equal(states, copies[0])
    np.testing.assert_array_equal(points, copies[1])
