//! Any bytes, in any pieces and under any limits, against the model.

use farcore_fuzz::{Input, Target};

use super::corpus::cases;
use super::{Limits, Random, drive, model, whole};

/// Longer inputs of the corpus are left out: they are long only to exceed a limit.
const INPUT_BYTES_MAX: usize = 1 << 10;
/// Texts that decide something.
const WORDS: [&str; 24] = [
    "\r\n",
    "\r",
    "\n",
    "\0",
    "*",
    "$",
    "-",
    "0",
    "1",
    "*1\r\n",
    "*2\r\n",
    "*0\r\n",
    "*-1\r\n",
    "$0\r\n\r\n",
    "$1\r\n",
    "$-1\r\n",
    "\"",
    "'",
    "\\",
    "\\x4",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "536870913",
];

/// Limits that short inputs exceed.
fn tight(is_authenticated: bool) -> Limits {
    Limits {
        announces_all: false,
        arguments_max: 3,
        bulk_bytes_max: 24,
        inline_bytes_max: 40,
        large_bytes: 8,
        is_authenticated,
    }
}

#[test]
fn any_bytes_agree_with_the_model_however_they_are_split() {
    let limits = [
        Limits::default(),
        Limits::UNAUTHENTICATED,
        tight(true),
        tight(false),
    ];
    let seed = |which: u8, input: &[u8]| [&[which, which.wrapping_mul(77)], input].concat();
    let inputs = cases().into_iter().map(|case| case.input);
    let inputs: Vec<_> = inputs
        .filter(|input| input.len() <= INPUT_BYTES_MAX)
        .collect();
    let seeds = (0..4).flat_map(|which| inputs.iter().map(move |input| seed(which, input)));
    Target::new("resp")
        .seeds(seeds)
        .words(&WORDS)
        .longest(INPUT_BYTES_MAX)
        .rounds(100_000)
        .run(|bytes| {
            let mut input = Input::new(bytes);
            let limits = &limits[input.below(limits.len())];
            let mut random = Random(u64::from(input.byte()) + 1);
            let input = input.rest();
            let found = whole(input, limits);
            assert_eq!(model::comparable(&found), model::events(input, limits));
            let pieces = random.pieces(input, 12);
            assert_eq!(drive(pieces, limits), found, "split");
        });
}
