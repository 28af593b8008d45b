//! Properties of any input and of any valid pipeline.

use proptest::prelude::*;

use super::{Arguments, Event, Limits, Progress, Random, drive, parse, whole};

/// A command in the form of an array.
pub(super) fn encode(arguments: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        bytes.extend(format!("${}\r\n", argument.len()).into_bytes());
        bytes.extend(argument);
        bytes.extend(b"\r\n");
    }
    bytes
}

/// A command as a line: every byte escaped.
fn encode_inline(arguments: &[Vec<u8>]) -> Vec<u8> {
    let mut line = String::new();
    for argument in arguments {
        let escaped: String = argument
            .iter()
            .map(|byte| format!("\\x{byte:02x}"))
            .collect();
        line.push_str(&format!("\"{escaped}\" "));
    }
    line.push_str("\r\n");
    line.into_bytes()
}

pub(super) fn commands() -> impl Strategy<Value = Vec<Vec<Vec<u8>>>> {
    let argument = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..12),
        1 => prop::collection::vec(any::<u8>(), 0..1200),
    ];
    prop::collection::vec(prop::collection::vec(argument, 1..12), 1..8)
}

/// Bytes that are likely to mean something.
fn suggestive() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        3 => prop::sample::select(b"*$-0123456789\r\n\"'\\x \0".to_vec()),
        1 => any::<u8>(),
    ];
    let line = prop_oneof![
        2 => prop::collection::vec(byte, 0..40),
        1 => Just(b"*2\r\n".to_vec()),
        1 => Just(b"$2\r\nab\r\n".to_vec()),
    ];
    prop::collection::vec(line, 0..10).prop_map(|lines| lines.concat())
}

proptest! {
    #[test]
    fn a_pipeline_is_the_same_in_any_pieces(commands in commands(), inline: u8, seed in 1u64.., piece_max in 1usize..200) {
        let mut input = Vec::new();
        for (index, command) in commands.iter().enumerate() {
            let is_inline = inline >> index & 1 == 1;
            input.extend(if is_inline { encode_inline(command) } else { encode(command) });
        }
        let expected: Vec<_> = commands.into_iter().map(Event::Command).collect();
        let limits = Limits::default();
        prop_assert_eq!(&whole(&input, &limits), &expected);
        let pieces = Random(seed).pieces(&input, piece_max);
        prop_assert_eq!(&drive(pieces, &limits), &expected);
    }

    #[test]
    fn a_long_last_argument_is_left_to_the_caller(commands in commands(), seed in 1u64.., large_bytes in 0usize..64) {
        let input: Vec<u8> = commands.iter().flat_map(|command| encode(command)).collect();
        let expected: Vec<_> = commands.into_iter().map(|mut command| {
            let last = command.pop().unwrap();
            if last.len() > large_bytes {
                return Event::Large(command, last);
            }
            command.push(last);
            Event::Command(command)
        }).collect();
        let limits = Limits { large_bytes, ..Limits::default() };
        prop_assert_eq!(&whole(&input, &limits), &expected);
        let pieces = Random(seed).pieces(&input, 100);
        prop_assert_eq!(&drive(pieces, &limits), &expected);
    }

    #[test]
    fn no_prefix_of_a_command_is_complete(command in commands()) {
        let input = encode(&command[0]);
        for end in 0..input.len() {
            let found = parse(&input[..end], &Limits::default(), &mut Arguments::new()).unwrap();
            let Progress::Incomplete { needed } = found else {
                return Err(TestCaseError::fail(format!("{end}: {found:?}")));
            };
            prop_assert!(needed > end && needed <= input.len());
        }
    }

    /// The contract of `Arguments` broken: another input, without `clear`.
    #[test]
    fn an_unrelated_input_does_not_panic(inputs in prop::collection::vec(suggestive(), 1..8)) {
        let mut arguments = Arguments::new();
        for input in inputs {
            if let Ok(Progress::Complete { consumed }) = parse(&input, &Limits::default(), &mut arguments) {
                prop_assert!(consumed <= input.len());
                prop_assert_eq!(arguments.iter(&input).count(), arguments.len());
            }
        }
    }
}
