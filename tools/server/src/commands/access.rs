//! `ACL`: users and their rights.

use std::sync::Arc;

use farcore::Core;

use super::beside::beside;
use super::client_walk::ClientWalk;
use super::command::{Subcommand, takes};
use super::rights::{self, Words};
use super::subcommand::{find_subcommand, too_many};
use super::{Call, Flow, Refusal, find};
use crate::conn::client_filter::ClientFilter;
use crate::cores::message::Question;
use crate::cores::shared::Shared;
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::users::catalogue::{CATEGORIES, Catalogue, category};
use crate::users::denials::{Denial, joined};
use crate::users::file;
use crate::users::selector::{Denied, Selector};
use crate::users::user::{DEFAULT, User};
use crate::words::parsed_integer;

type Result = std::result::Result<Flow, Refusal>;

/// Bits of a password that `ACL GENPASS` makes, by default and at most.
const PASSWORD_BITS: i64 = 256;
const PASSWORD_BITS_MAX: i64 = 4096;
/// Refusals that `ACL LOG` shows, by default.
const SHOWN: usize = 10;
/// What a command that is described costs.
const STEPS_A_COMMAND: usize = 4;
/// Bytes of a user's name, at most.
const NAME_BYTES_MAX: usize = 1 << 10;

const NO_FILE: &str = "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store users in the Redis configuration.";

/// What `ACL` does.
pub(super) const ACL: &[Subcommand] = &[
    Subcommand::new("cat", -2, list_categories),
    Subcommand::new("deluser", -3, remove_users),
    Subcommand::new("dryrun", -4, dry_run),
    Subcommand::new("genpass", -2, make_password),
    Subcommand::new("getuser", 3, get_user),
    Subcommand::new("list", 2, list),
    Subcommand::new("load", 2, load),
    Subcommand::new("log", -2, log),
    Subcommand::new("save", 2, save),
    Subcommand::new("setuser", -3, set_user),
    Subcommand::new("users", 2, users),
    Subcommand::new("whoami", 2, who_am_i),
];

fn list_categories(call: &mut Call<'_>) -> Result {
    if call.count() > 3 {
        return Err(too_many(call));
    }
    if call.count() == 2 {
        return Ok(call.reply(|writer| bulks(writer, &CATEGORIES)));
    }
    let Some(category) = category(call.argument(2)) else {
        let shown = super::flow::repeated(call.argument(2), super::flow::REPEATED_BYTES_MAX);
        return Err(Refusal(format!("ERR Unknown category '{shown}'")));
    };
    let catalogue = call.serving.shared.users.catalogue;
    let commands = catalogue.of_category(category);
    let names: Vec<_> = (catalogue.in_order())
        .filter(|place| commands.has(*place))
        .map(|place| catalogue.name(place))
        .collect();
    steps::count(STEPS_A_COMMAND * catalogue.entries.len());
    Ok(call.reply(|writer| bulks(writer, &names)))
}

fn bulks(writer: &mut Writer<'_>, texts: &[&str]) {
    writer.array(texts.len());
    for text in texts {
        writer.bulk(text.as_bytes());
    }
}

fn who_am_i(call: &mut Call<'_>) -> Result {
    let user = call.connection.user.now();
    Ok(call.reply(|writer| writer.bulk(&user.name)))
}

fn get_user(call: &mut Call<'_>) -> Result {
    let user = call.serving.users.table().find(call.argument(2)).cloned();
    let Some(user) = user else {
        return Ok(call.reply(|writer| {
            writer.null();
        }));
    };
    steps::count_copied(2 * user.description.len());
    let catalogue = call.serving.shared.users.catalogue;
    Ok(call.reply(|writer| write_user(writer, &user, catalogue)))
}

fn write_user(writer: &mut Writer<'_>, user: &User, catalogue: &Catalogue) {
    writer.map(6);
    let flags = user.flags();
    writer.bulk(b"flags");
    writer.set(flags.len());
    for flag in flags {
        writer.bulk(flag.as_bytes());
    }
    writer.bulk(b"passwords");
    writer.array(user.passwords.len());
    for hash in &user.passwords {
        writer.bulk(hash.hex().as_bytes());
    }
    let mut selectors = user.selectors.iter();
    if let Some(first) = selectors.next() {
        write_selector(writer, first, catalogue);
    }
    writer.bulk(b"selectors");
    writer.array(selectors.len());
    for selector in selectors {
        writer.map(3);
        write_selector(writer, selector, catalogue);
    }
}

fn write_selector(writer: &mut Writer<'_>, selector: &Selector, catalogue: &Catalogue) {
    for (what, rules) in [
        ("commands", selector.describe_commands(catalogue)),
        ("keys", selector.describe_keys()),
        ("channels", selector.describe_channels()),
    ] {
        writer.bulk(what.as_bytes());
        writer.bulk(&rules);
    }
    steps::count(STEPS_A_COMMAND * catalogue.entries.len());
}

fn list(call: &mut Call<'_>) -> Result {
    Ok(describe_all(call, file::line))
}

fn users(call: &mut Call<'_>) -> Result {
    Ok(describe_all(call, |user| user.name.clone()))
}

/// Replies a text of each user.
fn describe_all(call: &mut Call<'_>, text: fn(&User) -> Vec<u8>) -> Flow {
    let table = Arc::clone(call.serving.users.table());
    call.task(move |core: Core, output, protocol| async move {
        output.write(|bytes| Writer::new(bytes, protocol).array(table.users.len()));
        for user in table.users.values() {
            output.room(&core).await;
            output.write(|bytes| Writer::new(bytes, protocol).bulk(&text(user)));
            steps::count_copied(user.description.len());
            steps::end_slice(&core).await;
        }
        core
    })
}

/// Copies of the arguments from a place on.
fn owned(call: &Call<'_>, from: usize) -> Vec<Vec<u8>> {
    (from..call.count())
        .map(|place| call.argument(place).to_vec())
        .collect()
}

fn set_user(call: &mut Call<'_>) -> Result {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    if call.argument(2).len() > NAME_BYTES_MAX {
        return Err(Refusal(format!(
            "ERR the name of a user has at most {NAME_BYTES_MAX} bytes"
        )));
    }
    let (name, rules) = (call.argument(2).to_vec(), owned(call, 3));
    steps::count_copied(call.arguments.span_bytes());
    let shared = Arc::clone(&call.serving.shared);
    Ok(call.task(move |core: Core, output, protocol| async move {
        match shared.users.set(&name, &rules) {
            Ok(changed) => {
                renew(&shared, &core).await;
                if changed.channels.is_some() {
                    let filter = ClientFilter {
                        user: Some(changed.name),
                        channels_left: changed.channels,
                        ..ClientFilter::default()
                    };
                    end_clients(&shared, &core, filter).await;
                }
                output.write(|bytes| Writer::new(bytes, protocol).simple("OK"));
            }
            Err(error) => {
                let error = format!("ERR {error}");
                output.write(|bytes| Writer::new(bytes, protocol).error(&error));
            }
        }
        core
    }))
}

/// Has every core look at the newest users.
async fn renew(shared: &Arc<Shared>, core: &Core) {
    shared.question_all(Question::RenewUsers).wait(core).await;
}

/// Disconnects clients.
async fn end_clients(shared: &Arc<Shared>, core: &Core, filter: ClientFilter) {
    let filter = Arc::new(filter);
    let question = |start, answers| Question::KillClients {
        start,
        filter: Arc::clone(&filter),
        answers,
    };
    let mut walk = ClientWalk::new(shared);
    while walk.next((shared, core), question).await.is_some() {}
}

/// Disconnects the clients of users who were removed, but for one, which goes on to its reply.
async fn end_removed(shared: &Arc<Shared>, core: &Core, own_id: u64) {
    let filter = ClientFilter {
        is_of_removed: true,
        spares: Some(own_id),
        ..ClientFilter::default()
    };
    end_clients(shared, core, filter).await;
}

fn remove_users(call: &mut Call<'_>) -> Result {
    let names = owned(call, 2);
    if names.iter().any(|name| name == DEFAULT) {
        return Err("ERR The 'default' user cannot be removed".into());
    }
    let (shared, own_id) = (Arc::clone(&call.serving.shared), call.connection.id);
    Ok(call.task(move |core: Core, output, protocol| async move {
        let removed = shared.users.remove(&names);
        if removed > 0 {
            renew(&shared, &core).await;
            end_removed(&shared, &core, own_id).await;
        }
        output.write(|bytes| Writer::new(bytes, protocol).count(removed));
        core
    }))
}

fn dry_run(call: &mut Call<'_>) -> Result {
    let shown = |place| super::flow::repeated(call.argument(place), usize::MAX);
    let Some(user) = call.serving.users.table().find(call.argument(2)).cloned() else {
        return Err(Refusal(format!("ERR User '{}' not found", shown(2))));
    };
    let not_found = || Refusal(format!("ERR Command '{}' not found", shown(3)));
    let (arguments, input, count) = (call.arguments, call.input, call.count() - 3);
    let command = find(call.argument(3)).ok_or_else(not_found)?;
    let known = (command, call.serving.shared.users.catalogue);
    let words = Words::new(known, count, |place| arguments.get(place + 3, input));
    let has_words = !known.1.words(command.place()).is_empty();
    if count > 1 && has_words && !words.has_word() {
        return Err(not_found());
    }
    let mut arity = command.arity;
    if count > 1 && !command.subcommands.is_empty() {
        let word = call.argument(4);
        let found = find_subcommand(command.subcommands, word);
        arity = match found {
            Some(found) => found.arity,
            None if word.eq_ignore_ascii_case(b"help") => 2,
            None => return Err(not_found()),
        };
    }
    if !takes(arity, count) {
        return Err(Refusal(format!(
            "ERR wrong number of arguments for '{}' command",
            words.name()
        )));
    }
    let Err(denied) = rights::check(&user, &words) else {
        return Ok(call.ok());
    };
    let object = String::from_utf8_lossy(rights::object_of(denied, &words));
    let text = match denied {
        Denied::Command => format!("This user has no permissions to run the '{object}' command"),
        Denied::Key(_) => format!("This user has no permissions to access the '{object}' key"),
        Denied::Channel(_) => {
            format!("This user has no permissions to access the '{object}' channel")
        }
    };
    Ok(call.reply(|writer| writer.bulk(text.as_bytes())))
}

fn make_password(call: &mut Call<'_>) -> Result {
    let bits = match call.count() {
        2 => PASSWORD_BITS,
        3 => super::arguments::integer(call.argument(2))?,
        _ => return Err(too_many(call)),
    };
    if !(1..=PASSWORD_BITS_MAX).contains(&bits) {
        return Err(Refusal(format!(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to {PASSWORD_BITS_MAX}"
        )));
    }
    let digits = usize::try_from((bits + 3) / 4).unwrap_or(0);
    let mut random = vec![0; digits.div_ceil(2)];
    if farcore_tuning::entropy(&mut random).is_err() {
        return Err("ERR the system has no random numbers now; try again".into());
    }
    let halves = random.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let letters: Vec<u8> = halves
        .take(digits)
        .map(|half| b"0123456789abcdef"[usize::from(half)])
        .collect();
    Ok(call.reply(|writer| writer.bulk(&letters)))
}

fn log(call: &mut Call<'_>) -> Result {
    if call.count() > 3 {
        return Err(too_many(call));
    }
    let shared = Arc::clone(&call.serving.shared);
    let mut count = SHOWN;
    if call.count() == 3 {
        if call.argument(2).eq_ignore_ascii_case(b"reset") {
            return Ok(call.task(move |core: Core, output, protocol| async move {
                shared
                    .question_all(Question::ClearDenials)
                    .wait(&core)
                    .await;
                output.write(|bytes| Writer::new(bytes, protocol).simple("OK"));
                core
            }));
        }
        let wanted = parsed_integer(call.argument(2)).ok_or(crate::words::NO_INTEGER)?;
        count = usize::try_from(wanted).unwrap_or(0);
    }
    Ok(call.task(move |core: Core, output, protocol| async move {
        let kept = shared.users.denials_kept();
        let of_cores = shared.question_all(|answers| Question::Denials(kept, answers));
        let of_cores = of_cores.wait(&core).await;
        let bytes = of_cores.iter().flatten().map(Denial::held_bytes).sum();
        let _held = output.hold(bytes);
        steps::count_copied(bytes);
        let denials = joined(of_cores, count.min(kept));
        let now_ms = farcore_tuning::system_ms();
        output.write(|bytes| Writer::new(bytes, protocol).array(denials.len()));
        for denial in &denials {
            output.room(&core).await;
            output.write(|bytes| write_denial(bytes, protocol, denial, now_ms));
            steps::count_copied(denial.held_bytes());
            steps::end_slice(&core).await;
        }
        core
    }))
}

fn write_denial(bytes: &mut Vec<u8>, protocol: Protocol, denial: &Denial, now_ms: u64) {
    let mut writer = Writer::new(bytes, protocol);
    writer.map(7);
    writer.bulk(b"count");
    writer.integer(i64::try_from(denial.count).unwrap_or(i64::MAX));
    for (name, value) in [
        ("reason", denial.reason.name().as_bytes()),
        ("context", denial.context.name().as_bytes()),
        ("object", &denial.object),
        ("username", &denial.user),
    ] {
        writer.bulk(name.as_bytes());
        writer.bulk(value);
    }
    writer.bulk(b"age-seconds");
    let age_ms = u32::try_from(now_ms.saturating_sub(denial.at_ms)).unwrap_or(u32::MAX);
    writer.score(f64::from(age_ms) / 1000.0);
    writer.bulk(b"client-info");
    writer.bulk(denial.client.as_bytes());
}

fn load(call: &mut Call<'_>) -> Result {
    let (shared, own_id) = (Arc::clone(&call.serving.shared), call.connection.id);
    let Some(path) = shared.options.acl_file.clone() else {
        return Err(NO_FILE.into());
    };
    Ok(call.task(move |core: Core, output, protocol| async move {
        let (catalogue, defaults) = (shared.users.catalogue, shared.users.defaults());
        let loaded = beside(&core, "farcore-acl-file", move || file::load(&path, catalogue, defaults)).await;
        let outcome = match loaded {
            Some(Ok(users)) => {
                shared.users.replace(users);
                renew(&shared, &core).await;
                end_removed(&shared, &core, own_id).await;
                Ok(())
            }
            Some(Err(errors)) => Err(errors),
            None => Err("the file cannot be read now. ".to_owned()),
        };
        output.write(|bytes| {
            let mut writer = Writer::new(bytes, protocol);
            match outcome {
                Ok(()) => writer.simple("OK"),
                Err(errors) => writer.error(&format!(
                    "ERR {errors}WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
                )),
            }
        });
        core
    }))
}

fn save(call: &mut Call<'_>) -> Result {
    let shared = Arc::clone(&call.serving.shared);
    let Some(path) = shared.options.acl_file.clone() else {
        return Err(NO_FILE.into());
    };
    Ok(call.task(move |core: Core, output, protocol| async move {
        let table = shared.users.now();
        let shown = path.display().to_string();
        let saved = beside(&core, "farcore-acl-file", move || file::save(&path, &table)).await;
        let is_saved = match saved {
            Some(Ok(())) => true,
            Some(Err(error)) => {
                tracing::warn!(file = shown, %error, "the file of users cannot be written");
                false
            }
            None => false,
        };
        output.write(|bytes| {
            let mut writer = Writer::new(bytes, protocol);
            if is_saved {
                writer.simple("OK");
            } else {
                writer.error("ERR There was an error trying to save the ACLs. Please check the server logs for more information");
            }
        });
        core
    }))
}
