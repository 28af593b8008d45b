"""Takes a picture of every page at three widths, of two in both themes, of a console with runs, data, users
and a server that is under load. `pictures.py FOLDER`; FARCORE_BINARY names the program."""

import io
import os
import pathlib
import random
import sys
import tempfile
import time

from PIL import Image
from playwright.sync_api import sync_playwright

from console import ADMINISTRATOR, Client, Console, Visit, new_context
from load import Server

WIDTHS = {1920: 1080, 1440: 900, 390: 844}
THEMES = {1920: ("light",), 1440: ("light", "dark"), 390: ("light", "dark")}
#: Colours of a picture, and the most that all pictures may take.
FLAT_COLOURS = 32
OTHER_COLOURS = 32
BYTES_MAX = 3_000_000
#: Long pages are cut here, since their ends repeat what is above.
HEIGHT_MAX = 2_200
PASSWORD = "a password of pictures"
MANY = {"workload__population__queue_pairs": 16_384}
RUNS = [
    ("8192 queue pairs, plain card", {"preset": "plain"}),
    ("16384 queue pairs, adaptive tiers", MANY),
    ("16384 queue pairs, plain card", {**MANY, "preset": "plain"}),
    ("16384 queue pairs, SIEVE", {**MANY, "preset": "plain", "card__policy": "sieve"}),
]
PAGES = {
    "overview": "/",
    "new-run": "/runs/new",
    "fit": "/fit",
    "fits": "/fit/1",
    "runs": "/runs",
    "run": "/runs/2",
    "compare": "/compare?runs=2,3,4",
    "data": "/data",
    "dataset": "/data/1",
    "logs": "/logs",
    "live": "/live",
    "users": "/users",
    "account": "/account",
}


def furnish(console):
    """Fills a console with what a team has after a day."""
    client = Client(console, *ADMINISTRATOR)
    for name, role in (("wei", "operator"), ("marta", "operator"), ("guest", "viewer")):
        client.call("POST", "/api/users", {"name": name, "role": role, "password": PASSWORD})
    wei = Client(console, "wei", PASSWORD)
    for name, changes in RUNS:
        wei.run(name, messages=8_000_000, warmup=200_000, points=60, **changes)
    long = wei.run("Connection storm, all night", wait=False, messages=10**11)
    while wei.call("GET", f"/api/runs/{long['id']}")["state"] == "queued":
        time.sleep(0.05)
    client.call("POST", f"/api/runs/{long['id']}/cancel", {})
    fit = wei.call("POST", "/api/fits", {"settings": {"workload": {"population": {"regions": 64}}}})
    while wei.call("GET", f"/api/fits/{fit['id']}")["state"] in ("queued", "running"):
        time.sleep(1)
    client.call("POST", "/api/runs/2/dataset", {"name": "16384 queue pairs, adaptive tiers"})
    draw = random.Random(7)
    rows = "".join(
        f"node-{i % 8:02},{256 << (i % 7)},{round(9e7 / (1 + (i % 7) ** 2 / 9) + draw.random() * 4e6)}\n"
        for i in range(400)
    )
    client.dataset("Cluster, measured rates", "host,queue_pairs,messages_s\n" + rows)


def with_few_colours(image):
    """Keeps the flat colours of a page exactly, and of the rest those that differ most."""
    counted = sorted(image.getcolors(1 << 24), reverse=True)
    flat = [colour for _, colour in counted[:FLAT_COLOURS]]
    others = image.quantize(OTHER_COLOURS, method=Image.Quantize.MAXCOVERAGE).getpalette("RGB")
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for colour in flat for part in colour] + others[: 3 * OTHER_COLOURS])
    return image.quantize(palette=palette, dither=Image.Dither.NONE)


def picture(page, path, is_whole=True):
    """Writes a picture of the page with few colours: the whole of it, or what the window shows."""
    size = page.viewport_size
    height = page.evaluate("document.documentElement.scrollHeight") if is_whole else size["height"]
    page.set_viewport_size({"width": size["width"], "height": min(max(size["height"], height), HEIGHT_MAX)})
    page.wait_for_timeout(250)
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    with_few_colours(image).save(path, optimize=True)
    page.set_viewport_size(size)


def take(browser, console, folder, theme, width):
    context = new_context(browser, theme=theme, width=width, height=WIDTHS[width])
    one = Visit(context, console.url)
    name = lambda page: folder / f"{page}-{width}-{theme}.png"
    one.open("/")
    picture(one.page, name("sign-in"))
    one.sign_in()
    one.page.wait_for_selector(".shell")
    for page, path in PAGES.items():
        one.open(path)
        if page in ("fits", "run", "compare", "dataset", "live"):
            one.page.wait_for_selector(".chart canvas")
        one.page.wait_for_timeout(6_000 if page == "live" else 300)
        picture(one.page, name(page))
    one.expect_clean()
    context.close()


def tour(browser, console, folder):
    context = new_context(browser, seen_tour=False)
    one = Visit(context, console.url).sign_in_at("/")
    one.page.wait_for_selector(".tour")
    for step in range(2, 4):
        one.page.keyboard.press("ArrowRight")
        one.page.get_by_text(f"Step {step} of").wait_for()
    picture(one.page, folder / "tour-1440-light.png", is_whole=False)
    context.close()
    context = new_context(browser, language="zh-CN")
    one = Visit(context, console.url).sign_in_at("/runs/2")
    one.page.wait_for_selector(".chart canvas")
    picture(one.page, folder / "run-1440-chinese.png")
    context.close()


def main(folder):
    binary = os.environ["FARCORE_BINARY"]
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        console = Console(binary, place, {"XDG_RUNTIME_DIR": place}).first_start()
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        server = Server(binary, place)
        try:
            furnish(console)
            with server:
                for width in WIDTHS:
                    for theme in THEMES[width]:
                        take(browser, console, folder, theme, width)
                tour(browser, console, folder)
        finally:
            browser.close()
            console.end()
    total = sum(path.stat().st_size for path in folder.glob("*.png"))
    assert total < BYTES_MAX, f"the pictures take {total} bytes: keep fewer colours"
    print(f"{len(list(folder.glob('*.png')))} pictures, {total} bytes in {folder}")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
