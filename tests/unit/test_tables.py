"""Tables: what is written is read back, and what has no reason is refused."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokensphere import tables


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A path that every example may overwrite."""
    return tmp_path_factory.mktemp("tables") / "table.csv"


@given(st.lists(st.floats(allow_nan=False), min_size=1, unique=True))
def test_a_number_is_read_back_to_its_last_bit(place, values):
    rows = [{"row": index, "value": value} for index, value in enumerate(values)]
    tables.write(place, rows, ["row"])
    assert tables.read(place)["value"].tolist() == values


def test_a_number_of_lower_precision_is_written_in_full(place):
    tables.write(place, [{"layer": 0, "value": np.float32(0.1)}], ["layer"])
    assert tables.read(place)["value"].tolist() == [float(np.float32(0.1))]


def test_text_is_read_back_as_it_was(place):
    pieces = ['a,"b"', "Ġé 漢\n", "NA", "nan", "null", " x "]
    tables.write(place, [{"token": i, "piece": piece} for i, piece in enumerate(pieces)], ["token"])
    assert tables.read(place)["piece"].tolist() == pieces


@pytest.mark.parametrize("column", ["model", "weights", "prompt", "series", "reason"])
def test_a_name_that_looks_like_a_number_stays_a_name(place, column):
    tables.write(place, [{"layer": 0, column: "007"}, {"layer": 1, column: "1.10"}], ["layer"])
    assert tables.read(place)[column].tolist() == ["007", "1.10"]


def test_integers_stay_integers(place):
    tables.write(place, [{"layer": np.int64(3), "count": 10**12}], ["layer"])
    assert place.read_text() == f"layer,count\n3,{10**12}\n"
    assert tables.read(place)["count"].dtype == np.int64


def test_an_undefined_value_is_an_empty_field_with_a_reason(place):
    rows = [
        {"layer": 0, "mean": math.nan, "reason": "no pair"},
        {"layer": 1, "mean": 0.5, "reason": ""},
    ]
    tables.write(place, rows, ["layer"])
    assert place.read_text() == "layer,mean,reason\n0,,no pair\n1,0.5,\n"
    frame = tables.read(place)
    assert frame["mean"].isna().tolist() == [True, False]
    assert frame["reason"].tolist() == ["no pair", ""]


def test_a_column_without_any_reason_is_read_as_empty_texts(place):
    tables.write(place, [{"layer": 0, "reason": ""}], ["layer"])
    assert tables.read(place)["reason"].tolist() == [""]


@pytest.mark.parametrize("undefined", [math.nan, np.float64("nan"), np.float32("nan")])
@pytest.mark.parametrize("reason", [{}, {"reason": ""}])
def test_an_undefined_value_without_a_reason_is_refused(place, undefined, reason):
    with pytest.raises(ValueError, match=r"row \(4,\): mean is undefined without a reason"):
        tables.write(place, [{"layer": 4, "mean": undefined, **reason}], ["layer"])


def test_a_band_may_be_empty_without_a_reason_but_its_value_may_not(place):
    tables.write(place, [{"layer": 0, "value": 1.0, "low": math.nan}], ["layer"], empty=["low"])
    with pytest.raises(ValueError, match="value is undefined"):
        tables.write(place, [{"layer": 0, "value": math.nan}], ["layer"], empty=["low"])


def test_two_rows_with_the_same_keys_are_refused(place):
    rows = [{"layer": 0, "state": "residual"}, {"layer": 0, "state": "final_norm"}]
    tables.write(place, rows, ["layer", "state"])
    with pytest.raises(ValueError, match=r"two rows have the same layer: \(0,\)"):
        tables.write(place, rows, ["layer"])


@pytest.mark.parametrize("other", [{"layer": 1}, {"mean": 0.1, "layer": 1}, {"layer": 1, "sd": 0}])
def test_a_row_with_other_columns_is_refused(place, other):
    with pytest.raises(ValueError, match="differ from the first row's"):
        tables.write(place, [{"layer": 0, "mean": 0.1}, other], ["layer"])


def test_a_table_without_rows_is_refused(place):
    with pytest.raises(ValueError, match="at least one row"):
        tables.write(place, [], ["layer"])


def test_a_refused_table_leaves_no_file(tmp_path):
    with pytest.raises(ValueError, match="undefined"):
        tables.write(tmp_path / "x.csv", [{"layer": 0, "mean": math.nan}], ["layer"])
    assert not list(tmp_path.iterdir())


def test_labels_are_read_by_layer_and_state_in_the_order_of_tokens(place):
    random = np.random.default_rng(0)
    states = [(0, "residual"), (2, "residual"), (10, "residual"), (10, "final_norm")]
    labels = {state: random.integers(-1, 5, 12) for state in states}
    rows = [
        {"layer": layer, "state": state, "token": token, "label": label}
        for (layer, state), every in labels.items()
        for token, label in enumerate(every)
    ]
    random.shuffle(rows)
    tables.write(place, rows, ["layer", "state", "token"])
    found = tables.read_labels(place)
    assert sorted(found) == sorted(states)
    assert {(type(layer), type(state)) for layer, state in found} == {(int, str)}
    for state in states:
        assert found[state].dtype == np.int64
        np.testing.assert_array_equal(found[state], labels[state])


def test_collecting_puts_each_rows_run_in_front_and_changes_no_field(tmp_path):
    one, two, all_runs = (tmp_path / name for name in ("one.csv", "two.csv", "all.csv"))
    tables.write(one, [{"layer": 0, "mean": 0.1}, {"layer": 1, "mean": 1 / 3}], ["layer"])
    tables.write(two, [{"layer": 0, "mean": math.nan}], ["layer"], empty=["mean"])
    runs = [{"model": "a", "label": "A, large"}, {"model": "b", "label": "B"}]
    tables.collect([one, two], runs, all_runs)
    assert all_runs.read_text() == (
        'model,label,layer,mean\na,"A, large",0,0.1\na,"A, large",1,0.3333333333333333\nb,B,0,\n'
    )


def test_tables_with_other_columns_are_not_collected(tmp_path):
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    tables.write(one, [{"layer": 0, "mean": 0.1}], ["layer"])
    tables.write(two, [{"layer": 0, "sd": 0.1}], ["layer"])
    with pytest.raises(ValueError, match=r"two\.csv has columns"):
        tables.collect([one, two], [{"model": "a"}, {"model": "b"}], tmp_path / "all.csv")


def test_every_collected_table_needs_its_run(tmp_path):
    tables.write(tmp_path / "one.csv", [{"layer": 0}], ["layer"])
    with pytest.raises(ValueError, match="zip"):
        tables.collect([tmp_path / "one.csv"], [], tmp_path / "all.csv")


def test_tables_of_states_are_joined_by_layer_and_state_and_the_first_of_a_column_stays():
    one = pd.DataFrame({"layer": [0, 1, 1], "state": ["residual", "residual", "final_norm"]})
    two = one.iloc[[2, 0, 1]].assign(rank=[3, 1, 2], reason="two")
    both = tables.joined([one.assign(mass=[7, 8, 9], reason="one"), two])
    assert both["rank"].tolist() == [1, 2, 3]
    assert both["mass"].tolist() == [7, 8, 9]
    assert set(both["reason"]) == {"one"}
    with pytest.raises(pd.errors.MergeError):
        tables.joined([one, pd.concat([two, two])])
