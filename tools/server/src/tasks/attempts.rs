//! The attempts of a command that reads a collection in several steps, or changes what it has read:
//! each is about one version of the collection, and the next one begins when another client has
//! changed it meanwhile.
//!
//! - I1: from the third attempt on no other client writes, so that it succeeds. Then the command
//!   has no pass, which the closing of the gate would wait for.
//! - I2: a command of a transaction that holds the gate already does not wait for it.

use farcore::Core;

use crate::tasks::output::TaskOutput;

/// Attempts that others may disturb.
const FREE_ATTEMPTS: usize = 2;

/// The attempts of a command.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    disturbed: usize,
    /// The output whose gate they have closed.
    closed: Option<TaskOutput>,
}

impl Attempts {
    /// Notes that the collection was changed meanwhile: the command begins anew.
    pub(crate) async fn again(&mut self, core: &Core, output: &TaskOutput) {
        self.disturbed += 1;
        if self.disturbed < FREE_ATTEMPTS || output.is_alone() {
            return;
        }
        let had_pass = output.has_pass();
        if output.close_gate(core).await {
            self.closed = Some(output.clone());
        } else if had_pass {
            // Without it the command goes on as before.
            output.pass(core).await;
        }
    }
}

impl Drop for Attempts {
    fn drop(&mut self) {
        if let Some(output) = &self.closed {
            output.open_gate();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_lite::future::poll_once;

    use super::*;
    use crate::by_hand::on_first_core;

    #[test]
    fn the_third_attempt_has_the_gate_closed() {
        on_first_core(1, |bench| async move {
            let (core, output) = (&bench.core, bench.output());
            let mut serving = bench.serving(0);
            let mut attempts = Attempts::default();
            attempts.again(core, &output).await;
            assert!(!output.is_alone());
            {
                let mut again = pin!(attempts.again(core, &output));
                assert!(poll_once(again.as_mut()).await.is_none());
                bench.receive(&mut serving);
                for _ in 0..2 {
                    serving.gate_turn(core);
                }
                assert!(poll_once(again.as_mut()).await.is_some());
            }
            assert!(serving.passes.take(false).is_none());
            attempts.again(core, &output).await;
            assert!(output.is_alone());
            drop(attempts);
            assert!(!output.is_alone());
            bench.receive(&mut serving);
            assert!(serving.passes.take(false).is_some());
        });
    }

    #[test]
    fn a_transaction_that_holds_the_gate_does_not_wait_for_it() {
        on_first_core(1, |bench| async move {
            let output = bench.output().with_gate(true);
            let mut attempts = Attempts::default();
            for _ in 0..5 {
                attempts.again(&bench.core, &output).await;
            }
            assert!(attempts.closed.is_none());
        });
    }
}
