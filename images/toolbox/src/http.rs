//! The head of an HTTP/1 request, read strictly: what two readers could take for two things is
//! refused, since one of them decides and another obeys (RFC 9112, sections 2 to 6).

/// Most bytes of a head.
pub const LONGEST: usize = 64 * 1024;
/// Most headers of one.
const HEADERS: usize = 200;
/// Bytes of a host name (RFC 1035).
const NAME: usize = 253;

/// A request's first line and its headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// `GET`, `CONNECT` …
    pub method: String,
    /// As it was sent: visible ASCII only.
    pub target: String,
    /// 0 or 1: the minor version.
    pub minor: u8,
    /// In order; names as they were sent, values without the blanks around them.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Bytes of the whole head, its empty line included.
    pub length: usize,
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// In small letters, without brackets and without a last dot.
    pub host: String,
    /// None: none was written.
    pub port: Option<u16>,
}

/// Reads a head; nothing while its end has not come. An error says what is wrong with it.
pub fn head(bytes: &[u8]) -> Result<Option<Head>, &'static str> {
    let broken = "a line is not ended by CR LF";
    let bare = |pair: &[u8]| pair[1] == b'\n' && pair[0] != b'\r';
    let found = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let so_far = &bytes[..found.unwrap_or(bytes.len())];
    // Said at once: some readers would take what follows for the end.
    if so_far.first() == Some(&b'\n') || so_far.windows(2).any(bare) {
        return Err(broken);
    }
    let Some(end) = found else {
        return match bytes.len() {
            length if length > LONGEST => Err("the request's head is too long"),
            _ => Ok(None),
        };
    };
    if end + 4 > LONGEST {
        return Err("the request's head is too long");
    }
    // With the CR of the last line, so that every line has its own.
    let mut lines = bytes[..=end].split(|&byte| byte == b'\n').map(whole);
    let line = lines.next().flatten().ok_or(broken)?;
    let (method, target, minor) = first_line(line).ok_or("the first line is no request")?;
    let mut headers = Vec::new();
    for line in lines {
        headers.push(header(line.ok_or(broken)?).ok_or("a header is malformed")?);
        if headers.len() > HEADERS {
            return Err("there are too many headers");
        }
    }
    Ok(Some(Head {
        method,
        target,
        minor,
        headers,
        length: end + 4,
    }))
}

/// A line without its CR, which must be the only one.
fn whole(line: &[u8]) -> Option<&[u8]> {
    line.strip_suffix(b"\r")
}

fn first_line(line: &[u8]) -> Option<(String, String, u8)> {
    let text = std::str::from_utf8(line).ok()?;
    let mut parts = text.split(' ');
    let (method, target, version) = (parts.next()?, parts.next()?, parts.next()?);
    let visible = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    let minor = match version {
        "HTTP/1.1" => 1,
        "HTTP/1.0" => 0,
        _ => return None,
    };
    let plain = parts.next().is_none() && is_token(method.as_bytes()) && visible(target);
    plain.then(|| (method.to_owned(), target.to_owned(), minor))
}

fn header(line: &[u8]) -> Option<(String, Vec<u8>)> {
    let at = line.iter().position(|&byte| byte == b':')?;
    let (name, value) = (&line[..at], line[at + 1..].trim_ascii());
    let control = |byte: &u8| (*byte < 0x20 && *byte != b'\t') || *byte == 0x7f;
    // A name with a blank before its colon, and a line that goes on with the one before it, end here.
    if !is_token(name) || value.iter().any(control) {
        return None;
    }
    Some((String::from_utf8(name.to_vec()).ok()?, value.to_vec()))
}

/// True for what a method or a header may be named.
pub fn is_token(text: &[u8]) -> bool {
    let mark = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !text.is_empty() && text.iter().all(mark)
}

impl Head {
    /// The values of a header, in order.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.headers
            .iter()
            .filter(move |(own, _)| own.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_slice())
    }

    /// Where a request in absolute form goes, and what it asks for there.
    pub fn absolute(&self) -> Result<(Authority, String), &'static str> {
        let (scheme, rest) = self
            .target
            .split_once("://")
            .ok_or("this is a proxy: ask for a whole address, or CONNECT")?;
        if !scheme.eq_ignore_ascii_case("http") {
            return Err("the proxy takes http:// addresses; other servers are reached by CONNECT");
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (place, path) = rest.split_at(end);
        let authority = authority(place).ok_or("the address names no host")?;
        let path = path.split('#').next().unwrap_or_default();
        Ok((
            authority,
            match path.starts_with('/') {
                true => path.to_owned(),
                false => format!("/{path}"),
            },
        ))
    }
}

/// Reads `host`, `host:port`, `[v6]` or `[v6]:port`; no user, no other sign.
pub fn authority(text: &str) -> Option<Authority> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (inside, after) = rest.split_once(']')?;
            let address: std::net::Ipv6Addr = inside.parse().ok()?;
            (
                address.to_string(),
                after.strip_prefix(':').or(after.is_empty().then_some(""))?,
            )
        }
        None => {
            let (host, port) = text.split_once(':').unwrap_or((text, ""));
            (name(host)?, port)
        }
    };
    let written = text.ends_with(':');
    let port = match port {
        "" if written => return None,
        "" => None,
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => Some(digits.parse().ok()?),
        _ => return None,
    };
    (port != Some(0)).then_some(Authority { host, port })
}

/// A host's name or an address of version 4, in small letters and without a last dot.
pub fn name(text: &str) -> Option<String> {
    let text = text.strip_suffix('.').unwrap_or(text);
    let label = |label: &str| {
        let sign = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        !label.is_empty() && label.len() <= 63 && label.bytes().all(sign) && !label.starts_with('-')
    };
    let fits = text.len() <= NAME && text.split('.').all(label);
    fits.then(|| text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<Head>, &'static str> {
        head(text.as_bytes())
    }

    #[test]
    fn a_head_cut_at_every_byte_waits_for_the_rest() {
        let text =
            "GET http://a.example:81/x?y HTTP/1.1\r\nHost: a.example:81\r\nX-Blank:\r\n\r\nbody";
        for cut in 0..text.len() - 4 {
            assert_eq!(head(&text.as_bytes()[..cut]), Ok(None), "{cut}");
        }
        let head = read(text).unwrap().unwrap();
        assert_eq!(head.length, text.len() - 4);
        assert_eq!((head.method.as_str(), head.minor), ("GET", 1));
        assert_eq!(head.all("host").collect::<Vec<_>>(), [b"a.example:81"]);
        assert_eq!(head.all("x-blank").collect::<Vec<_>>(), [b""]);
        let (place, path) = head.absolute().unwrap();
        assert_eq!((place.host.as_str(), place.port), ("a.example", Some(81)));
        assert_eq!(path, "/x?y");
    }

    #[test]
    fn what_two_readers_could_take_differently_is_refused() {
        for text in [
            "GET http://a/ HTTP/1.1\nHost: a\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nHost : a\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nA: b\r\n c: d\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nA: b\rc\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nA: b\0c\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nno colon\r\n\r\n",
            "GET  http://a/ HTTP/1.1\r\n\r\n",
            "GET http://a/\tx HTTP/1.1\r\n\r\n",
            "GET http://a/ HTTP/2.0\r\n\r\n",
            "G(T http://a/ HTTP/1.1\r\n\r\n",
            "\r\n\r\n",
        ] {
            assert!(read(text).is_err(), "{text:?}");
        }
        let long = format!("GET http://a/ HTTP/1.1\r\nA: {}", "b".repeat(LONGEST));
        assert!(read(&long).is_err());
        let many = format!(
            "GET http://a/ HTTP/1.1\r\n{}\r\n",
            "A: b\r\n".repeat(HEADERS + 1)
        );
        assert!(read(&many).is_err());
    }

    #[test]
    fn authorities() {
        let good = |text: &str| authority(text).map(|a| (a.host, a.port)).unwrap();
        assert_eq!(good("Example.ORG."), ("example.org".into(), None));
        assert_eq!(good("a:8080"), ("a".into(), Some(8080)));
        assert_eq!(good("[::1]:80"), ("::1".into(), Some(80)));
        assert_eq!(good("[2001:DB8::0]"), ("2001:db8::".into(), None));
        for bad in [
            "",
            ":80",
            "a:",
            "a:0",
            "a:99999",
            "a:+1",
            "u@a",
            "a b",
            "a..b",
            "-a",
            "[::1",
            "[::1]x",
            "[a]",
            "a:1:2",
            "ä.example",
            "a/b",
            "a\\b",
            "%61",
            "::1",
            ".",
        ] {
            assert_eq!(authority(bad), None, "{bad}");
        }
    }

    #[test]
    fn only_whole_http_addresses_are_asked_for() {
        let path = |target: &str| {
            let head = read(&format!("GET {target} HTTP/1.1\r\n\r\n"))
                .unwrap()
                .unwrap();
            head.absolute().map(|(_, path)| path)
        };
        assert_eq!(path("http://a"), Ok("/".into()));
        assert_eq!(path("HTTP://a?q"), Ok("/?q".into()));
        assert_eq!(path("http://a/b#c"), Ok("/b".into()));
        for bad in [
            "/b",
            "*",
            "https://a/",
            "ftp://a/",
            "http://",
            "http://u:p@a/",
            "http:///x",
        ] {
            assert!(path(bad).is_err(), "{bad}");
        }
    }
}
