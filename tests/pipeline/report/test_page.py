"""The pieces of a page: whole HTML, nothing unescaped, long tables cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.report.made_results import read

from timebound.pipeline.report import page as html
from timebound.pipeline.report.page import ROWS_SHOWN, Page, render

# What HTML cannot hold at all, and what a reader of it changes.
texts = (
    st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=30)
    .map(str.strip)
    .filter(bool)
)


@given(title=texts, lead=texts, note=texts, cell=texts)
def test_any_text_stands_in_the_page_as_it_is(title: str, lead: str, note: str, cell: str) -> None:
    page = Page("a kind", title, lead, note)
    page.tiles = [(cell, title)]
    page.sections = [html.section(title, lead, html.table([title], [[cell]]), html.heading(cell))]

    text = read(render(page).replace("http", "h-t-t-p"))

    for one in (title, lead, note, cell):
        assert one.replace("http", "h-t-t-p") in text


def test_a_page_has_its_parts_in_order() -> None:
    page = Page("KIND", "t", "LEAD", "NOTE", [("7", "TILE")], [html.section("PART", "WORDS")], "FOOTER")

    text = read(render(page))

    places = [text.index(word) for word in ("KIND", "LEAD", "NOTE", "TILE", "PART", "WORDS", "FOOTER")]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("count", "more"), [(ROWS_SHOWN, ""), (ROWS_SHOWN + 2_000, "… and 2,000 more rows in bills")]
)
def test_a_long_table_is_cut_and_says_where_the_rest_is(count: int, more: str) -> None:
    shown = html.table(["a"], [[f"row {number}"] for number in range(count)], where="bills")

    assert shown.count("<tr>") == 1 + ROWS_SHOWN
    assert f"row {ROWS_SHOWN - 1}<" in shown
    assert f"row {ROWS_SHOWN}<" not in shown
    assert (more in shown) if more else ("more rows" not in shown)


def test_columns_after_the_texts_are_numbers_and_chosen_rows_are_strong() -> None:
    shown = html.table(["a", "b", "c"], [["1", "2", "3"], ["4", "5", "6"]], texts=2, strong=[1])

    assert '<th>a</th><th>b</th><th class="number">c</th>' in shown
    assert '<tr class="strong"><td>4</td>' in shown
    assert shown.count('class="strong"') == 1


def test_a_row_with_a_cell_too_few_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="shorter"):
        html.table(["a", "b"], [["1"]])


def test_figures_and_colours_have_their_captions() -> None:
    shown = html.panels([html.figure("one & two", "<svg></svg>"), html.figure("three", "")])
    key = html.colour_key([("good", "in time"), ("bad", "dropped")])

    assert read(shown).split() == ["one", "&", "two", "three"]
    assert "var(--good)" in key
    assert read(key).split() == ["in", "time", "dropped"]
