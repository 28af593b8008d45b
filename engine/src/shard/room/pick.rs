//! Picks the page that compaction empties next, of those whose node may be read now.

use farcore_rdma::Endpoint;

use crate::shard::Shard;
use crate::shard::far::pages::Readiness;
use crate::shard::local::victims::live_percent;

/// Pages examined or listed again in one slice.
const PAGES_A_SLICE: usize = 64;

/// The result of looking for a victim.
pub(in crate::shard) enum Pick {
    Page(u32),
    /// More pages are to be examined.
    Later,
    None,
}

impl<E: Endpoint> Shard<E> {
    /// Lists pages again that were set aside for nodes that answer now. For a node that may answer,
    /// lists one page to try.
    pub(in crate::shard) fn list_returned(&mut self) {
        if self.local.victims.aside_count() == 0 {
            return;
        }
        for (node, readiness) in self.far.pages.readiness(self.now_ns) {
            let most = match readiness {
                Readiness::Answers => PAGES_A_SLICE,
                Readiness::MayAnswer => 1,
                Readiness::Rests => continue,
            };
            self.compactor.due |= self
                .local
                .victims
                .list_again(&mut self.local.pages, node, most);
        }
    }

    /// Picks a page of which less than `percent` is alive: the emptiest far one, else the emptiest
    /// sealed one if `sealed_too`. Pages that cannot be read now are set aside.
    pub(in crate::shard) fn pick_victim(&mut self, percent: u64, sealed_too: bool) -> Pick {
        for _ in 0..PAGES_A_SLICE {
            let Some(number) = self.local.victims.take(&mut self.local.pages, percent) else {
                return self.pick_sealed(percent, sealed_too);
            };
            if self.can_be_read(number) {
                return Pick::Page(number);
            }
        }
        Pick::Later
    }

    /// True if a page is local or its node may be tried now.
    pub(in crate::shard) fn may_be_read(&self, number: u32) -> bool {
        let is_local = !self.local.pages.pointer(number).is_null();
        is_local || self.far.pages.resting_node(number, self.now_ns).is_none()
    }

    /// True if a victim is local or its node may be tried now; else it is set aside.
    pub(in crate::shard) fn can_be_read(&mut self, number: u32) -> bool {
        let is_far = self.local.pages.pointer(number).is_null();
        match self.far.pages.resting_node(number, self.now_ns) {
            Some(node) if is_far => {
                self.local
                    .victims
                    .set_aside(&mut self.local.pages, number, node);
                false
            }
            _ => true,
        }
    }

    fn pick_sealed(&self, percent: u64, sealed_too: bool) -> Pick {
        if !sealed_too {
            return Pick::None;
        }
        let sealed = self.local.sealed.iter().filter_map(|&number| {
            let page = self.local.pages.get(number);
            (page.pins == 0 && !page.damaged).then(|| (live_percent(page), number))
        });
        let emptiest = sealed.min().filter(|&(live, _)| live < percent);
        emptiest.map_or(Pick::None, |(_, number)| Pick::Page(number))
    }
}
