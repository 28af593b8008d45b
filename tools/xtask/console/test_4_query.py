"""The query builder sends what was typed: integers whole, and values of derived columns as texts."""

import pytest
from playwright.sync_api import expect

#: The first integer that a double cannot hold, beside one that it can.
TABLE = "n,t\n9007199254740992,a\n9007199254740993,b\n7,c\n"


@pytest.fixture
def page(signed_in, client):
    number = client.dataset("large", TABLE)["id"]
    return signed_in.open(f"/data/{number}").page


def derive(page, name, expression):
    page.get_by_role("button", name="Add a derived column").click()
    page.get_by_label("New column").fill(name)
    page.get_by_label("Expression").fill(expression)
    page.get_by_role("button", name="Apply").click()
    expect(page.locator(".data-table thead")).to_contain_text(name)


def keep(page, column, value, text):
    """Filters a column by equality, and expects one row, with a text."""
    page.get_by_role("button", name="Add a filter").click()
    part = page.locator("[data-part=filter]")
    part.get_by_label("Column").select_option(column)
    part.get_by_label("Value").fill(value)
    page.get_by_role("button", name="Apply").click()
    rows = page.locator(".data-table tbody tr")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text(text)


def test_integers_are_compared_whole(page):
    keep(page, "n", "9007199254740993", "b")


def test_integers_may_have_a_prefix_and_zeros(page):
    keep(page, "n", "0_007", "c")


@pytest.mark.parametrize(
    ("expression", "value"), [("text(n)", "7"), ("t || t", "cc"), ("n * 2", "14"), ("n / 2", "3.5")]
)
def test_derived_texts_and_numbers_are_compared(page, expression, value):
    derive(page, "made", expression)
    keep(page, "made", value, "c")


def test_long_expressions_are_sent_whole(page):
    # Longer than the other fields take, and not deeper than the server reads.
    derive(page, "sum", "          +          ".join(["n"] * 60))
    expect(page.locator(".data-table tbody tr").nth(2)).to_contain_text("420")
