"""A console that has nothing yet, and one that goes away while a form is written."""

import re

import pytest
from playwright.sync_api import expect

from console import Console, visits


@pytest.fixture
def fresh(binary, tmp_path):
    console = Console(binary, tmp_path, {"XDG_RUNTIME_DIR": str(tmp_path)}).first_start()
    yield console
    console.end()


@pytest.fixture
def alone(browser, fresh):
    """Opens contexts of the console of one test."""
    with visits(browser, fresh.url) as open_one:
        yield open_one


def test_the_tour_shows_no_empty_page_and_runs_examples(alone):
    one = alone(seen_tour=False).sign_in_at("/")
    page = one.page
    tour = page.locator(".tour")
    expect(tour).to_be_visible()
    steps = int(re.search(r"of (\d+)", tour.inner_text())[1])
    for step in range(2, steps + 1):
        page.keyboard.press("ArrowRight")
        expect(tour).to_contain_text(f"Step {step} of {steps}")
        assert not re.search(r"/(compare|live|runs)$", page.url), page.url
    for step in range(steps - 1, 0, -1):
        page.keyboard.press("ArrowLeft")
        expect(tour).to_contain_text(f"Step {step} of {steps}")
    tour.get_by_role("button", name="Run two examples first").click()
    expect(tour).to_contain_text(f"of {steps + 2}", timeout=120_000)
    for step in range(2, 7):
        page.keyboard.press("ArrowRight")
        expect(tour).to_contain_text(f"Step {step} of {steps + 2}")
    expect(page.locator("main h1")).to_have_text("Compare")
    expect(page.locator(".compare-table").first).to_contain_text("Example: plain card")


def test_what_was_written_outlives_a_restart_of_the_console(alone, fresh):
    page = alone().sign_in_at("/runs/new").page
    name = page.get_by_label("Name", exact=True)
    name.fill("written before")
    fresh.end()
    page.get_by_role("button", name="Start run").click()
    offline = page.locator(".offline")
    expect(offline).to_be_visible()
    fresh.start()
    expect(offline).to_be_hidden()
    expect(name).to_have_value("written before")
    page.get_by_role("button", name="Start run").click()
    expect(page.locator("main h1")).to_have_text("written before")
