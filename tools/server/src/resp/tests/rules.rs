//! The rules of the parser one by one, and the texts of its errors.

use super::{Arguments, Event, Limits, Progress, owned, parse, parse_rest, whole};

/// The line limit of these tests.
const SHORT_LINES: Limits = Limits {
    announces_all: false,
    arguments_max: 1 << 20,
    bulk_bytes_max: usize::MAX,
    inline_bytes_max: 64,
    large_bytes: usize::MAX,
    is_authenticated: true,
};

fn one(input: &[u8], limits: &Limits) -> (Result<Progress, String>, Vec<Vec<u8>>) {
    let mut arguments = Arguments::new();
    let progress = parse(input, limits, &mut arguments).map_err(|error| error.to_string());
    let found = owned(&arguments, input);
    (progress, found)
}

#[track_caller]
fn completes(input: &[u8], consumed: usize, expected: &[&[u8]]) {
    let (progress, arguments) = one(input, &SHORT_LINES);
    assert_eq!(
        progress,
        Ok(Progress::Complete { consumed }),
        "{}",
        input.escape_ascii()
    );
    assert_eq!(arguments, expected, "{}", input.escape_ascii());
}

#[track_caller]
fn needs(input: &[u8], needed: usize) {
    let (progress, _) = one(input, &SHORT_LINES);
    assert_eq!(
        progress,
        Ok(Progress::Incomplete { needed }),
        "{}",
        input.escape_ascii()
    );
}

#[track_caller]
fn fails(input: &[u8], limits: &Limits, text: &str) {
    let (progress, arguments) = one(input, limits);
    assert_eq!(
        progress,
        Err(format!("Protocol error: {text}")),
        "{}",
        input.escape_ascii()
    );
    assert!(arguments.is_empty());
}

#[test]
fn arrays_of_bulk_strings() {
    completes(b"*1\r\n$4\r\nPING\r\n", 14, &[b"PING"]);
    completes(
        b"*2\r\n$3\r\nGET\r\n$1\r\na\r\nPING\r\n",
        20,
        &[b"GET", b"a"],
    );
    completes(
        b"*2\r\n$0\r\n\r\n$4\r\n\r\n\0\xff\r\n",
        20,
        &[b"", b"\r\n\0\xff"],
    );
    let long = [&b"*1\r\n$12\r\n"[..], b"abcdefghijkl", b"\r\n"].concat();
    completes(&long, long.len(), &[b"abcdefghijkl"]);
}

#[test]
fn ends_of_bulk_strings_are_skipped_unread() {
    completes(b"*1\rx$4\rxPINGxx", 14, &[b"PING"]);
}

#[test]
fn empty_commands_are_consumed() {
    completes(b"*0\r\nPING\r\n", 4, &[]);
    completes(b"*-1\r\n", 5, &[]);
    completes(b"*-9223372036854775808\r\n", 23, &[]);
    completes(b"\r\nPING\r\n", 2, &[]);
    completes(b"\n", 1, &[]);
    completes(b"  \t \r\n", 6, &[]);
}

#[test]
fn inline_commands() {
    completes(b"PING\r\n", 6, &[b"PING"]);
    completes(b"PING\n*", 5, &[b"PING"]);
    completes(
        b"set k \"a b\" '\\''\r\n",
        18,
        &[b"set", b"k", b"a b", b"'"],
    );
    completes(b"$1 \r\r\n", 6, &[b"$1"]);
}

#[test]
fn incomplete_commands_say_what_they_need() {
    needs(b"", 1);
    needs(b"*", 2);
    needs(b"*1", 3);
    needs(b"*1\r", 4);
    needs(b"*1\r\n", 5);
    needs(b"*1\r\n$", 6);
    needs(b"*1\r\n$4\r", 8);
    needs(b"*1\r\n$4\r\n", 14);
    needs(b"*1\r\n$4\r\nPING\r", 14);
    needs(b"*2\r\n$100\r\nPING", 112);
    needs(b"PING", 5);
    needs(b"PING\r", 6);
    // Redis reads a line to its end before it looks at it.
    needs(b"*1\r\nx", 6);
    needs(b"*x", 3);
}

#[test]
fn counts_of_arrays_are_strict() {
    let counts: [&[u8]; 12] = [
        b"",
        b"x",
        b"+1",
        b"01",
        b"-0",
        b"-",
        b"1 ",
        b" 1",
        b"1.0",
        b"1048577",
        b"2147483648",
        b"9223372036854775808",
    ];
    for count in counts {
        let input = [b"*", count, b"\r\n"].concat();
        fails(&input, &Limits::default(), "invalid multibulk length");
    }
    fails(
        b"*3000000000\r\n",
        &Limits::UNAUTHENTICATED,
        "invalid multibulk length",
    );
    needs(b"*1048576\r\n", 11);
}

#[test]
fn lengths_of_bulk_strings_are_strict() {
    let lengths: [&[u8]; 11] = [
        b"",
        b"x",
        b"+1",
        b"01",
        b"-0",
        b"-1",
        b"-10",
        b"1 ",
        b"536870913",
        b"9223372036854775808",
        b"99999999999999999999",
    ];
    for length in lengths {
        let input = [b"*2\r\n$1\r\na\r\n$", length, b"\r\n"].concat();
        fails(&input, &Limits::default(), "invalid bulk length");
    }
    fails(
        b"*1\r\n$536870913\r\n",
        &Limits::UNAUTHENTICATED,
        "invalid bulk length",
    );
    let (progress, _) = one(b"*1\r\n$536870912\r\n", &Limits::default());
    let needed = 16 + (512 << 20) + 2;
    assert_eq!(progress, Ok(Progress::Incomplete { needed }));
}

#[test]
fn the_longest_length_does_not_overflow() {
    let needed = usize::try_from(i64::MAX).unwrap() + 4 + 22 + 2;
    needs(b"*1\r\n$9223372036854775807\r\n", needed);
    needs(b"*2\r\n$9223372036854775807\r\nabc", needed);
}

#[test]
fn arguments_must_be_bulk_strings() {
    fails(
        b"*1\r\nPING\r\n",
        &Limits::default(),
        "expected '$', got 'P'",
    );
    fails(b"*1\r\n:1\r\n", &Limits::default(), "expected '$', got ':'");
    fails(b"*1\r\n\r\n", &Limits::default(), "expected '$', got '\r'");
    fails(b"*1\r\n*1\r\n", &Limits::default(), "expected '$', got '*'");
}

#[test]
fn peers_that_are_not_authenticated_may_send_little() {
    let limits = Limits::UNAUTHENTICATED;
    fails(b"*11\r\n", &limits, "unauthenticated multibulk length");
    fails(b"*1\r\n$16385\r\n", &limits, "unauthenticated bulk length");
    assert_eq!(
        one(b"*10\r\n", &limits).0,
        Ok(Progress::Incomplete { needed: 6 })
    );
    let needed = 4 + 8 + (16 << 10) + 2;
    let found = one(b"*1\r\n$16384\r\n", &limits).0;
    assert_eq!(found, Ok(Progress::Incomplete { needed }));
}

#[test]
fn lines_end_within_their_limit() {
    let line = |head: &[u8], bytes: usize| [head, &vec![b'1'; bytes - head.len()][..]].concat();
    for (head, at, text) in [
        (&b"P"[..], 0, "too big inline request"),
        (b"*", 0, "too big mbulk count string"),
        (b"*1\r\n$", 4, "too big bulk count string"),
        (b"*1\r\nP", 4, "too big bulk count string"),
    ] {
        let longest = line(head, at + SHORT_LINES.inline_bytes_max);
        needs(&longest, longest.len() + 1);
        fails(&[&longest[..], b"1"].concat(), &SHORT_LINES, text);
        fails(&[&longest[..], b"1\r\n"].concat(), &SHORT_LINES, text);
    }
    let (default, head) = (Limits::default(), &b"P"[..]);
    let longest = [&line(head, 64 << 10)[..], b"\n"].concat();
    assert_eq!(whole(&longest, &default).len(), 1);
    assert!(
        matches!(&whole(&longest, &default)[0], Event::Command(arguments) if arguments.len() == 1)
    );
    fails(
        &line(head, (64 << 10) + 1),
        &default,
        "too big inline request",
    );
}

#[test]
fn a_nul_hides_the_end_of_its_line() {
    needs(b"PI\0NG\r\n", 8);
    needs(b"*1\0\r\n", 6);
    needs(b"*1\r\n$\0\r\n", 9);
    let hidden = [&b"\0"[..], &[b'A'; 70], b"\r\n"].concat();
    fails(&hidden, &SHORT_LINES, "too big inline request");
}

#[test]
fn quotes_must_balance() {
    fails(
        b"SET \"a\r\n",
        &Limits::default(),
        "unbalanced quotes in request",
    );
    fails(
        b"SET 'a'b\r\n",
        &Limits::default(),
        "unbalanced quotes in request",
    );
}

#[test]
fn a_long_last_argument_is_announced() {
    let limits = Limits {
        large_bytes: 3,
        ..Limits::default()
    };
    let large = |offset, bytes| {
        Ok(Progress::Large {
            offset,
            bytes,
            left: 0,
        })
    };
    let (progress, arguments) = one(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\n", &limits);
    assert_eq!(
        (progress, &arguments[..]),
        (large(24, 4), &[b"SET".to_vec(), b"k".to_vec()][..])
    );
    let (progress, arguments) = one(b"*1\r\n$4\r\nPING\r\n", &limits);
    assert_eq!((progress, arguments.len()), (large(8, 4), 0));
    let (progress, _) = one(b"*2\r\n$4\r\n", &limits);
    assert_eq!(
        progress,
        Ok(Progress::Incomplete { needed: 14 }),
        "not the last"
    );
    let (progress, _) = one(b"*2\r\n$4\r\nLPOP\r\n$3\r\nkey\r\n", &limits);
    assert_eq!(
        progress,
        Ok(Progress::Complete { consumed: 23 }),
        "not longer"
    );
    fails(b"*1\r\n$536870913\r\n", &limits, "invalid bulk length");
}

#[test]
fn every_long_argument_is_announced_and_the_rest_is_parsed() {
    let limits = Limits {
        large_bytes: 3,
        announces_all: true,
        ..Limits::default()
    };
    let input = b"*5\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\nlong\r\n$2\r\nEX\r\n$5\r\n12345\r\n";
    let (progress, _) = one(input, &limits);
    let large = |offset, bytes, left| Progress::Large {
        offset,
        bytes,
        left,
    };
    assert_eq!(progress, Ok(large(24, 4, 2)));
    let rest = &input[30..];
    let mut arguments = Arguments::new();
    for cut in 0..rest.len() {
        arguments.clear();
        let first = parse_rest(&rest[..cut], 2, &limits, &mut arguments);
        if cut < 12 {
            assert!(matches!(first, Ok(Progress::Incomplete { .. })), "{cut}");
        }
        let second = parse_rest(rest, 2, &limits, &mut arguments);
        assert_eq!(second, Ok(large(12, 5, 0)), "{cut}");
        assert_eq!(owned(&arguments, rest), [b"EX"]);
    }
    let whole = Limits::default();
    let progress = parse_rest(rest, 2, &whole, &mut arguments);
    let consumed = rest.len();
    assert_eq!(progress, Ok(Progress::Complete { consumed }));
    assert_eq!(owned(&arguments, rest), [&b"EX"[..], b"12345"]);
    let wrong = parse_rest(b":1\r\n", 2, &whole, &mut arguments);
    assert!(wrong.is_err() && arguments.is_empty());
}

/// Bytes that were parsed are not read again: changed since, they change nothing.
#[test]
fn a_parse_goes_on_where_it_stopped() {
    let mut arguments = Arguments::new();
    let limits = Limits::default();
    let first = parse(b"*3\r\n$3\r\nSET\r\n$1\r\n", &limits, &mut arguments);
    assert_eq!(first, Ok(Progress::Incomplete { needed: 20 }));
    let changed = b"????????set??$1\r\nk\r\n$1\r\nv\r\n";
    let second = parse(changed, &limits, &mut arguments);
    assert_eq!(second, Ok(Progress::Complete { consumed: 27 }));
    assert_eq!(owned(&arguments, changed), [&b"set"[..], b"k", b"v"]);

    let first = parse(b"PING", &limits, &mut arguments);
    assert_eq!(first, Ok(Progress::Incomplete { needed: 5 }));
    let second = parse(b"PI\nG x\n", &limits, &mut arguments);
    assert_eq!(second, Ok(Progress::Complete { consumed: 7 }));
}

#[test]
fn an_incomplete_command_can_be_dropped() {
    let mut arguments = Arguments::new();
    let limits = Limits::default();
    parse(b"*2\r\n$3\r\nGET\r\n", &limits, &mut arguments).unwrap();
    arguments.shrink(0);
    assert_eq!(arguments.len(), 1, "the command is not lost");
    arguments.clear();
    let next = b"*1\r\n$4\r\nPING\r\n*1\r\n";
    let progress = parse(next, &limits, &mut arguments);
    assert_eq!(progress, Ok(Progress::Complete { consumed: 14 }));
    assert_eq!(arguments.get(0, next), b"PING");
}

#[test]
fn arguments_are_reused_without_allocation() {
    let mut arguments = Arguments::new();
    let limits = Limits::default();
    let long = [&b"*100\r\n"[..], &b"$1\r\na\r\n".repeat(100)].concat();
    parse(&long, &limits, &mut arguments).unwrap();
    assert_eq!((arguments.len(), arguments.is_empty()), (100, false));
    let place = arguments.spans.as_ptr();
    parse(b"*0\r\n", &limits, &mut arguments).unwrap();
    assert_eq!((arguments.len(), arguments.is_empty()), (0, true));
    parse(&long, &limits, &mut arguments).unwrap();
    assert_eq!(arguments.spans.as_ptr(), place);
    assert_eq!(arguments.spans.capacity(), 128);
    for _ in 0..3 {
        parse(b"PING 1\r\n", &limits, &mut arguments).unwrap();
        assert_eq!(arguments.text, b"PING1");
    }
    arguments.shrink(4);
    assert!(arguments.spans.capacity() < 100);
}

#[test]
fn an_announced_count_reserves_nothing() {
    let mut arguments = Arguments::new();
    parse(b"*1048576\r\n", &Limits::default(), &mut arguments).unwrap();
    assert_eq!(arguments.spans.capacity(), 0);
}
