//! Lua scripts as clients of Redis send them: an interpreter of Lua 5.1 with Redis's libraries.
//!
//! Nothing here knows a server. An [`Interpreter`] runs on a stack of its own: whoever has it
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

mod bits;
mod interpreter;
mod json;
mod library;
mod message_pack;
mod numbers;
mod patterns;
mod random;
mod replies;
mod script;
mod shim;
mod structs;
mod switch;

pub use self::interpreter::{Event, Interpreter, Job, Step};
pub use self::script::{Script, sha_of};
