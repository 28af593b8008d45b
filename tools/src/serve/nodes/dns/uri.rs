//! The URI of a name in DNS (RFC 4501): `dns:[//RESOLVER[:PORT]/]NAME[?class=IN;type=SRV]`.
//!
//! Beside that, `scheme=rdma` says how the nodes are reached that the name has. A name is absolute.

use std::fmt;

use farcore_rdma::Scheme;
use simple_dns::Name;

/// What a URI looks like.
const FORMAT: &str = "dns:[//RESOLVER[:PORT]/]NAME[?type=SRV;scheme=tcp|rdma|rdma+tcp]";
const PREFIX: &str = "dns:";
/// The port of resolvers.
pub(super) const PORT: u16 = 53;

/// A name in DNS, and who is to know it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::serve) struct DnsUri {
    /// The host and the port of the resolver; those of the system if there is none.
    pub(super) resolver: Option<(String, u16)>,
    /// In small letters, without a dot at its end.
    pub(super) name: String,
    /// How nodes are reached.
    pub(super) scheme: Scheme,
}

fn parse_resolver(text: &str) -> Option<(String, u16)> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        host.parse::<std::net::Ipv6Addr>().ok()?;
        (host, rest)
    } else {
        let end = text.find(':').unwrap_or(text.len());
        let host = &text[..end];
        let is_name = |one: char| one.is_ascii_alphanumeric() || "-._".contains(one);
        if host.is_empty() || !host.chars().all(is_name) {
            return None;
        }
        (host, &text[end..])
    };
    let port = match port.strip_prefix(':') {
        Some(port) => port.parse().ok().filter(|&port| port > 0)?,
        None if port.is_empty() => PORT,
        None => return None,
    };
    Some((host.to_owned(), port))
}

fn parse_scheme(text: &str) -> Result<Scheme, String> {
    [Scheme::Tcp, Scheme::Rdma, Scheme::RdmaTcp]
        .into_iter()
        .find(|scheme| scheme.as_str() == text)
        .ok_or_else(|| format!("scheme={text} is none: use tcp, rdma or rdma+tcp"))
}

impl DnsUri {
    /// True if a text is meant to be such a URI.
    pub(in crate::serve) fn is_meant(text: &str) -> bool {
        let start = text.get(..PREFIX.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
    }

    /// Reads a URI.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(in crate::serve) fn parse(text: &str) -> Result<Self, String> {
        let wrong = |what: String| format!("{what}; write {FORMAT}");
        let rest = text.get(PREFIX.len()..).filter(|_| Self::is_meant(text));
        let rest = rest.ok_or_else(|| wrong("it does not begin with dns:".to_owned()))?;
        let (rest, query) = rest
            .split_once('?')
            .map_or((rest, None), |(rest, query)| (rest, Some(query)));
        let (resolver, name) = match rest.strip_prefix("//") {
            Some(rest) => {
                let (resolver, name) = rest
                    .split_once('/')
                    .ok_or_else(|| wrong("it has no name after the resolver".to_owned()))?;
                let parsed = parse_resolver(resolver);
                let parsed = parsed.ok_or_else(|| wrong(format!("{resolver:?} is no resolver")))?;
                (Some(parsed), name)
            }
            None => (None, rest),
        };
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let is_fine = |one: char| one.is_ascii_alphanumeric() || "-._".contains(one);
        let has_labels = name.split('.').all(|label| !label.is_empty());
        if !has_labels || !name.chars().all(is_fine) || Name::new(&name).is_err() {
            return Err(wrong(format!("{name:?} is no name of a service")));
        }
        let mut scheme = Scheme::Tcp;
        for part in query.into_iter().flat_map(|query| query.split(';')) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            match (&key.to_ascii_lowercase()[..], value) {
                ("class", value) if value.eq_ignore_ascii_case("IN") => {}
                ("type", value) if value.eq_ignore_ascii_case("SRV") => {}
                ("scheme", value) => scheme = parse_scheme(value).map_err(wrong)?,
                _ => return Err(wrong(format!("{part:?} has no meaning"))),
            }
        }
        Ok(Self {
            resolver,
            name,
            scheme,
        })
    }
}

impl fmt::Display for DnsUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        match &self.resolver {
            Some((host, port)) if host.contains(':') => write!(f, "//[{host}]:{port}/")?,
            Some((host, port)) => write!(f, "//{host}:{port}/")?,
            None => {}
        }
        f.write_str(&self.name)?;
        match self.scheme {
            Scheme::Tcp => Ok(()),
            scheme => write!(f, "?scheme={}", scheme.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_read_and_written() {
        for (text, written) in [
            (
                "dns:_farcore._tcp.example.com",
                "dns:_farcore._tcp.example.com",
            ),
            (
                "DNS:_Farcore._tcp.Example.com.?type=SRV",
                "dns:_farcore._tcp.example.com",
            ),
            ("dns://127.0.0.1:5353/a.b", "dns://127.0.0.1:5353/a.b"),
            ("dns://10.0.0.1/a?CLASS=in;TYPE=srv", "dns://10.0.0.1:53/a"),
            ("dns://[::1]/a?scheme=rdma", "dns://[::1]:53/a?scheme=rdma"),
            (
                "dns://ns.rack:54/a?scheme=rdma+tcp",
                "dns://ns.rack:54/a?scheme=rdma+tcp",
            ),
        ] {
            let uri = DnsUri::parse(text).unwrap();
            assert_eq!(uri.to_string(), written);
            assert_eq!(DnsUri::parse(written), Ok(uri));
        }
        assert!(DnsUri::is_meant("dns:") && !DnsUri::is_meant("/dns:") && !DnsUri::is_meant("dn"));
    }

    #[test]
    fn wrong_uris_are_refused() {
        let label = format!("dns:{}.a", "x".repeat(64));
        let name = format!("dns:{}a", "x.".repeat(130));
        for (text, part) in [
            ("", "does not begin with dns:"),
            ("dns:", "is no name of a service"),
            ("dns:.", "is no name of a service"),
            ("dns:a..b", "is no name of a service"),
            ("dns:a%20b", "is no name of a service"),
            ("dns:a/b", "is no name of a service"),
            ("dns:ä", "is no name of a service"),
            (&label, "is no name of a service"),
            (&name, "is no name of a service"),
            ("dns://a", "no name after the resolver"),
            ("dns:///a", "\"\" is no resolver"),
            ("dns://a:0/b", "is no resolver"),
            ("dns://a:x/b", "is no resolver"),
            ("dns://a:1:2/b", "is no resolver"),
            ("dns://[::1/b", "is no resolver"),
            ("dns://[::1]5/b", "is no resolver"),
            ("dns://[a]/b", "is no resolver"),
            ("dns:a?type=A", "\"type=A\" has no meaning"),
            ("dns:a?class=CH", "\"class=CH\" has no meaning"),
            ("dns:a?", "\"\" has no meaning"),
            ("dns:a?type=SRV&scheme=tcp", "has no meaning"),
            ("dns:a?scheme=http", "use tcp, rdma or rdma+tcp"),
        ] {
            let said = DnsUri::parse(text).unwrap_err();
            assert!(
                said.contains(part) && said.contains(FORMAT),
                "{text}: {said}"
            );
        }
    }
}
