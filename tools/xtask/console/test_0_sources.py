"""What can be said of the sources without a browser."""

import re

LINE = re.compile(r'^  "([^"]+)": "(.*)",$', re.M)
#: What a file of Rust has that a quote may stand in: comments, texts, characters.
TOKEN = re.compile(r'//[^\n]*|b?"((?:[^"\\]|\\.)*)"|r#"(.*?)"#|\'(?:[^\'\\]|\\.)\'', re.S)
#: What stands before a text that no page shows: it goes to the log of the process, or names a lint
#: or a thread.
NOT_SHOWN = re.compile(
    r"(tracing::\w+!\([^;]*|\.expect\(|reason = |unreachable!\(|assert\w*!\([^;]*|writeln!\(output, "
    r"|ApiError::internal\((format!\()?|\.name\(format!\(|io::Error::other\()\s*$"
)
#: What stands before an error that ends the start of the console.
OF_THE_START = re.compile(r"#\[error\(\s*$")
#: Texts for machines: SQL, values of headers.
FOR_MACHINES = re.compile(
    r"\b(SELECT|INSERT|UPDATE|DELETE FROM|CREATE|DROP TABLE|PRAGMA|WHERE|ORDER BY|GROUP BY|LIMIT|JOIN"
    r"|DESC|ASC|CAST|IS|NOT NULL|THEN|ELSE|END|AND|AS)\b"
    r"|; charset=|; filename=|; Secure|SameSite|default-src|->>|^id < |^state = |_ms\b|^(facets|message) : |^\W*7 7 7"
    r"|\(7, 7\)$|^instr"
)
#: Words of other errors that are replaced before a page sees them, of files' formats, and names of
#: settings.
REPLACED = {
    "joined texts are too long", "percentiles of too many values", "no such table", "sql parser error: ",
    "a column too many", "missing field", "unknown field", "recursion limit exceeded", " at Line: ", "times places",
    "queue pairs", "Expected: ", ", Column: ", ", found: ", "farcore-card-trace ", "farcore-card-trace 1",
    "relaxed-share + strict-share", "queue-pairs + regions + completion-queues",
    "{} is not a folder that only this user can write: remove it, or name a socket's path", "farcore console csrf 1\\0",
}
#: Files of the model of a card whose errors the console passes on.
OF_THE_MODEL = [
    "src/publish/attach.rs", "card/src/settings.rs", "card/src/trace/mod.rs",
    "card/src/trace/reader.rs", "card/src/token/mod.rs", "card/src/token/completion_queue.rs",
    "card/src/token/domain.rs", "card/src/token/queue_pair.rs", "card/src/token/region.rs",
    "card/src/simulator/settings.rs", "card/src/simulator/mod.rs", "card/src/simulator/fit/mod.rs",
    "card/src/workload/mod.rs", "card/src/workload/population.rs", "card/src/policy/mod.rs",
]
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


def without_names(text):
    return re.sub(r"\{[^{}]*\}", "{}", text)


def texts(path):
    """The texts of a file of Rust, each with what stands before it; those of its tests are left out."""
    source = path.read_text().split("#[cfg(test)]\nmod tests {")[0]
    for found in TOKEN.finditer(source):
        text = found[1]
        if text is not None:
            text = re.sub(r"\s+", " ", re.sub(r"\\\n\s*", "", text).replace('\\"', '"'))
            yield re.sub(r"\s+", " ", source[max(0, found.start() - 200):found.start()]), text


def test_the_sentences_of_the_server_are_its_own(assets):
    """Sentences are found again by their English, so that a change of the server's loses them."""
    root = assets.parents[2]
    sources = [*(assets.parent / "src").rglob("*.rs"), *(root / "tuning/card/src").rglob("*.rs"),
               root / "tuning/src/publish/attach.rs", root / "tools/src/console/live.rs"]
    literals = {without_names(text) for path in sources for _, text in texts(path)}
    said = {key: text for key, text in strings(assets, "en.js").items() if key.startswith("said.")}
    # The words of libraries are others'. A place before or after a sentence is one of its own.
    ours = {key: text.removesuffix("{rest}") for key, text in said.items() if not key.startswith("said.foreign_")}
    lost = {key for key, text in ours.items() if key != "said.event_search_why"
            if not {without_names(text), without_names(text) + "{}", "{}" + without_names(text)} & literals}
    assert lost == set()


def test_every_sentence_of_the_server_has_a_translation(assets):
    """Walks every text of the console's sources that a page can show."""
    english = strings(assets, "en.js")
    said = [text for key, text in english.items() if key.startswith("said.")]
    words = {key.removeprefix("word.") for key in english if key.startswith("word.")}
    known = {without_names(text) for text in said}
    # A sentence may be a case of a more general one, with a number in the place of a value.
    general = [re.escape(without_names(text)).replace(r"\{\}", r"\S+") for text in said
               if len(re.findall(r"[a-z]+", without_names(text))) >= 3]
    general = [re.compile(text) for text in general]
    root = assets.parents[2]
    tuning = [root / "tuning" / place for place in OF_THE_MODEL]
    walked, missing = 0, []
    for path in [*sorted((assets.parent / "src").rglob("*.rs")), *tuning]:
        if "tests" in path.parts:
            continue
        for before, text in texts(path):
            shown = re.sub(r"\{[^{}]+\}|\{\}", "7", text)
            if not re.search(r"[a-z]{2,}", shown) or " " not in shown.strip() or NOT_SHOWN.search(before):
                continue
            if path not in tuning and OF_THE_START.search(before):
                continue
            walked += 1
            form = without_names(text)
            is_known = known & {form, form.removeprefix("{}"), form + "{}"} or text in words
            if is_known or any(one.fullmatch(shown) for one in general):
                continue
            if text not in REPLACED and not FOR_MACHINES.search(shown):
                missing.append(f"{path.relative_to(root)}: {text}")
    assert walked > 300
    assert missing == []


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
