"""A plugin of pytest: leaves out the tests that the lines of FARCORE_SKIPS name, with all of their
parameters, and says how many there were."""

import os

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    names = set(os.environ.get("FARCORE_SKIPS", "").splitlines())

    def is_named(item):
        return item.nodeid in names or item.nodeid.partition("[")[0] in names

    left_out = [item for item in items if is_named(item)]
    items[:] = [item for item in items if not is_named(item)]
    config.hook.pytest_deselected(items=left_out)
    config.farcore_left_out = len(left_out)


def pytest_terminal_summary(terminalreporter, config):
    count = getattr(config, "farcore_left_out", 0)
    terminalreporter.write_line(f"left out by name: {count}")
