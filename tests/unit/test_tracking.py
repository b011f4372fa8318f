"""Tracking: planted clusters, exactly their events, and identities that never swap."""

import itertools

import numpy as np
import pytest

from tokensphere import clusters, sphere, tables, tracking


def layers(*labels):
    """One residual state a layer, from 0."""
    return {(layer, "residual"): np.array(one) for layer, one in enumerate(labels)}


def happened(events):
    return [(one["layer"], one["event"], one["cluster"], one["into"]) for one in events]


# --- overlap and matching


def best_assignment(overlap):
    """The largest sum of overlaps by trying every one-to-one matching."""
    rows, columns = overlap.shape
    if rows > columns:
        return best_assignment(overlap.T)
    return max(
        sum(overlap[i, j] for i, j in enumerate(chosen))
        for chosen in itertools.permutations(range(columns), rows)
    )


@pytest.mark.parametrize("seed", range(20))
def test_overlaps_and_matches_are_those_of_brute_force(seed):
    random = np.random.default_rng(seed)
    before, after = random.integers(-1, 5, size=(2, 30))
    sets = [
        [set(np.flatnonzero(labels == label)) for label in range(5)] for labels in (before, after)
    ]
    expected = np.array([[len(one & two) / len(one | two) for two in sets[1]] for one in sets[0]])
    # The same quotient of the same small whole numbers.
    assert (tracking.jaccard(before, after) == expected).all()
    expected[expected < 0.1] = 0
    kept = tracking.match(before, after).kept
    found = sum(expected[old, new] for old, new in kept.items())
    assert found == pytest.approx(best_assignment(expected), abs=1e-12)  # a sum of 5 quotients
    assert len(set(kept.values())) == len(kept)


def test_clusters_that_overlap_less_than_the_least_have_nothing_to_do_with_each_other():
    before = [0] * 10 + [-1] * 9
    after = [-1] * 9 + [0] * 10  # one token of 19 in common: .0526
    assert tracking.match(before, after).kept == {}
    assert tracking.match(before, after, least=0.05).kept == {0: 0}
    # Exactly the least is enough: one of ten.
    assert tracking.match([0] * 5 + [-1] * 5, [-1] * 4 + [0] * 6, least=0.1).kept == {0: 0}


def test_a_best_sum_wins_over_a_best_pair():
    # Greedy would take the pair (1, 0) of overlap 3/4 and leave the others unmatched.
    before, after = [0, 0, 1, 1, 1, -1], [0, 0, 0, 0, 1, 1]
    overlap = tracking.jaccard(before, after)
    assert overlap.tolist() == [[0.5, 0.0], [0.4, 0.25]]
    assert tracking.match(before, after).kept == {0: 0, 1: 1}


@pytest.mark.parametrize("nothing", [[], [-1], [-1] * 4])
def test_layers_without_clusters_have_no_events(nothing):
    assert tracking.match(nothing, nothing) == tracking.Match({}, [])


def test_from_and_to_no_cluster_all_are_born_or_die():
    none, two = [-1] * 4, [0, 0, 1, 1]
    assert [event for event, *_ in tracking.match(none, two).events] == ["birth", "birth"]
    assert [event for event, *_ in tracking.match(two, none).events] == ["death", "death"]


# --- identities and events, by hand


def test_labels_are_renamed_and_identities_stay():
    identities, events = tracking.track(layers([0, 0, 1, 1, -1], [1, 1, 0, 0, -1]))
    assert identities == {(0, "residual"): {0: 0, 1: 1}, (1, "residual"): {0: 1, 1: 0}}
    assert events == []


def test_every_kind_of_event_has_its_identities_and_its_age():
    _, events = tracking.track(
        layers(
            [0, 0, 0, 0, 1, 1, 1, 1, -1, -1],
            [0, 0, 0, 0, 1, 1, 1, 1, 2, 2],  # 2 is born
            [0, 0, 0, 0, 0, 0, 0, 0, 1, 1],  # 1 merges into 0 (equal overlaps: the lower)
            [0, 0, 0, 0, 0, 1, 1, 1, -1, -1],  # 3 is split from 0, 2 dies
        )
    )
    assert happened(events) == [
        (1, "birth", 2, ""),
        (2, "merge", 1, 0),
        (3, "death", 2, ""),
        (3, "split", 0, 3),
    ]
    assert [one["age"] for one in events] == ["", 2, 2, ""]
    assert [one["jaccard"] for one in events if one["event"] in ("merge", "split")] == [0.5, 0.375]
    assert all(np.isnan(one["jaccard"]) == bool(one["reason"]) for one in events)


def test_the_final_norm_follows_the_layer_before_the_last_and_nothing_follows_it():
    labels = layers([0, 0, 1, 1], [0, 0, 1, 1], [-1] * 4) | {
        (2, "final_norm"): np.array([1, 1, 0, 0])
    }
    identities, events = tracking.track(dict(reversed(labels.items())))
    assert identities[2, "final_norm"] == {0: 1, 1: 0}
    assert identities[2, "residual"] == {}
    assert {(one["state"], one["event"]) for one in events} == {("residual", "death")}


def test_the_residual_stream_is_numbered_before_the_final_norm():
    labels = {(1, "final_norm"): np.array([0, 0])} | layers([-1, -1], [0, 0])
    identities, _ = tracking.track(labels)
    assert (identities[1, "residual"], identities[1, "final_norm"]) == ({0: 0}, {0: 1})


def test_the_tables_name_label_identity_size_and_place(tmp_path):
    labels = layers([0, 0, 1, 1, -1], [1, 1, -1, 0, 0])
    rows = tracking.describe(labels, tracking.track(labels)[0])
    assert [tuple(row.values()) for row in rows] == [
        (0, "residual", 0, 0, 2, 0.5),
        (0, "residual", 1, 1, 2, 2.5),
        (1, "residual", 0, 1, 2, 3.5),
        (1, "residual", 1, 0, 2, 0.5),
    ]
    tables.write(tmp_path / "t.csv", rows, ["layer", "state", "cluster"])


def test_a_run_without_any_cluster_has_tables_without_rows():
    labels = layers([-1, -1, -1], [-1, -1, -1])
    identities, events = tracking.track(labels)
    assert tracking.describe(labels, identities) == events == []


# --- planted clouds, through HDBSCAN


WIDTH, EACH = 64, 12
TIGHT = 0.01


def planted(seed):
    """Layers of a cloud with a birth at 2, a death at 3, a merge at 4, a split at 5.

    Groups of tokens stand around directions that share a cosine of .3; a loose token is orthogonal
    to all others. At equal distances HDBSCAN starts from the first token: it is one of a group,
    or two loose ones would be joined before they join the rest. Groups: 0 stays, 1 is born at
    layer 2 from loose tokens, 2 dies at layer 3, 3 and 4 merge at layer 4, 5 is split at layer 5.
    """
    random = np.random.default_rng(seed)
    directions = np.linalg.qr(random.standard_normal((WIDTH, WIDTH)))[0]
    group = np.repeat(np.arange(7), [EACH, EACH, EACH, EACH, EACH - 4, 2 * EACH - 6, 4])
    order = np.append(0, 1 + random.permutation(len(group) - 1))
    common, directions = directions[-1], directions[:-1]
    half = np.flatnonzero(group == 5)[: EACH - 4]
    labels = {}
    for layer in range(7):
        centre = group.copy()
        if layer >= 4:
            centre[group == 4] = 3
        if layer >= 5:
            centre[half] = 6
        points = np.sqrt(0.3) * common + np.sqrt(0.7) * directions[centre]
        points += TIGHT * random.standard_normal(points.shape) / np.sqrt(WIDTH)
        loose = np.isin(group, [6] + [1] * (layer < 2) + [2] * (layer >= 3))
        # An axis of its own for each loose token: at distance 1 exactly from all others.
        wide = np.hstack([points, np.zeros((len(group), len(group)))])
        wide[loose] = np.eye(WIDTH + len(group))[WIDTH:][loose]
        found = clusters.hdbscan_labels(sphere.project(wide[order]))
        labels[layer, "residual"] = found
    return labels, group[order]


@pytest.mark.parametrize("seed", range(20))
def test_planted_events_are_found_and_no_others_and_identities_never_swap(seed):
    labels, group = planted(seed)
    identities, events = tracking.track(labels)
    assert [(one["layer"], one["event"]) for one in events] == [
        (2, "birth"),
        (3, "death"),
        (4, "merge"),
        (5, "split"),
    ]
    groups_of = {}
    for (layer, state), names in identities.items():
        for label, identity in names.items():
            members = group[labels[layer, state] == label]
            groups_of.setdefault(identity, []).append({*members.tolist()})
    # From layer to layer an identity keeps its group: the smaller of merged groups ends, and the
    # smaller part of a split one is new.
    assert all(set.intersection(*seen) for seen in groups_of.values())
    assert len(groups_of) == 7


# --- chance


def test_turnover_counts_the_events_and_adds_up():
    labels, _ = planted(0)
    rows = tracking.turnover(labels, permutations=5, seed=0)
    _, events = tracking.track(labels)
    assert [row["layer"] for row in rows] == [1, 2, 3, 4, 5, 6]
    for row in rows:
        for event in tracking.EVENTS:
            counted = [e for e in events if (e["layer"], e["event"]) == (row["layer"], event)]
            assert row[event] == len(counted)
        assert row["kept"] + row["death"] + row["merge"] == row["clusters"]
        # A mean of five whole numbers.
        by_chance = [row[f"{name}_chance"] for name in ("kept", "death", "merge")]
        assert sum(by_chance) == pytest.approx(row["clusters"], abs=1e-12)


def test_the_chance_level_of_two_pairs_is_that_of_counting():
    """Two pairs dealt out to four tokens: one way in three they are the same two pairs."""
    pairs = layers([0, 0, 1, 1], [0, 0, 1, 1])
    (row,) = tracking.turnover(pairs, permutations=3000, seed=0, least=0.5)
    # The mean of 3,000 draws of 2 (p = 1/3) or 0 has a standard error of .0172.
    assert row["kept_chance"] == pytest.approx(2 / 3, abs=4 * 0.0172)
    # At the published least even crossed pairs, one token of three in common, count as kept.
    (row,) = tracking.turnover(pairs, permutations=100, seed=0)
    assert (row["kept"], row["kept_chance"]) == (2, 2.0)


def test_the_chance_level_follows_its_seed_alone():
    labels, _ = planted(1)
    first, again, other = (tracking.turnover(labels, 3, seed) for seed in (0, 0, 1))
    assert first == again != other
