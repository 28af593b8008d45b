//! The steps that commands of lists take: one operation, and the walk over pages of one version.
//! Why a command stops, and how it replies.

use farcore::{Answer, Core, Error, Operation, TreeGuard, TreeLength, TreeOp, TreeView, Version};

use crate::memory::Shortage;
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::tasks::output::TaskOutput;
use crate::types::kind::Kind;

/// A client of the core, and the output of the command that uses it.
pub(crate) type Step<'a> = (&'a mut Core, &'a TaskOutput);

/// Why a command has no reply of its own.
#[derive(Debug)]
pub(crate) enum Stop {
    Failed(Error),
    Refused(&'static str),
    Short(Shortage),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<&'static str> for Stop {
    fn from(text: &'static str) -> Self {
        Self::Refused(text)
    }
}

impl From<Shortage> for Stop {
    fn from(shortage: Shortage) -> Self {
        Self::Short(shortage)
    }
}

/// Carries an operation on a collection out; returns what `see` makes of the answer. A key that is
/// too long cannot exist, so only what would make it fails.
///
/// # Errors
/// Those of the operation.
pub(crate) async fn ask<T>(
    core: &mut Core,
    key: &[u8],
    guard: TreeGuard,
    op: TreeOp<'_>,
    see: impl FnOnce(TreeView<'_>) -> T,
) -> Result<T, Error> {
    let (mut see, mut seen, mut failed) = (Some(see), None, None);
    let all = [Operation::Tree { key, op, guard }];
    let sent = core
        .many(all, |_, answer| match answer {
            Answer::Failed(error) => failed = Some(error.clone()),
            answer => {
                steps::count_copied(answer.value().len());
                seen = see.take().map(|see| see(TreeView::of(&answer)));
            }
        })
        .await;
    let makes = matches!(
        op,
        TreeOp::Push { exists: false, .. } | TreeOp::Update { .. }
    );
    match (sent, failed) {
        (Err(Error::KeyTooLong { .. }), _) if !makes => {}
        (Err(error), _) | (Ok(()), Some(error)) => return Err(error),
        (Ok(()), None) => {}
    }
    match seen {
        Some(seen) => Ok(seen),
        None => see
            .take()
            .map(|see| see(TreeView::of(&Answer::Absent)))
            .ok_or(Error::Closed),
    }
}

/// Carries an operation on a list out, as [`ask`], if the list has this version.
///
/// # Errors
/// Those of the operation.
pub(crate) async fn operate<T>(
    core: &mut Core,
    key: &[u8],
    (op, version): (TreeOp<'_>, Option<Version>),
    see: impl FnOnce(TreeView<'_>) -> T,
) -> Result<T, Error> {
    let tag = Kind::List.tag();
    ask(core, key, TreeGuard { tag, version }, op, see).await
}

/// How long the list of a key is.
///
/// # Errors
/// The key holds something else.
pub(crate) async fn length(core: &mut Core, key: &[u8]) -> Result<TreeLength, Error> {
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method itself is of one lifetime"
    )]
    let length = operate(core, key, (TreeOp::Len, None), |answer| answer.length()).await?;
    if length.elements > 0 && length.tag != Kind::List.tag() {
        return Err(Error::CollectionTag { tag: length.tag });
    }
    Ok(length)
}

/// Elements of a list that are walked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListWalk {
    /// The list as it was when the walk began.
    pub(crate) list: TreeLength,
    /// The ranks from here on.
    pub(crate) start: u64,
    /// To before this one.
    pub(crate) end: u64,
    /// From the last to the first.
    pub(crate) reverse: bool,
}

impl ListWalk {
    /// All elements of a list.
    pub(crate) fn all(list: TreeLength, reverse: bool) -> Self {
        Self {
            list,
            start: 0,
            end: list.elements,
            reverse,
        }
    }

    /// Visits the elements with their ranks while `visit` wants more.
    ///
    /// # Errors
    /// [`Error::CollectionVersion`]: the list has changed; and those of [`TaskOutput::end_read`].
    pub(crate) async fn run(
        mut self,
        (core, output): Step<'_>,
        key: &[u8],
        mut visit: impl FnMut(u64, &[u8]) -> bool,
    ) -> Result<(), Stop> {
        let version = Some(self.list.version);
        let mut goes_on = true;
        while goes_on && self.start < self.end {
            let op = TreeOp::RangeByRank {
                start: self.start,
                end: self.end,
                reverse: self.reverse,
                limit: u32::MAX,
            };
            let (seen, bytes) = operate(core, key, (op, version), |page| {
                let (mut seen, mut bytes) = (0, 0);
                for (_, element) in page.elements() {
                    bytes += element.len();
                    let rank = match self.reverse {
                        true => self.end - 1 - seen,
                        false => self.start + seen,
                    };
                    seen += 1;
                    goes_on = visit(rank, element);
                    if !goes_on {
                        break;
                    }
                }
                (seen, bytes)
            })
            .await?;
            if seen == 0 {
                debug_assert!(false, "a page has an element, or its list has changed");
                return Err(Error::Closed.into());
            }
            if self.reverse {
                self.end -= seen;
            } else {
                self.start += seen;
            }
            let seen = usize::try_from(seen).unwrap_or(usize::MAX);
            output.end_read(core, (seen, bytes)).await?;
        }
        Ok(())
    }
}

pub(crate) fn write_integer(output: &TaskOutput, protocol: Protocol, number: i64) {
    output.write(|bytes| Writer::new(bytes, protocol).integer(number));
}

pub(crate) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
