//! How a link begins: who this server is, what it understands, and what it has already.

use super::error::{LinkError, remedy_of_silence};
use super::history::{History, StreamId};
use super::settings::Settings;
use super::source::Source;

/// How the source goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Begin {
    /// It sends all of its data, which are a state of this stream.
    Full { id: StreamId, offset: u64 },
    /// It goes on where this server is, by another identity if it names one.
    Partial { id: Option<StreamId> },
}

/// Has a server know who asks.
pub(super) fn authenticate(source: &mut Source, settings: &Settings) -> Result<(), LinkError> {
    let unanswered = LinkError::Unanswered(remedy_of_silence(source.is_encrypted()));
    let reply = match source.ask(&[b"PING"]) {
        Err(LinkError::Closed) => return Err(unanswered),
        // An alert of TLS.
        Ok(reply) if reply.starts_with('\u{15}') => return Err(unanswered),
        reply => reply?,
    };
    // Before it knows who asks, it may refuse even this; as Redis.
    let is_guarded = ["-NOAUTH", "-NOPERM", "-ERR operation not permitted"];
    if !reply.starts_with('+') && !is_guarded.iter().any(|one| reply.starts_with(one)) {
        return Err(refused("PING", &reply));
    }
    if !settings.password.is_empty() {
        let (user, password) = (settings.user.as_bytes(), settings.password.as_bytes());
        let reply = match user {
            [] => source.ask(&[b"AUTH", password])?,
            user => source.ask(&[b"AUTH", user, password])?,
        };
        if !reply.starts_with('+') {
            return Err(refused("AUTH", &reply));
        }
    }
    Ok(())
}

/// Greets a source, and has it begin. `about`: what it must understand besides.
pub(super) fn greet(
    source: &mut Source,
    (settings, port): (&Settings, u16),
    history: &History,
    about: &[&[u8]],
) -> Result<Begin, LinkError> {
    authenticate(source, settings)?;
    if !about.is_empty() {
        let reply = source.ask(about)?;
        if !reply.starts_with('+') {
            return Err(refused("REPLCONF", &reply));
        }
    }
    // A source that does not know these goes on without.
    let port = port.to_string();
    for words in [
        [&b"REPLCONF"[..], b"listening-port", port.as_bytes()].as_slice(),
        &[b"REPLCONF", b"capa", b"eof", b"capa", b"psync2"],
    ] {
        let reply = source.ask(words)?;
        if reply.starts_with("-NOAUTH") || reply.starts_with("-NOPERM") {
            return Err(refused("REPLCONF", &reply));
        }
    }
    let (id, next) = match history.wish() {
        Some((id, next)) => (id.to_string(), next.to_string()),
        None => ("?".to_owned(), "-1".to_owned()),
    };
    let reply = source.ask(&[b"PSYNC", id.as_bytes(), next.as_bytes()])?;
    begin_of(&reply)
}

/// What the reply to `PSYNC` means.
pub(super) fn begin_of(reply: &str) -> Result<Begin, LinkError> {
    let malformed = || LinkError::Malformed(format!("it replies {} to PSYNC", shown(reply)));
    let words: Vec<_> = reply.split_ascii_whitespace().collect();
    match words[..] {
        ["+FULLRESYNC", id, offset] => Ok(Begin::Full {
            id: StreamId::parse(id).ok_or_else(malformed)?,
            offset: offset.parse().map_err(|_| malformed())?,
        }),
        ["+CONTINUE"] => Ok(Begin::Partial { id: None }),
        ["+CONTINUE", id] => Ok(Begin::Partial {
            id: Some(StreamId::parse(id).ok_or_else(malformed)?),
        }),
        _ if reply.starts_with('-') => Err(refused("PSYNC", reply)),
        _ => Err(malformed()),
    }
}

fn refused(command: &'static str, reply: &str) -> LinkError {
    LinkError::Refused {
        command,
        reply: reply.trim_start_matches('-').to_owned(),
    }
}

/// A text of a source as an error repeats it.
pub(super) fn shown(text: &str) -> String {
    const CHARS: usize = 80;
    let short: String = text.chars().take(CHARS).collect();
    format!("{short:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reply_to_psync_says_how_the_source_goes_on() {
        let id = "0123456789abcdef0123456789abcdef01234567";
        let parsed = StreamId::parse(id);
        let begin = |text: &str| begin_of(text).ok();
        assert_eq!(
            begin(&format!("+FULLRESYNC {id} 17")),
            parsed.map(|id| Begin::Full { id, offset: 17 })
        );
        assert_eq!(begin("+CONTINUE"), Some(Begin::Partial { id: None }));
        assert_eq!(
            begin(&format!("+CONTINUE {id}")),
            Some(Begin::Partial { id: parsed })
        );
        for text in [
            "",
            "+OK",
            "+FULLRESYNC",
            "+FULLRESYNC abc 1",
            "+CONTINUE abc",
            "-ERR no",
        ] {
            assert_eq!(begin(text), None, "{text}");
        }
        let endless = format!("+FULLRESYNC {id} 99999999999999999999999");
        assert_eq!(begin(&endless), None);
    }
}
