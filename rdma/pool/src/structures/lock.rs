//! A lock that serves in the order of arrival, with a lease and a fencing token.
//!
//! ```text
//! issued   the next ticket
//! state    bits 63..16: the ticket that is served; bits 15..0: beats of its holder
//! ```
//!
//! The holder beats to renew its lease. One that waits and sees neither ticket nor beats change for
//! a lease, by its own clock, takes the served ticket for abandoned and serves the next: of a
//! holder that died, or of one that waited and died.
//!
//! - I1: the served ticket only rises. So a ticket that was passed over is never served, and its
//!   holder learns of that at its next beat or unlock.
//! - I2: at most one process has the served ticket. A process that was only slow may believe for a
//!   while that it holds the lock: what it does then is fenced off by the token, which is the
//!   ticket, where the resource refuses tokens lower than one it has seen.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::block::Block;
use crate::error::{PoolError, Result};
use crate::export::Exported;
use crate::op::Op;
use crate::plain::mark;
use crate::pool::RemotePool;

const MARK: u64 = mark("farcore lock", &[]);
const ISSUED: usize = 1;
const STATE: usize = 2;
const LEASE_MS: usize = 3;
const WORDS: usize = 4;

const BEATS: u64 = 0xffff;
/// Looks of the next one to be served, before it waits for a tick each.
const QUICK_LOOKS: u32 = 200;
/// The shortest lease, and the longest.
const LEASE_MIN: Duration = Duration::from_millis(10);
const LEASE_MAX: Duration = Duration::from_hours(24);

fn served(ticket: u64) -> u64 {
    ticket << 16
}

/// A lock that processes share.
///
/// ```
/// # let pool = farcore_pool::RemotePool::embedded(1 << 20)?;
/// use std::time::Duration;
/// use farcore_pool::structures::RemoteLock;
///
/// let lock = RemoteLock::create(&pool, Duration::from_secs(5)).wait()?;
/// let held = lock.lock().wait()?;
/// // Send `held.token()` along with what is written to a resource.
/// held.renew().wait()?;
/// held.unlock().wait()?;
/// # Ok::<(), farcore_pool::PoolError>(())
/// ```
#[derive(Debug)]
pub struct RemoteLock {
    block: Block,
    lease: Duration,
}

/// The lock is held. Dropping it unlocks some time later; [`LockGuard::unlock`] does at once.
pub struct LockGuard<'a> {
    lock: &'a RemoteLock,
    ticket: u64,
    /// The state word that this holder has stored.
    state: AtomicU64,
    is_held: bool,
}

impl fmt::Debug for LockGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("token", &self.ticket)
            .finish_non_exhaustive()
    }
}

impl RemoteLock {
    /// Creates a lock whose holders renew within a lease, 10 ms to 24 hours.
    ///
    /// # Errors
    /// As [`RemotePool::alloc`]; [`PoolError::Option`] if the lease is out of range.
    pub fn create(
        pool: &RemotePool,
        lease: Duration,
    ) -> Op<'_, impl Future<Output = Result<Self>> + Send> {
        Op::new(pool.lane(), async move {
            if !(LEASE_MIN..=LEASE_MAX).contains(&lease) {
                return Err(PoolError::Option {
                    option: "lease",
                    value: format!("{lease:?}"),
                    range: "10 ms to 24 hours",
                });
            }
            let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
            let first = [MARK, 0, 0, lease_ms];
            let block = Block::create(pool, &first, WORDS).await?;
            Ok(Self { block, lease })
        })
    }

    /// Opens a lock of another process.
    ///
    /// # Errors
    /// As [`RemotePool::import`]; [`PoolError::WrongType`].
    pub fn open<'a>(
        pool: &'a RemotePool,
        exported: &'a Exported<u64>,
    ) -> Op<'a, impl Future<Output = Result<Self>> + Send + 'a> {
        Op::new(pool.lane(), async move {
            let block = Block::open(pool, exported, MARK, WORDS).await?;
            let lease = Duration::from_millis(block.read_one(LEASE_MS).await?);
            let lease = lease.clamp(LEASE_MIN, LEASE_MAX);
            Ok(Self { block, lease })
        })
    }

    /// A pointer by which other processes open it.
    ///
    /// # Errors
    /// As [`RemoteSlice::export`](crate::RemoteSlice::export).
    pub fn export(&self) -> Op<'_, impl Future<Output = Result<Exported<u64>>> + Send> {
        Op::new(self.block.lane(), self.block.export())
    }

    /// The lease.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// Waits for the lock. Cost: three round trips if it is free.
    ///
    /// # Errors
    /// As [`RemoteSlice::read`](crate::RemoteSlice::read).
    pub fn lock(&self) -> Op<'_, impl Future<Output = Result<LockGuard<'_>>> + Send> {
        Op::new(self.block.lane(), self.locked())
    }

    async fn locked(&self) -> Result<LockGuard<'_>> {
        loop {
            let ticket = self.block.add(ISSUED, 1).await?;
            if let Some(guard) = self.served(ticket).await? {
                return Ok(guard);
            }
            // Passed over: this process was slower than a lease.
        }
    }

    /// Waits until a ticket is served; `None` if it was passed over.
    async fn served(&self, ticket: u64) -> Result<Option<LockGuard<'_>>> {
        let mut seen = (u64::MAX, Instant::now());
        let mut looks = 0;
        loop {
            let state = self.block.read_one(STATE).await?;
            let now = state >> 16;
            if now > ticket {
                return Ok(None);
            }
            if now == ticket {
                // The first beat: a waiter that saw the ticket without its holder waits anew.
                let own = served(ticket) | 1;
                if state == served(ticket) && self.block.swap(STATE, state, own).await? == state {
                    return Ok(Some(LockGuard {
                        lock: self,
                        ticket,
                        state: AtomicU64::new(own),
                        is_held: true,
                    }));
                }
                continue;
            }
            if state != seen.0 {
                seen = (state, Instant::now());
            } else if seen.1.elapsed() >= self.lease {
                self.block.swap(STATE, state, served(now + 1)).await?;
                continue;
            }
            looks += 1;
            if ticket - now > 1 || looks > QUICK_LOOKS {
                self.block.pause().await;
            }
        }
    }

    /// Takes the lock if it is free; `None` if it is held or waited for. Cost: four round trips.
    ///
    /// # Errors
    /// As [`RemoteSlice::read`](crate::RemoteSlice::read).
    pub fn try_lock(&self) -> Op<'_, impl Future<Output = Result<Option<LockGuard<'_>>>> + Send> {
        Op::new(self.block.lane(), async move {
            let mut words = [0; 2];
            self.block.read(ISSUED, &mut words).await?;
            let [issued, state] = words;
            if state != served(issued) {
                return Ok(None);
            }
            if self
                .block
                .swap(ISSUED, issued, issued.wrapping_add(1))
                .await?
                != issued
            {
                return Ok(None);
            }
            self.served(issued).await
        })
    }
}

impl<'a> LockGuard<'a> {
    /// The fencing token: higher than that of every earlier holder.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.ticket
    }

    fn state(&self) -> u64 {
        // ORDERING: relaxed; it guards nothing else of this process.
        self.state.load(Ordering::Relaxed)
    }

    fn lost(&self) -> PoolError {
        PoolError::Gone {
            reason: format!(
                "the lock was not renewed within its lease of {:?}, and is another's",
                self.lock.lease
            ),
        }
    }

    /// Renews the lease. Call it at a third of the lease. Cost: one round trip.
    ///
    /// # Errors
    /// [`PoolError::Gone`] if the lease has ended and the lock is another's.
    pub fn renew(&self) -> Op<'_, impl Future<Output = Result<()>> + Send> {
        Op::new(self.lock.block.lane(), async move {
            let old = self.state();
            // Never 0 beats: that is a ticket without its holder.
            let beats = if old & BEATS == BEATS {
                1
            } else {
                (old & BEATS) + 1
            };
            let new = served(self.ticket) | beats;
            let found = self.lock.block.swap(STATE, old, new).await?;
            if found != old {
                if found >> 16 != self.ticket {
                    return Err(self.lost());
                }
                // A beat of this holder whose answer was lost: the lease is renewed.
                self.state.store(found, Ordering::Relaxed);
                return Ok(());
            }
            self.state.store(new, Ordering::Relaxed);
            Ok(())
        })
    }

    /// Unlocks. Cost: one round trip.
    ///
    /// # Errors
    /// [`PoolError::Gone`] if the lease had ended and the lock was another's.
    pub fn unlock(mut self) -> Op<'a, impl Future<Output = Result<()>> + Send> {
        let block = &self.lock.block;
        Op::new(block.lane(), async move {
            let mut old = self.state();
            loop {
                let found = block.swap(STATE, old, served(self.ticket + 1)).await?;
                if found != old && found >> 16 == self.ticket {
                    // A beat of this holder whose answer was lost.
                    old = found;
                    continue;
                }
                self.is_held = false;
                return if found == old {
                    Ok(())
                } else {
                    Err(self.lost())
                };
            }
        })
    }
}

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        if self.is_held {
            let next = served(self.ticket + 1);
            self.lock.block.swap_later(STATE, self.state(), next);
        }
    }
}
