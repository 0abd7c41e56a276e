//! The first bytes of a tunnel: where they show which server is meant, by TLS or by HTTP, it must be
//! the one that the tunnel was granted for. Other protocols pass, and servers that speak first.

use wharf_toolbox::http::{self, Head, LONGEST};

use super::hello::{self, Hello};

/// Bytes before the first blank of a request: a method.
const METHOD: usize = 24;

/// What the bytes so far allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// It cannot be told yet.
    More,
    /// They may pass, and all that come after them.
    Open,
    /// Another server is meant, or it cannot be told which.
    Shut(String),
}

/// Looks at the first bytes of a tunnel to `host`; `port` is the one that was asked for.
pub(super) fn look(bytes: &[u8], host: &str, port: u16) -> Look {
    // Servers pass over empty lines before a request.
    let blank = |byte: &u8| *byte == b'\r' || *byte == b'\n';
    let start = bytes.iter().position(|byte| !blank(byte));
    match start.map(|start| (start, &bytes[start..])) {
        None if bytes.len() > LONGEST => Look::Open,
        None => Look::More,
        Some((0, [22])) => Look::More,
        Some((0, [22, 3, ..])) => tls(bytes, host),
        Some((_, text)) => request(text, host, port),
    }
}

fn tls(bytes: &[u8], host: &str) -> Look {
    match hello::read(bytes) {
        Hello::More => Look::More,
        Hello::Names(None) => Look::Open,
        Hello::Names(Some(name)) if name == host => Look::Open,
        Hello::Names(Some(name)) => Look::Shut(format!("TLS asks {host} for {name}")),
        Hello::Bad => Look::Shut("the beginning of TLS cannot be read".to_owned()),
    }
}

fn request(text: &[u8], host: &str, port: u16) -> Look {
    let end = text.iter().position(|&byte| byte == b'\n');
    let line = &text[..end.unwrap_or(text.len())];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let odd = |byte: &u8| !byte.is_ascii_graphic() && *byte != b' ' && *byte != b'\t';
    let blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
    let method = line.split(blank).next().unwrap_or_default();
    let other = line.iter().any(odd) || method.len() > METHOD || !http::is_token(method);
    match end {
        _ if other => Look::Open,
        None if text.len() > LONGEST => Look::Shut("a first line without end".to_owned()),
        None => Look::More,
        Some(_) if line == b"PRI * HTTP/2.0" => Look::Open,
        Some(_) if !line.windows(5).any(|five| five == b"HTTP/") => Look::Open,
        Some(_) => head(text, host, port),
    }
}

fn head(text: &[u8], host: &str, port: u16) -> Look {
    match http::head(text) {
        Ok(None) => Look::More,
        Ok(Some(head)) => match same_host(&head, host, port) {
            Ok(()) => Look::Open,
            Err(reason) => Look::Shut(reason),
        },
        Err(reason) => Look::Shut(format!("an HTTP request that cannot be read: {reason}")),
    }
}

/// Whether bytes that stay so few can mean no server: no beginning of TLS, and of no request.
pub(super) fn is_harmless(bytes: &[u8]) -> bool {
    bytes.first() != Some(&22) && !bytes.windows(5).any(|five| five == b"HTTP/")
}

/// Whether the Host header names this server; one must be there from HTTP/1.1 on.
pub(super) fn same_host(head: &Head, host: &str, port: u16) -> Result<(), String> {
    let named: Vec<&[u8]> = head.all("host").collect();
    let value = match named.as_slice() {
        [] if head.minor == 0 => return Ok(()),
        [value] => value,
        [] => return Err("a request without a Host".to_owned()),
        _ => return Err("a request with two Hosts".to_owned()),
    };
    let text = std::str::from_utf8(value).unwrap_or_default();
    let place = http::authority(text).ok_or("a request whose Host is no host")?;
    match place.host == host && place.port.is_none_or(|own| own == port) {
        true => Ok(()),
        false => Err(format!("a request to {host} for the Host {}", place.host)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::hello::tests::{client, records};
    use super::*;
    use proptest::prelude::*;

    fn at(text: &str) -> Look {
        look(text.as_bytes(), "a.example", 80)
    }

    fn is_shut(look: &Look) -> bool {
        matches!(look, Look::Shut(_))
    }

    #[test]
    fn a_name_in_tls_must_be_the_one_of_the_tunnel() {
        let good = records(&client(&["A.example"]), 40);
        assert_eq!(look(&good, "a.example", 443), Look::Open);
        assert_eq!(look(&good[..30], "a.example", 443), Look::More);
        let other = records(&client(&["b.example"]), 40);
        assert!(is_shut(&look(&other, "a.example", 443)));
        assert!(is_shut(&look(&good, "10.0.0.7", 443)));
        assert_eq!(
            look(&records(&client(&[]), 99), "10.0.0.7", 443),
            Look::Open
        );
        assert!(is_shut(&look(&[22, 3, 1, 0, 0], "a.example", 443)));
    }

    #[test]
    fn a_host_in_http_must_be_the_one_of_the_tunnel() {
        let get = |host: &str| at(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(get("a.example"), Look::Open);
        assert_eq!(get("A.EXAMPLE:80"), Look::Open);
        for host in [
            "b.example",
            "a.example:81",
            "a.example.b",
            "",
            "a.example, b.example",
        ] {
            assert!(is_shut(&get(host)), "{host}");
        }
        for text in [
            "\r\n\r\nGET / HTTP/1.1\r\nHost: b.example\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n",
            "GET / HTTP/1.1\nHost: a.example\n\n",
            "GET / HTTP/1.1\r\nX: y\r\n\r\n",
            "GET\t/ HTTP/1.1\r\nHost: b.example\r\n\r\n",
        ] {
            assert!(is_shut(&at(text)), "{text:?}");
        }
        assert_eq!(at("GET / HTTP/1.0\r\n\r\n"), Look::Open);
        assert_eq!(at("GET / HTTP/1.1\r\nHost: a.exam"), Look::More);
        assert_eq!(at("GE"), Look::More);
    }

    #[test]
    fn other_protocols_pass_without_a_wait() {
        for text in [
            "SSH-2.0-OpenSSH_9.2\r\n",
            "EHLO me\r\n",
            "get key\r\n",
            "*1\r\n$4\r\nPING\r\n",
            "0033git-upload-pack /x.git\0host=a\0",
            "\0\0\0\x08\x04\x20\x16\x2f",
            "<?xml version='1.0'?>",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "\u{16}\u{1}",
            "a-long-word-that-is-no-method-of-http",
        ] {
            assert_eq!(at(text), Look::Open, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn it_can_be_told_within_the_limit(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let long = bytes.repeat((2 * LONGEST).div_ceil(bytes.len().max(1)));
            prop_assert!(bytes.is_empty() || look(&long, "a.example", 80) != Look::More);
        }

        #[test]
        fn more_bytes_never_take_a_word_back(bytes in "(GET|\\r\\n|[ -~]){0,12} HTTP/1.1\r\n(Host: [ab].example\r\n)?\r\n", cut in 0usize..60) {
            let whole = look(bytes.as_bytes(), "a.example", 80);
            let part = look(&bytes.as_bytes()[..cut.min(bytes.len())], "a.example", 80);
            prop_assert!(part == Look::More || part == whole, "{part:?} {whole:?}");
        }
    }
}
