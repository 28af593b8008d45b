//! Tests of the parser as a connection drives it, against a model and another implementation.

mod corpus;
mod fuzzed;
mod model;
mod peer;
mod rules;
mod splits;

use super::{Arguments, Limits, Progress, ProtocolError, parse, parse_rest};

/// What a connection sees of its input.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Event {
    Command(Vec<Vec<u8>>),
    /// A command whose last argument of these bytes was streamed.
    Large(Vec<Vec<u8>>, Vec<u8>),
    Error(ProtocolError),
    /// The input ends with these bytes of a command.
    Rest(Vec<u8>),
}

fn owned(arguments: &Arguments, input: &[u8]) -> Vec<Vec<u8>> {
    arguments.iter(input).map(<[u8]>::to_vec).collect()
}

/// Feeds pieces to a parser, as a connection does, until they end or an error is found.
fn drive<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, limits: &Limits) -> Vec<Event> {
    let mut arguments = Arguments::new();
    let (mut buffer, mut needed, mut events) = (Vec::new(), 0, Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        while buffer.len() >= needed {
            let progress = match parse(&buffer, limits, &mut arguments) {
                Ok(progress) => progress,
                Err(error) => {
                    assert!(arguments.is_empty());
                    events.push(Event::Error(error));
                    return events;
                }
            };
            let consumed = match progress {
                Progress::Incomplete { needed: more } => {
                    assert!(more > buffer.len(), "{more} of {}", buffer.len());
                    needed = more;
                    continue;
                }
                Progress::Complete { consumed } => {
                    events.push(Event::Command(owned(&arguments, &buffer)));
                    consumed
                }
                Progress::Large { offset, bytes, .. } => {
                    assert!(offset <= buffer.len() && bytes > limits.large_bytes);
                    needed = offset.saturating_add(bytes).saturating_add(2);
                    if buffer.len() < needed {
                        // This caller does not stream: it parses again when all is there.
                        continue;
                    }
                    let large = buffer[offset..offset + bytes].to_vec();
                    events.push(Event::Large(owned(&arguments, &buffer), large));
                    needed
                }
            };
            assert!(consumed > 0 && consumed <= buffer.len(), "{consumed}");
            buffer.drain(..consumed);
            needed = 1;
        }
    }
    if !buffer.is_empty() {
        events.push(Event::Rest(buffer));
    }
    events
}

/// The events of an input that arrives at once.
fn whole(input: &[u8], limits: &Limits) -> Vec<Event> {
    drive([input], limits)
}

/// Xorshift: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).expect("a usize")
    }

    /// Parts an input at random places.
    fn pieces<'a>(&mut self, input: &'a [u8], bytes_max: usize) -> Vec<&'a [u8]> {
        let (mut rest, mut pieces) = (input, Vec::new());
        while !rest.is_empty() {
            let bytes = 1 + self.below(bytes_max.min(rest.len()));
            let (piece, after) = rest.split_at(bytes);
            pieces.push(piece);
            rest = after;
        }
        pieces
    }
}
