//! Lua scripts as clients of Redis send them: an interpreter of Lua 5.1 with Redis's libraries.
//!
//! Nothing here knows a server. An [`Interpreter`] runs on a stack of its own: its caller
//! resumes it with a [`Step`], and it comes back with an [`Event`] when the script calls a
//! command, has run for a slice, or has ended. So a command may take as long as it needs while its
//! thread does something else, wherever in the script it was called.
//!
//! ```text
//! Run(job) -> Call(command) -> Reply(bytes) -> Slice -> GoOn -> ... -> Ended(reply)
//! ```
//!
//! - I1: no input of a script or of its arguments ends the process: memory, the depth of calls
//!   and the work of a pattern are bounded.
//! - I2: a script that was ended runs no more of its own code than the way out takes.

#[cfg(not(feature = "lua"))]
mod absent;
#[cfg(feature = "lua")]
mod bits;
#[cfg(feature = "lua")]
mod calls;
mod event;
#[cfg(feature = "lua")]
mod interpreter;
#[cfg(feature = "lua")]
mod json;
mod keys;
#[cfg(feature = "lua")]
mod library;
#[cfg(feature = "lua")]
mod message_pack;
#[cfg(feature = "lua")]
mod numbers;
#[cfg(feature = "lua")]
mod patterns;
#[cfg(feature = "lua")]
mod random;
#[cfg(feature = "lua")]
mod replies;
mod script;
#[cfg(feature = "lua")]
mod shim;
#[cfg(feature = "lua")]
mod structs;
#[cfg(feature = "lua")]
mod switch;

#[cfg(not(feature = "lua"))]
pub use self::absent::Interpreter;
pub use self::event::{Event, Job, Step, Words};
#[cfg(feature = "lua")]
pub use self::interpreter::Interpreter;
pub use self::keys::CalledCommand;
pub use self::script::{SCRIPT_BYTES_MAX, Script, sha_of};
