//! A core's view of the users: what its connections look at for each command.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use super::table::{UserTable, Users};
use super::user::{DEFAULT, User};

/// A user as the connections of a core share it.
#[derive(Debug)]
pub(crate) struct CoreUser {
    /// It may do everything.
    may_all: Cell<bool>,
    /// It was removed: its clients are about to be disconnected, and may do nothing.
    is_removed: Cell<bool>,
    user: RefCell<Arc<User>>,
}

impl CoreUser {
    fn new(user: &Arc<User>) -> Self {
        Self {
            may_all: Cell::new(user.may_all),
            is_removed: Cell::new(false),
            user: RefCell::new(Arc::clone(user)),
        }
    }

    /// That of the server that this one follows, which may do everything whatever users there are.
    pub(crate) fn of_source(users: &Users) -> Rc<Self> {
        let mut user = User::new(DEFAULT, 0, users.defaults());
        user.may_all = true;
        Rc::new(Self::new(&Arc::new(user)))
    }

    /// True if it may do everything.
    #[inline]
    pub(crate) fn may_all(&self) -> bool {
        self.may_all.get()
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.is_removed.get()
    }

    /// The user as it is now.
    pub(crate) fn now(&self) -> Arc<User> {
        Arc::clone(&self.user.borrow())
    }
}

/// The users as a core knows them.
#[derive(Debug)]
pub(crate) struct CoreUsers {
    table: Arc<UserTable>,
    in_use: HashMap<Vec<u8>, Rc<CoreUser>>,
    /// That of new connections.
    default: Rc<CoreUser>,
}

impl CoreUsers {
    pub(crate) fn new(users: &Users) -> Self {
        let table = users.now();
        let default = table.find(DEFAULT).cloned();
        let default = default.unwrap_or_else(|| Arc::new(User::new(DEFAULT, 0, users.defaults())));
        let default = Rc::new(CoreUser::new(&default));
        Self {
            table,
            in_use: HashMap::from([(DEFAULT.to_vec(), Rc::clone(&default))]),
            default,
        }
    }

    /// Looks at the newest version of the table.
    pub(crate) fn renew(&mut self, users: &Users) {
        let table = users.now();
        if table.version <= self.table.version {
            return;
        }
        self.in_use.retain(|name, known| {
            let before = known.user.borrow().birth;
            match table.find(name).filter(|user| user.birth == before) {
                Some(user) => {
                    known.may_all.set(user.may_all);
                    known.user.replace(Arc::clone(user));
                    name == DEFAULT || Rc::strong_count(known) > 1
                }
                None => {
                    known.may_all.set(false);
                    known.is_removed.set(true);
                    false
                }
            }
        });
        self.table = table;
    }

    /// All users.
    pub(crate) fn table(&self) -> &Arc<UserTable> {
        &self.table
    }

    /// That of a connection that has not authenticated as another.
    pub(crate) fn default(&self) -> &Rc<CoreUser> {
        &self.default
    }

    /// True if new connections need no password.
    pub(crate) fn are_open(&self) -> bool {
        self.default.user.borrow().is_open()
    }

    /// The user of a name, if its password is right.
    pub(crate) fn authenticate(&mut self, name: &[u8], password: &[u8]) -> Option<Rc<CoreUser>> {
        let user = self.table.find(name);
        // A wrong name takes as long as a wrong password.
        let fallback = self.default.now();
        let is_right = user.unwrap_or(&fallback).has_password(password);
        let user = user.filter(|_| is_right)?;
        let known = self.in_use.entry(name.to_vec());
        Some(Rc::clone(
            known.or_insert_with(|| Rc::new(CoreUser::new(user))),
        ))
    }
}
