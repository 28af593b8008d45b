//! The attempts of a command that reads a collection in several steps, or changes what it has read:
//! each is about one version of the collection, and the next one begins when another client has
//! changed it meanwhile.
//!
//! - I1: from the third attempt on it is under the section of its keys, so that it succeeds.

use farcore::Core;

use crate::tasks::output::TaskOutput;

/// Attempts that others may disturb.
const FREE_ATTEMPTS: usize = 2;

/// The attempts of a command.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    disturbed: usize,
}

impl Attempts {
    /// Notes that a collection of these keys was changed meanwhile: the command begins anew. It
    /// leaves with [`TaskOutput::leave`] what it enters here.
    pub(crate) async fn again(&mut self, core: &mut Core, output: &TaskOutput, keys: &[&[u8]]) {
        self.disturbed += 1;
        if self.disturbed >= FREE_ATTEMPTS {
            // If it gets none, it goes on as before.
            let _ = output.enter(core, keys).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_hand::on_first_core;

    #[test]
    fn the_third_attempt_is_under_a_section() {
        on_first_core(1, |bench| async move {
            let output = bench.output();
            let mut core = bench.core;
            let mut attempts = Attempts::default();
            for is_under in [false, true, true] {
                attempts.again(&mut core, &output, &[b"key"]).await;
                assert_eq!(core.is_under_section(), is_under);
            }
            output.leave(&mut core);
            assert!(!core.is_under_section());
        });
    }

    #[test]
    fn a_transaction_keeps_the_sections_that_it_holds() {
        on_first_core(1, |bench| async move {
            let output = bench.output();
            let mut core = bench.core;
            core.enter_sections([0], &[]).await.expect("entered");
            let mut attempts = Attempts::default();
            for _ in 0..5 {
                attempts.again(&mut core, &output, &[b"key"]).await;
            }
            output.leave(&mut core);
            assert!(core.is_under_section(), "it is the transaction's");
        });
    }
}
