//! The users of a server, whom all cores share: a table that is replaced and never changed.
//!
//! - I1: a version of the table has all users of one moment; versions grow.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::catalogue::Catalogue;
use super::selector::has_blanks;
use super::user::{DEFAULT, Defaults, User, merged};

/// Users, at most.
const USERS_MAX: usize = 1024;
/// Refusals that `ACL LOG` keeps, by default; as Redis.
const DENIALS_MAX: usize = 128;

/// All users at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct UserTable {
    pub(crate) version: u64,
    pub(crate) users: BTreeMap<Vec<u8>, Arc<User>>,
}

impl UserTable {
    pub(crate) fn find(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.users.get(name)
    }
}

/// The users of a server.
#[derive(Debug)]
pub(crate) struct Users {
    /// What rules can name.
    pub(crate) catalogue: &'static Catalogue,
    /// Locked by commands that change users, and by cores that look at a new version.
    table: Mutex<Arc<UserTable>>,
    /// The default user needs no password.
    are_open: AtomicBool,
    /// New selectors have all channels.
    has_all_channels: AtomicBool,
    pub(crate) denials_max: AtomicUsize,
}

/// What a change of a user takes from clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changed {
    /// Patterns of channels that are left to the user, if it has lost some.
    pub(crate) channels: Option<Vec<Vec<u8>>>,
    /// The user that has lost them.
    pub(crate) name: Vec<u8>,
}

impl Users {
    /// The default user alone.
    pub(crate) fn new(password: Option<&[u8]>, catalogue: &'static Catalogue) -> Self {
        let mut table = UserTable {
            version: 1,
            ..UserTable::default()
        };
        let user = User::everything(DEFAULT, 0, password, catalogue);
        table.users.insert(DEFAULT.to_vec(), Arc::new(user));
        Self {
            catalogue,
            table: Mutex::new(Arc::new(table)),
            are_open: AtomicBool::new(password.is_none()),
            has_all_channels: AtomicBool::new(false),
            denials_max: AtomicUsize::new(DENIALS_MAX),
        }
    }

    fn locked(&self) -> MutexGuard<'_, Arc<UserTable>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the default user needs no password.
    pub(crate) fn are_open(&self) -> bool {
        // ORDERING: relaxed; a connection that comes meanwhile is looked at again by its core.
        self.are_open.load(Ordering::Relaxed)
    }

    /// Refusals that `ACL LOG` keeps.
    pub(crate) fn denials_kept(&self) -> usize {
        // ORDERING: relaxed; a setting that stands alone.
        self.denials_max.load(Ordering::Relaxed)
    }

    /// The next table is in force.
    fn publish(&self, table: &mut Arc<UserTable>, next: UserTable) {
        let is_open = next.find(DEFAULT).is_some_and(|user| user.is_open());
        self.are_open.store(is_open, Ordering::Relaxed);
        *table = Arc::new(next);
    }

    /// The table at this moment.
    pub(crate) fn now(&self) -> Arc<UserTable> {
        Arc::clone(&self.locked())
    }

    pub(crate) fn defaults(&self) -> Defaults {
        Defaults {
            // ORDERING: relaxed; a setting that stands alone.
            has_all_channels: self.has_all_channels.load(Ordering::Relaxed),
        }
    }

    /// Sets whether new selectors have all channels.
    pub(crate) fn set_all_channels(&self, have: bool) {
        self.has_all_channels.store(have, Ordering::Relaxed);
    }

    /// Changes a user by rules, or makes it.
    ///
    /// # Errors
    /// What a client reads, without the passwords among the rules.
    pub(crate) fn set(&self, name: &[u8], rules: &[Vec<u8>]) -> Result<Changed, String> {
        let catalogue = self.catalogue;
        if has_blanks(name) {
            return Err("Usernames can't contain spaces or null characters".to_owned());
        }
        let rules = merged(rules).map_err(|from| {
            let from = String::from_utf8_lossy(&from).into_owned();
            format!("Unmatched parenthesis in acl selector starting at '{from}'.")
        })?;
        let mut table = self.locked();
        let known = table.find(name).cloned();
        if known.is_none() && table.users.len() >= USERS_MAX {
            return Err(format!("a server has at most {USERS_MAX} users"));
        }
        let defaults = self.defaults();
        let mut user = match &known {
            Some(known) => User::clone(known),
            None => User::new(name, table.version, defaults),
        };
        for rule in &rules {
            user.set(rule, catalogue, defaults).map_err(|error| {
                let rule = String::from_utf8_lossy(rule);
                format!("Error in ACL SETUSER modifier '{rule}': {}", error.text())
            })?;
        }
        if !user.finish(catalogue) {
            return Err("the rules of a user take at most 64 KiB".to_owned());
        }
        let channels = known.and_then(|known| known.channels_left_by(&user));
        let mut next = UserTable::clone(&table);
        next.version += 1;
        next.users.insert(name.to_vec(), Arc::new(user));
        self.publish(&mut table, next);
        Ok(Changed {
            channels,
            name: name.to_vec(),
        })
    }

    /// Removes users; how many were there?
    pub(crate) fn remove(&self, names: &[Vec<u8>]) -> usize {
        let mut table = self.locked();
        let mut next = UserTable::clone(&table);
        let removed = names
            .iter()
            .filter(|name| next.users.remove(*name).is_some());
        let removed = removed.count();
        if removed > 0 {
            next.version += 1;
            self.publish(&mut table, next);
        }
        removed
    }

    /// Replaces all users by those of a file. The default user stays what it is if the file does
    /// not have it; all others are new.
    pub(crate) fn replace(&self, users: BTreeMap<Vec<u8>, User>) {
        let mut table = self.locked();
        let mut next = UserTable {
            version: table.version + 1,
            ..UserTable::default()
        };
        let default = table.find(DEFAULT).cloned();
        next.users
            .extend(default.into_iter().map(|user| (DEFAULT.to_vec(), user)));
        for (name, mut user) in users {
            user.birth = if name == DEFAULT { 0 } else { table.version };
            next.users.insert(name, Arc::new(user));
        }
        self.publish(&mut table, next);
    }
}

/// True if a file may define as many users.
pub(crate) fn may_have(users: usize) -> bool {
    users <= USERS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users() -> Users {
        static EMPTY: std::sync::LazyLock<Catalogue> = std::sync::LazyLock::new(|| {
            Catalogue::new(&[("get", Vec::new())], |_| (Vec::new(), Vec::new()))
        });
        Users::new(None, &EMPTY)
    }

    #[test]
    fn users_are_bounded() {
        let users = users();
        for number in 1..USERS_MAX {
            users.set(number.to_string().as_bytes(), &[]).expect("room");
        }
        assert!(users.set(b"one more", &[]).is_err() && users.set(b"more", &[]).is_err());
        assert_eq!(users.remove(&[b"1".to_vec(), b"none".to_vec()]), 1);
        users.set(b"more", &[b"on".to_vec()]).expect("room");
        let patterns: Vec<_> = (0..300)
            .map(|number| format!("~{number}").into_bytes())
            .collect();
        assert!(users.set(b"more", &patterns).is_err());
        let long: Vec<_> = (0..100)
            .map(|number| format!("~{number:01000}").into_bytes())
            .collect();
        assert!(users.set(b"more", &long).is_err());
        assert_eq!(users.now().find(b"more").map(|user| user.is_on), Some(true));
    }

    #[test]
    fn a_user_that_is_made_again_is_another_one() {
        let users = users();
        let birth = || users.now().find(b"u").map(|user| user.birth);
        users.set(b"u", &[]).expect("room");
        let first = birth();
        users.set(b"u", &[b"on".to_vec()]).expect("room");
        assert_eq!(birth(), first);
        users.remove(&[b"u".to_vec()]);
        users.set(b"u", &[]).expect("room");
        assert_ne!(birth(), first);
    }
}
