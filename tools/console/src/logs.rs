//! The log, by page and filter, newest first.
//!
//! Every filter but the time is a word: levels, kinds and runs are words of the column `facets` of
//! `events_text`, so that any mixture of them with words of messages is one intersection of lists
//! that FTS5 keeps in the order of ids. A range of times is a range of ids (see
//! [`events`](crate::events)). A page costs its rows, however long the log is.
//!
//! - I1: text of a client reaches FTS5 as quoted words of the column `message` alone.
//! - I2: entries of kind `audit` are for administrators.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};

use crate::access::{Access, Role, Session};
use crate::error::{ApiError, ApiResult};
use crate::events::{Kind, Level};
use crate::http::{Parameters, Routes, page_limit};
use crate::state::AppState;

/// Entries of a page, and most of them.
const PAGE: i64 = 100;
const PAGE_MAX: i64 = 500;
/// Longest text to look for, in characters, and its most words.
const TEXT_MAX: usize = 200;
const WORDS_MAX: usize = 16;
/// Fewest letters before a star. More words have a shorter beginning, and FTS5 would merge their
/// lists for seconds, as it would for several beginnings.
const STAR_LETTERS_MIN: usize = 3;

const COLUMNS: &str = "events.id, time_ms, level, kind, run, user, events.message";

/// Which entries to list.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Filter {
    /// Milliseconds since 1970, both included.
    from: Option<i64>,
    to: Option<i64>,
    /// The least level.
    level: Option<Level>,
    run: Option<i64>,
    kind: Option<Kind>,
    /// Words that are all in the message or the user's name; one that ends with `*` is the
    /// beginning of a word: at most one, of three letters or more.
    text: Option<String>,
    before: Option<i64>,
    limit: Option<i64>,
}

/// An entry of the log.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Entry {
    id: i64,
    time_ms: i64,
    level: Level,
    kind: Kind,
    run: Option<i64>,
    user: Option<String>,
    message: String,
}

impl Entry {
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            time_ms: row.get(1)?,
            level: row.get(2)?,
            kind: row.get(3)?,
            run: row.get(4)?,
            user: row.get(5)?,
            message: row.get(6)?,
        })
    }
}

/// A page of entries.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Page {
    entries: Vec<Entry>,
    /// Where the next page begins; null on the last.
    next: Option<i64>,
}

/// Checks that a word with a star at its end is long enough. Signs divide words for FTS5, and the
/// star belongs to the last part.
fn check_beginning(word: &str) -> ApiResult<()> {
    let is_sign = |one: char| !one.is_alphanumeric();
    let last = word.trim_end_matches(is_sign).rsplit(is_sign).next();
    let count = last.unwrap_or_default().chars().count();
    if count >= STAR_LETTERS_MIN {
        return Ok(());
    }
    let message = format!(
        "`*` follows {count} of at least {STAR_LETTERS_MIN} letters: write more, or no `*`"
    );
    Err(ApiError::invalid("text", message))
}

/// The text of a client as an expression of FTS5: quoted words, of which those with a star are
/// beginnings. `None` if there is no word in it.
///
/// # Errors
/// It is too long, or the beginnings are too short or too many.
fn words(text: &str) -> ApiResult<Option<String>> {
    let count = text.chars().count();
    if count > TEXT_MAX {
        let message = format!("the text has {count} characters: write at most {TEXT_MAX}");
        return Err(ApiError::invalid("text", message));
    }
    let has_letter = |word: &&str| word.contains(char::is_alphanumeric);
    // A quote inside a quoted word is written twice; a zero byte would end the expression.
    let quoted = |word: &str| {
        let star = if word.ends_with('*') { "*" } else { "" };
        format!("\"{}\"{star}", word.replace('"', "\"\"").replace('\0', " "))
    };
    let words = text.split_whitespace().filter(has_letter);
    let mut beginnings = words.clone().filter(|word| word.ends_with('*'));
    if let Some(word) = beginnings.next() {
        check_beginning(word)?;
    }
    if beginnings.next().is_some() {
        let message = "the text has `*` in several words: write it in one";
        return Err(ApiError::invalid("text", message));
    }
    let words: Vec<_> = words.map(quoted).collect();
    if words.len() > WORDS_MAX {
        let message = format!(
            "the text has {} words: write at most {WORDS_MAX}",
            words.len()
        );
        return Err(ApiError::invalid("text", message));
    }
    Ok((!words.is_empty()).then(|| format!("message : ({})", words.join(" AND "))))
}

/// Which entries pass a filter, times aside.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Passing {
    All,
    None,
    /// Those of an expression of FTS5.
    Matching(String),
}

/// Which entries pass a filter that someone of a role uses.
fn passing(filter: &Filter, role: Role) -> ApiResult<Passing> {
    let mut parts = Vec::new();
    if let Some(text) = &filter.text {
        match words(text)? {
            Some(words) => parts.push(words),
            None if text.trim().is_empty() => {}
            None => return Ok(Passing::None),
        }
    }
    if let Some(least) = filter.level.filter(|&level| level > Level::Info) {
        let levels = Level::ALL.iter().filter(|&&level| level >= least);
        let words: Vec<_> = levels
            .map(|level| format!("level{}", level.number()))
            .collect();
        parts.push(format!("facets : ({})", words.join(" OR ")));
    }
    if let Some(run) = filter.run {
        if run < 1 {
            return Ok(Passing::None);
        }
        parts.push(format!("facets : run{run}"));
    }
    match filter.kind {
        Some(kind) => parts.push(format!("facets : kind{}", kind.name())),
        None if role < Role::Administrator => {
            let kinds = Kind::ALL.iter().filter(|&&kind| kind != Kind::Audit);
            let words: Vec<_> = kinds.map(|kind| format!("kind{}", kind.name())).collect();
            parts.push(format!("facets : ({})", words.join(" OR ")));
        }
        None => {}
    }
    if parts.is_empty() {
        return Ok(Passing::All);
    }
    let parts: Vec<_> = parts.iter().map(|part| format!("({part})")).collect();
    Ok(Passing::Matching(parts.join(" AND ")))
}

/// The statement of a page: its parameters are the first id, the id behind the last, the limit and,
/// if `is_matched`, the expression.
fn statement(is_matched: bool) -> String {
    match is_matched {
        true => format!(
            "SELECT {COLUMNS} FROM events_text JOIN events ON events.id = events_text.rowid
            WHERE events_text MATCH ?4 AND events_text.rowid >= ?1 AND events_text.rowid < ?2
            ORDER BY events_text.rowid DESC LIMIT ?3"
        ),
        false => format!(
            "SELECT {COLUMNS} FROM events WHERE id >= ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3"
        ),
    }
}

/// The first id at or after a time; `None` if all entries are earlier.
const FIRST_FROM: &str = "SELECT id FROM events WHERE time_ms >= ?1 ORDER BY time_ms, id LIMIT 1";

/// The ids of the times of a filter: from the first on, before the second.
fn ids(console: &Connection, filter: &Filter) -> ApiResult<(i64, i64)> {
    let first = |time: i64| -> ApiResult<i64> {
        let mut statement = console.prepare_cached(FIRST_FROM)?;
        let found = statement.query_row([time], |row| row.get(0)).optional()?;
        Ok(found.unwrap_or(i64::MAX))
    };
    let from = filter.from.map_or(Ok(0), first)?;
    // Times are whole milliseconds.
    let to = filter.to.and_then(|to| to.checked_add(1));
    let to = to.map_or(Ok(i64::MAX), first)?;
    Ok((from, to.min(filter.before.unwrap_or(i64::MAX))))
}

fn page(console: &Connection, filter: &Filter, role: Role) -> ApiResult<Page> {
    let limit = page_limit(filter.limit, PAGE, PAGE_MAX)?;
    let (first, behind) = ids(console, filter)?;
    let mut entries: Vec<Entry> = match passing(filter, role)? {
        Passing::None => Vec::new(),
        Passing::Matching(expression) => {
            let mut statement = console.prepare_cached(&statement(true))?;
            let rows = params![first, behind, limit + 1, expression];
            statement
                .query_map(rows, Entry::of)?
                .collect::<Result<_, _>>()?
        }
        Passing::All => {
            let mut statement = console.prepare_cached(&statement(false))?;
            let rows = params![first, behind, limit + 1];
            statement
                .query_map(rows, Entry::of)?
                .collect::<Result<_, _>>()?
        }
    };
    let has_more = entries.len() as u64 > limit.unsigned_abs();
    if has_more {
        entries.pop();
    }
    let next = entries.last().map(|entry| entry.id).filter(|_| has_more);
    Ok(Page { entries, next })
}

/// `GET /api/logs`
async fn list(
    State(state): State<AppState>,
    session: Session,
    Parameters(filter): Parameters<Filter>,
) -> ApiResult<Json<Page>> {
    let role = session.account.role;
    if filter.kind == Some(Kind::Audit) && role < Role::Administrator {
        let message = "the audit trail is for administrators: leave the kind out";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "forbidden", message));
    }
    let read = move |console: &Connection| page(console, &filter, role);
    state.console.read(read).await.map(Json)
}

/// Adds the route of the log.
pub(crate) fn routes(routes: Routes) -> Routes {
    routes.get("/api/logs", Access::Viewer, list)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Instant;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::events::Event;
    use crate::store::{CONSOLE, Database};

    fn open(path: &Path) -> Database {
        std::fs::File::create_new(path).unwrap();
        Database::open(path, CONSOLE).unwrap()
    }

    /// Entries 1.. with times 1000, 2000 and so on.
    fn write(console: &Connection, events: Vec<Event>) {
        for (event, time) in events.into_iter().zip(1..) {
            event.write_at(console, time * 1_000).unwrap();
        }
    }

    fn sample() -> Vec<Event> {
        vec![
            Event::of_server(Level::Info, "the console starts"),
            Event::of_run(Level::Info, 1, "run 1 was queued: Zipf sweep").by("ann"),
            Event::audit(Level::Warning, "bob", "sign-in as bob failed"),
            Event::of_run(Level::Error, 1, "run 1 failed: disk level3 kindaudit"),
            Event::of_run(Level::Info, 11, "run 11 was queued: 中文 名字"),
        ]
    }

    fn listed(filter: &Filter, role: Role) -> Vec<i64> {
        let place = tempfile::tempdir().unwrap();
        let database = open(&place.path().join("console.db"));
        let ids = database.write_blocking(|console| {
            write(console, sample());
            let page = page(console, filter, role)?;
            Ok(page.entries.into_iter().map(|entry| entry.id).collect())
        });
        ids.unwrap()
    }

    fn by_text(text: &str) -> Filter {
        Filter {
            text: Some(text.to_owned()),
            ..Filter::default()
        }
    }

    #[test]
    fn filters_choose_entries() {
        let none = Filter::default;
        let admin = |filter: &Filter| listed(filter, Role::Administrator);
        assert_eq!(admin(&none()), [5, 4, 3, 2, 1]);
        assert_eq!(listed(&none(), Role::Viewer), [5, 4, 2, 1]);
        let level = |level| Filter {
            level: Some(level),
            ..none()
        };
        assert_eq!(admin(&level(Level::Warning)), [4, 3]);
        assert_eq!(admin(&level(Level::Error)), [4]);
        assert_eq!(listed(&level(Level::Warning), Role::Operator), [4]);
        // Run 1 is not run 11.
        assert_eq!(
            admin(&Filter {
                run: Some(1),
                ..none()
            }),
            [4, 2]
        );
        assert_eq!(
            admin(&Filter {
                run: Some(-1),
                ..none()
            }),
            [] as [i64; 0]
        );
        assert_eq!(
            admin(&Filter {
                kind: Some(Kind::Audit),
                ..none()
            }),
            [3]
        );
        let times = Filter {
            from: Some(2_000),
            to: Some(4_000),
            ..none()
        };
        assert_eq!(admin(&times), [4, 3, 2]);
        let between = Filter {
            from: Some(2_001),
            to: Some(3_999),
            ..none()
        };
        assert_eq!(admin(&between), [3]);
        assert_eq!(
            admin(&Filter {
                from: Some(9_000),
                ..none()
            }),
            [] as [i64; 0]
        );
        assert_eq!(admin(&by_text("queued")), [5, 2]);
        assert_eq!(admin(&by_text("QUEU* zipf")), [2]);
        assert_eq!(admin(&by_text("queu")), [] as [i64; 0]);
        assert_eq!(admin(&by_text("ann")), [2]);
        assert_eq!(admin(&by_text("中文")), [5]);
        let both = Filter {
            level: Some(Level::Error),
            ..by_text("run")
        };
        assert_eq!(admin(&both), [4]);
    }

    #[test]
    fn a_star_stands_after_three_letters_of_one_word() {
        for text in [
            "que*",
            "a b c que*",
            "x-que*",
            "run* a*b",
            "名字符*",
            "*",
            "* - *",
        ] {
            words(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        }
        for (text, told) in [
            ("a*", "follows 1 of"),
            ("qu*", "follows 2 of"),
            ("qu**", "follows 2 of"),
            ("que-x*", "follows 1 of"),
            ("que\0x*", "follows 1 of"),
            ("run a* b*", "follows 1 of"),
            ("run* queued*", "several words"),
        ] {
            let error = words(text).unwrap_err();
            assert_eq!(error.code(), "invalid", "{text}");
            assert!(error.message().contains(told), "{text}: {error:?}");
        }
    }

    #[test]
    fn words_of_messages_are_no_facets() {
        let text = |text: &str| listed(&by_text(text), Role::Viewer);
        assert_eq!(text("kindaudit"), [4]);
        assert_eq!(text("level1"), [] as [i64; 0]);
        assert_eq!(text("kindrun"), [] as [i64; 0]);
    }

    #[test]
    fn pages_follow_each_other() {
        let place = tempfile::tempdir().unwrap();
        let database = open(&place.path().join("console.db"));
        let outcome = database.write_blocking(|console| {
            write(console, sample());
            let mut filter = Filter {
                limit: Some(2),
                ..Filter::default()
            };
            let mut all = Vec::new();
            loop {
                let page = page(console, &filter, Role::Administrator)?;
                all.extend(page.entries.into_iter().map(|entry| entry.id));
                filter.before = page.next;
                if page.next.is_none() {
                    return Ok(all);
                }
            }
        });
        assert_eq!(outcome.unwrap(), [5, 4, 3, 2, 1]);
    }

    #[test]
    fn a_clock_that_steps_back_keeps_the_order_of_times() {
        let place = tempfile::tempdir().unwrap();
        let database = open(&place.path().join("console.db"));
        let times = database.write_blocking(|console| {
            for time in [5_000, 1_000, 6_000] {
                Event::of_server(Level::Info, "tick").write_at(console, time)?;
            }
            let page = page(console, &Filter::default(), Role::Administrator)?;
            Ok(page
                .entries
                .iter()
                .map(|entry| entry.time_ms)
                .collect::<Vec<_>>())
        });
        assert_eq!(times.unwrap(), [6_000, 5_000, 5_000]);
    }

    #[test]
    fn old_entries_are_removed_with_their_words() {
        let place = tempfile::tempdir().unwrap();
        let database = open(&place.path().join("console.db"));
        let left = database.write_blocking(|console| {
            write(console, sample());
            while crate::events::remove_oldest(console, 2)? {}
            let page = page(console, &by_text("run"), Role::Administrator)?;
            Ok(page.entries.len())
        });
        assert_eq!(left.unwrap(), 2);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever is typed is a text to look for or refused for its stars, never an error of
        /// FTS5.
        #[test]
        fn any_text_is_looked_for(text in "(\\PC|[\"*()^:+ -]|\\x00|NEAR|AND|OR|NOT){0,40}") {
            let place = tempfile::tempdir().unwrap();
            let database = open(&place.path().join("console.db"));
            let outcome = database.write_blocking(|console| {
                write(console, sample());
                page(console, &by_text(&text), Role::Viewer)
            });
            match outcome {
                Ok(page) => {
                    let audit = page.entries.iter().any(|entry| entry.kind == Kind::Audit);
                    prop_assert!(!audit);
                }
                Err(error) => {
                    prop_assert_eq!(error.code(), "invalid");
                    prop_assert!(text.contains('*'), "{:?}", error);
                }
            }
        }
    }

    /// The filters of which times are looked at.
    fn filters() -> Vec<(Value, Role)> {
        let (admin, viewer) = (Role::Administrator, Role::Viewer);
        vec![
            (json!({}), admin),
            (json!({}), viewer),
            (json!({ "level": "error" }), admin),
            (json!({ "level": "warning" }), viewer),
            (json!({ "run": 77 }), viewer),
            (json!({ "kind": "server" }), admin),
            (json!({ "kind": "audit" }), admin),
            (json!({ "from": 400_000_000, "to": 500_000_000 }), admin),
            (json!({ "text": "started" }), admin),
            (json!({ "text": "number99777" }), admin),
            (json!({ "text": "numbe*" }), admin),
            (json!({ "text": "num*" }), admin),
            (json!({ "text": "sta* messages run has" }), viewer),
            (json!({ "text": "run messages" }), viewer),
            (json!({ "text": "started", "run": 77 }), viewer),
            (json!({ "text": "run", "level": "error" }), admin),
            (
                json!({ "text": "run", "level": "error", "from": 1_000, "to": 2_000_000 }),
                admin,
            ),
            (json!({ "text": "nowhere" }), admin),
            (json!({ "text": "started", "before": 1_000 }), viewer),
        ]
    }

    #[test]
    fn plans_use_indices() {
        let place = tempfile::tempdir().unwrap();
        let database = open(&place.path().join("console.db"));
        let plans = database.write_blocking(|console| {
            write(console, sample());
            let mut plans = Vec::new();
            for text in [statement(true), statement(false), FIRST_FROM.to_owned()] {
                let mut explained = console.prepare(&format!("EXPLAIN QUERY PLAN {text}"))?;
                let count = explained.parameter_count();
                let values = ["1", "9", "2", "\"a\""];
                let values = rusqlite::params_from_iter(&values[..count]);
                let lines = explained.query_map(values, |row| row.get::<_, String>(3))?;
                plans.push(lines.collect::<Result<Vec<_>, _>>()?.join("; "));
            }
            Ok(plans)
        });
        let plans = plans.unwrap();
        assert!(
            plans[0].contains("SCAN events_text VIRTUAL TABLE INDEX"),
            "{plans:?}"
        );
        assert!(
            plans[0].contains("SEARCH events USING INTEGER PRIMARY KEY"),
            "{plans:?}"
        );
        assert!(
            plans[1].contains("SEARCH events USING INTEGER PRIMARY KEY"),
            "{plans:?}"
        );
        assert!(
            plans[2].contains("USING COVERING INDEX events_time"),
            "{plans:?}"
        );
        assert!(
            plans.iter().all(|plan| !plan.contains("TEMP B-TREE")),
            "{plans:?}"
        );
    }

    /// Prints the time of every filter at a million entries. By hand:
    /// `cargo test -p farcore-console --lib -- --ignored --nocapture million`.
    #[test]
    #[ignore = "a measurement, by hand"]
    fn a_million_entries() {
        let place = tempfile::tempdir().unwrap();
        let database = open(&place.path().join("console.db"));
        let fill = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000)
            INSERT INTO events (time_ms, level, kind, run, user, message) SELECT
                i * 1000, CASE WHEN i % 1000 = 0 THEN 3 WHEN i % 50 = 0 THEN 2 ELSE 1 END,
                CASE WHEN i % 10 = 0 THEN 'server' ELSE 'run' END, i % 5000 + 1, 'ann',
                'run ' || (i % 5000) || ' has started number' || i || ' messages ' || (i * 7919 % 100003)
            FROM n";
        database
            .write_blocking(|console| Ok(console.execute(fill, [])?))
            .unwrap();
        for (text, role) in filters() {
            let filter: Filter = serde_json::from_value(text.clone()).unwrap();
            for _ in 0..2 {
                let begin = Instant::now();
                let page = database.read_blocking(|console| page(console, &filter, role));
                let entries = page.unwrap().entries.len();
                println!(
                    "{text} {role:?}: {entries} entries in {:.2?}",
                    begin.elapsed()
                );
            }
        }
    }
}
