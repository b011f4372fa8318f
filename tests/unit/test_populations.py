"""Pairs and tokens by belonging, against plain double loops and poor clouds."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokensphere import populations, sphere

# Means of a few dozen inner products, in another order.
ROUNDING = 1e-13


def cloud(seed, tokens=14, width=4):
    """Draw token vectors of very different lengths, ids of which several repeat, and labels."""
    random = np.random.default_rng(seed)
    states = random.normal(size=(tokens, width)) + random.normal(size=width)
    lengths = 10.0 ** random.uniform(-3, 3, (tokens, 1))
    return states * lengths, random.integers(5, size=tokens), random.integers(-1, 3, size=tokens)


def approx(expected):
    return pytest.approx(expected, abs=ROUNDING, rel=0, nan_ok=True)


def summary(states, ids, labels, **options):
    rows = populations.pair_populations(sphere.project(states), ids, labels, **options)
    assert [row.pop("population") for row in rows] == [*populations.POPULATIONS]
    return dict(zip(populations.POPULATIONS, rows, strict=True))


def undefined(row):
    return {name for name, value in row.items() if isinstance(value, float) and value != value}


EVERY = {"mean", "mass_near_one", "share"}
DISTINCT = {f"{name}_distinct" for name in EVERY}


# --- twins: the definitions, in loops


def twin_population(one, two):
    if one >= 0 and two >= 0:
        return "within" if one == two else "between"
    return "mixed" if one >= 0 or two >= 0 else "unclustered"


def twin_summary(states, ids, labels, near_one):
    kinds = {name: [] for name in populations.POPULATIONS}
    for i, x in enumerate(states):
        for j in range(i + 1, len(states)):
            y = states[j]
            product = math.fsum(x * y) / (math.hypot(*x) * math.hypot(*y))
            kinds[twin_population(labels[i], labels[j])].append((product, ids[i] != ids[j]))
    rows = {}
    for name, pairs in kinds.items():
        rows[name] = {"n_tokens": len(states), "reason": ""}
        for suffix, only in (("", (True, False)), ("_distinct", (True,))):
            total = sum(differs in only for each in kinds.values() for _, differs in each)
            chosen = [product for product, differs in pairs if differs in only]
            rows[name] |= {
                f"mean{suffix}": approx(sum(chosen) / len(chosen)),
                f"mass_near_one{suffix}": sum(p > near_one for p in chosen) / len(chosen),
                f"share{suffix}": len(chosen) / total,
            }
    return rows


@pytest.mark.parametrize("near_one", [0.9, 0.3])
@pytest.mark.parametrize("seed", range(5))  # each draws pairs of every population
def test_every_pair_is_in_the_population_of_its_labels(seed, near_one):
    states, ids, labels = cloud(seed)
    expected = twin_summary(states, ids, labels, near_one)
    assert summary(states, ids, labels, near_one=near_one) == expected


@pytest.mark.parametrize("seed", range(3))
def test_pairs_stand_in_the_order_of_their_inner_products(seed):
    _, _, labels = cloud(seed)
    found = populations.population_of_pairs(labels)
    assert [populations.POPULATIONS[kind] for kind in found] == [
        twin_population(labels[i], labels[j]) for i in range(14) for j in range(i + 1, 14)
    ]


def test_two_unclustered_tokens_are_not_in_one_cluster():
    assert populations.population_of_pairs([-1, 0, 0, 1, -1]).tolist() == [
        2, 2, 2, 3, 0, 1, 2, 1, 2, 2,
    ]  # fmt: skip


# --- invariances


@given(st.integers(0, 10**6))
def test_populations_depend_on_no_rotation_length_order_or_name(seed):
    random = np.random.default_rng(seed)
    states, ids, labels = cloud(seed)
    order = random.permutation(14)
    rotation, _ = np.linalg.qr(random.normal(size=(4, 4)))
    other = (states @ rotation * 10.0 ** random.uniform(-3, 3, (14, 1)))[order]
    renamed = np.array([9, 4, 6, -1])[labels[order]]  # -1 is the last one
    once, again = summary(states, ids, labels), summary(other, ids[order] + 100, renamed)
    assert again == {
        population: {
            name: value if name == "reason" else approx(value) for name, value in row.items()
        }
        for population, row in once.items()
    }


@given(st.integers(0, 10**6))
def test_populations_add_up_to_all_pairs(seed):
    states, ids, labels = cloud(seed)
    rows = summary(states, ids, labels).values()
    whole = sphere.inner_products(sphere.project(states), ids)
    for suffix in ("", "_distinct"):
        assert sum(row[f"share{suffix}"] for row in rows) == approx(1)
        for name in ("mean", "mass_near_one"):
            parts = [row[f"share{suffix}"] * row[name + suffix] for row in rows]
            # A population without pairs has no mean and no share.
            assert np.nansum(parts) == approx(whole[name + suffix])


# --- known clouds


def test_coincident_clusters_at_right_angles():
    states = np.eye(3)[[0, 0, 0, 1, 1, 2]]
    rows = summary(states, [1, 1, 2, 3, 4, 5], [0, 0, 0, 1, 1, -1])
    assert [row["mean"] for row in rows.values()] == approx([1, 0, 0, math.nan])
    assert [row["share"] for row in rows.values()] == approx([4 / 15, 6 / 15, 5 / 15, 0])
    assert [row["share_distinct"] for row in rows.values()] == approx([3 / 14, 6 / 14, 5 / 14, 0])
    assert [row["mass_near_one"] for row in rows.values()] == approx([1, 0, 0, math.nan])
    assert rows["unclustered"]["reason"] == "no such pair"


def test_a_pair_is_near_one_only_above_the_threshold():
    states = [[1.0, 0.0], [0.6, 0.8]]
    value = sphere.gram(sphere.project(states))[0, 1]
    for near_one, share in ((value, 0), (np.nextafter(value, 0), 1)):
        row = summary(states, [0, 1], [0, 0], near_one=near_one)["within"]
        assert (row["mass_near_one"], row["mass_near_one_distinct"]) == (share, share)


def test_a_pair_is_near_one_above_nine_tenths():
    angles = np.arccos([1.0, 0.91, 0.89])
    states = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    # Their cosines with the first are .91 and .89; the two others are 2.6 degrees apart.
    assert summary(states, [0, 1, 2], [0, 0, 0])["within"]["mass_near_one"] == approx(2 / 3)


# --- poor clouds


@pytest.mark.parametrize("labels", [[-1], [0]])
def test_one_token_makes_no_pair(labels):
    for row in summary([[1.0, 2.0]], [7], labels).values():
        assert undefined(row) == EVERY | DISTINCT
        assert row["reason"] == "fewer than two tokens: there is no pair"


@pytest.mark.parametrize(
    "labels, population",
    [([0, 0], "within"), ([0, 1], "between"), ([-1, 0], "mixed"), ([-1, -1], "unclustered")],
)
def test_two_tokens_make_one_pair_of_one_population(labels, population):
    rows = summary([[1.0, 0.0], [1.0, 0.0]], [1, 2], labels)
    only = rows.pop(population)
    assert only == {"n_tokens": 2, "reason": ""} | dict.fromkeys(EVERY | DISTINCT, approx(1))
    for row in rows.values():
        assert undefined(row) == (EVERY | DISTINCT) - {"share", "share_distinct"}
        assert row["reason"] == "no such pair"


@pytest.mark.parametrize("label, population", [(0, "within"), (-1, "unclustered")])
def test_tokens_all_in_one_cluster_or_all_in_none_make_one_population(label, population):
    states, ids, _ = cloud(0)
    rows = summary(states, ids, np.full(14, label))
    only = rows.pop(population)
    assert (only["share"], only["share_distinct"], only["reason"]) == (1, 1, "")
    for row in rows.values():
        assert (row["share"], row["share_distinct"], row["reason"]) == (0, 0, "no such pair")


def test_tokens_of_one_id_make_no_distinct_pair():
    states, _, labels = cloud(0)
    for row in summary(states, np.zeros(14, dtype=int), labels).values():
        assert undefined(row) == DISTINCT
        assert row["reason"] == "no such pair of distinct token ids"


def test_a_population_may_have_no_distinct_pair_while_others_have_one():
    rows = summary(np.eye(4), [1, 1, 2, 3], [0, 0, 1, 2])
    assert undefined(rows["within"]) == {"mean_distinct", "mass_near_one_distinct"}
    assert rows["within"]["reason"] == "no such pair of distinct token ids"
    assert rows["within"]["share_distinct"] == 0
    assert (undefined(rows["between"]), rows["between"]["reason"]) == (set(), "")


def test_tokens_of_distinct_ids_have_one_reading():
    states, _, labels = cloud(0)
    for row in summary(states, np.arange(14), labels).values():
        assert all(row[name] == row[f"{name}_distinct"] for name in EVERY)


def test_coincident_tokens_are_all_near_one():
    _, ids, labels = cloud(0)
    for row in summary(np.full((14, 3), 0.7), ids, labels).values():
        assert (row["mean"], row["mass_near_one"], row["reason"]) == (approx(1), 1, "")


def test_a_token_without_direction_leaves_its_own_populations_undefined():
    states = np.eye(5)
    states[4] = 0
    rows = summary(states, np.arange(5), [0, 0, 1, 1, -1])
    assert undefined(rows["mixed"]) == {
        "mean", "mass_near_one", "mean_distinct", "mass_near_one_distinct",
    }  # fmt: skip
    assert rows["mixed"]["reason"] == "a token's vector is zero: it has no direction"
    assert rows["mixed"]["share"] == approx(0.4)
    assert [rows[name]["reason"] for name in ("within", "between")] == ["", ""]
    assert rows["unclustered"]["reason"] == "no such pair"


def test_a_value_is_undefined_only_with_a_reason():
    for seed in range(20):
        states, ids, labels = cloud(seed, tokens=seed % 5 + 1)
        states[seed % 3 :: 3] *= seed % 2
        for row in summary(states, ids, labels).values():
            assert bool(undefined(row)) == bool(row["reason"])


# --- tokens


@pytest.mark.parametrize("seed", range(4))
def test_a_tokens_share_is_that_of_the_states_in_which_it_is_clustered(seed):
    labels = np.random.default_rng(seed).integers(-1, 2, size=(7, 5))
    expected = [sum(int(layer[token] >= 0) for layer in labels) / 7 for token in range(5)]
    assert populations.shares_of_layers(list(labels)).tolist() == approx(expected)


@pytest.mark.parametrize("label, share", [(-1, 0), (0, 1), (3, 1)])
@pytest.mark.parametrize("layers", [1, 5])
def test_tokens_that_are_always_or_never_clustered(label, share, layers):
    found = populations.shares_of_layers([np.full(3, label)] * layers)
    assert found.tolist() == [share] * 3


@given(st.integers(0, 10**6))
def test_shares_follow_their_tokens_and_not_the_order_of_states(seed):
    random = np.random.default_rng(seed)
    labels = random.integers(-1, 3, size=(6, 8))
    order = random.permutation(8)
    found = populations.shares_of_layers(labels[random.permutation(6)][:, order])
    np.testing.assert_array_equal(found, populations.shares_of_layers(labels)[order])
