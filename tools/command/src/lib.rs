//! What the commands of Farcore share: `farcore` and `farcore-bench`.
//!
//! - Flags: [`CoreList`] and [`parse_size`] read values, [`range`] refuses them, [`plain`] says
//!   what to write; [`words`] how errors read
//! - Ends and output: [`stop`] how signals end a command, [`outputs`] files and lines
//! - Figures: [`origin`] and [`machine`] where they were measured; [`watch`] publishes those of a
//!   running engine, and `colours` are those of plots (feature `plot`)

#[cfg(feature = "plot")]
pub mod colours;
mod core_list;
pub mod machine;
pub mod origin;
pub mod outputs;
pub mod range;
mod size;
pub mod stop;
mod usage;
pub mod watch;
pub mod words;

pub use self::core_list::CoreList;
pub use self::size::parse_size;
pub use self::usage::plain;
