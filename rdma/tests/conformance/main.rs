//! The contract of every backend, in one suite.
//!
//! A fixture connects two endpoints, each with two queue pairs to the other; the second one's
//! region is the far memory of the first.

#![allow(unsafe_code, reason = "tests read and write the regions")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "tests"
)]

mod embedded;
mod fixture;
mod served;
mod suite;
mod tcp;
#[cfg(feature = "verbs")]
mod verbs;

/// Runs every case of the suite on a fixture.
macro_rules! conformance {
    ($(#[$attribute:meta])* $run:ident: $($case:ident)*) => {
        $crate::conformance!(@each [$(#[$attribute])*] $run: $($case)*);
    };
    (@each $attributes:tt $run:ident: $($case:ident)*) => {
        $(
            $crate::conformance!(@one $attributes $run $case);
        )*
    };
    (@one [$(#[$attribute:meta])*] $run:ident $case:ident) => {
            #[test]
            $(#[$attribute])*
            fn $case() {
                $run!(|bench| crate::suite::$case(bench));
            }
    };
    ($(#[$attribute:meta])* $run:ident) => {
        $crate::conformance!($(#[$attribute])* $run:
            written_bytes_are_read
            atomics_return_the_old_value
            a_write_with_immediate_delivers_its_word
            messages_arrive_in_order
            a_message_waits_for_its_receive
            a_message_that_is_too_long_fails_at_both_ends
            requests_of_a_queue_pair_keep_their_order
            only_signalled_requests_produce_completions
            a_full_queue_returns_the_request
            a_full_receive_queue_returns_the_request
            a_wrong_key_is_refused
            out_of_bounds_is_refused
            local_bounds_are_checked_before_anything_is_sent
            an_unaligned_atomic_is_refused
            long_transfers_arrive_whole
            zero_bytes_can_be_transferred
            a_node_that_dies_fails_what_is_in_flight_once
            a_restored_node_serves_again
            receives_are_flushed
            one_queue_pair_in_error_leaves_the_other_alone
        );
    };
}
pub(crate) use conformance;
