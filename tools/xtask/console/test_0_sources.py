"""What can be said of the sources without a browser."""

import re

LINE = re.compile(r'^  "([^"]+)": "(.*)",$', re.M)
#: Ways by which text becomes markup or code.
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser"
    r"|setAttribute\(\"style\"|createContextualFragment|srcdoc"
)


def strings(assets, name):
    text = (assets / "strings" / name).read_text()
    found = LINE.findall(text)
    assert len(found) > 300
    assert len(found) == text.count('": "'), "a line has another form"
    keys = [key for key, _ in found]
    assert len(keys) == len(set(keys)), "a key stands twice"
    return dict(found)


def modules(assets):
    return {path: path.read_text() for path in (assets / "js").rglob("*.js")}


def test_languages_have_the_same_keys_and_values(assets):
    english, chinese = strings(assets, "en.js"), strings(assets, "zh.js")
    assert english.keys() == chinese.keys()
    for key, text in english.items():
        names = sorted(re.findall(r"\{\w+\}", text))
        assert names == sorted(re.findall(r"\{\w+\}", chinese[key])), key


def test_every_used_string_is_there_and_every_string_is_used(assets):
    english = strings(assets, "en.js")
    code = "\n".join(modules(assets).values())
    literal = set(re.findall(r'\bt\(\s*"([^"]+)"', code))
    assert literal <= english.keys(), literal - english.keys()
    quoted = set(re.findall(r'"([\w.-]+)"', code))
    prefixes = tuple(re.findall(r"`([\w.]+\.)\$\{", code)) + ("hint.", "field.", "error.", "said.", "word.")
    unused = {key for key in english if key not in quoted and not key.startswith(prefixes)
              and not re.sub(r"\.(one|other|text|title)$", "", key) in quoted}
    assert unused == set()


def test_every_error_of_the_server_has_a_text(assets):
    english = strings(assets, "en.js")
    codes = set()
    for path in (assets.parent / "src").rglob("*.rs"):
        call = r'(?:unprocessable|conflict|ApiError::new)\(\s*(?:StatusCode::\w+,\s*|status,\s*)?"([a-z_]+)"'
        codes.update(re.findall(call, path.read_text()))
    assert len(codes) > 20
    missing = {code for code in codes if f"error.{code}" not in english}
    assert missing == set()


def test_the_sentences_of_the_server_are_its_own(assets):
    """Sentences are found again by their English, so that a change of the server's loses them."""
    root = assets.parents[2]
    sources = [*(assets.parent / "src").rglob("*.rs"), *(root / "tuning/card/src").rglob("*.rs")]
    without_names = lambda text: re.sub(r"\{[^{}]*\}", "{}", text)
    literals = set()
    for path in sources:
        for text in re.findall(r'"((?:[^"\\]|\\.)*)"', path.read_text().replace("'\"'", "' '"), re.S):
            literals.add(without_names(re.sub(r"\s+", " ", text.replace('\\"', '"'))))
    said = {key: text for key, text in strings(assets, "en.js").items() if key.startswith("said.")}
    # The parser of expressions is another's. A place before or after a sentence is one of its own.
    ours = {key: text.removesuffix("{rest}") for key, text in said.items() if not key.startswith("said.parser_")}
    lost = {key for key, text in ours.items()
            if not {without_names(text), without_names(text) + "{}", "{}" + without_names(text)} & literals}
    assert lost == set()


def test_no_module_makes_markup_or_code_of_text(assets):
    for path, text in modules(assets).items():
        assert not FORBIDDEN.search(text), path
    page = (assets / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", page)


def test_the_page_loads_every_style_sheet_and_none_is_long(assets):
    page = (assets / "index.html").read_text()
    loaded = re.findall(r'<link rel="stylesheet" href="/([^"]+)">', page)
    sheets = {str(path.relative_to(assets)): path for path in (assets / "css").rglob("*.css")}
    assert sorted(loaded) == sorted(sheets)
    long = {name for name, path in sheets.items() if len(path.read_text().splitlines()) > 500}
    assert long == set()


def test_no_file_names_another_host(assets):
    for path in [*(assets / "js").rglob("*.js"), *(assets / "css").rglob("*.css"), assets / "index.html"]:
        for url in re.findall(r"https?://[^\s\"')]+", path.read_text()):
            assert url == "http://www.w3.org/2000/svg", f"{path}: {url}"
