"""Words, truth values, dates and empty cells: learnt once, the same numbers ever after."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.preprocessing import OneHotEncoder

from fewview import FewviewError, FewviewWarning, MultiViewData
from fewview.samples import SCALINGS, fit_scaling
from fewview.samples._columns import MOST_CATEGORIES, WORD_WIDTH, Column, Said, learn_column

NAN = float("nan")


def table(**columns: list[object]) -> MultiViewData:
    return MultiViewData({"t": pd.DataFrame(columns)})


def test_kinds() -> None:
    assert learn_column("c", ["b", None, "a", "b"]) == Column("c", "category", ("a", "b"))
    assert learn_column("c", ["Yes", "no"]).kind == "boolean"
    assert learn_column("c", ["true", "true"]).levels == ("false", "true")
    assert learn_column("c", ["2024-05-31", "2024-06-01T12:00"]).kind == "date"
    assert learn_column("c", ["2024-05-31", "soon"]).kind == "category"
    many = [f"word {number}" for number in range(MOST_CATEGORIES + 1)]
    assert learn_column("c", many[:-1]).kind == "category"
    assert learn_column("c", many).kind == "words"


def test_categories_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    words = rng.choice(["red", "green", "blue"], size=(50, 2))
    found = table(a=words[:, 0].tolist(), b=words[:, 1].tolist())
    wanted = OneHotEncoder(sparse_output=False).fit(words)
    assert np.array_equal(found.view("t"), wanted.transform(words))
    assert found.columns["t"] == tuple(
        f"{'ab'[k]}={level}" for k in range(2) for level in wanted.categories_[k]
    )


def test_one_row_is_read_as_the_base_set_was() -> None:
    base = table(
        leaf=["dry", "wet", "old"], sick=["no", "yes", "no"], x=[1.0, 2.0, 3.0],
        day=["2024-01-01", "2024-01-03", "2024-01-02"],
    )  # fmt: skip
    frame = pd.DataFrame({"x": [5.0], "sick": ["YES"], "leaf": ["wet"], "day": ["2024-01-02"]})
    for row in (
        MultiViewData({"t": frame}).like(base),
        MultiViewData({"t": frame}, like=base),
        MultiViewData({"t": pl.from_pandas(frame)}, like=base),
    ):
        assert row.columns == base.columns
        assert row.kinds == base.kinds
        assert row.view("t").tolist() == [[0.0, 0.0, 1.0, 1.0, 5.0, 19724.0]]


def test_what_is_new_is_told_with_counts_and_the_width_stays() -> None:
    base = table(leaf=["dry", "wet"], sick=["no", "yes"], x=[1.0, 2.0])
    later = table(leaf=["mouldy", "wet", "mouldy"], sick=["maybe", "no", "yes"], z=[1, 2, 3])
    with pytest.warns(FewviewWarning) as told:
        rows = later.like(base, "query")
    (message,) = [str(warning.message) for warning in told]
    assert "1 learnt column is not there, taken for empty ('x')" in message
    assert "1 column is new and left out ('z')" in message
    assert "3 cells hold categories" in message
    assert "leaf: 'mouldy' 2 times" in message
    assert np.array_equal(
        rows.view("t"), [[0, 0, NAN, NAN], [0, 1, 0, NAN], [0, 0, 1, NAN]], equal_nan=True
    )


def test_numbers_may_be_codes_of_categories() -> None:
    base = table(grade=["1", "2", "x", "y", "z"])
    assert base.kinds["t"][0].levels == ("1", "2", "x", "y", "z")
    row = table(grade=[2.0]).like(base)
    assert row.view("t").tolist() == [[0.0, 1.0, 0.0, 0.0, 0.0]]


def test_sentences_need_nothing_learnt() -> None:
    texts = [f"patient {number} coughs" for number in range(60)]
    base = table(note=texts, x=[1.0] * 60)
    assert base.view_dims == {"t": WORD_WIDTH + 1}
    one = table(note=texts[7:8], x=[1.0]).like(base)  # alone it looks like a category
    assert np.array_equal(one.view("t"), base.view("t")[7:8])
    with pytest.raises(FewviewError, match=r"column 'note'.*like= the base set"):
        base.like(table(note=["a", "b"], x=[1.0, 2.0]))


def test_a_word_where_numbers_were_learnt() -> None:
    base = table(x=[1.0, 2.0])
    with pytest.raises(FewviewError, match="column 'x' holds 'low'; it was learnt with numbers"):
        table(x=["low", "high"]).like(base)


def test_parts_with_other_categories_are_put_together() -> None:
    one, two = table(leaf=["dry"], x=[1.0]), table(leaf=["wet"], x=[2.0])
    both = MultiViewData.concat([one, two])
    assert both.columns["t"] == ("leaf=dry", "leaf=wet", "x")
    assert both.view("t").tolist() == [[1.0, 0.0, 1.0], [0.0, 1.0, 2.0]]


def test_a_table_of_words_from_files(tmp_path: pytest.TempPathFactory) -> None:
    text = "id,leaf,size\np,dry,1\nq,?,2\nr,wet,\n"
    (tmp_path / "t.csv").write_text(text)  # type: ignore[operator]
    data = MultiViewData.read(str(tmp_path))
    assert np.array_equal(data.view("t"), [[1, 0, 1], [NAN, NAN, 2], [0, 1, NAN]], equal_nan=True)
    assert data.empty_cells == 2  # cells of the table, not numbers they became


@pytest.mark.parametrize("rule", SCALINGS)
def test_empty_cells_are_filled_with_learnt_means_before_scaling(rule: str) -> None:
    rng = np.random.default_rng(1)
    block = rng.gamma(2.0, size=(30, 4))
    block[rng.random(block.shape) < 0.2] = NAN
    block[3] = NAN
    base = MultiViewData({"a": block, "b": np.ones((30, 1))})
    means = np.nanmean(block, axis=0)
    whole = np.where(np.isnan(block) & ~np.isnan(block).all(axis=1)[:, None], means, block)
    filled = MultiViewData({"a": whole, "b": np.ones((30, 1))})
    query = MultiViewData({"a": [[NAN, 1.0, NAN, 2.0]], "b": [[1.0]]})
    by_hand = MultiViewData({"a": [[means[0], 1.0, means[2], 2.0]], "b": [[1.0]]})
    one, two = fit_scaling(base, rule), fit_scaling(filled, rule)
    for dtype in (np.float64, None):
        for given, wanted in ((base, filled), (query, by_hand)):
            np.testing.assert_allclose(
                one.transform(given, dtype).view("a"), two.transform(wanted, dtype).view("a")
            )
    kept = one.transform(query, np.float64, keep_empty=True).view("a")
    assert np.isnan(kept).tolist() == [[True, False, True, False]]


@pytest.mark.parametrize("rule", SCALINGS)
def test_a_column_that_was_always_empty_says_nothing(rule: str) -> None:
    base = MultiViewData({"a": [[1.0, NAN], [2.0, NAN], [4.0, NAN]]})
    scaling = fit_scaling(base, rule)
    low, high = (
        scaling.transform(MultiViewData({"a": [[3.0, value]]}), np.float64).view("a")
        for value in (-1e6, 1e6)
    )
    assert np.array_equal(low, high)
    assert np.isfinite(low).all()


def test_kept_empty_cells_count_in_the_length_of_a_row_with_their_mean_squares() -> None:
    rng = np.random.default_rng(0)
    block = rng.gamma(2.0, size=(4000, 8))
    row = block[:1].copy()
    row[0, [1, 4, 5]] = NAN
    for rule in ("standard+unit", "root+unit", "root+standard+unit"):
        scaling = fit_scaling(MultiViewData({"a": block}), rule)
        before = block if rule == "standard+unit" else np.sqrt(block)
        if "standard" in rule:
            before = (before - before.mean(axis=0)) / before.std(axis=0)
        kept = scaling.transform(MultiViewData({"a": row}), np.float64, keep_empty=True).view("a")
        there = ~np.isnan(row[0])
        squares = np.square(before[0, there]).sum() + np.square(before).mean(axis=0)[~there].sum()
        np.testing.assert_allclose(kept[0, there], before[0, there] / np.sqrt(squares))
        assert np.isnan(kept[0, ~there]).all()


def test_signs_for_empty_cells_among_numbers() -> None:
    base = table(x=["1.5", "-", "3"], word=["-", "a", "b"])
    np.testing.assert_array_equal(base.view("t")[:, 0], [1.5, NAN, 3])
    assert base.columns["t"] == ("x", "word=-", "word=a", "word=b")  # a word like any other
    later = MultiViewData({"t": pd.DataFrame({"x": ["*"], "word": ["a"]})}, like=base)
    np.testing.assert_array_equal(later.view("t"), [[NAN, 0, 1, 0]])


def test_dates_with_dots() -> None:
    found = table(day=["31.12.1969", "2.1.1970"])
    assert found.view("t")[:, 0].tolist() == [-1, 1]
    assert learn_column("c", ["31.13.2000"]).kind == "category"


def test_dates_beside_whole_numbers_with_gaps() -> None:
    frame = pd.DataFrame(
        {"day": pd.to_datetime(["1970-01-02", "1970-01-03"]), "n": pd.array([1, None], "Int64"),
         "ok": pd.array([True, None], "boolean"), "word": pd.array(["a", None], "string")}
    )  # fmt: skip
    for data in (MultiViewData({"t": frame}), MultiViewData.from_frames({"t": frame})):
        assert data.columns["t"] == ("day", "n", "ok", "word=a")
        np.testing.assert_array_equal(data.view("t"), [[1, 1, 1, 1], [2, NAN, NAN, NAN]])


def test_dates_with_slashes_are_read_in_the_order_that_the_column_tells() -> None:
    day_first = table(day=["31/12/1969", "2/1/1970", "3/1/1970 12:00"])
    assert day_first.view("t")[:, 0].tolist() == [-1, 1, 2.5]
    month_first = table(day=["12/31/1969", "1/2/1970"])
    assert month_first.view("t")[:, 0].tolist() == [-1, 1]
    for base, days in ((day_first, 1), (month_first, 31)):
        frame = pd.DataFrame({"day": ["2/1/1970"]})
        found = MultiViewData({"t": frame}, like=base)
        assert found.view("t").tolist() == [[days]]
    with pytest.raises(FewviewError, match=r"'1/2/1970', and no date .* write dates such as 2024"):
        table(day=["1/2/1970", "3/4/1970"])


@pytest.mark.parametrize("cells", [["1.234.567", "1.000.000"], ["1,234", "5"]])
def test_numbers_with_other_signs_are_not_words(cells: list[str]) -> None:
    with pytest.raises(FewviewError, match="write numbers with a point"):
        table(c=cells)


@pytest.mark.parametrize(
    "cells",
    [
        ["12%", "7.5 %"],
        ["$3", "$12.50", None],
        ["3 €", "4,20 €"],
        ["12 kg", "-3kg", "n/a", "5"],
        [f"{number} {'kg' if number % 2 else 'g'}" for number in range(60)],
    ],
)
def test_numbers_in_a_unit_are_texts_and_told(cells: list[str]) -> None:
    with pytest.warns(FewviewWarning, match="numbers in a unit; they are .* leave the unit out"):
        found = table(c=cells, x=list(range(len(cells))))
    assert found.kinds["t"][0].kind == ("words" if len(cells) == 60 else "category")


def test_times_of_day_are_categories() -> None:
    assert table(c=["7am", "9pm"]).columns["t"] == ("c=7am", "c=9pm")


def test_cells_of_digits_and_signs_that_are_no_numbers_are_told() -> None:
    with pytest.warns(FewviewWarning, match=r"holds '0-1', and all its cells are digits"):
        table(c=[f"{number}-{number + 1}" for number in range(60)])


def test_a_column_without_a_name_that_counts_rows_is_left_out() -> None:
    """In a table sorted by class it tells the class."""
    frame = pd.DataFrame({"": range(12), "x": np.arange(12) ** 2, "no": range(5, 17)})
    frame["word"] = "a"
    with pytest.warns(FewviewWarning) as told:
        found = MultiViewData.from_frames({"t": frame})
    assert found.columns["t"] == ("x", "no", "word=a")
    first, second = [str(warning.message) for warning in told]
    assert "column '' counts the rows" in first
    assert "column 'no' counts the rows" in second


def test_numbers_that_stand_for_nothing_are_told() -> None:
    with pytest.warns(FewviewWarning, match=r"'x' holds -999 in 2 cells, .* between 1 and 3"):
        MultiViewData.from_frames({"t": pd.DataFrame({"x": [1.0, -999, 2, 3, -999]})})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MultiViewData.from_frames({"t": pd.DataFrame({"x": [1.0, 99, 98, 97, 50]})})


def test_the_word_that_is_no_sign_for_an_empty_cell_is_named() -> None:
    numbers = [str(number) for number in range(30)]
    found = table(x=[*numbers, "Missing", "-"], y=[1.0] * 32)
    assert found.columns["t"] == ("x", "y")
    with pytest.raises(FewviewError, match="holds 'high', and most other cells hold numbers"):
        table(x=["-", *numbers, "high"])


@pytest.mark.parametrize("day", ["2 Jan 1970", "2-January-1970", "Jan 2, 1970", "1970/01/02"])
def test_dates_with_names_of_months_or_the_year_first(day: str) -> None:
    assert table(day=[day, "31.12.1969"]).view("t")[:, 0].tolist() == [1, -1]
    assert learn_column("c", ["2 Foo 1970"]).kind == "category"


def test_columns_whose_names_differ_by_spaces_or_large_letters_are_the_same() -> None:
    """All of them were taken for empty, or none was found."""
    base = table(oleic=[1.0, 2.0], word=["a", "b"])
    frame = pd.DataFrame({"Word ": ["b"], "OLEIC": [5.0]})
    for found in (MultiViewData({"t": frame}).like(base), MultiViewData({"t": frame}, like=base)):
        assert found.columns == base.columns
        assert found.view("t").tolist() == [[5.0, 0.0, 1.0]]
    numbers = table(oleic=[1.0], linoleic=[2.0])
    assert table(Linoleic=[7.0], Oleic=[5.0]).like(numbers).view("t").tolist() == [[5.0, 7.0]]
    with pytest.warns(FewviewWarning, match="1 column is new and left out"):
        table(oleic=[5.0], linoleic=[7.0], OLEIC=[6.0]).like(numbers)


def test_dates_stay_dates_beside_empty_cells_and_numbers_are_refused() -> None:
    dates = table(day=["2024-01-01", "2024-01-02"], x=[1.0, 2.0])
    both = MultiViewData.concat([table(day=[None], x=[3.0]), dates])
    assert both.kinds == dates.kinds
    np.testing.assert_array_equal(both.view("t")[:, 0], [NAN, 19723.0, 19724.0])
    with pytest.raises(FewviewError, match="column 'day' holds '5'; it was learnt with dates"):
        MultiViewData.concat([dates, table(day=[5.0], x=[3.0])])


def test_parts_with_dates_of_several_notations_are_put_together() -> None:
    plain, slashed = table(day=["2024-01-01", "2.1.2024"]), table(day=["31/1/2024", "3/1/2024"])
    for items in ([plain, slashed], [slashed, plain]):
        both = MultiViewData.concat(items)
        later = table(day=["2024-02-01"]).like(both).view("t").tolist()
        assert (
            later
            == MultiViewData({"t": pd.DataFrame({"day": ["1/2/2024"]})}, like=both)
            .view("t")
            .tolist()
        )


def test_what_texts_tell_adds_up() -> None:
    cells = ["2024-05-31", "1/2/2024", "29/12/2023", "soon", "yes", "Y", "5 kg", "7 kg", "3 lb",
             "1-2", *(f"w{k}" for k in range(MOST_CATEGORIES))]  # fmt: skip
    rng = np.random.default_rng(0)
    for _ in range(300):
        chosen = rng.choice(cells[: rng.integers(2, len(cells))], rng.integers(2, 100)).tolist()
        cut = int(rng.integers(1, len(chosen)))
        one, two = Said.of(chosen[:cut]), Said.of(chosen[cut:])
        whole = Said.of(chosen)
        for both in (one.joined(two), two.joined(one)):
            assert both.column("c") == whole.column("c")
            assert (both.units, both.signs) == (whole.units, whole.signs)
