//! The arguments of a command, read from one line of text.
//!
//! ```text
//! sequence:  item item ...
//! item:      name | TOKEN | TOKEN item ... | [ alternatives ] | ( alternatives ), each with ... if
//!            it may be repeated
//! ```

use crate::resp::Writer;

/// An argument of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Argument {
    name: String,
    kind: &'static str,
    token: Option<String>,
    is_optional: bool,
    is_repeated: bool,
    children: Vec<Argument>,
}

/// The arguments that a line describes.
pub(super) fn parse(text: &str) -> Vec<Argument> {
    let words: Vec<_> = text.split_whitespace().collect();
    Reader { words, place: 0 }.sequence()
}

struct Reader<'a> {
    words: Vec<&'a str>,
    place: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.place).copied()
    }

    fn skip(&mut self, word: &str) -> bool {
        let is_there = self.peek() == Some(word);
        self.place += usize::from(is_there);
        is_there
    }

    fn sequence(&mut self) -> Vec<Argument> {
        let mut arguments = Vec::new();
        while let Some(word) = self.peek() {
            if matches!(word, "]" | ")" | "|") {
                break;
            }
            self.place += 1;
            let mut argument = match word {
                "[" => {
                    let inside = self.alternatives();
                    self.skip("]");
                    Argument {
                        is_optional: true,
                        ..inside
                    }
                }
                "(" => {
                    let inside = self.alternatives();
                    self.skip(")");
                    inside
                }
                token if is_token(token) => self.token(token),
                name => plain(name),
            };
            argument.is_repeated |= self.skip("...");
            arguments.push(argument);
        }
        arguments
    }

    /// A token and what belongs to it: all names after it.
    fn token(&mut self, token: &str) -> Argument {
        if self.skip("(") {
            let inside = self.alternatives();
            self.skip(")");
            return Argument {
                token: Some(token.to_owned()),
                ..inside
            };
        }
        let mut children = Vec::new();
        while let Some(word) = self.peek() {
            if matches!(word, "[" | "]" | "(" | ")" | "|" | "...") || is_token(word) {
                break;
            }
            self.place += 1;
            let mut child = plain(word);
            child.is_repeated = self.skip("...");
            children.push(child);
        }
        let token = token.to_owned();
        match children.len() {
            0 => Argument {
                kind: "pure-token",
                token: Some(token.clone()),
                ..plain(&token.to_lowercase())
            },
            1 => Argument {
                token: Some(token),
                ..children.swap_remove(0)
            },
            _ => Argument {
                token: Some(token.clone()),
                ..group("block", &token.to_lowercase(), children)
            },
        }
    }

    fn alternatives(&mut self) -> Argument {
        let mut found = Vec::new();
        loop {
            let mut sequence = self.sequence();
            found.push(if sequence.len() == 1 {
                sequence.swap_remove(0)
            } else {
                group("block", "arguments", sequence)
            });
            if !self.skip("|") {
                break;
            }
        }
        if found.len() == 1 {
            return found.swap_remove(0);
        }
        group("oneof", "option", found)
    }
}

fn is_token(word: &str) -> bool {
    word.chars().any(|one| one.is_ascii_uppercase())
        && !word.chars().any(|one| one.is_ascii_lowercase())
}

fn plain(name: &str) -> Argument {
    let kind = match name {
        "key" | "newkey" | "source" | "destination" => "key",
        "pattern" => "pattern",
        "count" | "seconds" | "milliseconds" | "increment" | "decrement" | "offset" | "start"
        | "end" | "numreplicas" | "timeout" | "cursor" | "protover" | "index" | "samples"
        | "client-id" => "integer",
        "unix-time-seconds" | "unix-time-milliseconds" => "unix-time",
        _ => "string",
    };
    Argument {
        name: name.to_owned(),
        kind,
        token: None,
        is_optional: false,
        is_repeated: false,
        children: Vec::new(),
    }
}

fn group(kind: &'static str, name: &str, children: Vec<Argument>) -> Argument {
    Argument {
        kind,
        children,
        ..plain(name)
    }
}

/// Writes arguments as `COMMAND DOCS` does.
pub(super) fn write(arguments: &[Argument], writer: &mut Writer<'_>) {
    writer.array(arguments.len());
    for argument in arguments {
        let flags = [
            (argument.is_optional, "optional"),
            (argument.is_repeated, "multiple"),
        ];
        let flags: Vec<_> = (flags.iter().filter(|(is_set, _)| *is_set))
            .map(|(_, name)| *name)
            .collect();
        let has_children = !argument.children.is_empty();
        let entries = 2
            + usize::from(argument.token.is_some())
            + usize::from(!flags.is_empty())
            + usize::from(has_children);
        writer.map(entries);
        writer.bulk(b"name");
        writer.bulk(argument.name.as_bytes());
        writer.bulk(b"type");
        writer.bulk(argument.kind.as_bytes());
        if let Some(token) = &argument.token {
            writer.bulk(b"token");
            writer.bulk(token.as_bytes());
        }
        if !flags.is_empty() {
            writer.bulk(b"flags");
            writer.set(flags.len());
            for flag in flags {
                writer.simple(flag);
            }
        }
        if has_children {
            writer.bulk(b"arguments");
            write(&argument.children, writer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The arguments as text again.
    fn shown(arguments: &[Argument], separator: &str) -> String {
        let shown = arguments.iter().map(|argument| {
            let inside = match argument.kind {
                "oneof" => format!("( {} )", self::shown(&argument.children, " | ")),
                "block" => self::shown(&argument.children, " "),
                "pure-token" => String::new(),
                kind => format!("{}:{kind}", argument.name),
            };
            let token = argument.token.clone().unwrap_or_default();
            let mut text = format!("{token} {inside}").trim().to_owned();
            if argument.is_optional {
                text = format!("[ {text} ]");
            }
            if argument.is_repeated {
                text += " ...";
            }
            text
        });
        shown.collect::<Vec<_>>().join(separator)
    }

    #[test]
    fn arguments_are_those_of_the_line() {
        for (line, expected) in [
            ("", ""),
            ("key", "key:key"),
            ("key ...", "key:key ..."),
            (
                "key value [ NX | XX ]",
                "key:key value:string [ ( NX | XX ) ]",
            ),
            (
                "[ EX seconds | KEEPTTL ]",
                "[ ( EX seconds:integer | KEEPTTL ) ]",
            ),
            (
                "[ LIMIT offset count ]",
                "[ LIMIT offset:integer count:integer ]",
            ),
            ("( key value ) ...", "key:key value:string ..."),
            ("[ ID client-id ... ]", "[ ID client-id:integer ] ..."),
            ("[ a", "[ a:string ]"),
        ] {
            assert_eq!(shown(&parse(line), " "), expected, "{line}");
        }
    }
}
