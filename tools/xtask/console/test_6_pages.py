"""What a user writes, chooses and compares: filters, settings, queries, charts, at every width."""

import re

import pytest
from playwright.sync_api import expect

from load import Server

PLACES = """() => {
    const main = document.querySelector('main').getBoundingClientRect();
    const side = document.querySelector('.side').getBoundingClientRect();
    return [main.left - side.right, document.documentElement.clientWidth - main.right];
}"""
TRACE = "farcore-card-trace 1\n0 read 04070000\n125 read 04070000\n250 read 04070001\n"
RATES = "host,mode,queue_bytes,rate\n" + "".join(
    f"node-{i % 4},{'ab'[i // 4 % 2]},{1024 << (i % 6)},{10 ** (i % 5)}\n" for i in range(16)
)


@pytest.mark.parametrize("width", [1440, 1920, 2560])
def test_pages_stand_in_the_middle_of_their_place(visit, width):
    one = visit(width=width, height=1080).open("/")
    card = one.page.locator(".sign-in-card").bounding_box()
    assert abs(card["x"] + card["width"] / 2 - width / 2) < 9, card
    one.sign_in()
    one.page.wait_for_selector(".shell")
    left, right = one.page.evaluate(PLACES)
    assert abs(left - right) < 1, (left, right)
    assert width > 1920 or left < 1, "a page leaves room that it could use"


def test_a_wrong_filter_is_marked_and_can_be_changed(signed_in):
    page = signed_in.open("/logs?run=abc").page
    expect(page.locator("main h1")).to_have_text("Logs")
    run = page.get_by_label("Run", exact=True)
    expect(run).to_have_attribute("aria-invalid", "true")
    expect(run).to_be_focused()
    run.fill("1")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator(".log-table tbody tr").first).to_contain_text("#1")
    for query, wrong in (("text=a*", 1), ("from=yesterday&level=loud", 2), ("text=" + "x " * 20, 1)):
        signed_in.open(f"/logs?{query}")
        expect(page.locator("main h1")).to_have_text("Logs")
        expect(page.locator("[aria-invalid=true]")).to_have_count(wrong)
    message = page.evaluate("fetch('/api/logs?run=abc').then((one) => one.json()).then((one) => one.error)")
    assert message["field"] == "run" and message["message"].startswith("`run` cannot be `abc`"), message


def test_addresses_with_wrong_values_lead_somewhere(signed_in):
    page = signed_in.open("/runs?state=lost&order=;&rising=maybe").page
    expect(page.locator(".run-list tbody tr").first).to_be_visible()
    signed_in.open("/compare?runs=1,999999,x")
    expect(page.locator(".notice.warn")).to_contain_text("no longer exists")
    expect(page.locator(".compare-table").first).to_be_visible()
    signed_in.open("/runs/99999999999999999999")
    expect(page.locator("main h1")).to_have_text("Nothing here")
    signed_in.open("/runs/new?clone=abc")
    expect(page.get_by_role("button", name="Try again")).to_have_count(0)
    page.get_by_role("link", name="Show the page without its filters").click()
    expect(page.locator("main h1")).to_have_text("New run")


def test_notices_stay_with_their_page(signed_in, tmp_path):
    file = tmp_path / "short.csv"
    file.write_text("a,b\n1,2\n")
    page = signed_in.open("/data").page
    page.get_by_label("File").set_input_files(str(file))
    page.get_by_role("button", name="Import").click()
    expect(page.locator(".toast")).to_contain_text("imported")
    page.get_by_role("link", name="Logs", exact=True).click()
    expect(page.locator("main h1")).to_have_text("Logs")
    expect(page.locator(".toast")).to_have_count(0)


def test_a_form_begins_with_the_main_settings(visit):
    one = visit().sign_in_at("/runs/new")
    page = one.page
    fields = page.locator("[data-path]:visible")
    expect(page.locator("[data-path='card.card_entries']")).to_be_visible()
    assert fields.count() < 20
    page.get_by_role("button", name="All settings").click()
    expect(page.locator("[data-path='card.pinned']")).to_be_visible()
    assert fields.count() > 25
    page.locator("[data-path='card.pinned'] input").fill("5")
    page.get_by_role("button", name="Main settings").click()
    expect(page.locator("[data-path='card.pinned']")).to_be_visible()
    expect(page.locator("[data-path='card.context_bytes']")).to_be_hidden()
    name = page.get_by_label("Name", exact=True)
    assert name.evaluate("(one) => one.required")
    mark = "(one) => getComputedStyle(one, '::after').content"
    assert "*" in page.locator(".field.is-required label").first.evaluate(mark)


def test_a_wrong_setting_that_is_not_shown_is_shown(visit):
    page = visit().sign_in_at("/runs/new").page
    page.get_by_label("Name", exact=True).fill("wrong")
    # More pinned queue pairs than half of the places, which only the server knows.
    page.get_by_role("button", name="All settings").click()
    page.locator("[data-path='card.pinned'] input").fill("60")
    page.locator("[data-path='card.card_entries'] input").fill("64")
    page.get_by_role("button", name="Main settings").click()
    page.get_by_role("button", name="Start run").click()
    expect(page.locator("[data-path='card.pinned'] .problem")).to_contain_text("write 0 to 32")
    expect(page.locator("[data-path='card.pinned'] input")).to_be_focused()


def test_a_clone_is_compared_with_its_run_and_settings_have_units(signed_in):
    page = signed_in.open("/runs/new?clone=1").page
    expect(page.get_by_text("All settings are those of the cloned run.")).to_be_visible()
    page.locator(".preset input").first.check()
    expect(page.get_by_text("All settings are as the preset has them.")).to_be_visible()
    signed_in.open("/runs/1")
    settings = page.locator("details.group")
    settings.locator("summary").click()
    expect(settings).to_contain_text(re.compile(r"CXL latency\s*[\d.,]+\s(ns|µs)"))
    expect(settings).to_contain_text(re.compile(r"Host bandwidth\s*[\d.,]+\sGB/s"))


def test_where_tokens_were_found_is_stacked(signed_in):
    page = signed_in.open("/runs/1").page
    legend = page.locator(".chart").first.locator(".legend")
    expect(legend).to_contain_text("Card")
    expect(legend).not_to_contain_text("Hit ratio")
    entry = legend.locator("button").first
    entry.click()
    expect(entry).to_have_attribute("aria-pressed", "false")
    expect(page.locator(".chart canvas")).to_have_count(8)


def test_a_run_says_how_long_it_takes_after_its_stream_was_refused(signed_in, client):
    page = signed_in.page
    run = client.run("long", wait=False, messages=100_000_000_000)
    refused = []

    def refuse(route):
        if len(refused) < 2:
            refused.append(route.request.url)
            route.fulfill(status=502, body="<h1>Bad gateway</h1>", content_type="text/html")
        else:
            route.fallback()

    page.route("**/events", refuse)
    signed_in.open(f"/runs/{run['id']}")
    expect(page.locator(".progress-words")).to_contain_text(re.compile(r"About .* left"))
    assert len(refused) == 2
    client.call("POST", f"/api/runs/{run['id']}/cancel", {})
    expect(page.locator("main .badge[data-state]")).to_have_text("Cancelled")
    signed_in.wrong.clear()


def test_runs_are_searched_and_ordered(signed_in, client):
    for name, pairs in (("needle small", 64), ("needle large", 8192)):
        client.run(name, messages=20_000, warmup=0, workload__population__queue_pairs=pairs)
    page = signed_in.open("/runs").page
    rows = page.locator(".run-list tbody tr")
    page.get_by_label("Name, user or number").fill("NEEDLE")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("needle large")
    expect(rows.first).to_contain_text(re.compile("Zipf.*places"))
    page.get_by_role("button", name="Queue pairs").click()
    expect(rows.first).to_contain_text("8,192")
    page.get_by_role("button", name="Queue pairs").click()
    expect(rows.first).to_contain_text("needle small")
    expect(page.locator("th[aria-sort=ascending]")).to_have_text("Queue pairs")
    page.reload()
    signed_in.settle()
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("needle small")
    page.get_by_label("Name, user or number").fill("nowhere")
    expect(page.get_by_text("No run is like this")).to_be_visible()


def test_the_oldest_run_is_the_baseline_until_another_is_chosen(signed_in):
    page = signed_in.open("/compare?runs=3,1").page
    heads = page.locator(".compare-table").first.locator("thead th.number")
    expect(heads.nth(0)).to_contain_text("baseline")
    expect(heads.nth(0)).not_to_contain_text("(copy)")
    text = page.locator(".compare-table").first.inner_text()
    assert not re.search(r"[+−]\d[\d,]{2,}\.\d\s*%", text), text
    page.get_by_label("Differences to").select_option(index=1)
    expect(heads.nth(1)).to_contain_text("baseline")
    assert "to=3" in page.url
    shown = page.evaluate("import('/js/format.js').then(({ times }) => [times(1877.267), times(0.25)])")
    assert [text.replace("\u00a0", " ") for text in shown] == ["× 1,880", "× 0.25"]


def test_errors_are_said_in_chinese(visit, client):
    dataset = client.dataset("words", "a,t\n1,x\n")["id"]
    one = visit(language="zh-CN").sign_in_at("/runs/new")
    page = one.page
    page.locator(".is-required input").first.fill("错误")
    page.locator("[data-mode=all]").first.click()
    page.locator("[data-path='card.card_entries'] input").fill("64")
    page.locator("[data-path='card.pinned'] input").fill("60")
    page.locator("[data-tour=start]").click()
    problem = page.locator("[data-path='card.pinned'] .problem")
    expect(problem).to_contain_text("32")
    assert not re.search("[A-Za-z]", problem.inner_text()), problem.inner_text()
    one.open("/logs?text=a*")
    problem = page.locator(".problem:visible")
    expect(problem).to_have_count(1)
    assert not re.search("[A-Za-z]", problem.inner_text()), problem.inner_text()
    one.open(f"/data/{dataset}")
    page.locator("[data-part=derive] button").first.click()
    inputs = page.locator("[data-part=derive] input")
    inputs.nth(0).fill("c")
    for expression in ("a + t", "missing + 1", "(a", "sinus(a)"):
        inputs.nth(1).fill(expression)
        page.locator("form button[type=submit]").click()
        problem = page.locator("form .problem:visible")
        expect(problem).to_have_count(1)
        expect(problem).to_contain_text(re.compile("[\u4e00-\u9fff]"))
        rest = re.sub(r"`[^`]*`|coalesce.*", "", problem.inner_text())
        assert not re.search("[A-Za-z]{3}", rest), rest


#: The lists of tiles of a page whose last tile is alone in its row beside an empty place, once the
#: page was drawn.
ALONE = """async () => {
  await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
  return [...document.querySelectorAll(".charts, .presets, .policies, .statistics, .figures")].filter((list) => {
    const tiles = [...list.children].map((tile) => tile.getBoundingClientRect()).filter(({ width }) => width > 0);
    const rows = Map.groupBy(tiles, ({ top }) => Math.round(top));
    const last = [...rows.values()].at(-1) ?? [];
    const widest = Math.max(...[...rows.values()].map((row) => row.at(-1).right - row[0].left));
    return rows.size > 1 && last.length === 1 && last[0].width < 0.9 * widest;
  }).map((list) => list.className);
}"""


@pytest.mark.parametrize("width", [1920, 1440, 1024, 390])
def test_no_tile_is_alone_in_its_row(visit, client, width):
    run = client.run(f"tiles at {width}", messages=50_000)["id"]
    one = visit(width=width).sign_in_at("/")
    lists = {"/": ".figures", "/runs/new": ".presets", "/fit": ".policies", f"/runs/{run}": ".statistics"}
    for path, there in lists.items():
        one.open(path)
        expect(one.page.locator(there).first).to_be_attached()
        assert one.page.evaluate(ALONE) == [], path


#: Fills each sentence of the server with values, and finds it again by its English.
FOUND_AGAIN = """async () => {
  const { said, t } = await import("/js/i18n.js");
  const english = (await import("/strings/en.js")).default;
  const wrong = [];
  for (const [key, text] of Object.entries(english).filter(([key]) => key.startsWith("said."))) {
    const names = [...text.matchAll(/\\{(\\w+)\\}/g)].map(([, name]) => name);
    const values = Object.fromEntries(names.map((name, place) => [name, String(place + 7)]));
    const sentence = text.replace(/\\{(\\w+)\\}/g, (_, name) => values[name]);
    const found = said(sentence, /^said\\.(part|foreign)_/.test(key) ? 1 : 0);
    if (found !== t(key, values)) {
      wrong.push(`${key}: ${sentence}: ${found}`);
    }
  }
  return wrong;
}"""


def test_every_sentence_of_the_server_is_found_again_in_chinese(visit):
    page = visit(language="zh-CN").open("/").page
    assert page.evaluate(FOUND_AGAIN) == []


@pytest.mark.parametrize("text", ['[{"a": 1}, {"a": [1]}]', '[{"a": 1}, 2]', '{"a": 1}\n{"a" 1}\n', "[{"])
def test_what_is_wrong_with_a_file_is_said_in_chinese(visit, tmp_path, text):
    file = tmp_path / "rows.json"
    file.write_text(text)
    page = visit(language="zh-CN").sign_in_at("/data").page
    page.locator("input[type=file]").set_input_files(str(file))
    page.locator("form button[type=submit]").click()
    problem = page.locator("form .problem:visible")
    expect(problem).to_contain_text(re.compile("[\u4e00-\u9fff]"))
    rest = re.sub("true|false|null", "", problem.inner_text())
    assert not re.search("[A-Za-z]", rest), rest


def test_messages_of_the_log_are_said_in_chinese(visit):
    page = visit(language="zh-CN").sign_in_at("/logs").page
    cells = page.locator("td.message")
    expect(cells.first).to_be_visible()
    english = [text for text in cells.all_inner_texts() if not re.search("[\u4e00-\u9fff]", text)]
    assert english == []


@pytest.mark.parametrize("name", ["trace.csv", "trace.log", "trace"])
def test_a_trace_is_found_whatever_its_name(signed_in, tmp_path, name):
    file = tmp_path / name
    file.write_text(TRACE)
    page = signed_in.open("/data").page
    page.get_by_label("File").set_input_files(str(file))
    page.get_by_role("button", name="Import").click()
    expect(page.locator("main .meta")).to_contain_text("Trace")
    expect(page.locator(".data-table thead")).to_contain_text("operation")


def test_the_error_of_an_expression_stands_below_its_row(signed_in, client):
    dataset = client.dataset("errors", "a,b\n1,2\n3,4\n")["id"]
    page = signed_in.open(f"/data/{dataset}").page
    page.get_by_role("button", name="Add a derived column").click()
    page.get_by_label("New column").nth(0).fill("good")
    page.get_by_label("Expression").nth(0).fill("a + b")
    page.get_by_role("button", name="Add a derived column").click()
    page.get_by_label("New column").nth(1).fill("bad")
    page.get_by_label("Expression").nth(1).fill("load_extension('x')")
    page.get_by_role("button", name="Apply").click()
    expression = page.get_by_label("Expression").nth(1)
    expect(expression).to_have_attribute("aria-invalid", "true")
    expect(expression).to_be_focused()
    problem = page.locator("form .problem:visible")
    expect(problem).to_have_count(1)
    assert problem.bounding_box()["width"] > 300
    assert problem.bounding_box()["y"] > expression.bounding_box()["y"]


def test_a_query_and_its_chart_outlive_a_reload(signed_in, client):
    dataset = client.dataset("rates kept", RATES)["id"]
    page = signed_in.open(f"/data/{dataset}").page
    page.get_by_role("button", name="Add a filter").click()
    page.locator("[data-part=filter]").get_by_label("Column").select_option("host")
    page.locator("[data-part=filter]").get_by_label("Value").fill("node-1")
    page.get_by_label("Kind").select_option("points")
    page.get_by_role("button", name="Apply").click()
    rows = page.locator(".data-table tbody tr")
    expect(rows).to_have_count(4)
    page.reload()
    signed_in.settle()
    expect(rows).to_have_count(4)
    expect(page.locator("[data-part=filter]").get_by_label("Value")).to_have_value("node-1")
    expect(page.get_by_label("Kind")).to_have_value("points")
    # What others write into an address does no harm.
    for view in ("{", "[]", '{"query":{"derive":[{"name":1}],"filter":7,"group":[3],"join":{"dataset":"x"}},"chart":5}'):
        signed_in.open(f"/data/{dataset}?view={view}")
        expect(page.locator("main h1")).to_have_text("rates kept")


def test_texts_stand_across_lines_are_split_and_axes_logarithmic(signed_in, client):
    dataset = client.dataset("rates drawn", RATES)["id"]
    page = signed_in.open(f"/data/{dataset}").page
    page.get_by_label("Across", exact=True).select_option("host")
    legend = page.locator(".legend")
    expect(page.get_by_label("Kind")).to_have_value("bars")
    expect(legend).to_contain_text("node-")
    page.get_by_label("Split by").select_option("mode")
    expect(legend.locator("button")).to_have_count(2)
    page.get_by_label("Across", exact=True).select_option("queue_bytes")
    expect(page.get_by_label("Kind")).to_have_value("line")
    page.get_by_label("Logarithmic across").check()
    page.get_by_label("Logarithmic upwards").check()
    expect(page.locator(".chart canvas")).to_have_count(1)
    expect(legend).to_contain_text("KiB")
    with page.expect_download() as file:
        page.get_by_role("button", name=re.compile("^Save as CSV")).click()
    assert file.value.path().read_text().startswith("queue_bytes,a,b")


@pytest.mark.parametrize("width", [1440, 1920])
def test_no_tile_of_figures_stands_alone(visit, binary, console, width):
    one = visit(width=width).sign_in_at("/live")
    with Server(binary, console.folder):
        one.page.wait_for_function(
            """() => {
                const list = document.querySelector('.figures');
                const tops = [...(list?.children ?? [])].map((tile) => tile.offsetTop);
                return tops.length > 8 && tops.filter((top) => top === Math.max(...tops)).length > 1;
            }"""
        )


def test_a_server_with_a_data_directory_shows_what_that_does(visit, binary, console, tmp_path):
    one = visit().sign_in_at("/live")
    with Server(binary, console.folder, "--data", str(tmp_path / "data")):
        about = one.page.locator(".panel").filter(has_text="Data directory")
        expect(about).to_contain_text("logs changes")
        expect(about).to_contain_text("Not on the disk yet")
        expect(about).to_contain_text("Age of the last snapshot")


def test_a_server_that_follows_another_one_shows_its_link(visit, binary, console):
    one = visit().sign_in_at("/live")
    # No source is there.
    with Server(binary, console.folder, "--replica-of", "127.0.0.1:1"):
        about = one.page.locator(".panel").filter(has_text="Link to the source")
        expect(about).to_contain_text("down")
        expect(about).to_contain_text("Received, not applied")
