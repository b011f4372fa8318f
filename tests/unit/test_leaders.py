"""What attention looks like, against loops, full decompositions and matrices of known form."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokensphere import leaders, routing

# Sums of at most a few hundred terms of order 1, in another order.
ROUNDING = 1e-12

seeds = st.integers(0, 10**6)
causal_or_not = pytest.mark.parametrize("causal", [True, False])


def approx(expected):
    return pytest.approx(expected, rel=ROUNDING, abs=ROUNDING, nan_ok=True)


def attention_of(seed, heads=2, tokens=9, causal=True):
    """Draw heads whose rows are uneven distributions over what the mask shows."""
    weights = np.random.default_rng(seed).exponential(size=(heads, tokens, tokens)) ** 4
    if causal:
        weights = np.tril(weights)
    return weights / weights.sum(axis=2, keepdims=True)


def boolean(targets):
    """Let query i give everything to key targets[i]."""
    return np.eye(len(targets))[list(targets)]


# --- twins: the definitions, in loops


def twin_entropy(matrix, causal):
    tokens = len(matrix)
    own = [-math.fsum(p * math.log(p) for p in row if p > 0) for row in matrix]
    allowed = [i + 1 if causal else tokens for i in range(tokens)]
    choices = [i for i in range(tokens) if allowed[i] > 1]
    return {
        "entropy": approx(math.fsum(own) / tokens),
        "entropy_share": approx(
            math.fsum(own[i] / math.log(allowed[i]) for i in choices) / len(choices)
        ),
        "first_token_share": approx(math.fsum(row[0] for row in matrix) / tokens),
        "first_token_expected": approx(math.fsum(1 / most for most in allowed) / tokens),
        "reason": "",
    }


def twin_rank(matrix, energy):
    """The fewest singular values, by a full decomposition, that hold so much of the energy."""
    squares = [value**2 for value in np.linalg.svd(matrix, compute_uv=False)]
    held = 0.0
    for count, square in enumerate(sorted(squares, reverse=True), start=1):
        held += square
        if held >= (energy - 1e-11) * math.fsum(squares):
            return count
    raise AssertionError


def twin_distance(matrix):
    """Try all rows with a single 1."""
    tokens = len(matrix)
    squares = [
        min(
            math.fsum((weight - (key == one)) ** 2 for key, weight in enumerate(row))
            for one in range(tokens)
        )
        for row in matrix
    ]
    return math.sqrt(math.fsum(squares) / tokens)


def twin_leaders(matrix, followers):
    tokens = len(matrix)
    found = 0
    for key in range(tokens):
        following = sum(1 for row in matrix if row[key] > 0.5)
        found += following >= followers * tokens
    return found


@causal_or_not
@pytest.mark.parametrize("tokens", [2, 3, 9, 20])
@pytest.mark.parametrize("seed", range(3))
def test_entropy_is_that_of_each_row(seed, tokens, causal):
    attention = attention_of(seed, 3, tokens, causal)
    assert leaders.entropy(attention, causal) == [
        {"head": head, **twin_entropy(matrix, causal)} for head, matrix in enumerate(attention)
    ]


@causal_or_not
@pytest.mark.parametrize("energy", [0.3, 0.9, 0.99])
@pytest.mark.parametrize("seed", range(8))
def test_rank_counts_the_singular_values_that_hold_the_energy(seed, energy, causal):
    (matrix,) = attention_of(seed, 1, 15, causal)
    assert leaders.rank_at(matrix, energy) == twin_rank(matrix, energy)


@causal_or_not
@pytest.mark.parametrize("seed", range(6))
def test_the_nearest_boolean_row_is_the_best_of_all(seed, causal):
    (matrix,) = attention_of(seed, 1, causal=causal)
    assert leaders.boolean_distance(matrix) == approx(twin_distance(matrix))


@causal_or_not
@pytest.mark.parametrize("followers", [0.05, 0.1, 0.25, 0.5, 1.0])
def test_a_row_puts_the_three_measures_of_a_head_together(followers, causal):
    attention = attention_of(7, 6, 12, causal)
    found = leaders.leaders(attention, followers)
    assert found == [
        {
            "head": head,
            "rank_99": twin_rank(matrix, 0.99),
            "boolean_distance": approx(twin_distance(matrix)),
            "leaders": twin_leaders(matrix, followers),
        }
        for head, matrix in enumerate(attention)
    ]


def test_the_twins_tell_heads_apart():
    # Otherwise the comparison above could hold for a constant.
    found = leaders.leaders(attention_of(7, 6, 12), 0.1)
    assert len({row["rank_99"] for row in found}) > 1
    assert len({row["leaders"] for row in found}) > 1


# --- entropy


@pytest.mark.parametrize("tokens", [2, 5, 64])
def test_even_attention_without_a_mask_has_entropy_log_n(tokens):
    (row,) = leaders.entropy(routing.content_free(tokens, False)[None], False)
    assert row == {
        "head": 0,
        "entropy": approx(math.log(tokens)),
        "entropy_share": approx(1),
        "first_token_share": approx(1 / tokens),
        "first_token_expected": approx(1 / tokens),
        "reason": "",
    }


@pytest.mark.parametrize("tokens", [2, 5, 64])
def test_even_attention_under_a_mask_is_as_spread_as_the_mask_allows(tokens):
    (row,) = leaders.entropy(routing.content_free(tokens, True)[None], True)
    harmonic = math.fsum(1 / (i + 1) for i in range(tokens))
    assert row == {
        "head": 0,
        "entropy": approx(math.fsum(math.log(i + 1) for i in range(tokens)) / tokens),
        "entropy_share": approx(1),
        "first_token_share": approx(harmonic / tokens),
        "first_token_expected": approx(harmonic / tokens),
        "reason": "",
    }


@causal_or_not
@pytest.mark.parametrize("targets, first", [((0, 0, 0, 0), 1), ((0, 1, 2, 3), 1 / 4)])
def test_attention_to_one_token_has_no_entropy(targets, first, causal):
    (row,) = leaders.entropy(boolean(targets)[None], causal)
    assert (row["entropy"], row["entropy_share"]) == (0, 0)
    assert str(row["entropy"]) == str(row["entropy_share"]) == "0.0"  # not -0.0
    assert row["first_token_share"] == first


@causal_or_not
def test_one_token_has_no_choice(causal):
    (row,) = leaders.entropy([[[1.0]]], causal)
    assert math.isnan(row.pop("entropy_share"))
    assert row == {
        "head": 0,
        "entropy": 0,
        "first_token_share": 1,
        "first_token_expected": 1,
        "reason": "one token: no query has a choice",
    }


def test_the_first_query_under_a_mask_is_in_no_share():
    # Query 1 is as undecided as it can be; query 0 would halve the share if it counted as 0.
    (row,) = leaders.entropy([[[1.0, 0.0], [0.5, 0.5]]], True)
    assert row["entropy_share"] == approx(1)
    assert row["entropy"] == approx(math.log(2) / 2)


@causal_or_not
@given(seed=seeds)
def test_entropy_stays_in_its_range_in_float32(causal, seed):
    random = np.random.default_rng(seed)
    scores = random.normal(size=(2, 12, 12)).astype(np.float32) * random.choice([0, 1e-3, 10, 100])
    if causal:
        scores[:, *np.triu_indices(12, 1)] = -np.inf
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    # As a softmax rounds: a row adds up to 1 but for the last bits.
    weights *= np.float32(1 + random.choice([-1, 0, 1]) * 1e-6)
    for row in leaders.entropy(weights.astype(np.float32), causal):
        assert (
            0 <= row["entropy"] <= math.log(12) + ROUNDING
        )  # the mean of up to log(12) twelve times
        assert 0 <= row["entropy_share"] <= 1


@given(seeds)
def test_nothing_but_position_0_depends_on_the_order_of_keys(seed):
    attention = attention_of(seed, causal=False)
    order = np.append(0, 1 + np.random.default_rng(seed).permutation(8))
    moved = attention[:, order[::-1]][:, :, order]  # other queries first, other keys
    for once, again in zip(
        leaders.entropy(attention, False), leaders.entropy(moved, False), strict=True
    ):
        assert again == {
            name: value if isinstance(value, str) else approx(value) for name, value in once.items()
        }
    assert leaders.leaders(moved, 0.1) == [
        row | {"boolean_distance": approx(row["boolean_distance"])}
        for row in leaders.leaders(attention, 0.1)
    ]


# --- rank


@pytest.mark.parametrize("tokens", [1, 2, 10, 50, 99, 100, 101, 200, 300])
def test_equal_singular_values_must_all_but_a_hundredth_be_there(tokens):
    assert leaders.rank_at(np.eye(tokens), 0.99) == -(-99 * tokens // 100)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("tokens", [1, 5, 40])
def test_queries_that_look_alike_have_rank_1(tokens, seed):
    row = np.random.default_rng(seed).dirichlet(np.ones(tokens))
    assert leaders.rank_at(np.tile(row, (tokens, 1)), 0.99) == 1


def test_two_leaders_have_rank_2():
    assert leaders.rank_at(boolean([0, 0, 0, 0, 1, 1]), 0.99) == 2
    # Squares 99 and 1: the first alone holds exactly 99%.
    assert leaders.rank_at(boolean([0] * 99 + [99]), 0.99) == 1
    assert leaders.rank_at(boolean([0] * 98 + [98, 98]), 0.99) == 2


@pytest.mark.parametrize("scale", [1.0, 1 / 3, 1e-3, 7.0])
@pytest.mark.parametrize("seed", range(5))
def test_energy_that_is_exactly_enough_is_enough(seed, scale):
    # Squares 3, 2, 2, 2, 1 in a random basis: 50%, 70% and 90% are met exactly.
    random = np.random.default_rng(seed)
    one, two = (np.linalg.qr(random.normal(size=(5, 5)))[0] for _ in range(2))
    matrix = one @ np.diag(np.sqrt([3, 2, 2, 2, 1])) @ two * scale
    found = [leaders.rank_at(matrix, energy) for energy in (0.3, 0.31, 0.5, 0.7, 0.71, 0.9, 0.91)]
    assert found == [1, 2, 2, 3, 4, 4, 5]


@given(seeds)
def test_rank_depends_on_no_order_and_no_scale(seed):
    random = np.random.default_rng(seed)
    (matrix,) = attention_of(seed, 1, 12, False)
    moved = matrix[random.permutation(12)][:, random.permutation(12)] * random.uniform(0.1, 10)
    assert leaders.rank_at(moved, 0.9) == leaders.rank_at(matrix, 0.9)
    assert leaders.rank_at(matrix.T, 0.9) == leaders.rank_at(matrix, 0.9)


# --- distance to Boolean


@pytest.mark.parametrize("targets", [(0,), (0, 0, 0), (0, 1, 2), (2, 2, 0)])
def test_a_boolean_matrix_is_at_distance_0(targets):
    assert leaders.boolean_distance(boolean(targets)) == 0


@pytest.mark.parametrize("tokens", [1, 2, 7, 100])
def test_even_attention_is_at_its_known_distance(tokens):
    even = routing.content_free(tokens, False)
    assert leaders.boolean_distance(even) == approx(math.sqrt(1 - 1 / tokens))


def test_even_attention_under_a_mask_is_at_its_known_distance():
    mean = math.fsum(1 - 1 / (i + 1) for i in range(30)) / 30
    assert leaders.boolean_distance(routing.content_free(30, True)) == approx(math.sqrt(mean))


def test_a_distance_of_rounding_is_no_less_than_0():
    # |a|^2 - 2 a + 1 of a near 1: a difference of numbers of order 1 that are almost equal.
    for weight in 1 + np.random.default_rng(0).uniform(-1e-7, 1e-7, 200):
        assert 0 <= leaders.boolean_distance(np.array([[weight]])) < 2e-7


# --- leaders


def test_a_leader_holds_more_than_half_of_a_row():
    half = np.array([[[0.5, 0.5], [0.5, 0.5]]])
    assert leaders.leaders(half, 0.5)[0]["leaders"] == 0
    more = half.copy()
    more[0, :, 0] = np.nextafter(0.5, 1)
    assert leaders.leaders(more, 0.5)[0]["leaders"] == 1
    assert leaders.leaders(more, 1.0)[0]["leaders"] == 1


@pytest.mark.parametrize("tokens, following", [(10, 1), (30, 3), (70, 7), (200, 20), (300, 30)])
def test_exactly_a_tenth_of_the_queries_is_enough(tokens, following):
    targets = [0] * (tokens - following) + [1] * following
    assert leaders.leaders(boolean(targets)[None], 0.1)[0]["leaders"] == 2
    targets[-1] = 0
    assert leaders.leaders(boolean(targets)[None], 0.1)[0]["leaders"] == 1


def test_leaders_are_keys_and_not_queries():
    (row,) = leaders.leaders(boolean([2, 2, 2, 2])[None], 0.5)
    assert row == {"head": 0, "rank_99": 1, "boolean_distance": 0, "leaders": 1}
    (row,) = leaders.leaders(np.eye(4)[None], 0.5)
    assert (row["rank_99"], row["leaders"]) == (4, 0)
