//! What all dumps of collections do with a page that they have read.

use farcore::{Core, Error, TreePage};
use farcore_rdb::Packer;

use super::parts::Parts;
use crate::commands::trees::size_of_page;
use crate::steps;
use crate::tasks::failure::TaskFailure;
use crate::tasks::output::TaskOutput;

/// Bytes that an element takes beside its own while it is written: twice in a node, and once more
/// in a part.
pub(super) const BESIDE_ELEMENT: usize = 64;
pub(super) const COPIES: usize = 4;
/// Where a payload is written.
pub(super) type To<'t> = (&'t mut Parts, &'t mut Packer);

/// Charges what the elements of a page take.
pub(super) fn hold_page(parts: &mut Parts, page: &TreePage) -> Result<(usize, usize), TaskFailure> {
    let (count, bytes) = size_of_page(page);
    parts.hold(Packer::BYTES + COPIES * bytes + count * BESIDE_ELEMENT)?;
    Ok((count, bytes))
}

/// That a collection has changed.
pub(super) fn changed() -> TaskFailure {
    Error::CollectionVersion { current: 0 }.into()
}

/// A number of bytes or elements.
pub(super) fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Ends a step that has read a page.
pub(super) async fn end_step(
    (core, output): (&Core, &TaskOutput),
    read: (usize, usize),
) -> Result<(), TaskFailure> {
    // It is packed too.
    steps::count_walked(read.1);
    Ok(output.end_read(core, read).await?)
}
