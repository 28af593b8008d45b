//! The cookie that carries a session's token.
//!
//! Source: RFC 6265bis.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, header};

use crate::error::{ApiError, ApiResult};

const NAME: &str = "farcore_session";
/// Base64 of 32 bytes without padding.
const TOKEN_LENGTH: usize = 43;

/// The token of a request's cookie. Of several cookies of the name, none counts: another site of
/// the same host may have added one.
pub(crate) fn token(headers: &HeaderMap) -> Option<&str> {
    let texts = headers.get_all(header::COOKIE).iter();
    let pairs = texts.filter_map(|text| text.to_str().ok());
    let pairs = pairs.flat_map(|text| text.split(';'));
    let mut tokens = pairs.filter_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        (name == NAME).then_some(value)
    });
    let token = tokens.next().filter(|token| token.len() == TOKEN_LENGTH);
    token.filter(|_| tokens.next().is_none())
}

/// The header that gives a browser a token for a while.
///
/// # Errors
/// The token is no text: a mistake in the program.
pub(crate) fn set(token: &str, age: Duration, is_secure: bool) -> ApiResult<HeaderValue> {
    let secure = if is_secure { "; Secure" } else { "" };
    let age = age.as_secs();
    let text = format!("{NAME}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age={age}{secure}");
    HeaderValue::try_from(text).map_err(ApiError::internal)
}

/// The header that takes the token away.
///
/// # Errors
/// None in practice.
pub(crate) fn remove(is_secure: bool) -> ApiResult<HeaderValue> {
    set("", Duration::ZERO, is_secure)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(texts: &[&str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for text in texts {
            headers.append(header::COOKIE, text.parse().unwrap());
        }
        token(&headers).map(str::to_owned)
    }

    #[test]
    fn one_token_counts() {
        let (one, other) = ("a".repeat(43), "b".repeat(43));
        assert_eq!(
            read(&[&format!("x=1; {NAME}={one}; y=2")]),
            Some(one.clone())
        );
        assert_eq!(read(&[&format!("{NAME}={one}; {NAME}={other}")]), None);
        assert_eq!(
            read(&[&format!("{NAME}={one}"), &format!("{NAME}={other}")]),
            None
        );
        assert_eq!(read(&[&format!("x{NAME}={one}")]), None);
        assert_eq!(read(&[&format!("{NAME}=short")]), None);
        assert_eq!(read(&[]), None);
    }
}
