"""A visitor's way through the console, from the first start to the export of results."""

import re
import subprocess

import pytest
from playwright.sync_api import expect

from console import ADMINISTRATOR, Console
from load import CORE, Server

SHORT = "200000"


def test_a_first_start_without_a_password_says_what_to_give(binary, tmp_path):
    console = Console(binary, tmp_path)
    end = subprocess.run(
        console.command(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30
    )
    assert end.returncode == 1
    assert "--admin-password-file" in end.stderr
    assert len(end.stderr.strip().splitlines()) == 1


def test_a_wrong_password_is_refused_and_the_right_one_leads_to_the_overview(visit):
    one = visit(seen_tour=False)
    one.open("/")
    one.sign_in(password="not this password")
    expect(one.page.locator(".sign-in [role=alert]")).to_contain_text("password")
    one.sign_in()
    expect(one.page.locator("main h1")).to_have_text("Overview")
    expect(one.page.get_by_text("No runs yet")).to_be_visible()


def test_the_tour_is_offered_once_and_goes_by_keyboard(visit):
    one = visit(seen_tour=False).sign_in_at("/")
    tour = one.page.locator(".tour")
    expect(tour).to_be_visible()
    steps = int(re.search(r"of (\d+)", tour.inner_text())[1])
    for step in range(2, steps + 1):
        one.page.keyboard.press("ArrowRight")
        expect(tour).to_contain_text(f"Step {step} of {steps}")
        one.page.keyboard.press("Tab")
        assert one.page.evaluate("document.activeElement.closest('.tour') !== null")
    one.page.keyboard.press("ArrowRight")
    expect(tour).to_have_count(0)
    one.open("/")
    expect(tour).to_have_count(0)
    one.page.get_by_role("button", name="Tour").click()
    expect(tour).to_be_visible()
    one.page.keyboard.press("Escape")
    expect(tour).to_have_count(0)


def start_run(one, name, **fields):
    one.open("/runs/new")
    one.page.get_by_role("button", name="All settings").click()
    one.page.get_by_label("Name", exact=True).fill(name)
    for path, value in fields.items():
        control = one.page.locator(f"[data-path='{path.replace('__', '.')}']").locator("input, select")
        if control.evaluate("(one) => one.tagName") == "SELECT":
            control.select_option(value)
        else:
            control.fill(value)
    one.page.get_by_role("button", name="Start run").click()


def test_a_form_says_at_its_field_what_is_wrong(signed_in):
    page = signed_in.page
    start_run(signed_in, "", messages=SHORT)
    expect(page.get_by_label("Name", exact=True)).to_have_attribute("aria-invalid", "true")
    start_run(signed_in, "wrong", messages="many")
    expect(page.locator("[data-path='messages'] .problem")).to_contain_text("Write a number")
    start_run(signed_in, "wrong", card__card_entries="1")
    field = page.locator("[data-path='card.card_entries']")
    expect(field.locator(".problem")).to_contain_text("Write 16 to")
    expect(field.locator("input")).to_be_focused()
    # The page cannot know this limit, which another setting has: the server says it.
    start_run(signed_in, "wrong", card__card_entries="64", card__pinned="60")
    expect(page.locator("[data-path='card.pinned'] .problem")).to_contain_text("32")


def test_a_run_is_watched_to_its_end(signed_in):
    page = signed_in.page
    start_run(signed_in, "hybrid", messages="3M", warmup="100k")
    expect(page.locator("main h1")).to_have_text("hybrid")
    page.wait_for_selector("progress")
    seen = page.evaluate(
        """new Promise((resolve) => {
            const values = new Set();
            const timer = setInterval(() => {
                const bar = document.querySelector('main progress');
                if (bar) { values.add(bar.value); } else { clearInterval(timer); resolve(values.size); }
            }, 20);
        })"""
    )
    assert seen > 2, f"progress had {seen} values"
    expect(page.locator("main .badge[data-state]")).to_have_text("Done")
    expect(page.locator(".chart")).to_have_count(8)
    expect(page.locator(".chart canvas")).to_have_count(8)
    expect(page.locator("main .badge[data-verdict]")).to_be_visible()
    expect(page.get_by_text("Hot inline path")).to_be_visible()


def test_a_chart_zooms_and_is_exported(signed_in):
    page = signed_in.open("/runs/1").page
    area = page.locator(".chart-area").first
    area.locator("canvas").wait_for()
    area.focus()
    for key in ("End", "ArrowLeft", "+"):
        page.keyboard.press(key)
    reset = page.get_by_role("button", name=re.compile("^Show all: "))
    expect(reset).to_have_count(8)
    page.keyboard.press("0")
    expect(reset).to_have_count(0)
    box = area.locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 60, steps=4)
    page.mouse.up()
    expect(reset).to_have_count(8)
    with page.expect_download() as table:
        page.get_by_role("button", name="Save as CSV: Latency of messages").click()
    rows = table.value.path().read_text().splitlines()
    assert rows[0].startswith("at_ns,p50 latency") and 10 < len(rows) < 60, len(rows)
    with page.expect_download() as picture:
        page.get_by_role("button", name="Save as PNG: Link load").click()
    assert picture.value.path().read_bytes().startswith(b"\x89PNG")
    entry = page.locator(".legend button").first
    entry.click()
    expect(entry).to_have_attribute("aria-pressed", "false")


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_a_run_is_exported(signed_in, kind):
    page = signed_in.open("/runs/1").page
    with page.expect_download() as file:
        page.get_by_role("link", name=f"Export as {kind.upper()}").click()
    content = file.value.path().read_bytes()
    assert {"csv": b"at_ns" in content, "json": b"at_ns" in content, "parquet": content[:4] == b"PAR1"}[kind]


def test_a_run_is_cancelled(signed_in):
    page = signed_in.page
    start_run(signed_in, "endless", messages="100G")
    page.wait_for_selector(".badge[data-state=running]")
    page.get_by_role("button", name="Cancel run").click()
    expect(page.locator("main .badge[data-state]")).to_have_text("Cancelled")


def test_a_clone_differs_in_what_was_changed_and_both_are_compared(signed_in):
    page = signed_in.open("/runs/1").page
    page.get_by_role("link", name="Clone").click()
    page.locator("[data-path='card.policy'] select").select_option("lru")
    expect(page.get_by_text("1 setting differs")).to_be_visible()
    page.get_by_role("button", name="Start run").click()
    expect(page.locator("main h1")).to_have_text("hybrid (copy)")
    expect(page.locator("main .badge[data-state]")).to_have_text("Done")
    signed_in.open("/runs")
    compare = page.get_by_role("button", name="Compare")
    expect(compare).to_be_disabled()
    for name in ("hybrid", "hybrid (copy)"):
        page.get_by_role("checkbox", name=f"Choose {name} for", exact=False).last.check()
    page.get_by_role("checkbox", name="Choose hybrid for").check()
    compare.click()
    expect(page.locator("main h1")).to_have_text("Compare")
    expect(page.locator(".compare-table").first.locator("[data-verdict]")).to_have_count(2)
    settings = page.locator(".compare-table").nth(1).locator("tbody tr")
    expect(settings).to_have_count(1)
    expect(settings).to_contain_text("Replacement policy")
    expect(page.locator(".chart canvas").first).to_be_visible()
    expect(page.locator(".chart").first.locator(".legend button")).to_have_count(2)


def test_a_search_says_what_fits_and_a_point_opens_as_a_run(signed_in):
    page = signed_in.open("/fit").page
    expect(page.locator("main h1")).to_have_text("What fits")
    for label in ("Three tiers, adaptive", "Three tiers, fixed thresholds"):
        page.get_by_label(label).uncheck()
    page.get_by_label("Simulations of each point").fill("1")
    page.get_by_label("Rate to keep").fill("200")
    page.get_by_role("button", name="Start the search").click()
    expect(page.locator(".problem:visible")).to_have_count(1)
    page.get_by_label("Rate to keep").fill("95")
    page.get_by_role("button", name="Start the search").click()
    page.wait_for_selector("main progress")
    expect(page.locator("main .badge[data-state]")).to_have_text("Done", timeout=120_000)
    expect(page.locator(".chart canvas")).to_have_count(3)
    expect(page.locator("[data-policy=lru]")).to_contain_text("the link to the host is")
    with page.expect_download() as file:
        page.get_by_role("link", name="Export as CSV").click()
    rows = file.value.path().read_text().splitlines()
    assert rows[0].startswith("policy,count,messages_s") and len(rows) > 10, rows
    page.locator("td a").first.click()
    name = page.get_by_label("Name", exact=True)
    expect(name).to_have_value(re.compile("^lru, 256 queue pairs"))
    expect(page.locator("[data-path='workload.population.queue_pairs'] input")).to_have_value("256")
    signed_in.open("/fit")
    expect(page.locator("table tbody tr")).to_have_count(1)


def test_a_run_becomes_data_that_is_derived_grouped_and_saved(signed_in):
    page = signed_in.open("/runs/1").page
    page.get_by_role("button", name="Make a data set").click()
    page.get_by_role("button", name="Make", exact=True).click()
    expect(page.locator("main h1")).to_have_text("hybrid")
    page.get_by_role("button", name="Add a derived column").click()
    page.get_by_label("New column").fill("p99_us")
    page.get_by_label("Expression").fill("p99_ns / 1000.0")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator(".data-table thead")).to_contain_text("p99_us")
    page.get_by_role("button", name="Add a filter").click()
    page.locator("[data-part=filter]").get_by_label("Column").select_option("p99_us")
    page.locator("[data-part=filter]").get_by_label("Is", exact=True).select_option(">")
    page.locator("[data-part=filter]").get_by_label("Value").fill("0")
    page.get_by_role("button", name="Add an aggregate").click()
    page.locator("[data-part=aggregates]").get_by_label("Column").select_option("p99_us")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator(".data-table tbody tr")).to_have_count(1)
    expect(page.locator(".data-table thead")).to_contain_text("mean_p99_us")
    with page.expect_download() as file:
        page.get_by_role("button", name="Export as CSV").click()
    assert b"mean_p99_us" in file.value.path().read_bytes()
    page.get_by_role("button", name="Save", exact=True).click()
    page.locator("dialog").get_by_label("Name").fill("mean of p99")
    page.locator("dialog").get_by_role("button", name="Save").click()
    expect(page.locator("main h1")).to_have_text("mean of p99")


def test_a_wrong_expression_is_named_where_it_stands(signed_in, client):
    name = client.dataset("numbers", "a,b\n1,2\n3,4\n")["id"]
    page = signed_in.open(f"/data/{name}").page
    page.get_by_role("button", name="Add a derived column").click()
    page.get_by_label("New column").fill("c")
    page.get_by_label("Expression").fill("load_extension('x')")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator("form .problem:visible")).to_have_count(1)


def test_a_file_is_imported_shown_and_joined(signed_in, tmp_path):
    page = signed_in.page
    for name, text in (
        ("hosts.csv", "host,rack\na,1\nb,2\n"),
        ("rates.csv", "host,rate\n" + "".join(f"{'ab'[i % 2]},{i}\n" for i in range(40))),
    ):
        file = tmp_path / name
        file.write_text(text)
        signed_in.open("/data")
        page.get_by_label("File").set_input_files(str(file))
        page.get_by_role("button", name="Import").click()
        expect(page.locator("main h1")).to_have_text(name.removesuffix(".csv"))
    expect(page.locator(".data-table tbody tr")).to_have_count(40)
    expect(page.locator(".chart canvas")).to_have_count(1)
    page.get_by_label("With").select_option("hosts")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator(".data-table thead")).to_contain_text("rack")
    page.get_by_label("Group by").get_by_label("host", exact=True).check()
    page.get_by_role("button", name="Add an aggregate").click()
    page.get_by_role("button", name="Apply").click()
    expect(page.locator(".data-table tbody tr")).to_have_count(2)


def test_a_broken_file_is_refused_with_its_reason(signed_in, tmp_path):
    file = tmp_path / "broken.parquet"
    file.write_bytes(b"PAR1 nothing of this kind PAR1")
    page = signed_in.open("/data").page
    page.get_by_label("File").set_input_files(str(file))
    page.get_by_role("button", name="Import").click()
    expect(page.locator(".drop [role=alert]")).to_be_visible()


def test_logs_are_filtered(signed_in):
    page = signed_in.open("/logs").page
    rows = page.locator(".log-table tbody tr")
    assert rows.count() > 5
    page.get_by_label("Text").fill("cancelled")
    page.get_by_role("button", name="Filter").click()
    expect(rows.first).to_contain_text("cancel")
    page.get_by_label("Text").fill("zebra")
    page.keyboard.press("Enter")
    expect(page.get_by_text("No entries")).to_be_visible()
    signed_in.open("/logs?kind=audit")
    expect(rows.first).to_contain_text("Audit")
    signed_in.open("/logs?run=1")
    expect(rows.first).to_contain_text("#1")


def test_a_running_server_is_shown(signed_in, binary, console):
    page = signed_in.open("/live").page
    expect(page.get_by_text("Nothing runs")).to_be_visible()
    with Server(binary, console.folder):
        expect(page.get_by_text("Operations", exact=True).first).to_be_visible()
        expect(page.locator(".chart canvas")).to_have_count(4)
        expect(page.locator(".figures dd").first).not_to_have_text("0/s")
        expect(page.get_by_role("group", name="Cores")).to_contain_text(f"Core {CORE}")


def test_the_language_changes_and_stays(signed_in):
    page = signed_in.open("/runs").page
    page.get_by_label("Language").select_option("zh-CN")
    expect(page.locator("main h1")).to_have_text("运行")
    assert page.evaluate("document.documentElement.lang") == "zh-CN"
    signed_in.open("/logs")
    expect(page.locator("main h1")).to_have_text("日志")
    page.get_by_label("语言").select_option("en")
    expect(page.locator("main h1")).to_have_text("Logs")


def test_the_theme_changes_and_stays(signed_in):
    page = signed_in.page
    page.get_by_label("Theme").select_option("dark")
    signed_in.open("/")
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(16, 19, 23)"


def test_signing_out_ends_the_session(signed_in):
    page = signed_in.page
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_selector(".sign-in form")
    assert page.evaluate("fetch('/api/session').then((answer) => answer.status)") == 401
    signed_in.page.goto(signed_in.url + "/runs")
    page.wait_for_selector(".sign-in form")
    signed_in.sign_in(*ADMINISTRATOR)
    expect(page.locator("main h1")).to_have_text("Runs")
