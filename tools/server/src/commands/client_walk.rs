//! How a command looks at all clients: some of each core a turn.

use farcore::Core;

use crate::conn::client_filter::ClientPage;
use crate::cores::answers::Answers;
use crate::cores::message::Question;
use crate::cores::shared::Shared;

/// Has each core answer of some of its connections a turn, until all have looked at all.
pub(super) struct ClientWalk {
    /// Where each core goes on; those that have looked at all are not there.
    cores: Vec<(usize, usize)>,
}

impl ClientWalk {
    pub(super) fn new(shared: &Shared) -> Self {
        Self {
            cores: (0..shared.cores.len()).map(|place| (place, 0)).collect(),
        }
    }

    /// What each core finds among its next connections; none once all have looked at all.
    pub(super) async fn next<T>(
        &mut self,
        (shared, core): (&Shared, &Core),
        question: impl Fn(usize, Answers<ClientPage<T>>) -> Question,
    ) -> Option<Vec<T>> {
        if self.cores.is_empty() {
            return None;
        }
        let pages = shared.question_each(self.cores.drain(..), question);
        let mut found = Vec::new();
        for page in pages.wait(core).await {
            self.cores.extend(page.next.map(|next| (page.core, next)));
            found.push(page.found);
        }
        Some(found)
    }
}
