//! For the tests of checks: whether a check finds a breach that was planted.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a check and asserts that it finds an invariant broken, named as in
/// docs/internals/checks.md.
pub(crate) fn assert_breaks(invariant: &str, check: impl FnOnce()) {
    let found = catch_unwind(AssertUnwindSafe(check));
    let Err(found) = found else {
        panic!("the check finds nothing wrong with {invariant}");
    };
    let text = found.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| found.downcast_ref::<&str>().copied());
    let text = text.unwrap_or_default();
    assert!(text.contains(&format!("{invariant}: ")), "{text}");
}
