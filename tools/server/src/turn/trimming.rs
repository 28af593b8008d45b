//! The trim of local memory that a core's shard has begun, or is to begin.

use farcore::Core;

use crate::memory_trims::Trim;
use crate::serving::Serving;

impl Serving {
    /// Begins the trim that is wanted, and notes the end of the one that has begun.
    #[inline]
    pub(crate) fn trim_turn(&mut self, core: &Core) {
        match self.trim {
            None => {}
            Some(Trim::Wanted(keep_bytes)) => {
                core.start_trim(keep_bytes);
                self.trim = Some(Trim::Begun);
            }
            Some(Trim::Begun) if core.is_trimming() => {}
            Some(Trim::Begun) => self.trim = None,
        }
    }
}
