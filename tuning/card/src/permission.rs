//! The check of a permission before the host sends a token: what an IOMMU and a protection table
//! decide together.

use thiserror::Error;

use super::token::{Access, Fields, Token, TokenError};

/// Why a request is refused.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Denial {
    /// The object belongs to another domain.
    #[error("the object is of domain {owner} and the request of domain {asking}")]
    Domain {
        /// The object's domain.
        owner: u16,
        /// The request's.
        asking: u16,
    },
    /// The object does not allow it.
    #[error("the object allows {allowed:?} and the request needs {needed:?}")]
    Access {
        /// What it allows.
        allowed: Access,
        /// What is needed.
        needed: Access,
    },
    /// The words are no token.
    #[error(transparent)]
    Token(#[from] TokenError),
}

/// What a request needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The domain of the queue pair that asks.
    pub domain: u16,
    /// What it does.
    pub needed: Access,
}

/// Checks a request for the token of an object of a domain.
///
/// # Errors
/// It is refused; no byte may move then.
pub fn check(token: Token, owner: u16, request: Request) -> Result<(), Denial> {
    let fields = token.unpack()?;
    let owner = match fields {
        Fields::QueuePair(pair) => pair.domain,
        // A completion queue is of a device, not of a domain.
        Fields::CompletionQueue(_) | Fields::Domain(_) => request.domain,
        Fields::Region(_) => owner,
    };
    if owner != request.domain {
        return Err(Denial::Domain {
            owner,
            asking: request.domain,
        });
    }
    let allowed = match fields {
        Fields::Region(region) => region.access,
        Fields::QueuePair(pair) => pair.access,
        Fields::CompletionQueue(_) | Fields::Domain(_) => request.needed,
    };
    if !allowed.contains(request.needed) {
        return Err(Denial::Access {
            allowed,
            needed: request.needed,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::{Handle, Kind};
    use crate::workload::Population;

    #[test]
    fn foreign_and_forbidden_requests_are_refused() {
        let population = Population::default();
        let token = |kind| population.token(Handle::new(kind, 0, 5));
        let request = |domain, needed| Request { domain, needed };
        let region = token(Kind::Region);
        assert_eq!(check(region, 1, request(1, Access::REMOTE_READ)), Ok(()));
        let denied = check(region, 1, request(2, Access::REMOTE_READ));
        assert!(matches!(
            denied,
            Err(Denial::Domain {
                owner: 1,
                asking: 2
            })
        ));
        let denied = check(region, 1, request(1, Access::REMOTE_ATOMIC));
        assert!(matches!(denied, Err(Denial::Access { .. })));
        // The domain of a queue pair stands in its token: 5 modulo 4 domains.
        let pair = token(Kind::QueuePair);
        assert_eq!(check(pair, 0, request(1, Access::default())), Ok(()));
        assert!(check(pair, 2, request(2, Access::default())).is_err());
        let queue = token(Kind::CompletionQueue);
        assert_eq!(check(queue, 0, request(9, Access::REMOTE_READ)), Ok(()));
        assert!(check(Token::default(), 0, request(0, Access::default())).is_err());
    }
}
