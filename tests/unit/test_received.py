"""Attention received, against loops, closed forms, content-free attention and poor inputs."""

import math
from fractions import Fraction
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokensphere import masks, pieces, received

# Sums and ratios of at most a few hundred weights, in another order.
ROUNDING = 1e-12

CONTROLLED = [
    "mask_corrected",
    "mask_corrected_without_first",
    "of_expected_without_first",
    "mask_corrected_median",
    "mask_corrected_median_without_first",
]
PUBLISHED = ["published", "published_without_first"]

seeds = st.integers(0, 10**6)
causal_or_not = pytest.mark.parametrize("causal", [True, False])


def approx(expected):
    return pytest.approx(expected, rel=ROUNDING, abs=ROUNDING, nan_ok=True)


def attention_of(seed, heads=2, tokens=9, causal=True):
    """Draw heads whose rows are uneven distributions over what the mask shows."""
    weights = np.random.default_rng(seed).exponential(size=(heads, tokens, tokens)) ** 2
    if causal:
        weights = np.tril(weights)
    return weights / weights.sum(axis=2, keepdims=True)


def flags(tokens, *where):
    found = np.zeros(tokens, dtype=bool)
    found[list(where)] = True
    return found


def split(seed, tokens=9):
    """Draw which tokens are clustered and which are special: some and not all of either."""
    random = np.random.default_rng(seed)
    clustered = random.permutation(np.arange(tokens) < random.integers(3, tokens - 2))
    return clustered, flags(tokens, random.integers(tokens))


def groups(attention, clustered, special, causal):
    """Ask for the rows of the two groups, by the sums over heads that the workflow keeps."""
    own = received.profile(attention)
    expected = received.expected(attention.shape[1], causal) * len(attention)
    return received.by_group(own.sum(axis=0), expected, clustered, special)


def undefined(row):
    return {name for name, value in row.items() if isinstance(value, float) and value != value}


def values(row):
    return {name: value if isinstance(value, str) else approx(value) for name, value in row.items()}


# --- twins: the definitions, in loops


def twin_expected(tokens, causal):
    """What each token gets of the even share of every other query that sees it."""
    found = []
    for j in range(tokens):
        queries = range(j + 1, tokens) if causal else [i for i in range(tokens) if i != j]
        found.append(sum(Fraction(1, i + 1 if causal else tokens) for i in queries))
    return found


def twin_profile(attention):
    heads, tokens, _ = np.shape(attention)
    return [
        [math.fsum(attention[h][i][j] for i in range(tokens) if i != j) for j in range(tokens)]
        for h in range(heads)
    ]


def mean(numbers):
    return sum(numbers) / len(numbers)


def twin_group(got, expected, group, special):
    """One group's row, token by token; everything in it is defined."""
    tokens = range(len(got))
    left = [j for j in tokens if j != 0 and not special[j]]
    seen = [j for j in tokens if expected[j] > 0]
    seen_left = [j for j in seen if j in left]

    def ratio(among, scale=1.0):
        mine = [j for j in among if group[j]]
        return sum(got[j] for j in mine) / float(sum(expected[j] for j in mine)) / scale

    def middle(among, scale=1.0):
        return median(got[j] / float(expected[j]) / scale for j in among if group[j])

    # Shares of what the tokens that stay receive, over shares of what they are expected to.
    of_all = sum(got[j] for j in seen_left) / float(sum(expected[j] for j in seen_left))
    return {
        "tokens": sum(map(bool, group)),
        "published": mean([got[j] for j in tokens if group[j]]) / mean(got),
        "published_without_first": mean([got[j] for j in left if group[j]])
        / mean([got[j] for j in left]),
        "mask_corrected": ratio(seen),
        "mask_corrected_without_first": ratio(seen_left, of_all),
        "of_expected_without_first": ratio(seen_left),
        "mask_corrected_median": middle(seen),
        "mask_corrected_median_without_first": middle(seen_left, of_all),
        "reason": "",
    }


def twin_mass(attention, queries, keys):
    tokens = range(len(attention))
    return mean(
        [sum(attention[i][j] for j in tokens if keys[j] and j != i) for i in tokens if queries[i]]
    )


@causal_or_not
@pytest.mark.parametrize("tokens", [1, 2, 3, 8, 40])
def test_expected_is_what_even_attention_gives_and_its_closed_form(tokens, causal):
    found = received.expected(tokens, causal)
    assert found.tolist() == approx([float(each) for each in twin_expected(tokens, causal)])
    harmonic = [math.fsum(1 / k for k in range(1, m + 1)) for m in range(tokens + 1)]
    closed = [
        harmonic[tokens] - harmonic[j + 1] if causal else (tokens - 1) / tokens
        for j in range(tokens)
    ]
    assert found.tolist() == approx(closed)
    if causal:
        assert found[-1] == 0  # exactly: by it the last token is known


@causal_or_not
@pytest.mark.parametrize("heads, tokens", [(1, 1), (1, 2), (3, 7), (2, 12)])
def test_a_profile_sums_what_the_other_tokens_give(heads, tokens, causal):
    attention = attention_of(tokens, heads, tokens, causal)
    found = received.profile(attention)
    assert found.shape == (heads, tokens)
    for head, row in enumerate(twin_profile(attention)):
        assert found[head].tolist() == approx(row)


def test_a_profile_of_float32_is_summed_in_float64():
    # 4000 queries of 1/4000 beside one of 1: float32 sums would be off by 1e-5.
    weights = np.full((1, 4000, 1), 1 / 4000, dtype=np.float32)
    weights = np.concatenate([np.ones((1, 4000, 1), np.float32), weights], axis=2)
    exact = 3999 * float(np.float32(1 / 4000))
    assert received.profile(weights)[0, 1] == pytest.approx(exact, rel=1e-12)


@causal_or_not
@pytest.mark.parametrize("seed", range(6))
def test_every_value_of_a_group_is_that_of_its_definition(seed, causal):
    attention, (clustered, special) = attention_of(seed, causal=causal), split(seed)
    got = [sum(column) for column in zip(*twin_profile(attention), strict=True)]
    expected = [2 * each for each in twin_expected(9, causal)]
    rows = groups(attention, clustered, special, causal)
    assert [row.pop("group") for row in rows] == ["clustered", "unclustered"]
    for row, group in zip(rows, (clustered, ~clustered), strict=True):
        assert row == values(twin_group(got, expected, group, special))


@pytest.mark.parametrize("seed", range(4))
def test_what_a_token_without_expectation_receives_is_in_the_published_values_alone(seed):
    # No model gives the last token anything under a mask; the definition holds all the same.
    got, (clustered, special) = np.random.default_rng(seed).exponential(size=9), split(seed)
    expected = twin_expected(9, True)
    rows = received.by_group(got, received.expected(9, True), clustered, special)
    for row, group in zip(rows, (clustered, ~clustered), strict=True):
        assert row == {"group": row["group"], **values(twin_group(got, expected, group, special))}


@causal_or_not
@pytest.mark.parametrize("seed", range(4))
def test_every_head_is_compared_on_its_own(seed, causal):
    attention, (clustered, special) = attention_of(seed, 3, causal=causal), split(seed)
    own, expected = received.profile(attention), received.expected(9, causal)
    rows = received.by_head(own, expected, clustered, special)
    places = [(head, group) for head in range(3) for group in ("clustered", "unclustered")]
    assert [(row["head"], row["group"]) for row in rows] == places
    for row in rows:
        group = clustered if row["group"] == "clustered" else ~clustered
        twin = twin_group(
            twin_profile(attention)[row["head"]], twin_expected(9, causal), group, special
        )
        for name in ("published", "mask_corrected"):
            for measure in (name, f"{name}_without_first"):
                assert row[measure] == approx(twin[measure])
        assert row["reason"] == ""


@causal_or_not
@pytest.mark.parametrize("seed", range(4))
def test_mass_is_what_the_queries_of_a_group_give_to_the_keys_of_another(seed, causal):
    attention, (clustered, _) = attention_of(seed, causal=causal).mean(axis=0), split(seed)
    free = masks.content_free(9, causal)
    rows = received.mass(attention, free, clustered)
    names = ("clustered", "unclustered")
    assert [(row["from_group"], row["to_group"]) for row in rows] == [
        (source, target) for source in names for target in names
    ]
    of = {"clustered": clustered, "unclustered": ~clustered}
    for row in rows:
        queries, keys = of[row["from_group"]], of[row["to_group"]]
        first = keys & flags(9, 0)
        assert row["mass"] == approx(twin_mass(attention, queries, keys))
        assert row["expected"] == approx(twin_mass(free, queries, keys))
        assert row["first"] == approx(twin_mass(attention, queries, first))
        assert row["reason"] == ""


@pytest.mark.parametrize("seed", range(4))
def test_classes_are_counted_within_each_group(seed):
    random = np.random.default_rng(seed)
    found = [pieces.CLASSES[kind] for kind in random.integers(5, size=12)]
    clustered, _ = split(seed, 12)
    for row, group in zip(received.classes(found, clustered), (clustered, ~clustered), strict=True):
        mine = [kind for kind, inside in zip(found, group, strict=True) if inside]
        assert row == {
            "group": "clustered" if group is clustered else "unclustered",
            "tokens": len(mine),
            **{kind: approx(mine.count(kind) / len(mine)) for kind in pieces.CLASSES},
            "first": approx(group[0] / len(mine)),
            "reason": "",
        }
        assert sum(row[kind] for kind in pieces.CLASSES) == approx(1)


# --- content-free attention: the confound, and that it is controlled


@causal_or_not
@given(seed=seeds)
def test_content_free_attention_is_at_parity_in_every_controlled_value(causal, seed):
    tokens = int(np.random.default_rng(seed).integers(6, 30))
    clustered, special = split(seed, tokens)
    free = np.stack([masks.content_free(tokens, causal)] * 3)
    for row in groups(free, clustered, special, causal):
        for name in CONTROLLED:  # a group without a value says why
            assert row[name] == approx(1) or (row["reason"] and math.isnan(row[name]))
    for row in received.by_head(
        received.profile(free), received.expected(tokens, causal), clustered, special
    ):
        assert row["mask_corrected"] == approx(1) or row["reason"]
    for row in received.mass(free[0], free[0], clustered):
        assert row["mass"] == approx(row["expected"])


@pytest.mark.parametrize("tokens", [6, 20])
def test_a_causal_mask_alone_favours_early_tokens_as_published(tokens):
    free, early = masks.content_free(tokens, True)[None], np.arange(tokens) < tokens // 2
    one, two = groups(free, early, flags(tokens), True)
    assert one["published"] > 1.4 and two["published"] < 0.6
    assert one["published_without_first"] > 1.3 and two["published_without_first"] < 0.7
    # Late sums of 1 / (i + 1) in closed form: those of the early half are the rest of n - H_n.
    late = sum(twin_expected(tokens, True)[tokens // 2 :])
    whole = tokens - sum(Fraction(1, k) for k in range(1, tokens + 1))
    assert two["published"] == approx(float(2 * late / whole))


def test_without_a_mask_content_free_attention_is_at_parity_as_published():
    free, early = masks.content_free(8, False)[None], np.arange(8) < 3
    for row in groups(free, early, flags(8), False):
        assert [row[name] for name in PUBLISHED] == approx([1, 1])


# --- identities and invariances


@causal_or_not
@given(seed=seeds)
def test_groups_average_to_parity(causal, seed):
    attention, (clustered, special) = attention_of(seed, causal=causal), split(seed)
    rows = groups(attention, clustered, special, causal)
    assert sum(row["tokens"] * row["published"] for row in rows) == approx(9)
    others = ~special & ~flags(9, 0)
    expected = received.expected(9, causal)
    by_count = by_expectation = total = 0
    for row, group in zip(rows, (clustered, ~clustered), strict=True):
        if (group & others).any():
            by_count += (group & others).sum() * row["published_without_first"]
        if (share := expected[group & others].sum()) > 0:
            by_expectation += share * row["mask_corrected_without_first"]
            total += share
    assert by_count == approx(others.sum())
    assert by_expectation == approx(total)


@given(seeds)
def test_no_value_depends_on_the_order_of_tokens_without_a_mask(seed):
    attention, (clustered, special) = attention_of(seed, causal=False), split(seed)
    # Position 0 is apart: it stays where it is.
    order = np.append(0, 1 + np.random.default_rng(seed).permutation(8))
    moved = attention[:, order][:, :, order]
    assert groups(moved, clustered[order], special[order], False) == [
        values(row) for row in groups(attention, clustered, special, False)
    ]
    own, expected = received.profile(attention), received.expected(9, False)
    assert received.by_head(
        received.profile(moved), expected, clustered[order], special[order]
    ) == [values(row) for row in received.by_head(own, expected, clustered, special)]
    free = masks.content_free(9, False)
    assert received.mass(moved[0], free, clustered[order]) == [
        values(row) for row in received.mass(attention[0], free, clustered)
    ]


@causal_or_not
@given(seed=seeds)
def test_heads_may_come_in_any_order(causal, seed):
    attention, (clustered, special) = attention_of(seed, 4, causal=causal), split(seed)
    order = np.random.default_rng(seed).permutation(4)
    assert groups(attention[order], clustered, special, causal) == [
        values(row) for row in groups(attention, clustered, special, causal)
    ]
    expected = received.expected(9, causal)
    rows = received.by_head(received.profile(attention), expected, clustered, special)
    for row in received.by_head(received.profile(attention[order]), expected, clustered, special):
        same = rows[2 * order[row["head"]] + (row["group"] == "unclustered")]
        assert row | {"head": same["head"]} == same


@given(seeds, st.floats(1e-6, 1e6))
def test_more_attention_for_all_moves_only_what_is_compared_with_expectation(seed, factor):
    random = np.random.default_rng(seed)
    got, (clustered, special) = random.exponential(size=9), split(seed)
    expected = received.expected(9, True)
    once = received.by_group(got, expected, clustered, special)
    absolute = ("mask_corrected", "of_expected_without_first", "mask_corrected_median")
    for row, scaled in zip(
        once, received.by_group(got * factor, expected, clustered, special), strict=True
    ):
        wanted = {
            name: value * factor if name in absolute else value for name, value in row.items()
        }
        assert scaled == values(wanted)


@causal_or_not
@given(seed=seeds)
def test_what_a_group_gives_away_and_keeps_adds_up_to_1(causal, seed):
    attention, (clustered, _) = attention_of(seed, causal=causal).mean(axis=0), split(seed)
    rows = received.mass(attention, masks.content_free(9, causal), clustered)
    for group, pair in ((clustered, rows[:2]), (~clustered, rows[2:])):
        kept = np.diagonal(attention)[group].mean()
        assert sum(row["mass"] for row in pair) + kept == approx(1)
    for row in rows:
        assert 0 <= row["first"] <= row["mass"] + ROUNDING <= 1 + 2 * ROUNDING
        if (row["to_group"] == "clustered") != clustered[0]:
            assert row["first"] == 0


def test_swapping_the_groups_swaps_the_rows():
    attention, (clustered, special) = attention_of(3), split(3)
    once, again = (groups(attention, each, special, True) for each in (clustered, ~clustered))
    for row, other in zip(once, reversed(again), strict=True):
        assert {**row, "group": ""} == {**other, "group": ""}


# --- made by hand


def sink(tokens, heads=1):
    """All attend to position 0 and to nothing else."""
    attention = np.zeros((heads, tokens, tokens))
    attention[:, :, 0] = 1
    return attention


@causal_or_not
def test_position_0_may_receive_everything(causal):
    rows = groups(sink(5), flags(5, 0, 1), flags(5), causal)
    one, two = rows
    assert [one["published"], two["published"]] == [2.5, 0]  # 2 of a mean of 4 / 5
    assert (
        undefined(one)
        == undefined(two)
        == {
            "published_without_first",
            "mask_corrected_without_first",
            "mask_corrected_median_without_first",
        }
    )
    for row in rows:
        assert row["reason"] == "position 0 and special tokens receive everything"
        assert row["of_expected_without_first"] == 0
    expected = twin_expected(5, causal)
    assert one["mask_corrected"] == approx(float(4 / (expected[0] + expected[1])))
    assert two["mask_corrected"] == two["mask_corrected_median"] == 0
    assert one["mask_corrected_median"] == approx(float(4 / expected[0] / 2))
    of = received.mass(sink(5)[0], masks.content_free(5, causal), flags(5, 0, 1))
    assert [row["mass"] for row in of] == [0.5, 0, 1, 0]
    assert [row["first"] for row in of] == [0.5, 0, 1, 0]


def test_of_expected_shows_what_a_sink_takes_and_shares_do_not():
    # Half of everything goes to position 0, the other half looks at no content.
    attention = (sink(6) + masks.content_free(6, False)) / 2
    for row in groups(attention, flags(6, 1, 2), flags(6), False)[:1]:
        assert row["of_expected_without_first"] == approx(0.5)
        assert row["mask_corrected_without_first"] == approx(1)
        assert row["mask_corrected_median_without_first"] == approx(1)
        assert row["mask_corrected"] == row["mask_corrected_median"] == approx(0.5)


@causal_or_not
@pytest.mark.parametrize("tokens", [2, 6])
def test_where_each_token_sees_itself_alone_nothing_is_received(tokens, causal):
    one, two = groups(np.eye(tokens)[None], flags(tokens, 0), flags(tokens), causal)
    for row in (one, two):
        assert row["reason"] == "no token receives attention from another"
        assert {"published", "published_without_first"} <= undefined(row)
    assert one["mask_corrected"] == 0
    for row in received.by_head(
        np.zeros((2, tokens)), received.expected(tokens, causal), flags(tokens, 0), flags(tokens)
    ):
        assert row["reason"] == "no token receives attention from another"
        assert "published" in undefined(row)
    rows = received.mass(np.eye(tokens), masks.content_free(tokens, causal), flags(tokens, 0))
    assert [row["mass"] for row in rows] == [0] * 4


@causal_or_not
@pytest.mark.parametrize("clustered", [True, False])
def test_one_token_receives_nothing(clustered, causal):
    rows = groups(np.ones((1, 1, 1)), [clustered], [False], causal)
    here, none = rows if clustered else rows[::-1]
    assert (here["tokens"], none["tokens"]) == (1, 0)
    assert undefined(here) == undefined(none) == {*PUBLISHED, *CONTROLLED}
    assert here["reason"] == "no token receives attention from another"
    assert none["reason"] == f"no token is {none['group']}"
    rows = received.mass(np.ones((1, 1)), np.ones((1, 1)), [clustered])
    for row in rows:
        assert undefined(row) == (
            set() if row["from_group"] == here["group"] else {"mass", "expected", "first"}
        )
        assert row["reason"] == ("" if row["from_group"] == here["group"] else none["reason"])


def test_of_two_tokens_the_later_one_is_seen_by_none_under_a_mask():
    attention = np.array([[[1, 0], [0.25, 0.75]]])
    one, two = groups(attention, [True, False], [False, False], True)
    assert (one["published"], two["published"]) == (2, 0)
    assert one["mask_corrected"] == one["mask_corrected_median"] == 0.5  # .25 of 1/2
    assert undefined(one) == {
        "published_without_first",
        *(name for name in CONTROLLED if "without_first" in name),
    }
    assert one["reason"] == "no token but position 0 and special ones is clustered"
    assert undefined(two) == {"published_without_first", *CONTROLLED}
    assert two["reason"] == "position 0 and special tokens receive everything"


def test_two_tokens_without_a_mask():
    one, two = groups(np.array([[[0.5, 0.5], [0.25, 0.75]]]), [True, False], [False, False], False)
    assert [row["published"] for row in (one, two)] == approx([2 / 3, 4 / 3])
    assert [row["mask_corrected"] for row in (one, two)] == approx([0.5, 1])
    assert two["mask_corrected_without_first"] == two["published_without_first"] == 1
    assert two["of_expected_without_first"] == 1
    assert (undefined(two), two["reason"]) == (set(), "")


@causal_or_not
@pytest.mark.parametrize("all_clustered", [True, False])
def test_a_group_of_all_is_at_parity_and_one_of_none_has_no_value(all_clustered, causal):
    attention = attention_of(1, causal=causal)
    rows = groups(attention, np.full(9, all_clustered), flags(9, 4), causal)
    full, empty = rows if all_clustered else rows[::-1]
    assert full["published"] == approx(1)
    assert full["published_without_first"] == approx(1)
    assert full["mask_corrected_without_first"] == approx(1)
    assert (undefined(full), full["reason"]) == (set(), "")
    # Of all that is received everything is expected: rows add up to 1 but for the diagonal.
    away = 2 * 9 - np.trace(attention, axis1=1, axis2=2).sum()
    assert full["mask_corrected"] == approx(away / (2 * float(sum(twin_expected(9, causal)))))
    assert undefined(empty) == {*PUBLISHED, *CONTROLLED}
    assert (empty["tokens"], empty["reason"]) == (0, f"no token is {empty['group']}")
    for row in received.classes(["word"] * 9, np.full(9, all_clustered)):
        if row["group"] == full["group"]:
            assert (row["word"], row["first"], row["reason"]) == (1, approx(1 / 9), "")
        else:
            assert undefined(row) == {*pieces.CLASSES, "first"}
            assert (row["tokens"], row["reason"]) == (0, empty["reason"])
    for row in received.by_head(
        received.profile(attention), received.expected(9, causal), np.full(9, all_clustered),
        flags(9),
    ):  # fmt: skip
        lacks = row["group"] == empty["group"]
        assert undefined(row) == ({*received.PER_HEAD} - {"group", "reason"} if lacks else set())
        assert row["reason"] == (empty["reason"] if lacks else "")
    for row in received.mass(attention[0], attention[0], np.full(9, all_clustered)):
        if row["from_group"] == empty["group"]:
            assert undefined(row) == {"mass", "expected", "first"}
            assert row["reason"] == empty["reason"]
        else:
            assert (undefined(row), row["reason"]) == (set(), "")
            assert (row["mass"] == 0) == (row["to_group"] == empty["group"])


@causal_or_not
def test_a_group_of_position_0_alone_has_nothing_without_it(causal):
    rows = groups(attention_of(2, causal=causal), ~flags(9, 0), flags(9), causal)
    assert undefined(rows[0]) == set()
    assert undefined(rows[1]) == {name for name in (*PUBLISHED, *CONTROLLED) if "first" in name}
    assert rows[1]["reason"] == "no token but position 0 and special ones is unclustered"
    assert rows[0]["published_without_first"] == approx(1)


@causal_or_not
def test_special_tokens_are_left_out_like_position_0(causal):
    attention = attention_of(4, causal=causal)
    special = flags(9, 3, 6)
    one, two = groups(attention, flags(9, 3, 5), special, causal)
    got, expected = received.profile(attention).sum(axis=0), received.expected(9, causal)
    left = [1, 2, 4, 5, 7, 8]
    assert one["published_without_first"] == approx(6 * got[5] / got[left].sum())
    assert one["of_expected_without_first"] == approx(got[5] / expected[5] / 2)
    assert one["mask_corrected"] == approx(got[[3, 5]].sum() / expected[[3, 5]].sum() / 2)
    assert two["published_without_first"] == approx(
        6 / 5 * got[[1, 2, 4, 7, 8]].sum() / got[left].sum()
    )


@causal_or_not
def test_all_tokens_may_be_special(causal):
    for row in groups(attention_of(4, causal=causal), flags(9, 2, 3), np.ones(9, bool), causal):
        assert undefined(row) == {name for name in (*PUBLISHED, *CONTROLLED) if "first" in name}
        assert row["reason"] == f"no token but position 0 and special ones is {row['group']}"


def test_the_last_token_of_a_causal_model_is_in_the_published_values_alone():
    attention = attention_of(5)
    one, two = groups(attention, flags(9, 8), flags(9), True)
    assert one["published"] == one["published_without_first"] == 0
    assert undefined(one) == {*CONTROLLED}
    assert one["reason"] == "no later token can see a token that is clustered"
    assert (undefined(two), two["reason"]) == (set(), "")
    assert two["published"] == approx(9 / 8)
    assert two["mask_corrected_without_first"] == approx(1)
    one, _ = received.by_head(
        received.profile(attention)[:1], received.expected(9, True), flags(9, 8), flags(9)
    )
    assert undefined(one) == {"mask_corrected", "mask_corrected_without_first"}
    assert one["reason"] == "no later token can see a token that is clustered"


@given(seeds, st.booleans(), st.integers(1, 5))
def test_a_row_has_a_reason_exactly_if_a_value_is_undefined(seed, causal, tokens):
    random = np.random.default_rng(seed)
    attention = attention_of(seed, 2, tokens, causal)
    if random.random() < 0.3:
        attention = sink(tokens, 2)
    if random.random() < 0.2:
        attention = np.stack([np.eye(tokens)] * 2)
    clustered, special = random.random((2, tokens)) < 0.5
    own, expected = received.profile(attention), received.expected(tokens, causal)
    rows = [
        *received.by_group(own.sum(axis=0), 2 * expected, clustered, special),
        *received.by_head(own, expected, clustered, special),
        *received.mass(attention[0], masks.content_free(tokens, causal), clustered),
        *received.classes(["word"] * tokens, clustered),
    ]
    for row in rows:
        assert bool(row["reason"]) == bool(undefined(row)), row
