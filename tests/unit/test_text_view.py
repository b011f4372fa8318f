"""The text view: its data are those of the tables, and no text of a prompt becomes markup."""

import base64
import hashlib
import html.parser
import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokensphere import sphere, store, text_view
from tools.text_views import assemble, states, tracked, write_store

DANGEROUS = [
    "</script><script>alert(1)</script>",
    "</SCRIPT >",
    "<!-- <script>",
    "]]>",
    '<img src=x onerror="alert(1)">',
    "& &amp; &lt; &#60; \\u003c",
    "\"double\" 'single' `back` \\ \\\\",
    "\u2028 \u2029 \u0000 \u001f \u007f \x85",
    "😀 👩‍👩‍👧 مرحبا שלום \u202eright\u202c",
    "@DATA@ @SCRIPT@ @STYLE@ ${x} {{ x }} {% x %}",
    "javascript:alert(1)",
]
LAYERS = {
    (0, "residual"): [0, 0, 1, 1, -1],
    (1, "residual"): [1, 1, 0, 0, -1],  # renamed
    # One merges into the other (equal overlaps: label 0 stays); a cluster of one is born.
    (2, "residual"): [0, 0, 0, 0, 1],
    (2, "final_norm"): [0, 0, -1, -1, -1],
}


@pytest.fixture(scope="session")
def template(root):
    return (root / "workflow/report/text_view.html").read_text(encoding="utf-8")


@pytest.fixture
def by_hand(tmp_path):
    write_store(tmp_path / "a.zarr.zip", ["One", "Ġtwo", "s", "Ċ", "."], states(5))
    return assemble(tmp_path / "a.zarr.zip", LAYERS)


# --- the data


def test_the_stops_are_the_layers_and_then_the_final_norm(by_hand, tmp_path):
    stops = [(stop["layer"], stop["state"]) for stop in by_hand["stops"]]
    assert stops == [(0, "residual"), (1, "residual"), (2, "residual"), (2, "final_norm")]
    path = tmp_path / "b.zarr.zip"
    write_store(path, ["a", "b", "c"], states(3), final_norm=False)
    shown = assemble(path, {(layer, "residual"): [0, 0, -1] for layer in range(4)})
    assert [stop["state"] for stop in shown["stops"]] == ["residual"] * 4


def test_tokens_carry_the_identity_of_their_cluster_not_its_label(by_hand):
    assert [stop["of"] for stop in by_hand["stops"]] == [
        [0, 0, 1, 1, -1],
        [0, 0, 1, 1, -1],
        [1, 1, 1, 1, 2],
        [0, 0, -1, -1, -1],
    ]
    assert [stop["clusters"] for stop in by_hand["stops"]] == [2, 2, 2, 1]
    assert [stop["clustered"] for stop in by_hand["stops"]] == [4, 4, 5, 2]
    assert by_hand["since"] == [0, 0, 2]


def test_events_are_counted_at_each_stop_and_none_at_layer_0(by_hand):
    none = {"birth": 0, "death": 0, "merge": 0, "split": 0}
    assert [stop["events"] for stop in by_hand["stops"]] == [
        None,
        none,
        none | {"birth": 1, "merge": 1},
        none | {"death": 1},
    ]


def test_neighbours_are_those_of_brute_force_by_falling_cosine(tmp_path):
    vectors = states(9)
    write_store(tmp_path / "a.zarr.zip", list("abcdefghi"), vectors)
    shown = assemble(tmp_path / "a.zarr.zip", {state: [-1] * 9 for state in LAYERS})
    assert shown["neighbours"] == 5
    for stop, cloud in zip(shown["stops"], vectors, strict=True):
        points = sphere.project(cloud)
        for token in range(9):
            cosines = {other: points[token] @ points[other] for other in range(9) if other != token}
            expected = sorted(cosines, key=cosines.get, reverse=True)[:5]
            place = slice(5 * token, 5 * token + 5)
            assert stop["nearest"][place] == expected
            assert stop["cosines"][place] == [round(1000 * cosines[other]) for other in expected]


def test_a_few_tokens_have_as_many_neighbours_as_there_are_others(tmp_path):
    write_store(tmp_path / "a.zarr.zip", ["a", "b", "c"], states(3))
    shown = assemble(tmp_path / "a.zarr.zip", {state: [-1] * 3 for state in LAYERS})
    assert shown["neighbours"] == 2
    assert sorted(shown["stops"][0]["nearest"][:2]) == [1, 2]


def test_of_equal_tokens_the_lowest_index_comes_first_and_one_without_direction_has_none(tmp_path):
    vectors = states(8)
    vectors[:, 2:] = vectors[:, 2:3]
    vectors[:, 1] = 0
    write_store(tmp_path / "a.zarr.zip", list("abcdefgh"), vectors)
    stop = assemble(tmp_path / "a.zarr.zip", {state: [-1] * 8 for state in LAYERS})["stops"][0]
    assert stop["nearest"][:10] == [2, 3, 4, 5, 6, -1, -1, -1, -1, -1]
    # Five others coincide with token 7.
    assert stop["nearest"][35:] == [2, 3, 4, 5, 6]
    assert stop["cosines"][35:] == [1000] * 5


def test_a_run_without_any_cluster_has_a_page(tmp_path, template):
    write_store(tmp_path / "a.zarr.zip", ["a", "b", "c"], states(3))
    shown = assemble(tmp_path / "a.zarr.zip", {state: [-1] * 3 for state in LAYERS})
    assert {stop["clusters"] for stop in shown["stops"]} == {0}
    assert shown["since"] == []
    assert parsed(text_view.page(template, shown)) == shown


def test_labels_and_tracks_of_different_clusters_are_refused(tmp_path):
    write_store(tmp_path / "a.zarr.zip", ["a", "b", "c"], states(3))
    labels, tracks, events = tracked({state: [0, 0, -1] for state in LAYERS})
    with store.Activations(tmp_path / "a.zarr.zip") as activations:
        for wrong in ([0, 0, 0], [1, 1, -1], [-1, -1, -1]):
            other = labels | {(1, "residual"): np.array(wrong)}
            with pytest.raises(ValueError, match="not of the same clusters"):
                text_view.assemble(activations, other, tracks, events, label="A model")


def test_weights_are_called_what_they_are(by_hand, tmp_path):
    assert by_hand["weights"] == "trained (4-bit weights, dequantised)"
    random = {"weights_are": "random", "scheme": "norm_matched", "seed": 3}
    write_store(tmp_path / "b.zarr.zip", ["a", "b", "c"], states(3), **random)
    shown = assemble(tmp_path / "b.zarr.zip", {state: [-1] * 3 for state in LAYERS})
    assert shown["weights"] == "random (norm_matched, seed 3)"


# --- the page


class Page(html.parser.HTMLParser):
    """What a parser of HTML makes of a page: its elements, and the text in its scripts."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.elements, self.scripts, self.attributes = [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        self.attributes += attrs
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.elements and self.elements[-1] == "script":
            self.scripts[-1] += data


def parsed(page):
    return json.loads(Page(page).scripts[0])


@pytest.mark.parametrize("text", DANGEROUS)
def test_dangerous_text_comes_back_from_the_page_and_stands_nowhere_as_it_is(
    template, by_hand, text
):
    shown = by_hand | {"pieces": [text] * 5, "prompt": text, "model": text}
    shown["texts"] = [[text, text]] * 5
    page = text_view.page(template, shown)
    assert parsed(page) == shown
    assert Page(page).elements == Page(text_view.page(template, by_hand)).elements
    raw = page[page.index('<script id="data"') :].partition(">")[2].partition("</script>")[0]
    assert not set(raw) & set("<>&\u2028\u2029")


@given(st.text())
def test_any_text_comes_back_from_the_data(text):
    written = text_view.embedded([text])
    assert json.loads(written) == [text]
    assert not set(written) & set("<>&\u2028\u2029")


def test_the_page_runs_its_own_script_and_style_and_asks_for_nothing(template, by_hand):
    page = text_view.page(template, by_hand)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)[1]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules.keys() == {"default-src", "style-src", "script-src", "base-uri", "form-action"}
    for element in ("style", "script"):
        inside = page.partition(f"<{element}>")[2].partition(f"</{element}>")[0]
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert rules[f"{element}-src"] == f"'sha256-{digest}'"
    read = Page(page)
    assert read.elements.index("meta") < read.elements.index("script")
    assert not set(dict(read.attributes)) & {"src", "href", "srcset", "action", "style", "onclick"}
    assert not re.search(r"https?:|url\(|@import|innerHTML|outerHTML|insertAdjacent|eval\(|fetch\(",
                         page)  # fmt: skip


def test_the_same_run_gives_the_same_bytes(tmp_path, template):
    pages = []
    for name in ("a", "b"):
        path = tmp_path / f"{name}.zarr.zip"
        write_store(path, ["a", "b", "c", "d", "e"], states(5))
        pages.append(text_view.page(template, assemble(path, LAYERS)))
    assert pages[0] == pages[1]


def test_a_page_of_many_layers_and_tokens_stays_small(template, by_hand):
    tokens, layers = 512, 32
    random = np.random.default_rng(0)
    stop = by_hand["stops"][0] | {
        "of": random.integers(100, 200, tokens).tolist(),
        "nearest": random.integers(100, tokens, 5 * tokens).tolist(),
        "cosines": random.integers(100, 1000, 5 * tokens).tolist(),
    }
    words = ["internationalisation"] * tokens
    shown = by_hand | {"stops": [stop] * layers, "pieces": words, "texts": [[w] for w in words]}
    assert len(text_view.page(template, shown).encode()) < 1_500_000
