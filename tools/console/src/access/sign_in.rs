//! Sign-in, sign-out, and the change of one's own password.

use std::net::IpAddr;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{AppendHeaders, IntoResponse};
use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};

use super::cookie::Cookie;
use super::device::{self, Device};
use super::password::{Password, check_rules};
use super::role::Role;
use super::session::{Account, Session, end_token};
use super::users::folded;
use crate::clock::now_ms;
use crate::error::{ApiError, ApiResult};
use crate::events::{Event, Level};
use crate::http::{Body, Peer};
use crate::state::AppState;

/// The body of a sign-in.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Credentials {
    name: String,
    password: Password,
}

/// Who is signed in, and the token that changes need.
#[derive(Debug, Serialize)]
pub(super) struct SignedIn {
    user: Account,
    csrf: String,
}

/// What is known of a name.
struct Known {
    id: i64,
    name: String,
    role: Role,
    password: String,
}

/// `GET /api/session`
pub(super) async fn show(session: Option<Session>) -> ApiResult<Json<SignedIn>> {
    let session = session.ok_or_else(|| {
        let message = "this needs a session, and there is none or it has ended: sign in";
        ApiError::new(StatusCode::UNAUTHORIZED, "not_signed_in", message)
    })?;
    let csrf = session.csrf().to_owned();
    Ok(Json(SignedIn {
        user: session.account,
        csrf,
    }))
}

/// The address of a client. Behind a proxy that encrypts, it is the last one that was forwarded,
/// which the proxy itself has added.
fn address(peer: Peer, headers: &HeaderMap, is_behind_tls: bool) -> IpAddr {
    let forwarded = headers.get_all("x-forwarded-for").iter().next_back();
    let forwarded = forwarded.and_then(|text| text.to_str().ok());
    let last = forwarded.and_then(|text| text.rsplit(',').next());
    let parsed = last.and_then(|text| text.trim().parse().ok());
    parsed.filter(|_| is_behind_tls).unwrap_or(peer.client)
}

fn wrong_credentials() -> ApiError {
    let message = "name or password is wrong: check both";
    ApiError::new(StatusCode::UNAUTHORIZED, "wrong_credentials", message)
}

fn known(console: &Connection, folded_name: &str) -> ApiResult<Option<Known>> {
    let text = "SELECT id, name, role, password FROM users
        WHERE folded_name = ?1 AND NOT is_disabled";
    let found = console.query_row(text, [folded_name], |row| {
        Ok(Known {
            id: row.get(0)?,
            name: row.get(1)?,
            role: row.get(2)?,
            password: row.get(3)?,
        })
    });
    Ok(found.optional()?)
}

/// The device of a request's cookie, if a user of this folded name has signed in with it.
async fn device_of(
    state: &AppState,
    headers: &HeaderMap,
    folded_name: &str,
) -> ApiResult<Option<Device>> {
    let Some(token) = Cookie::Device.token(headers, state.options.is_behind_tls) else {
        return Ok(None);
    };
    let device = Device::of(token);
    let name = folded_name.to_owned();
    let known = move |console: &Connection| device.is_known(console, &name, now_ms());
    let is_known = state.console.read(known).await?;
    Ok(is_known.then_some(device))
}

/// The name as a message of the log shows it: short, whatever was sent.
fn shown(name: &str) -> String {
    name.chars().take(64).collect()
}

/// `POST /api/session`
pub(super) async fn sign_in(
    State(state): State<AppState>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    Body(sent): Body<Credentials>,
) -> ApiResult<impl IntoResponse> {
    let address = address(peer, &headers, state.options.is_behind_tls);
    let name = folded(&sent.name);
    let device = device_of(&state, &headers, &name).await?;
    let this_try = state.throttle.begin(&name, address, device)?;
    let looked_up = name.clone();
    let found = state
        .console
        .read(move |console| known(console, &looked_up));
    let found = found.await?;
    let hash = found.as_ref().map(|known| known.password.clone());
    let is_right = match state.passwords.verify(sent.password, hash).await {
        Ok(is_right) => is_right,
        Err(error) => {
            this_try.give_up();
            return Err(error);
        }
    };
    let Some(known) = found.filter(|_| is_right) else {
        report_failure(&state, "sign-in", &sent.name, address, this_try.locks).await?;
        return Err(wrong_credentials());
    };
    let is_secure = state.options.is_behind_tls;
    let browser = Browser {
        session: Cookie::Session
            .token(&headers, is_secure)
            .map(str::to_owned),
        device,
        address,
    };
    let begun = begin(&state, known, browser).await?;
    this_try.succeed();
    let age = state.options.limits.session_age;
    let session = Cookie::Session.set(&begun.session, age, is_secure)?;
    let device = Cookie::Device.set(&begun.device, device::AGE, is_secure)?;
    let headers = [(header::SET_COOKIE, session), (header::SET_COOKIE, device)];
    Ok((AppendHeaders(headers), Json(begun.signed_in)))
}

/// Notes a wrong password in the audit trail. `what` is what it was given for.
async fn report_failure(
    state: &AppState,
    what: &'static str,
    name: &str,
    address: IpAddr,
    is_locked: bool,
) -> ApiResult<()> {
    let name = shown(name);
    state
        .console
        .write(move |console| {
            let message = match is_locked {
                false => format!("{what} as {name} from {address} failed"),
                true => {
                    format!("{what} as {name} from {address} failed and is locked for a while")
                }
            };
            Event::audit(Level::Warning, &name, message).write(console)
        })
        .await
}

/// What a browser that signs in had before, and where it is.
struct Browser {
    session: Option<String>,
    device: Option<Device>,
    address: IpAddr,
}

/// A sign-in, with the tokens of its cookies.
struct Begun {
    signed_in: SignedIn,
    session: String,
    device: String,
}

/// Makes the session of a user whose password was right. The session that the browser had ends.
async fn begin(state: &AppState, known: Known, browser: Browser) -> ApiResult<Begun> {
    state
        .console
        .write(move |console| {
            if let Some(old) = browser.session {
                end_token(console, &old)?;
            }
            let now = now_ms();
            // The password may have changed while the hash was made.
            let noted = console.execute(
                "UPDATE users SET last_sign_in_ms = ?2
                WHERE id = ?1 AND NOT is_disabled AND password = ?3",
                params![known.id, now, known.password],
            )?;
            if noted == 0 {
                return Err(wrong_credentials());
            }
            let session = Session::begin(console, known.id, now)?;
            let device = Device::begin(console, known.id, browser.device, now)?;
            let message = format!("signed in from {}", browser.address);
            Event::audit(Level::Info, &known.name, message).write(console)?;
            let user = Account {
                id: known.id,
                name: known.name,
                role: known.role,
            };
            let csrf = session.csrf;
            Ok(Begun {
                signed_in: SignedIn { user, csrf },
                session: session.token,
                device,
            })
        })
        .await
}

/// `DELETE /api/session`
pub(super) async fn sign_out(
    State(state): State<AppState>,
    session: Session,
) -> ApiResult<impl IntoResponse> {
    state
        .console
        .write(move |console| {
            session.end(console)?;
            let name = &session.account.name;
            Event::audit(Level::Info, name, "signed out").write(console)
        })
        .await?;
    let cookie = Cookie::Session.remove(state.options.is_behind_tls)?;
    let headers = AppendHeaders([(header::SET_COOKIE, cookie)]);
    Ok((StatusCode::NO_CONTENT, headers))
}

/// The body of a change of one's own password.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Change {
    current: Password,
    new: Password,
}

/// `POST /api/password`
pub(super) async fn change_password(
    State(state): State<AppState>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    session: Session,
    Body(sent): Body<Change>,
) -> ApiResult<StatusCode> {
    check_rules("new", &sent.new)?;
    // An open session that was left alone must not serve to guess the password.
    let address = address(peer, &headers, state.options.is_behind_tls);
    let name = folded(&session.account.name);
    let device = device_of(&state, &headers, &name).await?;
    let this_try = state.throttle.begin(&name, address, device)?;
    let found = state
        .console
        .read(move |console| known(console, &name))
        .await?;
    let hash = found.map(|known| known.password);
    let is_right = match state.passwords.verify(sent.current, hash.clone()).await {
        Ok(is_right) => is_right,
        Err(error) => {
            this_try.give_up();
            return Err(error);
        }
    };
    if !is_right {
        let name = &session.account.name;
        let what = "change of the password";
        report_failure(&state, what, name, address, this_try.locks).await?;
        let message = "the current password is wrong";
        let error = ApiError::new(StatusCode::FORBIDDEN, "wrong_password", message);
        return Err(error.of_field("current"));
    }
    this_try.succeed();
    let new = state.passwords.hash(sent.new).await?;
    state
        .console
        .write(move |console| {
            let changed = console.execute(
                "UPDATE users SET password = ?2 WHERE id = ?1 AND password = ?3",
                params![session.account.id, new, hash],
            )?;
            if changed == 0 {
                let message = "the password was changed meanwhile: sign in with the new one";
                return Err(ApiError::conflict("changed_meanwhile", message));
            }
            session.end_others(console)?;
            let name = &session.account.name;
            Event::audit(Level::Info, name, "changed their password").write(console)
        })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forwarded_address_counts_only_behind_a_proxy() {
        let here = "127.0.0.1".parse().unwrap();
        let peer = Peer {
            client: here,
            reached: here,
        };
        let mut headers = HeaderMap::new();
        let forwarded = "198.51.100.9, 192.0.2.7".parse().unwrap();
        headers.insert("x-forwarded-for", forwarded);
        assert_eq!(address(peer, &headers, false), here);
        assert_eq!(address(peer, &headers, true).to_string(), "192.0.2.7");
        headers.insert("x-forwarded-for", "nonsense".parse().unwrap());
        assert_eq!(address(peer, &headers, true), here);
    }
}
