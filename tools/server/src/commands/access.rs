//! Commands of users: there is one, `default`, who may do everything.

use super::command::Subcommand;
use super::introspection::{CATEGORIES, categories};
use super::subcommand::too_many;
use super::{COMMANDS, Call, Flow, Refusal};
use crate::resp::Writer;

type Result = std::result::Result<Flow, Refusal>;

/// The only user.
pub(crate) const USER: &[u8] = b"default";

/// What `ACL` does.
pub(super) const ACL: &[Subcommand] = &[
    Subcommand::new("cat", -2, list_categories),
    Subcommand::new("getuser", 3, get_user),
    Subcommand::new("list", 2, list),
    Subcommand::new("users", 2, users),
    Subcommand::new("whoami", 2, who_am_i),
];

fn list_categories(call: &mut Call<'_>) -> Result {
    if call.count() > 3 {
        return Err(too_many(call));
    }
    if call.count() == 2 {
        return Ok(call.reply(|writer| bulks(writer, CATEGORIES)));
    }
    let wanted = String::from_utf8_lossy(call.argument(2)).to_lowercase();
    if !CATEGORIES.contains(&&wanted[..]) {
        let shown = String::from_utf8_lossy(call.argument(2));
        return Err(Refusal(format!("ERR Unknown category '{shown}'")));
    }
    let commands: Vec<_> = (COMMANDS.iter())
        .filter(|command| categories(command).contains(&&wanted[..]))
        .map(|command| command.name)
        .collect();
    Ok(call.reply(|writer| bulks(writer, &commands)))
}

fn bulks(writer: &mut Writer<'_>, texts: &[&str]) {
    writer.array(texts.len());
    for text in texts {
        writer.bulk(text.as_bytes());
    }
}

fn get_user(call: &mut Call<'_>) -> Result {
    if call.argument(2) != USER {
        return Ok(call.reply(|writer| {
            writer.null();
        }));
    }
    let has_password = call.serving.shared.options.needs_password();
    Ok(call.reply(|writer| {
        writer.map(6);
        writer.bulk(b"flags");
        writer.set(if has_password { 1 } else { 2 });
        writer.bulk(b"on");
        if !has_password {
            writer.bulk(b"nopass");
        }
        // The password's hash stays here.
        writer.bulk(b"passwords");
        writer.array(0);
        for (what, rule) in [("commands", "+@all"), ("keys", "~*"), ("channels", "&*")] {
            writer.bulk(what.as_bytes());
            writer.bulk(rule.as_bytes());
        }
        writer.bulk(b"selectors");
        writer.array(0);
    }))
}

fn list(call: &mut Call<'_>) -> Result {
    let has_password = call.serving.shared.options.needs_password();
    let password = if has_password { "" } else { " nopass" };
    let line = format!("user default on{password} ~* &* +@all");
    Ok(call.reply(|writer| bulks(writer, &[&line])))
}

fn users(call: &mut Call<'_>) -> Result {
    Ok(call.reply(|writer| bulks(writer, &["default"])))
}

fn who_am_i(call: &mut Call<'_>) -> Result {
    Ok(call.reply(|writer| writer.bulk(USER)))
}
