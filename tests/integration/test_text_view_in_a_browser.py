"""The text view in a real browser: what it shows, that it asks for nothing, and runs nothing else.

Chromium or Chrome is taken where one is installed; playwright drives it.
"""

import shutil

import numpy as np
import pytest
from playwright.sync_api import sync_playwright

from tokensphere import sphere, text_view
from tools.text_views import assemble, states, tracked, write_store

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DANGEROUS = """<b>HTML</b> & "quotes" </script> 😀 مرحبا שלום"""
PIECES = "The cat sat on the mat , and the dog sat on the other mat .".replace(" ", " Ġ").split()
TRANSPARENT = "rgba(0, 0, 0, 0)"


@pytest.fixture(scope="module")
def browser():
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"the text view was not opened: none of {', '.join(BROWSERS)} is installed")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def opened(browser):
    """Return a function that opens a page by its file; any error or request fails the test."""
    page, wrong, asked = browser.new_page(), [], []
    page.on("console", lambda message: wrong.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: asked.append(request.url))

    def open_(path):
        page.goto(path.as_uri())
        return page

    yield open_
    address = page.url
    page.close()
    assert wrong == []
    assert asked == [address]


@pytest.fixture(scope="session")
def template(root):
    return (root / "workflow/report/text_view.html").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def root(pytestconfig):
    return pytestconfig.rootpath


LAYERS, VECTORS = 4, states(len(PIECES), layers=4)
STOPS = [*((layer, "residual") for layer in range(LAYERS + 1)), (LAYERS, "final_norm")]
RANDOM = np.random.default_rng(1)
# Now more clusters, now fewer: some split, some merge.
CLUSTERS = {
    stop: RANDOM.integers(-1, most, len(PIECES)).tolist()
    for stop, most in zip(STOPS, (3, 6, 2, 5, 4, 6), strict=True)
}


@pytest.fixture(scope="module")
def page_of_clusters(tmp_path_factory, template):
    folder = tmp_path_factory.mktemp("text")
    write_store(folder / "a.zarr.zip", PIECES, VECTORS)
    path = folder / "a.html"
    path.write_text(text_view.page(template, assemble(folder / "a.zarr.zip", CLUSTERS)), "utf-8")
    return path


def go_to(page, stop):
    """Move the slider with the keyboard alone."""
    page.locator("#layer").focus()
    while (place := int(page.locator("#layer").input_value())) != stop:
        page.keyboard.press("ArrowRight" if place < stop else "ArrowLeft")


def looks(page):
    """Say how each token looks: its background and its underline."""
    return page.eval_on_selector_all(
        ".token .ink",
        """inks => inks.map(ink => {
            const style = getComputedStyle(ink);
            return [style.backgroundColor, style.textDecorationLine, style.textDecorationStyle];
        })""",
    )


def identities(place):
    """The identity of each token's cluster, from the table of tracks."""
    labels, tracks, _ = tracked(CLUSTERS)
    layer, state = STOPS[place]
    here = tracks[(tracks["layer"] == layer) & (tracks["state"] == state)]
    of = dict(zip(here["cluster"], here["tracked"], strict=True))
    return [of.get(label) for label in labels[layer, state]]


def test_colours_and_counts_are_those_of_the_tables(opened, page_of_clusters):
    page = opened(page_of_clusters)
    labels, _, events = tracked(CLUSTERS)
    look_of = {}
    for place in (0, len(STOPS) // 2, len(STOPS) - 1):
        go_to(page, place)
        layer, state = STOPS[place]
        for identity, (colour, line, style) in zip(identities(place), looks(page), strict=True):
            assert (colour == TRANSPARENT) == (line == "none") == (identity is None)
            if identity is not None:
                # The same at every stop.
                assert look_of.setdefault(identity, (colour, style)) == (colour, style)
        clustered = int((labels[layer, state] >= 0).sum())
        count = len(set(identities(place)) - {None})
        said = page.locator("#summary").inner_text()
        assert said.startswith(f"{count} cluster")
        assert f"{clustered} of {len(PIECES)} tokens in one" in said
        here = events[(events["layer"] == layer) & (events["state"] == state)]["event"].tolist()
        assert (f"since layer {layer - 1}:" in said) == (layer > 0)
        for event in ("birth", "death", "merge", "split"):
            assert layer == 0 or f" {here.count(event)} {event}" in said
    assert len(set(look_of.values())) == len(look_of) > 3
    assert page.locator("#stop").inner_text() == "final norm"


def test_a_token_shows_its_cluster_and_its_neighbours(opened, page_of_clusters):
    page = opened(page_of_clusters)
    _, tracks, _ = tracked(CLUSTERS)
    names = set()
    for place in (0, 3, 5):
        page.mouse.move(0, 0)
        go_to(page, place)
        of = identities(place)
        token = of.index(max(one for one in of if one is not None))  # of the youngest cluster
        page.locator(f"[data-token='{token}'] .ink").hover()
        details = page.locator("#details")
        assert details.locator("h2").inner_text() == f"Token {token}: {PIECES[token]}"
        others = [i for i, one in enumerate(of) if one == of[token] and i != token]
        said = details.locator(".cluster").inner_text()
        first = tracks[tracks["tracked"] == of[token]].iloc[0]
        name = "the final norm" if first["state"] == "final_norm" else f"layer {first['layer']}"
        names.add(name)
        size = f"{len(others) + 1} token" + "s" * (len(others) > 0)
        assert said.startswith(f"Cluster {of[token]}, {size}, since {name}")
        assert numbers(details.locator(".members .number")) == others
        framed = page.eval_on_selector_all(
            ".token:has(.member)", "all => all.map(one => Number(one.dataset.token))"
        )
        assert framed == others
        points = sphere.project(VECTORS[place])
        cosines = points @ points[token]
        nearest = [i for i in np.argsort(-cosines).tolist() if i != token][:5]
        assert numbers(details.locator(".nearest .number")) == nearest
        shown = details.locator(".nearest .cosine").all_inner_texts()
        assert shown == [f"{cosines[other]:.3f}" for other in nearest]
    assert {"layer 0", "the final norm"} < names


def numbers(found):
    return [int(text) for text in found.all_inner_texts()]


def test_a_token_can_be_reached_kept_and_let_go_with_the_keyboard(opened, page_of_clusters):
    page = opened(page_of_clusters)
    page.locator("#layer").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    title = page.locator("#details h2")
    assert title.inner_text() == f"Token 1: {PIECES[1]}"
    page.keyboard.press("ArrowRight")
    assert page.locator("#stop").inner_text() == "layer 1"
    assert title.inner_text() == f"Token 1: {PIECES[1]}"
    page.locator("[data-token='7'] .ink").hover()
    assert title.inner_text() == f"Token 7: {PIECES[7]}"
    page.mouse.move(0, 0)
    assert title.inner_text() == f"Token 1: {PIECES[1]}"
    page.keyboard.press("Escape")
    assert title.count() == 0


@pytest.mark.parametrize("name", [DANGEROUS, "</title><img src=x onerror=alert(1)>"])
def test_dangerous_text_is_shown_as_exactly_that_text(opened, tmp_path, template, name):
    text = f"{DANGEROUS}\n\tمرحبا بك here\n<img src=x onerror=alert(1)>"
    cuts = range(0, len(text), 3)
    signs = str.maketrans(" \n\t", "ĠĊĉ")
    pieces = [text[cut : cut + 3].translate(signs) for cut in cuts]
    path = tmp_path / "dangerous.html"
    write_store(tmp_path / "a.zarr.zip", pieces, states(len(pieces)), prompt=name)
    labels = {
        stop: [0] * len(pieces)
        for stop in [*((i, "residual") for i in range(3)), (2, "final_norm")]
    }
    shown = assemble(tmp_path / "a.zarr.zip", labels, label=name)
    path.write_text(text_view.page(template, shown), "utf-8")
    page = opened(path)
    assert page.locator("#text").evaluate("text => text.textContent") == text
    assert page.locator("h1").inner_text() == f"{name} in {name}"
    assert page.title().startswith(f"{name}: {name}, ")
    page.locator("[data-token='1'] .ink").hover()
    assert page.locator("#details h2").inner_text() == f"Token 1: {pieces[1]}"
    assert page.locator("#details .members .number").count() == len(pieces) - 1
    assert page.locator("b, img").count() == 0
    assert page.locator("script").count() == 2


def test_lines_are_kept_and_each_finds_its_direction(opened, tmp_path, template):
    pieces = ["abc", "Ġdef", "Ċ", "مر", "حبا", "Ġبك", "Ċ", "xyz", "<0xD7>", "!"]
    write_store(tmp_path / "a.zarr.zip", pieces, states(len(pieces)))
    labels = {(layer, "residual"): [-1] * len(pieces) for layer in range(3)}
    labels[2, "final_norm"] = labels[0, "residual"]
    path = tmp_path / "a.html"
    path.write_text(text_view.page(template, assemble(tmp_path / "a.zarr.zip", labels)), "utf-8")
    page = opened(path)
    boxes = [
        page.locator(f"[data-token='{token}'] .ink").bounding_box() for token in range(len(pieces))
    ]
    assert boxes[0]["x"] < boxes[1]["x"]
    assert boxes[3]["x"] > boxes[4]["x"] > boxes[5]["x"] > boxes[1]["x"] + 100  # from the right
    assert boxes[0]["y"] < boxes[3]["y"] < boxes[7]["y"]
    assert boxes[7]["x"] == boxes[0]["x"]
    assert page.locator(".cut").inner_text() == "<0xD7>"


def test_another_script_would_not_run_and_nothing_would_be_fetched(
    browser, tmp_path, page_of_clusters
):
    path = tmp_path / "attacked.html"
    attack = (
        "<script>document.title = 'attacked'</script>"
        "<img src='http://127.0.0.1:9/x.png' onerror=\"document.title = 'attacked'\">"
    )
    path.write_text(
        page_of_clusters.read_text("utf-8").replace("</body>", f"{attack}</body>"), "utf-8"
    )
    page, refused = browser.new_page(), []
    page.on("console", lambda message: refused.append(message.text))
    page.goto(path.as_uri())
    assert page.title() == "by_hand: A model, trained (4-bit weights, dequantised)"
    said = "\n".join(refused)
    assert "inline script" in said and "image" in said
    page.close()
