//! The cookies: which one carries a session's token, and which one a device's.
//!
//! - I1: behind a proxy that encrypts, names begin with `__Host-`: a browser takes such a cookie
//!   only from this very host over HTTPS, so that no other host of the domain can plant one.
//!
//! Source: RFC 6265bis, 4.1.3.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, header};

use crate::error::{ApiError, ApiResult};

/// Base64 of 32 bytes without padding.
const TOKEN_LENGTH: usize = 43;

/// What a cookie is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cookie {
    /// Carries the token of a session.
    Session,
    /// Carries the token of a browser that has signed in before.
    Device,
}

impl Cookie {
    const fn name(self, is_secure: bool) -> &'static str {
        match (self, is_secure) {
            (Self::Session, false) => "farcore_session",
            (Self::Session, true) => "__Host-farcore_session",
            (Self::Device, false) => "farcore_device",
            (Self::Device, true) => "__Host-farcore_device",
        }
    }

    /// The token of a request's cookie. Of several cookies of the name, none counts: another site
    /// of the same host may have added one.
    pub(crate) fn token(self, headers: &HeaderMap, is_secure: bool) -> Option<&str> {
        let wanted = self.name(is_secure);
        let texts = headers.get_all(header::COOKIE).iter();
        let pairs = texts.filter_map(|text| text.to_str().ok());
        let pairs = pairs.flat_map(|text| text.split(';'));
        let mut tokens = pairs.filter_map(|pair| {
            let (name, value) = pair.trim().split_once('=')?;
            (name == wanted).then_some(value)
        });
        let token = tokens.next().filter(|token| token.len() == TOKEN_LENGTH);
        token.filter(|_| tokens.next().is_none())
    }

    /// The header that gives a browser a token for a while.
    ///
    /// # Errors
    /// The token is no text: a mistake in the program.
    pub(crate) fn set(self, token: &str, age: Duration, is_secure: bool) -> ApiResult<HeaderValue> {
        let name = self.name(is_secure);
        let secure = if is_secure { "; Secure" } else { "" };
        let age = age.as_secs();
        let text =
            format!("{name}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age={age}{secure}");
        HeaderValue::try_from(text).map_err(ApiError::internal)
    }

    /// The header that takes the token away.
    ///
    /// # Errors
    /// None in practice.
    pub(crate) fn remove(self, is_secure: bool) -> ApiResult<HeaderValue> {
        self.set("", Duration::ZERO, is_secure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "farcore_session";

    fn read_of(cookie: Cookie, texts: &[&str], is_secure: bool) -> Option<String> {
        let mut headers = HeaderMap::new();
        for text in texts {
            headers.append(header::COOKIE, text.parse().unwrap());
        }
        cookie.token(&headers, is_secure).map(str::to_owned)
    }

    fn read(texts: &[&str]) -> Option<String> {
        read_of(Cookie::Session, texts, false)
    }

    #[test]
    fn any_header_gives_a_whole_token_or_none() {
        farcore_fuzz::Target::new("cookie")
            .seed(format!("x=1; {NAME}={}; y=2", "a".repeat(43)))
            .seed(format!("__Host-{NAME}={}", "b".repeat(43)))
            .words(&["; ", "=", "__Host-", NAME])
            .run(|bytes| {
                let Ok(value) = HeaderValue::from_bytes(bytes) else {
                    return;
                };
                let mut headers = HeaderMap::new();
                headers.append(header::COOKIE, value);
                for is_secure in [false, true] {
                    if let Some(token) = Cookie::Session.token(&headers, is_secure) {
                        assert_eq!(token.len(), 43);
                        assert!(bytes.windows(43).any(|part| part == token.as_bytes()));
                    }
                }
            });
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

    #[test]
    fn a_cookie_that_another_host_planted_does_not_count() {
        let (own, foreign) = ("a".repeat(43), "b".repeat(43));
        for (cookie, name) in [
            (Cookie::Session, "farcore_session"),
            (Cookie::Device, "farcore_device"),
        ] {
            let planted = format!("{name}={foreign}");
            assert_eq!(read_of(cookie, &[&planted], true), None);
            let both = format!("{planted}; __Host-{name}={own}");
            assert_eq!(read_of(cookie, &[&both], true), Some(own.clone()));
            let set = cookie.set(&own, Duration::from_secs(9), true).unwrap();
            let set = set.to_str().unwrap();
            assert!(
                set.starts_with(&format!("__Host-{name}={own}; Path=/; ")),
                "{set}"
            );
            assert!(
                set.ends_with("; Secure") && !set.contains("Domain"),
                "{set}"
            );
        }
    }
}
