//! Patterns of Lua 5.1, as its library `string` matches them, with a bound on their work and depth.
//!
//! Lua's own matcher goes deeper with each item of a pattern, and tries as many ways as there are:
//! a text of some bytes may hold a core for years, or end the process.
//!
//! - I1: a match has at most [`STEPS_MAX`] steps, and is at most [`DEPTH_MAX`] calls deep.

/// Steps of a match: a second, about.
const STEPS_MAX: usize = 20_000_000;
/// Calls within each other.
const DEPTH_MAX: usize = 200;
/// Captures of a pattern.
const CAPTURES_MAX: usize = 32;

const ESCAPE: u8 = b'%';

/// How long a capture is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Length {
    /// It is not closed.
    Open,
    /// It is a place.
    Place,
    Bytes(usize),
}

/// What a capture holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Capture<'a> {
    /// A place of the text, from 1 on.
    Place(usize),
    Bytes(&'a [u8]),
}

/// A pattern that is matched with a text.
#[derive(Debug)]
pub(crate) struct Matcher<'a> {
    text: &'a [u8],
    pattern: &'a [u8],
    captures: [(usize, Length); CAPTURES_MAX],
    level: usize,
    depth: usize,
    steps: usize,
}

type Found = Result<Option<usize>, String>;

impl<'a> Matcher<'a> {
    pub(crate) fn new(text: &'a [u8], pattern: &'a [u8]) -> Self {
        Self {
            text,
            pattern,
            captures: [(0, Length::Open); CAPTURES_MAX],
            level: 0,
            depth: 0,
            steps: 0,
        }
    }

    /// Steps so far.
    pub(crate) fn steps(&self) -> usize {
        self.steps
    }

    /// Matches at a place, with a pattern from a place on; returns where the match ends.
    pub(crate) fn match_at(&mut self, at: usize, from: usize) -> Found {
        self.level = 0;
        self.run(at, from)
    }

    fn step(&mut self) -> Result<(), String> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Err("pattern takes too many steps".to_owned());
        }
        Ok(())
    }

    fn run(&mut self, at: usize, from: usize) -> Found {
        if self.depth >= DEPTH_MAX {
            return Err("pattern too complex".to_owned());
        }
        self.depth += 1;
        let found = self.run_within(at, from);
        self.depth -= 1;
        found
    }

    fn run_within(&mut self, mut at: usize, mut from: usize) -> Found {
        loop {
            self.step()?;
            let Some(&item) = self.pattern.get(from) else {
                return Ok(Some(at));
            };
            match item {
                b'(' if self.pattern.get(from + 1) == Some(&b')') => {
                    return self.start_capture(at, from + 2, Length::Place);
                }
                b'(' => return self.start_capture(at, from + 1, Length::Open),
                b')' => return self.end_capture(at, from + 1),
                ESCAPE => match self.pattern.get(from + 1) {
                    Some(b'b') => match self.balance(at, from + 2)? {
                        Some(end) => (at, from) = (end, from + 4),
                        None => return Ok(None),
                    },
                    Some(b'f') => {
                        from += 2;
                        if self.pattern.get(from) != Some(&b'[') {
                            return Err("missing '[' after '%f' in pattern".to_owned());
                        }
                        let end = self.class_end(from)?;
                        let before = at.checked_sub(1).map_or(0, |place| self.text[place]);
                        let here = self.text.get(at).copied().unwrap_or(0);
                        if self.in_set(before, from, end - 1) || !self.in_set(here, from, end - 1) {
                            return Ok(None);
                        }
                        from = end;
                    }
                    Some(digit) if digit.is_ascii_digit() => {
                        match self.match_capture(at, *digit)? {
                            Some(end) => (at, from) = (end, from + 2),
                            None => return Ok(None),
                        }
                    }
                    _ => match self.single(at, from)? {
                        Next::Go(next) => (at, from) = next,
                        Next::Found(found) => return Ok(found),
                    },
                },
                b'$' if from + 1 == self.pattern.len() => {
                    return Ok((at == self.text.len()).then_some(at));
                }
                _ => match self.single(at, from)? {
                    Next::Go(next) => (at, from) = next,
                    Next::Found(found) => return Ok(found),
                },
            }
        }
    }

    /// An item of one byte, and what says how often it comes.
    fn single(&mut self, at: usize, from: usize) -> Result<Next, String> {
        let end = self.class_end(from)?;
        let fits = at < self.text.len() && self.fits(self.text[at], from, end);
        Ok(match self.pattern.get(end) {
            Some(b'?') => {
                if fits && let Some(found) = self.run(at + 1, end + 1)? {
                    return Ok(Next::Found(Some(found)));
                }
                Next::Go((at, end + 1))
            }
            Some(b'*') => Next::Found(self.most(at, from, end)?),
            Some(b'+') if fits => Next::Found(self.most(at + 1, from, end)?),
            Some(b'-') => Next::Found(self.least(at, from, end)?),
            Some(b'+') => Next::Found(None),
            _ if fits => Next::Go((at + 1, end)),
            _ => Next::Found(None),
        })
    }

    fn most(&mut self, at: usize, from: usize, end: usize) -> Found {
        let mut count = 0;
        while at + count < self.text.len() && self.fits(self.text[at + count], from, end) {
            self.step()?;
            count += 1;
        }
        loop {
            if let Some(found) = self.run(at + count, end + 1)? {
                return Ok(Some(found));
            }
            if count == 0 {
                return Ok(None);
            }
            count -= 1;
        }
    }

    fn least(&mut self, mut at: usize, from: usize, end: usize) -> Found {
        loop {
            if let Some(found) = self.run(at, end + 1)? {
                return Ok(Some(found));
            }
            if at < self.text.len() && self.fits(self.text[at], from, end) {
                at += 1;
            } else {
                return Ok(None);
            }
        }
    }

    fn start_capture(&mut self, at: usize, from: usize, length: Length) -> Found {
        if self.level >= CAPTURES_MAX {
            return Err("too many captures".to_owned());
        }
        self.captures[self.level] = (at, length);
        self.level += 1;
        let found = self.run(at, from)?;
        if found.is_none() {
            self.level -= 1;
        }
        Ok(found)
    }

    fn end_capture(&mut self, at: usize, from: usize) -> Found {
        let open = self.captures[..self.level].iter();
        let open = open.clone().rposition(|one| one.1 == Length::Open);
        let place = open.ok_or("invalid pattern capture")?;
        self.captures[place].1 = Length::Bytes(at - self.captures[place].0);
        let found = self.run(at, from)?;
        if found.is_none() {
            self.captures[place].1 = Length::Open;
        }
        Ok(found)
    }

    fn match_capture(&mut self, at: usize, digit: u8) -> Found {
        let place = usize::from(digit).wrapping_sub(usize::from(b'1'));
        match self.captures[..self.level].get(place) {
            Some(&(start, Length::Bytes(length))) => {
                let captured = &self.text[start..start + length];
                self.steps += length / 64;
                Ok(self.text[at..].starts_with(captured).then_some(at + length))
            }
            Some((_, Length::Place)) => Ok(None),
            _ => Err("invalid capture index".to_owned()),
        }
    }

    fn balance(&mut self, at: usize, from: usize) -> Found {
        let (Some(&open), Some(&close)) = (self.pattern.get(from), self.pattern.get(from + 1))
        else {
            return Err("unbalanced pattern".to_owned());
        };
        if self.text.get(at) != Some(&open) {
            return Ok(None);
        }
        let mut depth = 1;
        for place in at + 1..self.text.len() {
            self.step()?;
            let byte = self.text[place];
            if byte == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(place + 1));
                }
            } else if byte == open {
                depth += 1;
            }
        }
        Ok(None)
    }

    /// Where the class at a place of the pattern ends.
    fn class_end(&self, from: usize) -> Result<usize, String> {
        let first = self.pattern[from];
        let mut end = from + 1;
        if first == ESCAPE {
            if end >= self.pattern.len() {
                return Err("malformed pattern (ends with '%')".to_owned());
            }
            return Ok(end + 1);
        }
        if first != b'[' {
            return Ok(end);
        }
        if self.pattern.get(end) == Some(&b'^') {
            end += 1;
        }
        loop {
            let Some(&byte) = self.pattern.get(end) else {
                return Err("malformed pattern (missing ']')".to_owned());
            };
            end += 1;
            if byte == ESCAPE && end < self.pattern.len() {
                end += 1;
            }
            if self.pattern.get(end) == Some(&b']') {
                return Ok(end + 1);
            }
        }
    }

    fn fits(&self, byte: u8, from: usize, end: usize) -> bool {
        match self.pattern[from] {
            b'.' => true,
            ESCAPE => is_of(byte, self.pattern[from + 1]),
            b'[' => self.in_set(byte, from, end - 1),
            other => other == byte,
        }
    }

    /// True if the set between two places of the pattern, those of its brackets, has a byte.
    fn in_set(&self, byte: u8, from: usize, end: usize) -> bool {
        let (mut place, mut has) = (from + 1, true);
        if self.pattern.get(place) == Some(&b'^') {
            (place, has) = (place + 1, false);
        }
        while place < end {
            let item = self.pattern[place];
            if item == ESCAPE {
                place += 1;
                if self
                    .pattern
                    .get(place)
                    .is_some_and(|class| is_of(byte, *class))
                {
                    return has;
                }
                place += 1;
            } else if self.pattern.get(place + 1) == Some(&b'-') && place + 2 < end {
                if (item..=self.pattern[place + 2]).contains(&byte) {
                    return has;
                }
                place += 3;
            } else if item == byte {
                return has;
            } else {
                place += 1;
            }
        }
        !has
    }

    /// Captures of the match that was found.
    pub(crate) fn captures(&self) -> Result<Vec<Capture<'a>>, String> {
        let captures = self.captures[..self.level].iter();
        captures
            .map(|&(start, length)| match length {
                Length::Open => Err("unfinished capture".to_owned()),
                Length::Place => Ok(Capture::Place(start + 1)),
                Length::Bytes(length) => Ok(Capture::Bytes(&self.text[start..start + length])),
            })
            .collect()
    }
}

/// How a match goes on.
enum Next {
    Go((usize, usize)),
    Found(Option<usize>),
}

/// True if a byte is of a class.
fn is_of(byte: u8, class: u8) -> bool {
    let is = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is != class.is_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(text: &str, pattern: &str) -> Result<Option<(usize, usize)>, String> {
        let mut matcher = Matcher::new(text.as_bytes(), pattern.as_bytes());
        for at in 0..=text.len() {
            if let Some(end) = matcher.match_at(at, 0)? {
                return Ok(Some((at, end)));
            }
        }
        Ok(None)
    }

    #[test]
    fn patterns_match_as_those_of_lua() {
        for (text, pattern, expected) in [
            ("hello world", "o w", Some((4, 7))),
            ("hello", "l+", Some((2, 4))),
            ("hello", "l-o", Some((2, 5))),
            ("key=value", "(%w+)=(%w+)", Some((0, 9))),
            ("f(a(b)c)d", "%b()", Some((1, 8))),
            ("THE (quick) fox", "%f[%a]%a+%f[%A]", Some((0, 3))),
            ("abc", "[^a-b]", Some((2, 3))),
            ("a]b", "[]]", Some((1, 2))),
            ("abab", "(ab)%1", Some((0, 4))),
            ("abc", "c$", Some((2, 3))),
            ("abc", "b?c", Some((1, 3))),
            ("abc", "x", None),
        ] {
            assert_eq!(find(text, pattern), Ok(expected), "{pattern}");
        }
        assert!(find("a", "[a").is_err());
        assert!(find("a", "%").is_err());
        assert!(find("a", "(a").is_ok());
    }

    #[test]
    fn patterns_that_take_too_long_or_too_deep_are_refused() {
        let text = "a".repeat(100_000);
        assert!(find(&text, &".-".repeat(100_000)).is_err());
        assert!(find(&text, &("a*".repeat(50) + "b")).is_err());
        assert!(find(&text, &"a?".repeat(100_000)).is_err());
    }

    #[test]
    fn any_pattern_matches_as_lua_says() {
        let lua = crate::library::state().expect("a state");
        let find = "return function(text, pattern) return pcall(string.find, text, pattern) end";
        let find: mlua::Function = lua.load(find).eval().expect("a function");
        farcore_fuzz::Target::new("script patterns")
            .seed(b"\x06abcabc(a)%1")
            .seed(b"\x05(a[b])%b()%f[%w]^[^a-c%d]+$")
            .seed(b"\x04ab12(%a+)()(%d-)$")
            .words(&[
                "%b", "%f[", "()", "(", ")", "[^", "]", ".-", "%w*", "^", "$", "%1", "%",
            ])
            .longest(32)
            .memory(4 << 20, 1024)
            .run(|bytes| {
                let mut input = farcore_fuzz::Input::new(bytes);
                let (text, pattern) = (input.bytes(12), input.bytes(14));
                let found = found(text, pattern);
                let is_special = |byte: &u8| b"^$*+?.([%-".contains(byte);
                if pattern.contains(&0) || !pattern.iter().any(is_special) {
                    // Lua takes the one for the end, and the other for plain text.
                    return;
                }
                let words = (
                    lua.create_string(text).expect("a string"),
                    lua.create_string(pattern).expect("a string"),
                );
                let real: mlua::MultiValue = find.call(words).expect("a protected call");
                let mut real = real.into_iter();
                let is_found = real.next() == Some(mlua::Value::Boolean(true));
                let shown = || format!("{:?} {:?}", text.escape_ascii(), pattern.escape_ascii());
                let Ok(found) = found else {
                    assert!(!is_found, "{}", shown());
                    return;
                };
                assert!(is_found, "{}", shown());
                let expected: Vec<_> = real.map(|value| value.to_string().expect("text")).collect();
                assert_eq!(found, expected, "{}", shown());
            });
    }

    /// What `string.find` returns, as texts.
    fn found(text: &[u8], pattern: &[u8]) -> Result<Vec<String>, String> {
        let is_anchored = pattern.first() == Some(&b'^');
        let mut matcher = Matcher::new(text, pattern);
        for at in 0..=text.len() {
            if let Some(end) = matcher.match_at(at, usize::from(is_anchored))? {
                let mut found = vec![(at + 1).to_string(), end.to_string()];
                found.extend(matcher.captures()?.into_iter().map(|one| match one {
                    Capture::Place(place) => place.to_string(),
                    Capture::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                }));
                return Ok(found);
            }
            if is_anchored {
                break;
            }
        }
        Ok(vec!["nil".to_owned()])
    }
}
