"""A console that runs for the tests, and a browser's view of it.

`Console` starts `farcore console` on a free port of loopback with a folder of its own, and can be
stopped, killed and started again. `Visit` is a page of the browser that collects everything that
must not happen: errors of scripts, violations of the content security policy, dialogs.
"""

import contextlib
import json
import mimetypes
import os
import pathlib
import re
import signal
import sqlite3
import subprocess
import time
import urllib.parse
import urllib.request

ADMINISTRATOR = ("admin", "correct horse battery")
START_SECONDS = 30
#: What the browser itself logs of answers that a test provokes, and of a server that is stopped.
EXPECTED = re.compile(
    r"Failed to load resource: (the server responded with a status of 4\d\d|net::ERR_)"
)


class Console:
    """The process and its folder."""

    def __init__(self, binary, folder, environment=None):
        self.binary = str(pathlib.Path(binary).resolve())
        self.folder = pathlib.Path(folder)
        self.data = self.folder / "data"
        self.environment = {**os.environ, **(environment or {})}
        self.password_file = self.folder / "password"
        self.password_file.write_text(ADMINISTRATOR[1] + "\n")
        self.password_file.chmod(0o600)
        self.log = self.folder / "log"
        self.address = None
        self.process = None

    def command(self, *flags):
        listen = self.address or "127.0.0.1:0"
        return [self.binary, "console", "--listen", listen, "--data", str(self.data), *flags]

    def start(self, *flags):
        """Starts it and waits until it is ready. After the first time it has the same port."""
        log = self.log.open("ab")
        self.process = subprocess.Popen(
            self.command(*flags),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env=self.environment,
            text=True,
        )
        line = self.process.stdout.readline()
        match = re.match(r"ready: http://(\S+)", line)
        assert match, f"the console says {line!r}; its log: {self.log.read_text()[-2000:]}"
        self.address = match[1]
        return self

    def first_start(self):
        return self.start("--admin-password-file", str(self.password_file))

    @property
    def url(self):
        return f"http://{self.address}"

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait(START_SECONDS)
        self.process.stdout.close()

    def expire_sessions(self):
        """Makes every session older than its longest life."""
        with sqlite3.connect(self.data / "console.db", timeout=10) as database:
            database.execute("UPDATE sessions SET created_ms = 1, seen_ms = 1")
        database.close()


class Client:
    """Requests without a browser, for what the tests only need to be there."""

    def __init__(self, console, name, password):
        self.console = console
        self.cookie = None
        self.csrf = None
        answer = self.call("POST", "/api/session", {"name": name, "password": password})
        self.csrf = answer["csrf"]

    def call(self, method, path, body=None, raw=None):
        headers = {}
        if self.cookie:
            headers["cookie"] = self.cookie
        if self.csrf:
            headers["x-csrf-token"] = self.csrf
        content = raw
        if body is not None:
            headers["content-type"] = "application/json"
            content = json.dumps(body).encode()
        elif raw is not None:
            headers["content-type"] = "application/octet-stream"
        request = urllib.request.Request(
            self.console.url + path, data=content, headers=headers, method=method
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            cookie = answer.headers.get("set-cookie")
            if cookie:
                self.cookie = cookie.split(";")[0]
            text = answer.read()
            is_json = "json" in (answer.headers.get("content-type") or "")
            return json.loads(text) if is_json and text else None

    def preset(self, preset="tiers", **changes):
        """The settings of a preset, with changes by path."""
        presets = self.call("GET", "/api/form")["presets"]
        settings = next(one["settings"] for one in presets if one["id"] == preset)
        for path, value in changes.items():
            *parts, last = path.split("__")
            inner = settings
            for part in parts:
                inner = inner[part]
            inner[last] = value
        return settings

    def run(self, name, wait=True, **changes):
        """A run; it has ended when this returns, unless `wait` is false."""
        run = self.call("POST", "/api/runs", {"name": name, "settings": self.preset(**changes)})
        end = time.monotonic() + START_SECONDS
        while wait and time.monotonic() < end:
            now = self.call("GET", f"/api/runs/{run['id']}")
            if now["state"] not in ("queued", "running"):
                return now
            time.sleep(0.05)
        assert not wait, f"{name} does not end"
        return run

    def dataset(self, name, text, kind="csv"):
        path = f"/api/datasets?name={urllib.request.quote(name)}&format={kind}"
        return self.call("POST", path, raw=text.encode())


class Visit:
    """A page of a browser context, and what went wrong on it."""

    def __init__(self, context, url):
        self.context = context
        self.url = url
        self.wrong = []
        self.page = context.new_page()
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.wrong.append(f"script: {error}"))
        self.page.on("dialog", self._on_dialog)

    def _on_console(self, message):
        if message.type in ("error", "warning") and not EXPECTED.search(message.text):
            self.wrong.append(f"{message.type}: {message.text}")

    def _on_dialog(self, dialog):
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def open(self, path="/"):
        self.page.goto(self.url + path)
        self.settle()
        return self

    def settle(self):
        """Waits for a page that has been shown completely."""
        self.page.wait_for_selector("main:not([aria-busy]) h1")
        return self

    def sign_in(self, name=ADMINISTRATOR[0], password=ADMINISTRATOR[1]):
        self.page.locator("input[autocomplete=username]").fill(name)
        self.page.locator("input[autocomplete=current-password]").fill(password)
        self.page.keyboard.press("Enter")
        return self

    def sign_in_at(self, path="/", **who):
        self.page.goto(self.url + path)
        self.page.wait_for_selector(".sign-in form")
        self.sign_in(**who)
        self.page.wait_for_selector(".shell")
        return self.settle()

    def heading(self):
        return self.page.locator("main h1").inner_text()

    def expect_clean(self):
        marks = self.page.evaluate("window.__executed ?? null")
        assert marks is None, f"foreign markup ran: {marks}"
        assert self.wrong == [], self.wrong


#: Runs before every script of a page: preferences, and a listener for violations of the policy.
PREPARATION = """
addEventListener('securitypolicyviolation', (event) => {
    console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`);
});
if (!localStorage.getItem('test.prepared')) {
    localStorage.setItem('test.prepared', 'yes');
    localStorage.setItem('farcore.language', %(language)s);
    if (%(tour)s) { localStorage.setItem('farcore.tour', 'seen'); }
}
"""


def new_context(browser, language="en", seen_tour=True, theme="light", width=1440, height=900):
    """A browser without a history."""
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=theme,
        reduced_motion="reduce",
        accept_downloads=True,
        locale="en-GB",
        timezone_id="UTC",
    )
    context.set_default_timeout(30_000)
    values = {"language": json.dumps(language), "tour": json.dumps(seen_tour)}
    context.add_init_script(PREPARATION % values)
    folder = os.environ.get("FARCORE_ASSETS")
    if folder:
        context.route(re.compile(r"^http://127\.0\.0\.1:\d+/(?!api/)"), lambda route: from_disk(route, folder))
    return context


def from_disk(route, folder):
    """Answers with the page of a folder and the headers of the console, to try a change of pages
    without building the program."""
    path = urllib.parse.urlparse(route.request.url).path.removeprefix("/")
    name = path if "." in path.rsplit("/", 1)[-1] else "index.html"
    file = pathlib.Path(folder) / name
    try:
        answer = route.fetch()
    except Exception:  # The console was stopped.
        route.abort()
        return
    headers = {**answer.headers, "content-type": mimetypes.guess_type(name)[0] or "text/plain"}
    headers.pop("content-encoding", None)
    route.fulfill(status=200, headers=headers, body=file.read_bytes())


@contextlib.contextmanager
def visits(browser, url):
    """Opens contexts at a console; each is checked at the end."""
    opened = []

    def open_one(**options):
        one = Visit(new_context(browser, **options), url)
        opened.append(one)
        return one

    yield open_one
    for one in opened:
        one.expect_clean()
        one.context.close()
