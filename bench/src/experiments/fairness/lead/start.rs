//! The start of a run: opens the clients' handles and starts their threads.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use anyhow::Context;
use core_affinity::CoreId;
use farcore::Engine;
use farcore_tuning::Clock;
use tracing::warn;

use super::{Member, Role};
use crate::doubts::Doubts;
use crate::experiments::fairness::client::{self, Client, ClientOptions, Event};
use crate::experiments::fairness::keys::Keys;
use crate::experiments::fairness::notes::Notes;
use crate::experiments::fairness::settings::Settings;
use crate::plan::Plan;

/// Opens a handle for each client, that of the measured client last.
pub(super) fn open_clients(
    plan: &Plan,
    settings: &Settings,
    engine: &Engine,
    keys: &Keys,
    clock: &Clock,
) -> anyhow::Result<(Vec<Member>, Vec<Client>)> {
    let roles = std::iter::repeat_n(Role::Flooder, settings.flooders)
        .chain(std::iter::repeat_n(Role::Sleeper, settings.sleepers))
        .chain([Role::Measured]);
    let mut members: Vec<Member> = Vec::new();
    let mut flooders = Vec::new();
    let doubts = Arc::new(Doubts::default());
    let mut clients = Vec::new();
    for (number, role) in roles.enumerate() {
        let notes = Arc::new(Notes::sharing(Arc::clone(&doubts)));
        if role == Role::Flooder {
            flooders.push(notes.clone());
        }
        let options = ClientOptions {
            number,
            window: plan.window,
            puts_percent: settings.flooder_puts_percent,
            measured: settings.measured.clone(),
            form: settings.form,
            // Complete, because the measured client is the last one.
            flooders: match role {
                Role::Measured => std::mem::take(&mut flooders),
                Role::Flooder | Role::Sleeper => Vec::new(),
            },
            seed: plan.seed,
        };
        let handle = engine.handle()?;
        let (keys, clock) = (keys.clone(), clock.clone());
        clients.push(Client::new(options, handle, keys, clock, notes.clone()));
        members.push(Member {
            role,
            name: match role {
                Role::Flooder => format!("flooder {}", number + 1),
                Role::Sleeper => format!("sleeper {}", number + 1 - settings.flooders),
                Role::Measured => "the measured client".to_owned(),
            },
            orders: None,
            notes,
            busy: false,
            left: false,
            unread: 0,
        });
    }
    Ok((members, clients))
}

/// Starts the threads of the clients and connects the members to them.
pub(super) fn start_threads(
    settings: &Settings,
    members: &mut [Member],
    mut clients: Vec<Client>,
) -> anyhow::Result<Receiver<Event>> {
    let (events, inbox) = mpsc::channel();
    let per_thread = clients.len().div_ceil(settings.threads());
    let mut first = 0;
    for number in 0..settings.threads() {
        let group: Vec<Client> = clients.drain(..per_thread).collect();
        let (orders, received) = mpsc::channel();
        for (place, member) in members[first..first + per_thread].iter_mut().enumerate() {
            member.orders = Some((place, orders.clone()));
        }
        first += per_thread;
        let cores = &settings.client_cores;
        let core = (!cores.is_empty()).then(|| cores[number % cores.len()]);
        let events = events.clone();
        let body = move || {
            if let Some(core) = core
                && !core_affinity::set_for_current(CoreId { id: core })
            {
                warn!(core, "the client's thread could not be pinned to the core");
            }
            client::run(group, received, events);
        };
        thread::Builder::new()
            .name(format!("client-{number}"))
            .spawn(body)
            .context("a thread for clients could not be started")?;
    }
    Ok(inbox)
}
