//! Which keys a script may use, as far as its text tells.
//!
//! A script that calls each command visibly with one of its `KEYS` uses no other key:
//! `redis.call('GET', KEYS[1])`. Of any other text nothing is said. So what is recognised is
//! little, and sure: a word that could lead to other keys, or change `KEYS`, ends it.

/// A command that a script calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CalledCommand {
    /// Its name, as the script writes it.
    pub name: String,
    /// Its first argument is one of the script's keys; else it has no argument.
    pub has_key: bool,
}

/// Words that may reach what the text does not show.
const OBSCURE: [&str; 14] = [
    "_G",
    "_ENV",
    "debug",
    "dofile",
    "getfenv",
    "getmetatable",
    "load",
    "loadstring",
    "module",
    "rawget",
    "rawset",
    "require",
    "setfenv",
    "setmetatable",
];
/// What else a script may use of `redis`.
const HARMLESS: [&str; 10] = [
    "LOG_DEBUG",
    "LOG_NOTICE",
    "LOG_VERBOSE",
    "LOG_WARNING",
    "error_reply",
    "log",
    "replicate_commands",
    "setresp",
    "sha1hex",
    "status_reply",
];

/// A part of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token<'t> {
    Word(&'t str),
    /// A text without escapes.
    Text(&'t str),
    /// A text with some, or a long one.
    OtherText,
    Sign(u8),
}

/// The tokens of a text; `None` if it has some that are not known.
fn tokens(text: &str) -> Option<Vec<Token<'_>>> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(&first) = bytes.get(at) {
        let rest = &text[at..];
        if first.is_ascii_whitespace() {
            at += 1;
        } else if let Some(comment) = rest.strip_prefix("--") {
            at += match long_end(comment) {
                Some(end) => 2 + end,
                None => rest.find('\n').unwrap_or(rest.len()),
            };
        } else if first == b'['
            && let Some(end) = long_end(rest)
        {
            found.push(Token::OtherText);
            at += end;
        } else if first == b'"' || first == b'\'' {
            let (token, end) = quoted(rest, first)?;
            found.push(token);
            at += end;
        } else if first.is_ascii_alphanumeric() || first == b'_' {
            let is_part = |one: u8| one.is_ascii_alphanumeric() || one == b'_';
            let end = rest.bytes().position(|one| !is_part(one));
            let end = end.unwrap_or(rest.len());
            found.push(Token::Word(&rest[..end]));
            at += end;
        } else if first.is_ascii() {
            found.push(Token::Sign(first));
            at += 1;
        } else {
            return None;
        }
    }
    Some(found)
}

/// Where a text in long brackets ends, if one begins here; one without an end takes all.
fn long_end(text: &str) -> Option<usize> {
    let inner = text.strip_prefix('[')?;
    let level = inner.bytes().take_while(|&one| one == b'=').count();
    if inner.as_bytes().get(level) != Some(&b'[') {
        return None;
    }
    let close = format!("]{}]", "=".repeat(level));
    Some(
        text.find(&close)
            .map_or(text.len(), |end| end + close.len()),
    )
}

/// A text in quotes, and where it ends; `None` if it has no end.
fn quoted(text: &str, quote: u8) -> Option<(Token<'_>, usize)> {
    let mut at = 1;
    let mut has_escape = false;
    loop {
        match text.as_bytes().get(at)? {
            b'\\' => {
                has_escape = true;
                at += 2;
            }
            b'\n' => return None,
            &one if one == quote => break,
            _ => at += 1,
        }
    }
    let token = match has_escape {
        true => Token::OtherText,
        false => Token::Text(&text[1..at]),
    };
    Some((token, at + 1))
}

/// The commands that a script calls, if its text shows that each has one of its keys alone, or no
/// argument. Cost: a walk over the text.
#[must_use]
pub(crate) fn called_commands(text: &[u8]) -> Option<Vec<CalledCommand>> {
    let tokens = tokens(std::str::from_utf8(text).ok()?)?;
    let mut called = Vec::new();
    let at = |place: usize| tokens.get(place).copied();
    for (place, token) in tokens.iter().enumerate() {
        let Token::Word(word) = token else {
            continue;
        };
        let before = place.checked_sub(1).and_then(at);
        match *word {
            word if OBSCURE.contains(&word) => return None,
            "KEYS" if before == Some(Token::Sign(b'#')) => {}
            "KEYS" => {
                let end = closing(&tokens, place + 1)?;
                let assigns = at(end + 1) == Some(Token::Sign(b'='))
                    && at(end + 2) != Some(Token::Sign(b'='));
                // More than one may be assigned at once.
                let is_listed = at(end + 1) == Some(Token::Sign(b','));
                if assigns || is_listed && !is_argument(&tokens, place) {
                    return None;
                }
            }
            "redis" => {
                let (Some(Token::Sign(b'.')), Some(Token::Word(member))) =
                    (at(place + 1), at(place + 2))
                else {
                    return None;
                };
                match member {
                    "call" | "pcall" => called.push(call(&tokens, place + 3)?),
                    // What is assigned could be another function.
                    _ if HARMLESS.contains(&member) && at(place + 3) != Some(Token::Sign(b'=')) => {
                    }
                    _ => return None,
                }
            }
            _ => {}
        }
    }
    Some(called)
}

/// True if a token is an argument of a call that is seen: it comes behind a name and a comma.
fn is_argument(tokens: &[Token<'_>], place: usize) -> bool {
    let before = |back: usize| {
        place
            .checked_sub(back)
            .and_then(|at| tokens.get(at))
            .copied()
    };
    before(1) == Some(Token::Sign(b',')) && matches!(before(2), Some(Token::Text(_)))
}

/// The place of the bracket that closes one.
fn closing(tokens: &[Token<'_>], open: usize) -> Option<usize> {
    if tokens.get(open) != Some(&Token::Sign(b'[')) {
        return None;
    }
    let mut depth = 0usize;
    for (place, token) in tokens.iter().enumerate().skip(open) {
        match token {
            Token::Sign(b'[') => depth += 1,
            Token::Sign(b']') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(place);
        }
    }
    None
}

/// The call whose arguments begin here.
fn call(tokens: &[Token<'_>], open: usize) -> Option<CalledCommand> {
    let at = |place: usize| tokens.get(place).copied();
    let (Some(Token::Sign(b'(')), Some(Token::Text(name))) = (at(open), at(open + 1)) else {
        return None;
    };
    let name = name.to_owned();
    match (at(open + 2)?, at(open + 3)) {
        (Token::Sign(b')'), _) => Some(CalledCommand {
            name,
            has_key: false,
        }),
        (Token::Sign(b','), Some(Token::Word("KEYS"))) => {
            let end = closing(tokens, open + 4)?;
            let is_alone = matches!(at(end + 1), Some(Token::Sign(b',' | b')')));
            is_alone.then_some(CalledCommand {
                name,
                has_key: true,
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Option<Vec<(String, bool)>> {
        let called = called_commands(text.as_bytes())?;
        let pairs = called.into_iter().map(|one| (one.name, one.has_key));
        Some(pairs.collect())
    }

    #[test]
    fn a_script_that_shows_its_keys_is_seen_to_use_them_alone() {
        let text = "-- a counter\nlocal n = redis.call('INCR', KEYS[1])\n\
                    if n == 1 then redis.pcall(\"pexpire\", KEYS[1], ARGV[1]) end\n\
                    --[[ redis.call('del', ARGV[1]) ]]\n\
                    if #KEYS > 1 and KEYS[2] == 'x' then redis.log(redis.LOG_NOTICE, 'y') end\n\
                    return {n, redis.call('time')}";
        let expected = [("INCR", true), ("pexpire", true), ("time", false)];
        let expected = expected.map(|(name, has_key)| (name.to_owned(), has_key));
        assert_eq!(names(text), Some(expected.to_vec()));
        assert_eq!(names("return 1"), Some(Vec::new()));
        let nested = "return redis.call('get', KEYS[tonumber(KEYS[1])])";
        assert_eq!(names(nested), Some(vec![("get".to_owned(), true)]));
    }

    #[test]
    fn of_any_other_text_nothing_is_said() {
        for text in [
            "return redis.call('get', KEYS[1] .. ':x')",
            "return redis.call('get', ARGV[1])",
            "return redis.call('get', 'key')",
            "return redis.call(ARGV[1], KEYS[1])",
            "return redis.call('ge\\116', KEYS[1])",
            "return redis.call([[get]], KEYS[1])",
            "local call = redis.call return call('get', KEYS[1])",
            "local r = redis return 1",
            "return redis['call']('get', KEYS[1])",
            "KEYS[1] = 'x' return redis.call('get', KEYS[1])",
            "KEYS[1], KEYS[2] = 'x', 'y' return redis.call('get', KEYS[1])",
            "local k = KEYS return redis.call('get', KEYS[1])",
            "table.insert(KEYS, 'x') return redis.call('get', KEYS[1])",
            "return redis.call('get', unpack(KEYS))",
            "_G['redis'].call('get', 'x')",
            "return loadstring('return redis.call(\"get\", \"x\")')()",
            "return redis.call 'ping'",
            "return redis.call('get', KEYS[1] or 'x')",
            "redis.log = redis.call",
            "return 'open",
            "return redis.call('get', KEYS[1",
            "return \u{e9}",
        ] {
            assert_eq!(names(text), None, "{text}");
        }
    }

    #[test]
    fn any_text_is_walked_to_its_end() {
        farcore_fuzz::Target::new("script keys")
            .seed("return redis.call('get', KEYS[1])")
            .words(&[
                "redis", ".call(", "KEYS", "[", "]", "'", "\"", "--", "[[", "]]", "\\",
            ])
            .longest(200)
            .run(|text| {
                let _ = called_commands(text);
            });
    }
}
