"""Roles, sessions that end, lock-out, names that look like markup, and a console that dies."""

import signal

from playwright.sync_api import expect

from console import ADMINISTRATOR, Client, Console, Visit, new_context

PASSWORD = "a password of the tests"
MARKUP = "<img src=x onerror=\"window.__executed='{0}'\"><script>window.__executed='{0}'</script>"


def make_user(client, name, role):
    return client.call("POST", "/api/users", {"name": name, "role": role, "password": PASSWORD})


def test_an_administrator_adds_disables_and_deletes_a_user(signed_in):
    page = signed_in.open("/users").page
    page.get_by_role("button", name="Add a user").click()
    dialog = page.locator("dialog")
    dialog.get_by_label("Name").fill("olga")
    dialog.get_by_label("Password").fill("short")
    dialog.get_by_role("button", name="Add").click()
    expect(dialog.get_by_role("alert")).to_contain_text("12")
    dialog.get_by_label("Password").fill(PASSWORD)
    dialog.get_by_label("Role").select_option("operator")
    dialog.get_by_role("button", name="Add").click()
    row = page.locator("tr", has_text="olga")
    expect(row.locator("select")).to_have_value("operator")
    row.get_by_role("button", name="Disable").click()
    expect(row.locator(".badge")).to_have_text("Disabled")
    row.get_by_role("button", name="Delete").click()
    page.locator("dialog").get_by_role("button", name="Delete").click()
    expect(row).to_have_count(0)
    # The last administrator stays, and the page shows what holds.
    own = page.locator("tr", has_text="(you)")
    own.locator("select").select_option("viewer")
    expect(page.locator(".toast.bad")).to_be_visible()
    expect(own.locator("select")).to_have_value("administrator")


def test_a_viewer_sees_and_changes_nothing(visit, client):
    make_user(client, "vera", "viewer")
    one = visit().sign_in_at("/runs", name="vera", password=PASSWORD)
    page = one.page
    expect(page.get_by_role("link", name="New run")).to_have_count(0)
    expect(page.get_by_role("link", name="Users")).to_have_count(0)
    for path in ("/users", "/runs/new"):
        one.open(path)
        expect(page.locator("main h1")).to_have_text("Your role does not permit this page")
    one.open("/runs/1")
    for name in ("Clone", "Delete", "Make a data set"):
        expect(page.get_by_text(name, exact=True)).to_have_count(0)
    status = page.evaluate(
        """async () => {
            const { csrf } = await (await fetch('/api/session')).json();
            const headers = { 'x-csrf-token': csrf, 'content-type': 'application/json' };
            const body = JSON.stringify({ name: 'no', settings: {} });
            return (await fetch('/api/runs', { method: 'POST', headers, body })).status;
        }"""
    )
    assert status == 403
    one.open("/logs?kind=audit")
    expect(page.locator("main h1")).to_have_text("Your role does not permit this page")


def test_an_expired_session_leads_to_sign_in_and_back(signed_in, console):
    page = signed_in.open("/runs").page
    console.expire_sessions()
    page.get_by_role("link", name="Logs").click()
    expect(page.locator(".sign-in [role=status]")).to_contain_text("Your session has ended")
    signed_in.sign_in()
    expect(page.locator("main h1")).to_have_text("Logs")


def test_a_sign_out_that_fails_is_said_and_the_page_stays(visit):
    one = visit().sign_in_at("/runs")
    page = one.page

    def lose(route):
        route.abort() if route.request.method == "DELETE" else route.fallback()

    page.route("**/api/session", lose)
    page.get_by_role("button", name="Sign out").click()
    expect(page.locator(".toast.bad")).to_contain_text("does not answer")
    expect(page.locator("main h1")).to_have_text("Runs")
    page.unroute("**/api/session")
    page.get_by_role("button", name="Sign out").click()
    expect(page.locator(".sign-in form")).to_be_visible()
    assert page.evaluate("fetch('/api/session').then((answer) => answer.status)") == 401


def test_a_sign_out_of_a_session_that_has_ended_leads_to_sign_in(signed_in, console):
    page = signed_in.page
    console.expire_sessions()
    page.get_by_role("button", name="Sign out").click()
    expect(page.locator(".sign-in form")).to_be_visible()


def test_a_changed_password_ends_the_other_sessions(visit, client):
    make_user(client, "paula", "operator")
    thief = visit().sign_in_at("/", name="paula", password=PASSWORD)
    own = visit().sign_in_at("/account", name="paula", password=PASSWORD)
    page = own.page
    page.get_by_label("Current password").fill(PASSWORD)
    page.get_by_label("New password", exact=True).fill("another password")
    page.get_by_label("New password again").fill("another passwort")
    page.get_by_role("button", name="Change password").click()
    expect(page.locator(".problem:visible")).to_have_text("The two new passwords differ.")
    page.get_by_label("New password again").fill("another password")
    page.get_by_role("button", name="Change password").click()
    expect(page.locator(".toast")).to_contain_text("was changed")
    thief.page.get_by_role("link", name="Runs", exact=True).click()
    expect(thief.page.locator(".sign-in form")).to_be_visible()


def test_five_wrong_passwords_lock_a_name(visit, client):
    make_user(client, "lea", "viewer")
    one = visit().open("/")
    problem = one.page.locator(".sign-in [role=alert]")
    for _ in range(5):
        with one.page.expect_response("**/api/session"):
            one.sign_in("lea", "wrong password 1")
        expect(problem).to_be_visible()
    with one.page.expect_response("**/api/session") as answer:
        one.sign_in("lea", PASSWORD)
    assert answer.value.status == 429
    expect(problem).to_contain_text("Try again in")


def test_names_are_text(visit, client):
    run = client.run(MARKUP.format("run"), messages=20_000, warmup=1_000)
    rows = "".join(f"{i},{MARKUP.format('cell')}\n" for i in range(3))
    header = MARKUP.format("column").replace('"', '""')
    dataset = client.dataset(MARKUP.format("dataset"), f'a,"{header}"\n' + rows.replace('"', "'"))
    name = "<svg onload=window.__executed='user'>"
    make_user(client, name, "operator")
    one = visit().sign_in_at("/", name=name, password=PASSWORD)
    for path in ("/", "/runs", f"/runs/{run['id']}", f"/compare?runs={run['id']},1", "/data",
                 f"/data/{dataset['id']}", "/logs", "/account", f"/runs/new?clone={run['id']}"):
        one.open(path)
        assert one.page.locator("main img, main svg[onload], main script").count() == 0, path
        one.expect_clean()
    administrator = visit().sign_in_at("/users")
    expect(administrator.page.locator("main")).to_contain_text(name)


def test_a_console_that_dies_and_comes_back(binary, browser, tmp_path):
    console = Console(binary, tmp_path, {"XDG_RUNTIME_DIR": str(tmp_path)}).first_start()
    one = Visit(new_context(browser), console.url)
    try:
        one.sign_in_at("/")
        run = Client(console, *ADMINISTRATOR).run("killed", wait=False, messages=100_000_000_000)
        one.open(f"/runs/{run['id']}")
        one.page.wait_for_selector(".badge[data-state=running]")
        console.end(signal.SIGKILL)
        expect(one.page.get_by_text("The console does not answer").first).to_be_visible()
        console.start()
        expect(one.page.locator("main .badge")).to_have_text("Interrupted")
        expect(one.page.get_by_text("The console does not answer").first).to_be_hidden()
        one.expect_clean()
    finally:
        one.context.close()
        console.end()
