"""Every page: readable by people and machines, in both themes, on narrow screens, in every
language, within its limits of size."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe

PATHS = ["/", "/fit", "/fit/1", "/runs", "/runs/new", "/runs/1", "/compare?runs=1,3", "/data", "/data/1", "/logs",
         "/live", "/users", "/account", "/nothing"]
#: All that the first page may load, uncompressed.
FIRST_PAGE_BYTES = 300_000

TEXTS = """() => {
    const found = [];
    const isShown = (element) => element.checkVisibility?.() ?? true;
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        const parent = node.parentElement;
        const isData = parent.closest('[translate=no], script, style, noscript') !== null;
        if (!isData && isShown(parent)) { found.push(node.data); }
    }
    for (const name of ['aria-label', 'title', 'placeholder', 'data-label', 'alt']) {
        for (const element of document.querySelectorAll(`[${name}]`)) {
            if (!element.closest('[translate=no]')) { found.push(element.getAttribute(name)); }
        }
    }
    return [...found, document.title];
}"""


@pytest.fixture(scope="module")
def axe():
    return Axe()


def wrong_for(axe, page, what, rules=None):
    """Serious violations; of some rules only, if they are named."""
    only = {"runOnly": {"type": "rule", "values": rules}} if rules else {}
    results = axe.run(page, options={"resultTypes": ["violations"], **only})
    return [
        f"{what}: {one['id']} ({one['impact']}): {one['nodes'][0]['html'][:200]}"
        for one in results.response["violations"]
        if one["impact"] in ("serious", "critical")
    ]


#: What differs in the other theme, and on a narrow screen.
COLOURS = ["color-contrast", "link-in-text-block"]
NARROW = ["color-contrast", "target-size", "scrollable-region-focusable", "label", "button-name"]


@pytest.mark.parametrize(
    ("theme", "width", "rules"), [("light", 1440, None), ("dark", 1440, COLOURS), ("dark", 390, NARROW)]
)
def test_no_page_has_a_serious_violation(visit, axe, theme, width, rules):
    one = visit(theme=theme, width=width).open("/")
    wrong = wrong_for(axe, one.page, "sign-in", rules)
    one.sign_in()
    one.page.wait_for_selector(".shell")
    for path in PATHS:
        one.open(path)
        if "runs/1" in path or "fit/1" in path or "compare" in path:
            one.page.wait_for_selector(".chart canvas")
        wrong += wrong_for(axe, one.page, f"{path} {theme} {width}", rules)
        overflow = one.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        if overflow > 0:
            wrong.append(f"{path} is {overflow} px wider than {width} px")
    one.page.keyboard.press("Escape")
    assert wrong == []


def test_a_dialog_the_tour_and_the_menu_have_no_serious_violation(visit, axe):
    one = visit(width=390).sign_in_at("/users")
    page = one.page
    page.get_by_role("button", name="Add a user").click()
    wrong = wrong_for(axe, page, "dialog")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Menu").click()
    wrong += wrong_for(axe, page, "menu")
    page.get_by_role("button", name="Tour").click()
    page.wait_for_selector(".tour h2:focus")
    wrong += wrong_for(axe, page, "tour")
    assert wrong == []


def test_no_text_of_a_page_stands_outside_the_strings(visit, assets):
    """Serves strings in brackets as the second language; what has no brackets was not in them."""
    english = (assets / "strings" / "en.js").read_text()
    bracketed = re.sub(r'^(  "[^"]+": ")(.*)(",)$', r"\1⟦\2⟧\3", english, flags=re.M)
    one = visit(language="zh-CN")
    one.page.route(
        "**/strings/zh.js",
        lambda route: route.fulfill(body=bracketed, content_type="text/javascript"),
    )
    outside = set()

    def look(path):
        for text in one.page.evaluate(TEXTS):
            rest = text
            while (shorter := re.sub(r"⟦[^⟦⟧]*⟧", "", rest)) != rest:
                rest = shorter
            if re.search(r"[A-Za-z]{2}", rest):
                outside.add(f"{path}: {text!r}")

    one.open("/")
    assert one.heading().startswith("⟦"), "the strings in brackets are not in use"
    look("sign-in")
    one.sign_in()
    one.page.wait_for_selector(".shell")
    for path in PATHS:
        one.open(path)
        look(path)
    assert outside == set()


@pytest.mark.parametrize("language", ["en", "zh-CN"])
def test_ticks_keep_the_zeros_of_whole_numbers(visit, language):
    one = visit(language=language).open("/")
    texts = one.page.evaluate(
        """async () => {
            const { tickText } = await import('/js/format.js');
            const figures = [[1e12, 'ns'], [1.5e9, 'ns'], [1.25e3, 'ns'], [10.04e9, 'ns'], [0, 'ns'],
                [0.005, 'share'], [1, 'share']];
            return figures.map(([value, unit]) => tickText(value, unit));
        }"""
    )
    gap = "\u00a0"
    wanted = ["1,000 s", "1.5 s", "1.25 µs", "10 s", "0 ns", "0.5 %", "100 %"]
    assert [text.replace(gap, " ") for text in texts] == wanted


def test_the_first_page_is_small(visit):
    one = visit()
    loaded = {}
    one.page.on("response", lambda answer: loaded.update({answer.url: answer}))
    one.open("/")
    names = [url.removeprefix(one.url) for url in loaded]
    assert not [name for name in names if name.startswith("http")], "a foreign address"
    sizes = {name: len(loaded[one.url + name].body()) for name in names if "/api/" not in name}
    assert sum(sizes.values()) < FIRST_PAGE_BYTES, sizes


def test_a_run_is_started_without_a_mouse(visit):
    one = visit().sign_in_at("/runs/new")
    page = one.page
    page.get_by_label("Name", exact=True).focus()
    page.keyboard.type("by keyboard")
    outlined = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        seen = page.evaluate(
            """(() => { const one = document.activeElement; const style = getComputedStyle(one);
            return [one.textContent, style.outlineStyle !== 'none' || one.type === 'radio']; })()"""
        )
        outlined.add(seen[1])
        if seen[0] == "Start run":
            break
    assert outlined == {True}, "something has the focus and does not show it"
    page.keyboard.press("Enter")
    page.wait_for_selector(".chart")
