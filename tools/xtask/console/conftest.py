"""One console and one browser for all tests, and visits that must end without anything wrong."""

import os
import pathlib

import pytest
from playwright.sync_api import expect, sync_playwright

from console import ADMINISTRATOR, Client, Console, visits

CHROMIUM = "/usr/bin/chromium"
# Far beyond need: a machine may be busy with other tests.
expect.set_options(timeout=30_000)


@pytest.fixture(scope="session")
def binary():
    return os.environ["FARCORE_BINARY"]


@pytest.fixture(scope="session")
def assets():
    return pathlib.Path(__file__).parents[2] / "console" / "assets"


@pytest.fixture(scope="session")
def console(binary, tmp_path_factory):
    folder = tmp_path_factory.mktemp("console")
    console = Console(binary, folder, {"XDG_RUNTIME_DIR": str(folder)})
    console.first_start()
    yield console
    console.end()


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as playwright:
        # A container has no user namespaces for the sandbox of Chromium.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(browser, console):
    """Opens contexts; each is checked when its test ends."""
    with visits(browser, console.url) as open_one:
        yield open_one


@pytest.fixture
def client(console):
    return Client(console, *ADMINISTRATOR)


@pytest.fixture
def signed_in(visit):
    """A visit of the administrator at the overview."""
    return visit().sign_in_at("/")
