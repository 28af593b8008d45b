//! Commands of scripts.
//!
//! A script runs as a transaction of one command: `EVAL` queues itself, the sections of its keys
//! are entered, and it is replayed under them. Then it begins, and calls its commands one after
//! the other (`turn/scripting.rs`). Within `EXEC` it is replayed already. If the core has just left
//! an entry of these sections, it begins where it is parsed.

use std::sync::Arc;
use std::time::Instant;

use farcore::constants::{KEY_BYTES_MAX, SECTION_KEYS_MAX};
use farcore_script::{SCRIPT_BYTES_MAX, Script, Step};

use super::arguments::{integer, is_option};
use super::command::Subcommand;
use super::{Call, Flow, Refusal};
use crate::cores::message::{KilledScripts, Question};
use crate::exec::script_queues::Entry;
use crate::exec::script_run::{Next, ScriptRun};
use crate::exec::transaction::{Added, BESIDE_BYTES, Queue, Reach};
use crate::memory_limit::OUT_OF_MEMORY;
use crate::resp::{Protocol, Writer};
use crate::scripts::{Sha, owner_of};
use crate::steps;

type Result = std::result::Result<Flow, Refusal>;

/// What a client reads of a script that is not known; as Redis.
const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";
/// The place of the first key.
const FIRST_KEY: usize = 3;
/// Bytes that the interpreter of a script may take: this part of those of all clients, within
/// limits.
const MEMORY_SHARE: usize = 4;
const MEMORY_BYTES_MIN: usize = 1 << 20;
const MEMORY_BYTES_MAX: usize = 64 << 20;
/// Digests of one `SCRIPT EXISTS`, at most.
const DIGESTS_MAX: usize = 1024;
/// What `SCRIPT` does.
pub(super) const SCRIPT: &[Subcommand] = &[
    Subcommand::new("exists", -3, exists),
    Subcommand::new("flush", -2, flush),
    Subcommand::new("kill", 2, kill),
    Subcommand::new("load", 3, load),
];

pub(super) fn eval(call: &mut Call<'_>) -> Result {
    evaluate(call, false, false)
}

pub(super) fn eval_ro(call: &mut Call<'_>) -> Result {
    evaluate(call, false, true)
}

pub(super) fn evalsha(call: &mut Call<'_>) -> Result {
    evaluate(call, true, false)
}

pub(super) fn evalsha_ro(call: &mut Call<'_>) -> Result {
    evaluate(call, true, true)
}

/// How many keys follow.
fn key_count(call: &Call<'_>) -> std::result::Result<usize, Refusal> {
    let count = integer(call.argument(2))?;
    if count < 0 {
        return Err("ERR Number of keys can't be negative".into());
    }
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count > call.count() - FIRST_KEY {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    Ok(count)
}

fn evaluate(call: &mut Call<'_>, by_sha: bool, is_read_only: bool) -> Result {
    // While a script runs, what is replied belongs to it.
    if call.is_early() {
        return Ok(Flow::Later);
    }
    if call.connection.is_executing() {
        return start(call, by_sha, is_read_only);
    }
    let keys = key_count(call)?;
    let script = match by_sha {
        true => match known(call)? {
            Some(script) => script,
            None => return Ok(Flow::Later),
        },
        false => script_of(call)?,
    };
    admit(call, &script, is_read_only)?;
    let is_everywhere = call.serving.shared.cores.len() == 1 || !stays_at_keys(call, &script);
    let reach = reach_of(call, keys, is_everywhere);
    if let Some(entry) = free_entry(call, reach) {
        run_at_once(call, (script, keys, is_read_only), (reach, entry))?;
        return Ok(Flow::Done);
    }
    let bytes = call.arguments.span_bytes() + call.count() * BESIDE_BYTES;
    let kept = call.connection.account.may_have(bytes);
    kept.map_err(|shortage| Refusal(shortage.to_string()))?;
    let mut queue = Queue {
        is_alone: true,
        ..Queue::default()
    };
    queue.begin(bytes, call.count());
    let (arguments, input) = (call.arguments, call.input);
    loop {
        match queue.add_some(arguments.len(), |place| arguments.get(place, input)) {
            Added::Part => {}
            Added::Whole => break,
            Added::TooLong => return Err("ERR the script has too many arguments".into()),
        }
    }
    steps::count_copied(bytes);
    queue.reach = reach;
    let (mut near, database) = (Vec::new(), call.database());
    let is_far = call.serving.shared.is_far_memory_used();
    for place in FIRST_KEY..FIRST_KEY + if is_far { keys } else { 0 } {
        steps::count(1);
        let key = database.stored(call.argument(place));
        if near.len() < SECTION_KEYS_MAX && key.len() <= KEY_BYTES_MAX {
            near.push(key.into_owned());
        }
    }
    near.sort_unstable();
    near.dedup();
    Ok(call.run_alone(queue, near))
}

/// The shards of a script's keys, or all.
fn reach_of(call: &Call<'_>, keys: usize, is_everywhere: bool) -> Reach {
    let mut reach = Reach::default();
    if is_everywhere {
        // It may have any key.
        reach.add_all();
        return reach;
    }
    let database = call.database();
    for place in FIRST_KEY..FIRST_KEY + keys {
        steps::count(1);
        reach.add(call.core.shard_of(&database.stored(call.argument(place))));
    }
    reach
}

/// The entry under which a script may begin where it is parsed.
fn free_entry(call: &mut Call<'_>, reach: Reach) -> Option<Entry> {
    // Its keys may have to be looked at first; and what a client caches is noted as it is replayed.
    let may_begin = call.plan.is_none()
        && call.connection.tracker.is_none()
        && !call.serving.shared.is_far_memory_used();
    let queues = &mut call.serving.script_queues;
    may_begin.then(|| queues.take_free(reach, call.number))?
}

/// Runs a script under an entry, as far as it comes now.
fn run_at_once(
    call: &mut Call<'_>,
    (script, keys, is_read_only): (Arc<Script>, usize, bool),
    (reach, entry): (Reach, Entry),
) -> std::result::Result<(), Refusal> {
    let queue = Queue {
        is_alone: true,
        reach,
        ..Queue::default()
    };
    let mut transaction = call.serving.spares.take_transaction();
    transaction.outer = call.connection.transaction.take();
    call.connection.transaction = Some(transaction);
    call.connection.replay(queue);
    let begun = begin(call, (script, keys, is_read_only));
    let (number, connection) = (call.number, &mut *call.connection);
    call.serving.run_at_once(number, connection, entry);
    begun
}

/// The script whose text the command has.
fn script_of(call: &Call<'_>) -> std::result::Result<Arc<Script>, Refusal> {
    let text = call.argument(1);
    steps::count_walked(text.len().min(SCRIPT_BYTES_MAX));
    let is_short = text.len() <= SCRIPT_BYTES_MAX;
    let sha = is_short.then(|| farcore_script::sha_of(text));
    match sha.and_then(|sha| call.serving.scripts.find(&sha)) {
        Some(script) => Ok(Arc::clone(script)),
        None => Script::new(text).map(Arc::new).map_err(Refusal),
    }
}

/// True if a script is seen to use none but its keys: then it runs under the sections of their
/// cores, and any other under those of all.
fn stays_at_keys(call: &Call<'_>, script: &Script) -> bool {
    let Some(called) = &script.commands else {
        return false;
    };
    let of_one_key = &call.serving.shared.of_one_key;
    called.iter().all(|one| {
        let name = one.name.to_ascii_lowercase();
        match one.has_key {
            true => of_one_key.contains(&name[..]),
            false => KEYLESS.contains(&&name[..]),
        }
    })
}

/// Commands without a key that concern no key.
const KEYLESS: &[&str] = &["echo", "ping", "time"];

/// Refuses a script whose first line says what it does not have leave to do now; as Redis.
fn admit(call: &Call<'_>, script: &Script, is_read_only: bool) -> std::result::Result<(), Refusal> {
    if !script.has_flags || script.is_read_only {
        return Ok(());
    }
    if is_read_only {
        return Err("ERR Can not execute a script with write flag using *_ro command.".into());
    }
    if !script.allows_full_memory && call.serving.shared.memory_limit.is_exceeded() {
        return Err(OUT_OF_MEMORY.into());
    }
    Ok(())
}

/// The script that the command names by its digest; `None` while its owner is asked. That may be
/// this core: a script that it is to keep may be among its messages.
fn known(call: &mut Call<'_>) -> std::result::Result<Option<Arc<Script>>, Refusal> {
    let sha = Sha::of(call.argument(1)).ok_or(NO_SCRIPT)?;
    if let Some(script) = call.serving.scripts.find(sha.as_str()) {
        let script = Arc::clone(script);
        call.connection.script_lookup = None;
        return Ok(Some(script));
    }
    let shared = Arc::clone(&call.serving.shared);
    let owner = owner_of(sha.as_str(), shared.cores.len());
    let generation = call.serving.scripts.generation;
    match call.connection.script_lookup.take() {
        Some(lookup) if lookup.0 == generation => match lookup.1.take_one() {
            None => {
                call.connection.script_lookup = Some(lookup);
                Ok(None)
            }
            Some(Some(Some(script))) => {
                call.serving.scripts.copy(&script);
                call.serving.note_scripts();
                Ok(Some(script))
            }
            Some(_) => Err(NO_SCRIPT.into()),
        },
        _ => {
            let wanted = std::iter::once((owner, sha.as_str().to_owned()));
            let answers = shared.question_each(wanted, Question::FindScript);
            call.connection.script_lookup = Some(Box::new((generation, answers)));
            Ok(None)
        }
    }
}

/// Begins a script whose command is replayed.
fn start(call: &mut Call<'_>, by_sha: bool, is_read_only: bool) -> Result {
    let keys = key_count(call)?;
    let script = if by_sha {
        match known(call)? {
            Some(script) => script,
            None => return Ok(Flow::Later),
        }
    } else {
        script_of(call)?
    };
    admit(call, &script, is_read_only)?;
    begin(call, (script, keys, is_read_only))?;
    Ok(Flow::Done)
}

/// Begins a script whose connection holds sections: it is to go on.
fn begin(
    call: &mut Call<'_>,
    (script, keys, is_read_only): (Arc<Script>, usize, bool),
) -> std::result::Result<(), Refusal> {
    let memory_bytes = memory_bytes(call);
    let mut job = call.serving.scripts.job(&script);
    job.words
        .reserve(call.count() - FIRST_KEY, call.arguments.span_bytes());
    for place in FIRST_KEY..call.count() {
        job.words.push(call.argument(place));
    }
    (job.keys, job.memory_bytes) = (keys, memory_bytes);
    job.is_resp3 = call.connection.protocol == Protocol::Resp3;
    if let Some(tracker) = &mut call.connection.tracker {
        tracker.script_keys = job.words.iter().take(keys).map(<[u8]>::to_vec).collect();
    }
    let interpreter = call.serving.scripts.interpreter().map_err(Refusal)?;
    let reach = call.connection.replayed_reach().unwrap_or_default();
    let cores = call.serving.shared.cores.len();
    let is_everywhere = cores == 1 || reach.is_all(cores);
    let run = ScriptRun {
        is_read_only: is_read_only || script.is_read_only,
        script,
        interpreter: Some(interpreter),
        next: Some(Next::Step(Step::Run(job))),
        started: Instant::now(),
        turns: 0,
        resumes: 0,
        has_written: false,
        reach: (!is_everywhere).then_some(reach),
        end: None,
        reply_bytes_max: memory_bytes,
        is_reply_lost: false,
        output: crate::conn::output::Output::default(),
        mode: call.connection.reply_mode,
        protocol: call.connection.protocol,
        database: call.connection.database,
        name: call.connection.last_command,
    };
    call.serving.scripts.running.push(call.number);
    call.connection.begin_script(Box::new(run));
    Ok(())
}

/// Bytes that the interpreter of a script may take.
fn memory_bytes(call: &Call<'_>) -> usize {
    let all = call.serving.memory.server().limit();
    (all / MEMORY_SHARE).clamp(MEMORY_BYTES_MIN, MEMORY_BYTES_MAX)
}

fn load(call: &mut Call<'_>) -> Result {
    let script = Arc::new(Script::new(call.argument(2)).map_err(Refusal)?);
    let memory_bytes = memory_bytes(call);
    steps::count_walked(script.text.len());
    let compiled = call.serving.scripts.compile(&script, memory_bytes);
    let (reply, is_compiled) = compiled.map_err(Refusal)?;
    if is_compiled {
        call.serving.keep_script(&script);
    }
    if let Some(error) = reply.strip_prefix(b"-") {
        let text = String::from_utf8_lossy(error);
        return Err(Refusal(text.trim_end().to_owned()));
    }
    Ok(call.reply(|writer| writer.raw(&reply)))
}

fn exists(call: &mut Call<'_>) -> Result {
    super::arguments::at_most("digests of SCRIPT EXISTS", (call.count() - 2, DIGESTS_MAX))?;
    let wanted: Vec<_> = (2..call.count())
        .map(|place| {
            let sha = Sha::of(call.argument(place));
            sha.map_or_else(String::new, |sha| sha.as_str().to_owned())
        })
        .collect();
    let (shared, wanted) = (Arc::clone(&call.serving.shared), Arc::new(wanted));
    Ok(call.task(move |core, output, protocol| async move {
        let count = wanted.len();
        let answers = shared.question_all(|answers| Question::HaveScripts {
            wanted: Arc::clone(&wanted),
            answers,
        });
        let mut all = vec![false; count];
        for some in answers.wait(&core).await {
            all.iter_mut().zip(some).for_each(|(has, one)| *has |= one);
        }
        output.write(|bytes| {
            let mut writer = Writer::new(bytes, protocol);
            writer.array(count);
            for has in &all {
                writer.integer(i64::from(*has));
            }
        });
        core
    }))
}

fn flush(call: &mut Call<'_>) -> Result {
    let is_mode = |mode| is_option(mode, "async") || is_option(mode, "sync");
    if call.count() > 3 || call.count() == 3 && !is_mode(call.argument(2)) {
        return Err("ERR SCRIPT FLUSH only support SYNC|ASYNC option".into());
    }
    let shared = Arc::clone(&call.serving.shared);
    Ok(call.task(move |core, output, protocol| async move {
        // A core may have got a copy of a script that its owner had not forgotten yet.
        for _ in 0..2 {
            shared
                .question_all(Question::ForgetScripts)
                .wait(&core)
                .await;
        }
        output.write(|bytes| Writer::new(bytes, protocol).simple("OK"));
        core
    }))
}

fn kill(call: &mut Call<'_>) -> Result {
    let shared = Arc::clone(&call.serving.shared);
    Ok(call.task(move |core, output, protocol| async move {
        let mut all = KilledScripts::default();
        for some in shared.question_all(Question::KillScripts).wait(&core).await {
            all.killed += some.killed;
            all.unkillable += some.unkillable;
        }
        output.write(|bytes| {
            let mut writer = Writer::new(bytes, protocol);
            match all {
                KilledScripts { killed: 1.., .. } => writer.simple("OK"),
                KilledScripts { unkillable: 0, .. } => {
                    writer.error("NOTBUSY No scripts in execution right now.");
                }
                _ => writer.error(
                    "UNKILLABLE Sorry the script already executed write commands against the \
                     dataset. You can either wait the script termination or kill the server in a \
                     hard way using the SHUTDOWN NOSAVE command.",
                ),
            }
        });
        core
    }))
}
