//! Procedures of nodes' hosts, typed: what a host registers, and how a program calls it.
//!
//! A host starts its node with [`NodeOptions::procedures`](farcore_rdma::node::NodeOptions):
//!
//! ```
//! use farcore_pool::Plain;
//! use farcore_pool::procedures::{constructor, procedure};
//! use farcore_rdma::node::Procedures;
//!
//! #[derive(Clone, Copy, Plain)]
//! struct Range {
//!     first: u64,
//!     last: u64,
//! }
//!
//! let procedures = Procedures::new()
//!     .with("sum", procedure(|range: &Range| Ok((range.first..=range.last).sum::<u64>())))
//!     .with("squares", constructor(|first: &u64| Ok([0, 1, 2, 3].map(|step| (first + step).pow(2)))));
//! # drop(procedures);
//! ```
//!
//! A program then calls `pool.call(node, "sum", &range)`, and `pool.construct("squares", &7)`,
//! which allocates an `[u64; 4]` and has the host fill it in.

use std::future::Future;
use std::time::Duration;

use async_channel::bounded;
use farcore_rdma::control::{CALL_BYTES_MAX, Call, CallTarget, PROCEDURE_BYTES_MAX};
pub use farcore_rdma::node::{ProcedureCall, Procedures};

use crate::allocation::{Allocation, Loan};
use crate::boxed::RemoteBox;
use crate::command::{CallError, Command};
use crate::error::{PoolError, Result};
use crate::op::Op;
use crate::plain::Plain;
use crate::pool::RemotePool;
use crate::shared::Shared;
use crate::slice::RemoteSlice;

/// How long a call may take, unless the lease is shorter than eight times as long.
const LIMIT: Duration = Duration::from_secs(2);

fn encode<T: Plain>(value: &T) -> Vec<u8> {
    let mut bytes = vec![0; T::BYTES];
    value.store(&mut bytes);
    bytes
}

fn decode<T: Plain>(bytes: &[u8]) -> std::result::Result<T, String> {
    if bytes.len() != T::BYTES {
        return Err(format!("{} bytes, {} are expected", bytes.len(), T::BYTES));
    }
    T::load(bytes).map_err(|error| error.to_string())
}

/// A procedure of an argument, for a host to register.
pub fn procedure<A: Plain, R: Plain>(
    act: impl Fn(&A) -> std::result::Result<R, String> + Send + Sync + 'static,
) -> impl Fn(&ProcedureCall, &[u8]) -> std::result::Result<Vec<u8>, String> + Send + Sync + 'static
{
    move |_, argument| Ok(encode(&act(&decode(argument)?)?))
}

/// A procedure that constructs the value in its target, for a host to register.
pub fn constructor<A: Plain, T: Plain>(
    make: impl Fn(&A) -> std::result::Result<T, String> + Send + Sync + 'static,
) -> impl Fn(&ProcedureCall, &[u8]) -> std::result::Result<Vec<u8>, String> + Send + Sync + 'static
{
    move |call, argument| {
        let value = make(&decode(argument)?)?;
        call.write(0, &encode(&value))?;
        Ok(Vec::new())
    }
}

impl RemotePool {
    /// Calls a procedure of a node's host, on the node with an index. Cost: a round trip on the
    /// control connection, and what the procedure takes.
    ///
    /// # Errors
    /// [`PoolError::Procedure`] if it fails, is unknown or takes too long (2 s, or an eighth of the
    /// lease); [`PoolError::UnknownOutcome`] if the connection broke.
    pub fn call<'a, A: Plain, R: Plain>(
        &'a self,
        node: usize,
        name: &'a str,
        argument: &'a A,
    ) -> Op<'a, impl Future<Output = Result<R>> + Send + 'a> {
        Op::new(self.lane(), async move {
            let answer = called(self.handle(), node, name, encode(argument), None).await?;
            decode(&answer).map_err(|reason| failed(self.handle(), node, name, reason))
        })
    }

    /// Calls a procedure with bytes, which answers bytes: at most 32 KiB each.
    ///
    /// # Errors
    /// As [`RemotePool::call`].
    pub fn call_bytes<'a>(
        &'a self,
        node: usize,
        name: &'a str,
        argument: &'a [u8],
    ) -> Op<'a, impl Future<Output = Result<Vec<u8>>> + Send + 'a> {
        let argument = argument.to_vec();
        Op::new(
            self.lane(),
            called(self.handle(), node, name, argument, None),
        )
    }

    /// Allocates a value and has a node's host construct it there. Cost: as [`RemotePool::alloc`]
    /// and [`RemotePool::call`].
    ///
    /// # Errors
    /// As [`RemotePool::alloc`] and [`RemotePool::call`].
    pub fn construct<'a, T: Plain, A: Plain>(
        &'a self,
        name: &'a str,
        argument: &'a A,
    ) -> Op<'a, impl Future<Output = Result<RemoteBox<T>>> + Send + 'a> {
        Op::new(self.lane(), async move {
            let slice = self.allocated::<T>(1).await?;
            called_on(slice.allocation(), name, encode(argument)).await?;
            Ok(RemoteBox::new(slice))
        })
    }
}

impl<T: Plain> RemoteSlice<T> {
    /// Calls a procedure of the host of the node that holds this slice, with the slice as its
    /// target. Only the slice's owner may. A procedure that is late may write it on: its memory is
    /// not used again before the session has ended.
    ///
    /// # Errors
    /// As [`RemotePool::call`]; [`PoolError::Procedure`] if the slice lies on several places.
    pub fn call<'a, A: Plain, R: Plain>(
        &'a self,
        name: &'a str,
        argument: &'a A,
    ) -> Op<'a, impl Future<Output = Result<R>> + Send + 'a> {
        Op::new(self.lane(), async move {
            let answer = called_on(self.allocation(), name, encode(argument)).await?;
            let node = self.nodes().first().copied().unwrap_or(0);
            decode(&answer).map_err(|reason| failed(self.shared(), node, name, reason))
        })
    }

    /// As [`RemoteSlice::call`], with bytes, which answers bytes: at most 32 KiB each.
    ///
    /// # Errors
    /// As [`RemoteSlice::call`].
    pub fn call_bytes<'a>(
        &'a self,
        name: &'a str,
        argument: &'a [u8],
    ) -> Op<'a, impl Future<Output = Result<Vec<u8>>> + Send + 'a> {
        let argument = argument.to_vec();
        Op::new(self.lane(), called_on(self.allocation(), name, argument))
    }
}

fn failed(shared: &Shared, node: usize, name: &str, reason: String) -> PoolError {
    PoolError::Procedure {
        node: shared
            .nodes
            .get(node)
            .map_or_else(String::new, crate::node::Node::name),
        procedure: name.to_owned(),
        reason,
    }
}

/// Calls a procedure with an allocation as its target.
async fn called_on(allocation: &Allocation, name: &str, argument: Vec<u8>) -> Result<Vec<u8>> {
    let shared: &Shared = &allocation.pool;
    allocation.check_write(0, allocation.bytes(), 1)?;
    let [span] = allocation.spans() else {
        let reason = "its target must lie in one place".to_owned();
        return Err(failed(shared, 0, name, reason));
    };
    if shared.nodes[span.node].session() != span.session {
        let node = shared.nodes[span.node].name();
        return Err(PoolError::Renewed { node });
    }
    let Ok(bytes) = u32::try_from(allocation.bytes()) else {
        let reason = format!(
            "its target has {} bytes: less than 4 GiB",
            allocation.bytes()
        );
        return Err(failed(shared, span.node, name, reason));
    };
    let target = Target {
        session: span.session,
        place: CallTarget {
            key: span.slice.key,
            offset: span.slice.offset,
            bytes,
        },
        loan: allocation.lend(),
    };
    called(shared, span.node, name, argument, Some(target)).await
}

/// What a procedure may write.
struct Target {
    session: u64,
    place: CallTarget,
    loan: Loan,
}

async fn called(
    shared: &Shared,
    node: usize,
    name: &str,
    argument: Vec<u8>,
    target: Option<Target>,
) -> Result<Vec<u8>> {
    let (session, place, loan) = match target {
        Some(target) => (Some(target.session), Some(target.place), Some(target.loan)),
        None => (None, None, None),
    };
    let done = match check(shared, node, name, argument.len()) {
        Ok(()) => sent(shared, node, name, argument, session, place).await,
        Err(error) => Ok(Err(error)),
    };
    // Otherwise the procedure may still write its target.
    if let (Ok(_), Some(loan)) = (&done, loan) {
        loan.give_back();
    }
    done.unwrap_or_else(Err)
}

/// Checks a call before it is sent.
fn check(shared: &Shared, node: usize, name: &str, argument: usize) -> Result<()> {
    if node >= shared.nodes.len() {
        return Err(PoolError::NoNode {
            placement: format!("node {node}"),
            nodes: shared.nodes.len().to_string(),
        });
    }
    for (what, bytes, limit) in [
        ("name", name.len(), PROCEDURE_BYTES_MAX),
        ("argument", argument, CALL_BYTES_MAX),
    ] {
        if bytes > limit {
            let reason = format!("its {what} has {bytes} bytes: at most {limit}");
            return Err(failed(shared, node, name, reason));
        }
    }
    Ok(())
}

/// Sends a call. Returns how it ended, or why it may still run.
async fn sent(
    shared: &Shared,
    node: usize,
    name: &str,
    argument: Vec<u8>,
    session: Option<u64>,
    target: Option<CallTarget>,
) -> std::result::Result<Result<Vec<u8>>, PoolError> {
    let (answer, answered) = bounded(1);
    let call = Call {
        procedure: name.to_owned(),
        argument,
        target,
        limit_ms: u32::try_from(LIMIT.as_millis()).unwrap_or(u32::MAX),
    };
    let command = Command::Call {
        call,
        session,
        answer,
    };
    if !shared.send(node, command) {
        return Ok(Err(PoolError::Closed));
    }
    let name_of = || shared.nodes[node].name();
    match answered.recv().await.map_err(|_| PoolError::Closed)? {
        Ok(answer) => Ok(Ok(answer)),
        Err(CallError::Failed(reason)) => Ok(Err(failed(shared, node, name, reason))),
        Err(CallError::Renewed) => Ok(Err(PoolError::Renewed { node: name_of() })),
        Err(CallError::Late(reason)) => Err(failed(shared, node, name, reason)),
        Err(CallError::Unknown) => Err(PoolError::UnknownOutcome { node: name_of() }),
    }
}
