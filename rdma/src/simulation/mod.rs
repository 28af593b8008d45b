//! A world in one thread, in place of executors, sockets and devices. Only in builds with the
//! feature `simulation`.
//!
//! A simulation enters a world on its thread ([`enter`]). Tasks that are spawned there, timers,
//! control connections and queue pairs then belong to the world. What happens next is the
//! simulation's choice: it polls one task, moves one request or message, or lets time pass.
//!
//! ```text
//! simulation -> poll(task) -> code of engine, sessions, memory nodes -> spawn, Timer
//!            -> network: steps() -> take(step, fate)                 -> endpoints, pipes
//!            -> pass time                                            -> timers fire
//! ```
//!
//! - I1: nothing moves by itself, and nothing here draws a random number or reads a clock: the same
//!   choices make the same world.

mod endpoint;
mod line;
mod network;
mod pipe;
mod runtime;

pub use self::endpoint::SimulatedEndpoint;
pub(crate) use self::endpoint::SimulatedSlot;
pub(crate) use self::line::{LineCloser, SimulatedLine};
pub use self::network::{
    Fate, NodeState, Options, Step, StepKind, Subject, set_lingering, set_node, steps, take,
};
pub(crate) use self::network::{connect_control, connect_line, register_node};
pub(crate) use self::pipe::Pipe;
pub use self::runtime::{
    Semaphore, SimulatedTask, Sleep, current_group, is_inside, next_timer_ns, on_enter, poll,
    ready, set_group, spawn, task_count, wake_timers,
};

/// Leaves the world when it is dropped.
#[derive(Debug)]
pub struct Inside {
    _clock: farcore_tuning::simulated::Inside,
}

impl Drop for Inside {
    fn drop(&mut self) {
        runtime::leave();
        network::leave();
    }
}

impl Inside {
    /// Leaves the world as it is, in an unknown state: nothing of it is dropped.
    #[allow(
        clippy::mem_forget,
        reason = "what has failed may not even be droppable"
    )]
    pub fn abandon(self) {
        runtime::abandon();
        network::abandon();
        crate::node::abandon_simulated();
    }
}

/// Enters a world on the calling thread.
#[must_use]
pub fn enter(seed: u64, system_ns: u64, options: Options) -> Inside {
    let clock = farcore_tuning::simulated::enter(seed, system_ns);
    runtime::begin();
    network::begin(options);
    Inside { _clock: clock }
}
