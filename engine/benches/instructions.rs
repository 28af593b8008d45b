//! Runs one hot path once, for counting its instructions: `instructions NAME`. `cargo xtask
//! instructions` runs it under valgrind, which counts only inside `measured`.

mod support;

use std::hint::black_box;
use std::process::ExitCode;

use support::{
    absent, churn, cross, crossing, far, get, local, open, open_tagged, put, seal, seal_tagged,
    sealing, tagged,
};

/// The counted code; valgrind finds it by this name.
#[inline(never)]
fn measured<T, R>(what: impl FnOnce(T) -> R, input: T) -> R {
    black_box(what(black_box(input)))
}

fn main() -> ExitCode {
    let name = std::env::args().nth(1);
    match name.as_deref().unwrap_or_default() {
        "get_local" => drop(measured(get, &mut local())),
        "get_absent" => drop(measured(get, &mut absent())),
        "get_far" => drop(measured(get, &mut far())),
        "put_local" => drop(measured(put, &mut local())),
        "insert_delete" => drop(measured(churn, &mut absent())),
        "cross_lane" => drop(measured(cross, &mut crossing())),
        "open_records" => drop(measured(open, &mut sealing())),
        "open_tagged" => drop(measured(open_tagged, &mut tagged())),
        "seal_tagged" => drop(measured(seal_tagged, &mut tagged())),
        "seal_page" => drop(measured(seal, &mut sealing())),
        other => {
            eprintln!("instructions: unknown path `{other}`");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
