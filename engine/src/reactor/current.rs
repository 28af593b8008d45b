//! The engine and the reactor that the calling thread serves, in a thread-local.
//!
//! Set while a core's service runs. Handles and blocking calls use it to find out that they run on
//! a core, and to serve its shard while they wait.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::lent_reactor::LentReactor;
use crate::lifecycle::Lifecycle;

/// The engine and the reactor of the calling thread.
struct CurrentCore {
    lifecycle: Arc<Lifecycle>,
    reactor: Rc<LentReactor>,
}

thread_local! {
    static CURRENT_CORE: RefCell<Option<CurrentCore>> = const { RefCell::new(None) };
}

/// Registers the calling thread as a core until dropped.
pub(super) struct CurrentCoreGuard;

impl CurrentCoreGuard {
    pub(super) fn new(lifecycle: &Arc<Lifecycle>, reactor: &Rc<LentReactor>) -> Self {
        let current = CurrentCore {
            lifecycle: Arc::clone(lifecycle),
            reactor: Rc::clone(reactor),
        };
        #[cfg(feature = "simulation")]
        if farcore_rdma::simulation::is_inside() {
            simulated::enter(current);
            return Self;
        }
        CURRENT_CORE.set(Some(current));
        Self
    }
}

impl Drop for CurrentCoreGuard {
    fn drop(&mut self) {
        #[cfg(feature = "simulation")]
        if farcore_rdma::simulation::is_inside() {
            simulated::leave();
        }
        CURRENT_CORE.set(None);
    }
}

/// True if the calling thread is a core of any engine.
pub(crate) fn is_core() -> bool {
    CURRENT_CORE.with_borrow(Option::is_some)
}

/// True if the calling thread is a core of this engine.
pub(crate) fn is_core_of(lifecycle: &Arc<Lifecycle>) -> bool {
    CURRENT_CORE.with_borrow(|here| {
        here.as_ref()
            .is_some_and(|here| Arc::ptr_eq(&here.lifecycle, lifecycle))
    })
}

/// Runs one turn if the calling thread is a core; a caller that waits there may wait for that
/// core's shard. False if the thread is no core, or is in the middle of a turn.
pub(crate) fn serve_current_core() -> bool {
    let reactor =
        CURRENT_CORE.with_borrow(|here| here.as_ref().map(|here| Rc::clone(&here.reactor)));
    let Some(reactor) = reactor else { return false };
    let Ok(mut reactor) = reactor.try_borrow_mut() else {
        return false;
    };
    reactor.turn_alone();
    true
}

/// The cores of a simulated world, which share a thread: each is the current one while one of its
/// tasks is polled.
#[cfg(feature = "simulation")]
pub(crate) mod simulated {
    use std::rc::{Rc, Weak};
    use std::sync::Arc;

    use farcore_rdma::simulation::{current_group, on_enter};

    use super::{CURRENT_CORE, CurrentCore, LentReactor};

    thread_local! {
        static REACTORS: std::cell::RefCell<Vec<(u32, Weak<LentReactor>)>> =
            const { std::cell::RefCell::new(Vec::new()) };
    }

    pub(super) fn enter(current: CurrentCore) {
        let group = current_group();
        let CurrentCore { lifecycle, reactor } = current;
        REACTORS.with_borrow_mut(|all| {
            all.retain(|one| one.0 != group);
            all.push((group, Rc::downgrade(&reactor)));
        });
        let here = move |inside: bool| {
            CURRENT_CORE.set(inside.then(|| CurrentCore {
                lifecycle: Arc::clone(&lifecycle),
                reactor: Rc::clone(&reactor),
            }));
        };
        here(true);
        on_enter(group, Some(Rc::new(here)));
    }

    pub(super) fn leave() {
        on_enter(current_group(), None);
    }

    /// Forgets the cores of an earlier world.
    pub(crate) fn begin() {
        REACTORS.set(Vec::new());
        CURRENT_CORE.set(None);
    }

    /// The reactors of all cores that serve.
    pub(crate) fn reactors() -> Vec<Rc<LentReactor>> {
        REACTORS.with_borrow(|all| all.iter().filter_map(|one| one.1.upgrade()).collect())
    }
}
