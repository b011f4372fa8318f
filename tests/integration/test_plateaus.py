"""The script that finds plateaus takes the right column, state and event for either reading."""

import os
import runpy

import pytest

from tokensphere import tables
from tools.stand_in import SCRIPTS, snakemake_object

CONSTANTS = {
    "plateau_window": 2,
    "plateau_tolerances": {
        "mass_near_one": 0.1,
        "effective_rank": 0.05,
        "spectral_count": 0.5,
        "cluster_count": 0.5,
        "fiedler": 0.05,
        "cka": 0.02,
        "neighbours": 0.02,
    },
    "plateau_signals": 2,
    "merge_jump": 0.1,
}
EVENTS = ["layer", "state", "event", "cluster", "into"]

MOVING = [1, 8, 64, 512]  # stands still in no window


def of_states(columns, first, normed):
    """Give residual layers first..3 the columns' values, and a final norm the value `normed`."""
    rows = [
        {"layer": layer, "state": "residual", **dict(zip(columns, values, strict=True))}
        for layer, values in enumerate(zip(*columns.values(), strict=True), start=first)
    ]
    if normed is not None:
        rows.append({"layer": 3, "state": "final_norm", **dict.fromkeys(columns, normed)})
    return rows


def inputs(normed):
    mass = {"mass_near_one": [0.0, 0.5, 0.5, 0.55], "mass_near_one_distinct": [0.5, 0.5, 0.5, 0.8]}
    heads = {1: [(0, 1), (2, 1)], 2: [(1, 2), (1, 14)], 3: [(9, 8), (9, 8)]}
    return {
        "inner_products": of_states(mass, 0, normed),
        "effective_rank": of_states({"raw": MOVING, "sphere": [2, 2, 8, 64]}, 0, normed),
        "spectral_count": of_states({"eigengap": MOVING}, 0, normed),
        "clusters": of_states({"count": [9, 1, 3, 3]}, 0, normed),
        "cka": of_states({"cka": [0.9, 0.9, 0.5], "cka_debiased": [0.1, 0.8, 0.8]}, 1, normed),
        "neighbours": of_states({"stability": [1, 8, 64], "label_ari": [1, 8, 8]}, 1, normed),
        # Means over heads: 1, 1, 9 as published; 1, 8, 8 controlled.
        "fiedler": [
            {"layer": layer, "head": head, "published": published, "symmetrised": symmetrised}
            for layer, values in heads.items()
            for head, (published, symmetrised) in enumerate(values)
        ],
    }


@pytest.fixture
def run_script(tmp_path, monkeypatch):
    """Return a function that runs the script on tables of layers 0..3, and reads what it wrote."""
    monkeypatch.chdir(tmp_path)

    def run(normed, events):
        made = {
            **inputs(normed),
            "cluster_events": [dict(zip(EVENTS, e, strict=True)) for e in events],
        }
        for name, rows in made.items():
            tables.write(
                f"{name}.csv", rows, keys=list((rows or [{}])[0]), columns=[] if rows else EVENTS
            )
        job = snakemake_object(
            "plateaus",
            wildcards={"model": "tiny", "weights": "trained", "prompt": "night"},
            inputs={
                **{name: f"{name}.csv" for name in made},
                "code": [os.path.relpath(SCRIPTS / "plateaus.py")],
            },
            outputs={"table": "out/plateaus.csv", "merges": "out/merges.csv"},
            params={"constants": CONSTANTS},
        )
        runpy.run_path(str(SCRIPTS / "plateaus.py"), init_globals={"snakemake": job})
        found, merges = (tables.read(f"out/{name}.csv") for name in ("plateaus", "merges"))
        assert list(found) == ["reading", "signal", "start", "end"]
        assert list(merges) == ["reading", "layer", "sign", "size"]
        return [
            {
                reading: [
                    row[1:] for row in frame.itertuples(index=False, name=None) if row[0] == reading
                ]
                for reading in ("published", "controlled")
            }
            for frame in (found, merges)
        ]

    return run


# Of every measure; layer 3 itself has another value, so that it shows which of the two is read.
NORMED = 1.0

CONTROLLED = [
    ("mass_near_one", 0, 2),
    ("effective_rank", 0, 1),
    ("cluster_count", 2, 3),
    ("fiedler", 2, 3),
    ("cka", 2, 3),
    ("neighbours", 2, 3),
    ("joint", 0, 3),
]


def test_the_final_norm_stands_for_the_last_layer_as_published_alone(run_script):
    found, merges = run_script(
        NORMED,
        [
            (1, "residual", "merge", 3, 0),
            (1, "residual", "merge", 4, 0),
            (2, "residual", "split", 0, 5),
            (3, "residual", "merge", 5, 0),
            (3, "final_norm", "merge", 5, 1),
            (3, "final_norm", "merge", 2, 1),
            (3, "final_norm", "death", 0, ""),
        ],
    )
    assert found["published"] == [
        ("mass_near_one", 1, 2),
        ("fiedler", 1, 2),
        ("cka", 1, 2),
        ("joint", 1, 2),
    ]
    assert found["controlled"] == CONTROLLED
    assert merges["published"] == [
        (1, "clusters", 2),
        (1, "mass", 0.5),
        (3, "clusters", 2),
        (3, "mass", 0.5),
    ]
    assert merges["controlled"] == [
        (1, "clusters", 2),
        (3, "clusters", 1),
        (3, "mass", pytest.approx(0.3)),
    ]


def test_without_a_final_norm_both_readings_take_the_residual_stream(run_script):
    found, merges = run_script(None, [])
    assert found["published"] == [
        ("mass_near_one", 1, 3),
        ("cluster_count", 2, 3),
        ("fiedler", 1, 2),
        ("cka", 1, 2),
        ("joint", 1, 3),
    ]
    assert found["controlled"] == CONTROLLED
    assert merges["published"] == [(1, "mass", 0.5)]
    assert merges["controlled"] == [(3, "mass", pytest.approx(0.3))]
