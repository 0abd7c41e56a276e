//! What a program says to the proxy on the sandbox's loopback, and how it is answered: HTTP
//! (RFC 9110, section 9.3.6) or SOCKS 5 (RFC 1928), told apart by the first byte.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::http;
use crate::message::{Form, Reach, Why};

/// Which language a way out was asked for in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speech {
    /// `CONNECT host:port`.
    Connect,
    /// `GET http://host/`.
    Request,
    /// SOCKS 5.
    Socks,
}

/// What was heard so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Not enough yet.
    More,
    /// Take `used` bytes away, say this and listen on.
    Say {
        /// Bytes of a greeting.
        used: usize,
        /// What is answered to it.
        bytes: Vec<u8>,
    },
    /// Take `used` bytes away and ask Wharf.
    Ask {
        /// Bytes that were for the proxy alone.
        used: usize,
        /// What is asked for.
        reach: Reach,
        /// How it is to be answered.
        speech: Speech,
    },
    /// Say this and part.
    Part(Vec<u8>),
}

const SOCKS: u8 = 5;
/// Nothing of a client is known but that it is inside.
const NO_METHOD: u8 = 0;

/// Listens to the bytes of a client; `greeted` once it was answered to a SOCKS greeting.
pub fn hear(bytes: &[u8], greeted: bool) -> Heard {
    match bytes.first() {
        None => Heard::More,
        Some(&SOCKS) if greeted => socks(bytes),
        Some(&SOCKS) => greeting(bytes),
        // The version before had no names, so that clients would have to look them up inside.
        Some(4) => Heard::Part(vec![0, 91, 0, 0, 0, 0, 0, 0]),
        Some(_) => http_request(bytes),
    }
}

fn greeting(bytes: &[u8]) -> Heard {
    let Some(methods) = bytes.get(1).and_then(|&n| bytes.get(2..2 + usize::from(n))) else {
        return Heard::More;
    };
    match methods.contains(&NO_METHOD) {
        true => Heard::Say {
            used: 2 + methods.len(),
            bytes: vec![SOCKS, NO_METHOD],
        },
        false => Heard::Part(vec![SOCKS, 0xff]),
    }
}

fn socks(bytes: &[u8]) -> Heard {
    let Some(&[_, command, _, kind]) = bytes.first_chunk::<4>() else {
        return Heard::More;
    };
    if command != 1 {
        return Heard::Part(socks_reply(7));
    }
    let rest = &bytes[4..];
    let found = match kind {
        1 => rest
            .first_chunk::<4>()
            .map(|b| (Ok(Ipv4Addr::from(*b).to_string()), 4)),
        4 => rest
            .first_chunk::<16>()
            .map(|b| (Ok(Ipv6Addr::from(*b).to_string()), 16)),
        3 => rest.first().and_then(|&length| {
            let text = rest.get(1..1 + usize::from(length))?;
            let name = std::str::from_utf8(text).ok().and_then(http::name);
            Some((name.ok_or(()), 1 + text.len()))
        }),
        _ => return Heard::Part(socks_reply(8)),
    };
    let Some((host, length)) = found else {
        return Heard::More;
    };
    let Some(port) = rest.get(length..).and_then(|rest| rest.first_chunk::<2>()) else {
        return Heard::More;
    };
    let Ok(host) = host else {
        return Heard::Part(socks_reply(1));
    };
    let port = u16::from_be_bytes(*port);
    Heard::Ask {
        used: 4 + length + 2,
        reach: Reach {
            host,
            port,
            form: Form::Tunnel,
        },
        speech: Speech::Socks,
    }
}

fn http_request(bytes: &[u8]) -> Heard {
    let head = match http::head(bytes) {
        Ok(None) => return Heard::More,
        Ok(Some(head)) => head,
        Err(reason) => return Heard::Part(http_reply("400 Bad Request", reason)),
    };
    let (asked, speech) = if head.method == "CONNECT" {
        let place = http::authority(&head.target).filter(|place| place.port.is_some());
        (place.ok_or("CONNECT wants host:port"), Speech::Connect)
    } else {
        (head.absolute().map(|(place, _)| place), Speech::Request)
    };
    let place = match asked {
        Ok(place) => place,
        Err(reason) => return Heard::Part(http_reply("400 Bad Request", reason)),
    };
    let tunnel = speech == Speech::Connect;
    Heard::Ask {
        // The head of a request is for the server: Wharf reads it again.
        used: if tunnel { head.length } else { 0 },
        reach: Reach {
            host: place.host,
            port: place.port.unwrap_or(80),
            form: if tunnel { Form::Tunnel } else { Form::Request },
        },
        speech,
    }
}

impl Speech {
    /// What a client is told when its server is connected.
    pub fn accepted(self) -> Vec<u8> {
        match self {
            Speech::Connect => b"HTTP/1.1 200 Connection established\r\n\r\n".to_vec(),
            Speech::Request => Vec::new(),
            Speech::Socks => socks_reply(0),
        }
    }

    /// What it is told when it is not.
    pub fn refused(self, why: Why, reason: &str) -> Vec<u8> {
        match (self, why) {
            (Speech::Socks, Why::Forbidden) => socks_reply(2),
            (Speech::Socks, Why::Unreachable) => socks_reply(4),
            (Speech::Socks, Why::Busy) => socks_reply(1),
            (_, Why::Forbidden) => http_reply("403 Forbidden", reason),
            (_, Why::Unreachable) => http_reply("502 Bad Gateway", reason),
            (_, Why::Busy) => http_reply("503 Service Unavailable", reason),
        }
    }
}

fn socks_reply(code: u8) -> Vec<u8> {
    vec![SOCKS, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

/// An answer of the proxy's own, which ends the connection.
pub fn http_reply(status: &str, reason: &str) -> Vec<u8> {
    // In the head too, since clients show nothing else of an answer to CONNECT.
    let word: String = reason
        .chars()
        .map(|c| {
            if c == ' ' || c.is_ascii_graphic() {
                c
            } else {
                '?'
            }
        })
        .take(300)
        .collect();
    let body = format!("wharf: {word}\n");
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nX-Wharf-Reason: {word}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(bytes: &[u8], greeted: bool) -> (usize, String, u16, Form) {
        for cut in 0..bytes.len() {
            assert_eq!(hear(&bytes[..cut], greeted), Heard::More, "cut at {cut}");
        }
        match hear(bytes, greeted) {
            Heard::Ask { used, reach, .. } => (used, reach.host, reach.port, reach.form),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn http_in_both_forms() {
        let connect = b"CONNECT Example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n";
        assert_eq!(
            asked(connect, false),
            (connect.len(), "example.org".into(), 443, Form::Tunnel)
        );
        let get = b"GET http://[::1]/x HTTP/1.1\r\nHost: [::1]\r\n\r\n";
        assert_eq!(asked(get, false), (0, "::1".into(), 80, Form::Request));
        for text in [
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "CONNECT a HTTP/1.1\r\n\r\n",
            "GET https://a/ HTTP/1.1\r\n\r\n",
            "hello\r\n\r\n",
        ] {
            let Heard::Part(answer) = hear(text.as_bytes(), false) else {
                panic!("{text}");
            };
            assert!(answer.starts_with(b"HTTP/1.1 400 "), "{text}");
        }
    }

    #[test]
    fn socks_with_names_and_addresses() {
        assert_eq!(
            hear(&[5, 2, 2, 0, 9], false),
            Heard::Say {
                used: 4,
                bytes: vec![5, 0]
            }
        );
        assert_eq!(hear(&[5, 1, 2], false), Heard::Part(vec![5, 0xff]));
        assert_eq!(hear(&[5, 2, 0], false), Heard::More);
        let name = b"\x05\x01\x00\x03\x09A.example\x01\xbb";
        assert_eq!(
            asked(name, true),
            (name.len(), "a.example".into(), 443, Form::Tunnel)
        );
        let four = [5, 1, 0, 1, 127, 0, 0, 1, 0, 80];
        assert_eq!(asked(&four, true).1, "127.0.0.1");
        let mut six = vec![5, 1, 0, 4];
        six.extend([0; 15]);
        six.extend([1, 0, 80]);
        assert_eq!(asked(&six, true).1, "::1");
        let reply = |bytes: &[u8]| match hear(bytes, true) {
            Heard::Part(answer) => answer[1],
            other => panic!("{other:?}"),
        };
        assert_eq!(reply(&[5, 3, 0, 1, 1, 1, 1, 1, 0, 80]), 7);
        assert_eq!(reply(&[5, 1, 0, 9, 0]), 8);
        assert_eq!(reply(b"\x05\x01\x00\x03\x03a b\x00\x50"), 1);
        assert!(matches!(hear(&[4, 1], false), Heard::Part(_)));
    }

    #[test]
    fn a_reason_cannot_forge_a_header() {
        let answer = Speech::Connect.refused(Why::Forbidden, "x\r\nSet-Cookie: a\u{1b}");
        let text = String::from_utf8(answer).unwrap();
        assert!(text.starts_with("HTTP/1.1 403 Forbidden\r\n"));
        assert!(!text.contains("\r\nSet-Cookie") && !text.contains('\u{1b}'));
        assert_eq!(Speech::Socks.refused(Why::Forbidden, "x")[1], 2);
    }
}
