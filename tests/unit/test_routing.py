"""Sinkhorn, the Fiedler value and its companions, against twins, theorems and known answers."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import linalg
from scipy.sparse import csgraph

from tokensphere import laplacian, masks, routing

# What a sum and a division of float64 leave after a hundred sweeps of a few hundred tokens.
ROUNDING = 1e-12
# Eigenvalues are proved right to 1e-11 of a matrix of norm 2, and sigma_2 to about as much.
PROVED = 1e-10

MASKS = [True, False]
FEW, MANY = 17, 300  # decomposed, and iterated by Lanczos
seeds = st.integers(0, 10**6)


def approx(expected, tolerance=PROVED):
    return pytest.approx(expected, rel=0, abs=tolerance, nan_ok=True)


def softmax(logits, causal):
    if causal:
        logits = np.where(np.tril(np.ones(logits.shape[-2:], bool)), logits, -np.inf)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def layer(seed, tokens, causal):
    """Draw heads of all sorts, in float32 as a model gives them."""
    random = np.random.default_rng(seed)
    place = np.arange(tokens)
    behind = place[:, None] - place
    noise = random.normal(size=(4, tokens, tokens))
    logits = [
        noise[0],
        6 * noise[1],  # weights far below any floor, some 0 in float32 too
        noise[2] + 6.0 * (place == 0),  # a sink
        8.0 * (behind == 1) + noise[3],
        -np.abs(behind) / 4,
        np.zeros((tokens, tokens)),
    ]
    return softmax(np.array(logits), causal).astype(np.float32)


# --- twins: the published pipeline as it was written, and the definitions


def twin_sinkhorn(attention, floor=1e-12, tolerance=1e-6, most=100):
    """Return the scaled matrices, how many sweeps they took and each head's last change."""
    scaled = np.maximum(np.asarray(attention, dtype=np.float64), floor)
    sweeps, change = 0, np.ones(1)
    while sweeps < most and change.max() >= tolerance:
        sweeps, before = sweeps + 1, scaled
        scaled = scaled / scaled.sum(axis=2, keepdims=True)
        scaled = scaled / scaled.sum(axis=1, keepdims=True)
        change = np.abs(scaled - before).max(axis=(1, 2))
    return scaled, sweeps, change


def twin_fiedler(weights, self_loops):
    if self_loops:
        scale = 1 / np.sqrt(weights.sum(axis=1))
        matrix = np.eye(len(weights)) - weights * np.outer(scale, scale)
    else:
        matrix = csgraph.laplacian(weights, normed=True)
    return np.linalg.eigvalsh(matrix)[1]


def twin_bipartite(attention):
    keys = attention.sum(axis=0) > 0
    degrees = attention.sum(axis=1, keepdims=True) * attention.sum(axis=0)
    kept = attention[:, keys] / np.sqrt(degrees[:, keys])
    values = np.linalg.svd(kept, compute_uv=False)
    return 1 - values[1] if len(values) > 1 else 1.0


def twin_values(attention):
    """The three readings of a layer, and the sweeps of the published one."""
    scaled, sweeps, _ = twin_sinkhorn(attention)
    return [
        {
            "published": approx(twin_fiedler((matrix + matrix.T) / 2, False)),
            "sweeps": sweeps,
            "symmetrised": approx(twin_fiedler(head + head.T, True)),
            "bipartite": approx(twin_bipartite(head)),
            "reason": "",
        }
        for head, matrix in zip(attention.astype(np.float64), scaled, strict=True)
    ]


def picked(row, names):
    return {name: row[name] for name in names}


@pytest.mark.parametrize("causal", MASKS)
@pytest.mark.parametrize("tokens", [2, 3, FEW, MANY])
def test_heads_are_read_as_the_published_pipeline_reads_them(tokens, causal):
    attention = layer(tokens, tokens, causal)
    expected = twin_values(attention)
    found = [picked(row, expected[0]) for row in routing.heads(attention, causal)]
    assert found == expected


@pytest.mark.parametrize("causal", MASKS)
@pytest.mark.parametrize("tokens", [FEW, MANY])
def test_floors_are_read_with_loops_dropped_and_kept(tokens, causal):
    attention = layer(tokens, tokens, causal)
    rows = iter(routing.floors(attention, causal, (1e-16, 1e-5)))
    for floor in (1e-16, 1e-5):
        scaled, sweeps, change = twin_sinkhorn(attention, floor)
        for head, matrix in enumerate(scaled):
            graph = (matrix + matrix.T) / 2
            assert next(rows) == {
                "head": head,
                "n_tokens": tokens,
                "floor": floor,
                "value": approx(twin_fiedler(graph, False)),
                "value_kept": approx(twin_fiedler(graph, True)),
                "sweeps": sweeps,
                "residual": approx(np.abs(matrix.sum(axis=1) - 1).max(), ROUNDING),
                "converged": change[head] < 1e-6,
                "baseline": approx(twin_floor(tokens, causal, floor, False)),
                "baseline_kept": approx(twin_floor(tokens, causal, floor, True)),
                "reason": "",
            }
    assert next(rows, None) is None


def twin_floor(tokens, causal, floor, self_loops):
    scaled, *_ = twin_sinkhorn(softmax(np.zeros((1, tokens, tokens)), causal), floor)
    return twin_fiedler(scaled[0] + scaled[0].T, self_loops)


@pytest.mark.parametrize("tolerance", [0.3, 1e-2, 1e-3, 1e-5, 1e-6])
@pytest.mark.parametrize("causal", MASKS)
@pytest.mark.parametrize("seed", range(4))
def test_scaling_vectors_give_the_matrices_and_sweeps_of_scaling_the_matrix(
    seed, causal, tolerance
):
    attention = layer(seed, FEW, causal)[: 1 + 2 * seed]
    scaled, sweeps, change = twin_sinkhorn(attention, 1e-9, tolerance, 300)
    found = routing.sinkhorn(np.float64(attention), 1e-9, tolerance=tolerance, most=300)
    matrices = np.array([found.matrix(head) for head in range(len(attention))])
    np.testing.assert_allclose(matrices, scaled, rtol=0, atol=ROUNDING)
    assert found.sweeps == sweeps
    assert found.converged.tolist() == (change < tolerance).tolist()
    assert found.residual == approx(np.abs(scaled.sum(axis=2) - 1).max(axis=1), ROUNDING)


@pytest.mark.parametrize("most", [1, 9, 10, 11, 23])
def test_without_a_tolerance_there_are_exactly_so_many_sweeps(most):
    attention = layer(0, FEW, True)
    scaled, *_ = twin_sinkhorn(attention, tolerance=0, most=most)
    found = routing.sinkhorn(np.float64(attention), 1e-12, tolerance=0, most=most)
    assert found.sweeps == most
    assert found.matrix(3) == approx(scaled[3], ROUNDING)
    clipped = np.maximum(np.float64(attention), 1e-12)
    assert routing.sinkhorn_iterate(clipped, most) == approx(scaled, ROUNDING)


def test_without_a_tolerance_a_matrix_at_rest_is_swept_too():
    found = routing.sinkhorn(masks.content_free(4, False)[None], 1e-12, tolerance=0, most=7)
    assert found.sweeps == 7


@pytest.mark.parametrize("weight", [1e-11, 1e-5])
def test_attention_that_is_nearly_causal_is_not_taken_for_causal(weight):
    # A single weight above the diagonal, in one head of two.
    attention = np.float64(layer(0, FEW, True))[:2]
    attention[1, 3, 4] = weight
    scaled, *_ = twin_sinkhorn(attention, 1e-12)
    found = routing.sinkhorn(attention, 1e-12)
    assert found.matrix(1) == approx(scaled[1], ROUNDING)


def test_all_entries_are_compared_once_the_last_witness_has_come_to_rest():
    clipped, before, after = np.ones((3, 4, 4)) / 4, np.ones((2, 3, 4)), np.ones((2, 3, 4))
    after[0, 0, 2], after[1, 0, 3] = 1.5, 1.5  # (0, 2, 3) changes most, by (1.5 ** 2 - 1) / 4
    most = (1.5**2 - 1) / 4
    assert routing._witness(clipped, before, after, 1e-9, (0, 2, 0)) == (0, 2, 0)
    for last in ((0, 0, 0), (1, 2, 3), (2, 1, 1)):
        assert routing._witness(clipped, before, after, most, last) == (0, 2, 3)
        assert routing._witness(clipped, before, after, most + 1e-9, last) is None


def test_a_layer_sweeps_for_its_slowest_head_and_says_which_had_converged():
    fast, slow = masks.content_free(FEW, False), np.float64(layer(0, FEW, True)[3])
    assert routing.sinkhorn(fast[None], 1e-12).sweeps == 1
    for heads, converged in (([fast, slow], [True, False]), ([slow, fast], [False, True])):
        found = routing.sinkhorn(np.array(heads), 1e-12)
        assert (found.sweeps, found.converged.tolist()) == (100, converged)


@given(seeds, st.integers(2, 6), st.booleans())
def test_small_attention_with_zeros_is_read_as_by_its_twins_and_within_bounds(seed, tokens, causal):
    random = np.random.default_rng(seed)
    weights = random.integers(0, 3, (3, tokens, tokens)) + np.eye(tokens)
    weights = np.tril(weights) if causal else weights
    attention = weights / weights.sum(axis=2, keepdims=True)
    expected = twin_values(attention)
    rows = routing.heads(attention, causal)
    assert [picked(row, expected[0]) for row in rows] == expected
    for row in rows:
        # The trace of a normalised Laplacian is at most n, and n - 1 eigenvalues share it.
        assert 0 <= row["published"] <= tokens / (tokens - 1) + PROVED
        assert 0 <= row["symmetrised"] <= tokens / (tokens - 1) + PROVED
        assert 0 <= row["bipartite"] <= 1


# --- eigenvalues, where a fast method may miss one


def chain(tokens):
    return np.eye(tokens, k=1) + np.eye(tokens, k=-1)


def ring(tokens):
    graph = chain(tokens)
    graph[0, -1] = graph[-1, 0] = 1
    return graph


def leaky(blocks, size, leak):
    """Blocks of equal weights with a leak between any two of them."""
    centres = np.full((blocks, blocks), leak) + (1 - leak) * np.eye(blocks)
    return np.kron(centres, np.ones((size, size)))


def star(tokens):
    graph = np.zeros((tokens, tokens))
    graph[0] = graph[:, 0] = 1
    return graph


def weighted(seed):
    noise = np.random.default_rng(seed).uniform(size=(MANY, MANY))
    return noise + noise.T


NASTY = {
    "a long chain": chain(MANY),
    "a ring: each eigenvalue twice": ring(MANY),
    "a star": star(MANY),
    "complete": np.ones((MANY, MANY)),
    "two components": leaky(2, 150, 0),
    "five components": leaky(5, 60, 0),
    "two blocks, hardly joined": leaky(2, 150, 1e-9),
    "five blocks: one eigenvalue four times": leaky(5, 60, 1e-3),
    "five blocks: four eigenvalues alike to 1e-9": leaky(5, 60, 1e-3) * (1 + 1e-7 * weighted(0)),
    "five blocks: four eigenvalues alike to 1e-5": leaky(5, 60, 1e-3) * (1 + 1e-3 * weighted(1)),
    "weights of all sizes": weighted(2) ** 40,
    "two cliques, one of a pair": linalg.block_diag(np.ones((2, 2)), np.ones((298, 298))),
}


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("name", NASTY)
def test_the_fiedler_value_is_that_of_a_full_decomposition(name, self_loops):
    graph = NASTY[name]
    found = routing.fiedler_value(graph, self_loops)
    assert found >= 0
    assert found == approx(twin_fiedler(graph, self_loops))
    order = np.random.default_rng(0).permutation(MANY)
    assert routing.fiedler_value(7 * graph[np.ix_(order, order)], self_loops) == approx(found)


@pytest.mark.parametrize("tokens", [FEW, MANY])
def test_a_token_without_weight_is_a_component_of_its_own(tokens):
    graph = np.ones((tokens, tokens))
    graph[3] = graph[:, 3] = 0
    assert routing.fiedler_value(graph, False) == routing.fiedler_value(graph, True) == 0
    graph[3, 3] = 1  # its loop joins it to nobody
    assert routing.fiedler_value(graph, False) == 0
    assert routing.fiedler_value(graph, True) == approx(0)
    assert routing.fiedler_value(np.eye(tokens), False) == 0


def test_an_eigenvalue_that_lanczos_cannot_see_is_not_missed():
    # The start has no part in the eigenvector of 1/2: all its images are itself, of eigenvalue 1.
    start = np.random.default_rng(0).standard_normal(MANY)
    hidden = np.eye(MANY)[0] - start[0] * start / start.dot(start)
    matrix = np.eye(MANY) - np.outer(hidden, hidden) / hidden.dot(hidden) / 2
    assert routing._lanczos(matrix) == approx(1)
    assert routing._smallest(matrix) == approx(0.5)


@pytest.mark.parametrize("causal", MASKS)
def test_ordinary_heads_need_no_decomposition(monkeypatch, causal):
    monkeypatch.setattr(linalg, "eigvalsh", None)
    attention = layer(0, MANY, causal)[:3]
    assert len(routing.heads(attention, causal)) == 3
    assert len(routing.floors(attention, causal)) == 9


@pytest.mark.parametrize("tokens", [FEW, MANY])
@pytest.mark.parametrize("sigma", [0.5, 1e-3, 1e-6, 1e-9])
def test_a_small_second_singular_value_keeps_its_digits(tokens, sigma):
    # Two halves of the queries look at two halves of the keys a little more: 1 + s against 1 - s.
    side = np.repeat([1, -1], tokens // 2)
    attention = (1 + sigma * np.outer(side, side)) / len(side)
    assert 1 - routing.bipartite(attention) == pytest.approx(sigma, rel=1e-9, abs=1e-15)


# --- reference values


def uniform(tokens):
    return masks.content_free(tokens, True)


def random_causal(seed, tokens):
    return softmax(np.random.default_rng(seed).standard_normal((tokens, tokens)), True)


def of_reference(entry):
    tokens = entry["inputs"]["n"]
    return uniform(tokens) if entry["inputs"]["A"] == "uniform" else random_causal(0, tokens)


def both(matrix):
    """The Fiedler value of a scaled matrix, loops kept and dropped."""
    return [routing.fiedler_value(matrix + matrix.T, self_loops) for self_loops in (True, False)]


@pytest.mark.parametrize(
    "case",
    [
        *("uniform_n64", "random_seed0_n64", "uniform_n128", "uniform_n256", "random_seed0_n256"),
        *("uniform_n512", "random_seed0_n512"),
    ],
)
def test_without_a_floor_the_value_counts_the_sweeps(reference, case):
    entry = reference(f"sinkhorn_table_{case}_clipNone")
    matrix, done = of_reference(entry), 0
    for sweeps, value in zip(entry["inputs"]["k"], entry["value"], strict=True):
        matrix = routing.sinkhorn_iterate(matrix, sweeps - done)
        done = sweeps
        assert both(matrix) == approx(value, entry["tolerance"])
        assert 0.4 < sweeps * value[0] < 0.6


@pytest.mark.parametrize(
    "case",
    [
        *("uniform_n64", "random_seed0_n64", "uniform_n128", "random_seed0_n128"),
        *("random_seed0_n256", "uniform_n512"),
    ],
)
def test_with_a_floor_the_value_settles_elsewhere(reference, case):
    entry = reference(f"sinkhorn_table_{case}_clip1e-12")
    attention = of_reference(entry)[None]
    for sweeps, value in zip(entry["inputs"]["k"], entry["value"], strict=True):
        found = routing.sinkhorn(attention, 1e-12, tolerance=0, most=sweeps)
        assert both(found.matrix(0)) == approx(value, entry["tolerance"])


@pytest.fixture(scope="module")
def long_sweeps():
    """Uniform and random attention of 8 tokens after 200,000 sweeps, together: it takes long."""
    sweeps = 200_000
    return sweeps, routing.sinkhorn_iterate([uniform(8), random_causal(3, 8)], sweeps)


@pytest.mark.parametrize("head, case", [(0, "uniform"), (1, "random_seed3")])
def test_without_a_floor_the_rate_depends_on_position_alone(reference, long_sweeps, head, case):
    sweeps, matrices = long_sweeps
    entry = reference(f"sinkhorn_rate_subdiag_{case}_n8")
    assert entry["inputs"]["k"] == sweeps
    found = sweeps * matrices[head].diagonal(-1)
    assert found == approx(entry["value"], entry["tolerance"])
    entry = reference(f"sinkhorn_rate_spectrum_{case}_n8")
    spectrum = np.linalg.eigvalsh(laplacian.normalised(matrices[head] + matrices[head].T, True))
    assert sweeps * spectrum == approx(entry["value"], entry["tolerance"])


def test_two_uniform_tokens_have_a_known_value_after_each_sweep(reference):
    entry = reference("sinkhorn_n2_fiedler_keep")
    for sweeps, value in zip(entry["inputs"]["k"], entry["value"], strict=True):
        matrix = routing.sinkhorn_iterate(uniform(2), sweeps)
        assert matrix[1, 0] == approx(1 / (2 * sweeps + 1), entry["tolerance"])
        assert both(matrix) == approx([value, 2], entry["tolerance"])


def test_without_a_floor_and_loops_the_limit_is_that_of_a_weighted_path(reference):
    entry = reference("sinkhorn_noloop_limit")
    for tokens, value in zip(entry["inputs"]["n"], entry["value"], strict=True):
        places = np.arange(1, tokens)
        path = np.diag(places * (tokens - places) / tokens**2, 1)
        found = routing.fiedler_value(path + path.T, False)
        assert found == approx(value, entry["tolerance"])


@pytest.mark.parametrize(
    "case, sweeps",
    # Few tokens are scaled slowly: the fewer, the closer to the identity without a floor.
    [
        ("n8_eps1e-12", 20_000),
        ("n8_eps1e-06", 1_000),
        ("n64_eps1e-12", 500),
        ("n64_eps1e-06", 500),
        ("n256_eps1e-06", 500),
    ],
)
def test_ones_below_the_diagonal_and_a_floor_above_become_a_circulant(reference, case, sweeps):
    entry = reference(f"sinkhorn_clip_circulant_{case}")
    tokens, floor = entry["inputs"]["n"], entry["inputs"]["eps"]
    found = routing.sinkhorn(np.tril(np.ones((1, tokens, tokens))), floor, tolerance=0, most=sweeps)
    matrix = found.matrix(0)
    values = [matrix[0, 0], *both(matrix)]
    assert values == approx(entry["value"], entry["tolerance"])
    place = np.arange(tokens)
    ratio = floor ** (1 / tokens)
    circulant = (1 - ratio) / (1 - floor) * ratio ** ((place[:, None] - place) % tokens)
    assert matrix == approx(circulant, 1e-9)  # its sweeps converge linearly


@pytest.mark.parametrize("case", ["uniform", "random1", "local4", "prev8"])
def test_the_public_pipeline_has_known_values_with_and_without_a_mask(reference, case):
    entry = reference(f"public_pipeline_fiedler_{case}_n64")
    place = np.arange(64)
    logits = {
        "uniform": np.zeros((64, 64)),
        "random1": np.random.default_rng(0).standard_normal((64, 64)),
        "local4": -np.abs(place[:, None] - place) / 4,
        "prev8": 8.0 * (place[:, None] == place + 1),
    }[case]
    rows = [routing.heads(softmax(logits, causal)[None], causal)[0] for causal in (False, True)]
    found = [row["published"] for row in rows]
    assert found == approx(entry["value"], entry["tolerance"])
    assert [row["sweeps"] for row in rows] == entry["inputs"]["iterations"]


def test_content_free_causal_attention_has_known_values(reference):
    kept = reference("uniformcausal_symfirst_keep")
    dropped = reference("uniformcausal_symfirst_noloop")
    bipartite = reference("uniformcausal_bip_sigma2")
    for place, tokens in enumerate(kept["inputs"]["n"]):
        attention = uniform(tokens)
        graph = attention + attention.T
        found = [
            routing.symmetrised(attention),
            routing.fiedler_value(graph, False),
            1 - routing.bipartite(attention),
        ]
        expected = [entry["value"][place] for entry in (kept, dropped, bipartite)]
        assert found == approx(expected, kept["tolerance"])


def test_the_published_value_of_content_free_attention_is_set_by_the_floor():
    rows = routing.floors(uniform(512)[None], True)
    assert [row["floor"] for row in rows] == [1e-16, 1e-12, 1e-8]
    assert [round(row["value"], 4) for row in rows] == [0.0351, 0.0658, 0.1624]
    assert [row["baseline"] for row in rows] == [row["value"] for row in rows]


@pytest.mark.parametrize("leak", [0.1, 0])
def test_two_blocks_read_the_same_three_times_but_for_the_loops(reference, leak):
    entry = reference("fiedler_two_blocks")
    size = entry["inputs"]["m"]
    attention = np.kron([[1 - leak, leak], [leak, 1 - leak]], np.ones((size, size)) / size)
    row, *_ = routing.heads(attention[None], False)
    kept, dropped = entry["value"] if leak == entry["inputs"]["eps"] else (0, 0)
    assert row["published"] == approx(dropped)
    assert [row["symmetrised"], row["bipartite"]] == approx([kept, kept])


# --- attention made by hand


def read(attention, causal):
    row, *_ = routing.heads(np.asarray(attention, dtype=float)[None], causal)
    names = ("published", "sweeps", "symmetrised", "bipartite")
    return tuple(approx(row[name]) if name != "sweeps" else row[name] for name in names)


@pytest.mark.parametrize("tokens", [2, 3, 12, MANY])
def test_uniform_attention_is_a_complete_graph(reference, tokens):
    # Doubly stochastic as it is: one sweep, and n / (n - 1) without its loops, 1 with them.
    attention = np.full((tokens, tokens), 1 / tokens)
    expected = (tokens / (tokens - 1), 1, 1, 1)
    assert read(attention, False) == expected
    (row, *_) = routing.floors(attention[None], False)
    assert (row["residual"], row["converged"]) == (approx(0, ROUNDING), True)
    if tokens == 12:
        entry = reference("fiedler_uniform_bidir")
        found = [row["value_kept"], row["value"]]
        assert found == approx(entry["value"], entry["tolerance"])


@pytest.mark.parametrize("causal", MASKS)
@pytest.mark.parametrize("tokens", [3, MANY])
def test_attention_to_oneself_has_no_connection_yet_is_published_as_a_complete_graph(
    tokens, causal
):
    # The floor is all there is beside the loops, and it is the same for every pair.
    published, _, symmetrised, bipartite = read(np.eye(tokens), causal)
    assert (published, symmetrised, bipartite) == (tokens / (tokens - 1), 0, 0)
    (row,) = routing.floors(np.eye(tokens)[None], causal, [1e-12])
    assert (row["value"], row["value_kept"]) == (approx(tokens / (tokens - 1)), approx(0, 1e-9))


@pytest.mark.parametrize("causal", MASKS)
@pytest.mark.parametrize("tokens, symmetrised", [(2, 4 / 3), (3, 1), (12, 1), (MANY, 1)])
def test_attention_to_token_0_alone_is_a_star(tokens, symmetrised, causal):
    # Its rows are equal: after a sweep P is uniform, and a second sweep changes nothing.
    # A + A^T over its degrees n + 1, 1, 1... has rank 2 and trace 2 / (n + 1): the eigenvalues
    # of L are 0, 1 (n - 2 times) and 2n / (n + 1). A has rank 1: sigma_2 = 0, and keys 1, 2...
    # to which nobody attends are left out.
    attention = np.zeros((tokens, tokens))
    attention[:, 0] = 1
    assert read(attention, causal) == (tokens / (tokens - 1), 2, symmetrised, 1)


@pytest.mark.parametrize("causal", MASKS)
def test_attention_to_the_token_before_is_a_chain(causal):
    # D = 3, 2, 1: the eigenvalues of S are 1 and the roots of x^2 + x/3 - 1/3 (its trace is 2/3,
    # its determinant -1/3). Key 0 with queries 0 and 1, key 1 with query 2: two components.
    attention = [[1, 0, 0], [1, 0, 0], [0, 1, 0]]
    _, _, symmetrised, bipartite = read(attention, causal)
    assert (symmetrised, bipartite) == ((7 - math.sqrt(13)) / 6, 0)
    longer = np.eye(MANY, k=-1)
    longer[0, 0] = 1
    published, sweeps, symmetrised, bipartite = read(longer, causal)
    (twin,) = twin_values(longer[None])
    assert twin == {
        "published": published,
        "sweeps": sweeps,
        "symmetrised": symmetrised,
        "bipartite": 0,
        "reason": "",
    }


def test_two_causal_tokens_have_a_known_reading():
    # Two tokens without loops: 2, however weak their edge. A + A^T = [[2, 1/2], [1/2, 1]] has
    # the degrees 5/2 and 3/2, so S = [[4/5, .], [., 2/3]] of trace 1 + 7/15. B has the columns'
    # degrees 3/2 and 1/2, determinant (1 * 1/2) / sqrt(3/4), and sigma_1 = 1.
    published, _, symmetrised, bipartite = read([[1, 0], [0.5, 0.5]], True)
    assert (published, symmetrised, bipartite) == (2, 8 / 15, 1 - 1 / math.sqrt(3))


@pytest.mark.parametrize("causal", MASKS)
def test_one_token_has_no_second_eigenvalue(causal):
    values = ("published", "symmetrised", "bipartite")
    row, *_ = routing.heads([[[1.0]]], causal)
    for name in values:
        assert math.isnan(row[name])
        assert math.isnan(row[f"{name}_baseline"])
    (other,) = routing.floors([[[1.0]]], causal, [1e-8])
    for name in ("value", "value_kept", "baseline", "baseline_kept"):
        assert math.isnan(other[name])
    for each in (row, other):
        assert (each["sweeps"], each["residual"], each["converged"]) == (1, 0, True)
        assert each["reason"] == "fewer than two tokens: there is no pair"


# --- invariances


@given(seeds)
def test_the_order_of_tokens_does_not_matter_without_a_mask(seed):
    attention = layer(seed, 7, False)
    order = np.random.default_rng(seed).permutation(7)
    names = ("published", "sweeps", "symmetrised", "bipartite", "converged")
    once, again = (
        [picked(row, names) for row in routing.heads(each, False)]
        for each in (attention, attention[:, order][:, :, order])
    )
    assert again == [{name: approx(value) for name, value in row.items()} for row in once]


@pytest.mark.parametrize("causal", MASKS)
def test_the_order_of_heads_does_not_matter(causal):
    attention = layer(0, FEW, causal)
    order = [4, 0, 5, 2, 1, 3]
    once, again = routing.heads(attention, causal), routing.heads(attention[order], causal)
    assert [row["head"] for row in again] == list(range(6))
    assert again == [once[old] | {"head": new} for new, old in enumerate(order)]


def test_the_limit_does_not_depend_on_the_scale_of_rows_and_columns():
    random = np.random.default_rng(0)
    attention = random.uniform(0.1, 1, (1, FEW, FEW))
    scales = random.uniform(0.1, 10, (2, FEW))
    scaled = attention * np.multiply.outer(*scales)
    once, again = (routing.sinkhorn(each, 1e-12, tolerance=1e-14) for each in (attention, scaled))
    assert once.sweeps < 100
    assert again.matrix(0) == approx(once.matrix(0), ROUNDING)


@pytest.mark.parametrize("causal", MASKS)
def test_the_baseline_is_content_free_attention_read_alone(causal):
    attention = layer(0, FEW, causal)  # of which the last head is content-free
    free = masks.content_free(FEW, causal)
    (alone,) = routing.heads(free[None], causal)
    assert list(alone) == [
        *("head", "n_tokens", "published", "sweeps", "residual", "converged"),
        *("symmetrised", "bipartite", "published_baseline", "symmetrised_baseline"),
        *("bipartite_baseline", "reason"),
    ]
    for row in routing.heads(attention, causal):
        for name in ("published", "symmetrised", "bipartite"):
            assert row[f"{name}_baseline"] == alone[name] == alone[f"{name}_baseline"]
    for settings in ({"floor": 1e-3}, {"tolerance": 0.1}, {"most": 2}):
        (other,) = routing.heads(free[None], causal, **settings)
        assert other["published_baseline"] == other["published"]
        assert (other["published"] != alone["published"]) == causal


def test_content_free_attention_looks_at_everything_it_may_see_alike():
    third = 1 / 3
    assert masks.content_free(3, False) == approx(np.full((3, 3), third), 0)
    assert masks.content_free(3, True).tolist() == [[1, 0, 0], [0.5, 0.5, 0], [third] * 3]


def test_attention_is_left_as_it_was():
    attention = np.float64(layer(0, MANY, True))
    copy = attention.copy()
    routing.heads(attention, True)
    routing.floors(attention, True)
    routing.sinkhorn_iterate(attention, 2)
    np.testing.assert_array_equal(attention, copy)


# --- refusals


def spoiled(head, row, column, value):
    attention = np.repeat(uniform(4)[None], 3, axis=0)
    attention[head, row, column] = value
    return attention


@pytest.mark.parametrize(
    "attention, message",
    [
        (spoiled(1, 2, 0, np.nan), "head 1, row 2 is not finite"),
        (spoiled(0, 3, 1, np.inf), "head 0, row 3 is not finite"),
        (spoiled(2, 1, slice(2), [1.5, -0.5]), "head 2, row 1 has a negative weight"),
        (spoiled(2, 3, 3, 0.2502), "head 2, row 3 does not sum to 1"),
        (spoiled(2, 0, 0, 0.9998), "head 2, row 0 does not sum to 1"),
        (spoiled(1, 1, slice(3), [0.5, 0.5 - 1e-6, 1e-6]), "head 1, row 1 attends to a later"),
        (uniform(4), r"attention must have shape \(heads, tokens, tokens\), not \(4, 4\)"),
        (np.ones((2, 1, 3)) / 3, "attention must have shape"),
    ],
)
def test_what_is_not_attention_is_refused_by_head_and_row(attention, message):
    for read_layer in (routing.check, routing.heads, routing.floors):
        with pytest.raises(ValueError, match=message):
            read_layer(attention, True)


def test_attention_of_float32_and_without_a_mask_is_accepted():
    attention = layer(0, FEW, False)
    found = routing.check(attention, False)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, attention)
    assert routing.check(spoiled(2, 3, 3, 0.25 + 9e-5), True).shape == (3, 4, 4)
    with pytest.raises(ValueError, match="head 0, row 0 attends to a later token"):
        routing.check(attention, True)


@pytest.mark.parametrize("settings", [{"floor": 0}, {"floor": 1e-12, "most": 0}])
def test_sinkhorn_needs_a_floor_and_a_sweep(settings):
    with pytest.raises(ValueError, match="a floor above 0 and a sweep"):
        routing.sinkhorn(uniform(3)[None], **settings)
