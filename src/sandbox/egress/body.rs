//! Where the body of a request ends (RFC 9112, sections 6 and 7): what comes after it is for nobody.

use wharf_toolbox::http::Head;

/// Digits of a chunk's size.
const DIGITS: u32 = 15;
/// Bytes of a chunk's line.
const LINE: u32 = 1024;

/// The rest of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Body {
    Length(u64),
    Chunked(Chunk),
}

/// Where in its chunks a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chunk {
    Size {
        value: u64,
        digits: u32,
    },
    /// After the size; so many bytes of it.
    Extension {
        value: u64,
        length: u32,
    },
    SizeEnd(u64),
    Data(u64),
    DataEnd,
    DataLast,
    /// After the chunk of no bytes: an empty line, since trailers are refused.
    End,
    Last,
    Over,
}

impl Body {
    /// As the head says, in the one way that has no second reading.
    pub fn of(head: &Head) -> Result<Body, &'static str> {
        let codings: Vec<&[u8]> = head.all("transfer-encoding").collect();
        let lengths: Vec<&[u8]> = head.all("content-length").collect();
        match (codings.as_slice(), lengths.as_slice()) {
            ([], []) => Ok(Body::Length(0)),
            ([], [length]) => number(length)
                .map(Body::Length)
                .ok_or("a length that is no number"),
            ([coding], []) if head.minor == 1 && coding.eq_ignore_ascii_case(b"chunked") => {
                Ok(Body::Chunked(Chunk::new()))
            }
            _ => Err("it cannot be told where the request ends"),
        }
    }

    /// How many of these bytes belong to it.
    pub fn take(&mut self, bytes: &[u8]) -> Result<usize, &'static str> {
        match self {
            Body::Length(left) => {
                let taken = bytes
                    .len()
                    .min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= taken as u64;
                Ok(taken)
            }
            Body::Chunked(chunk) => chunk.take(bytes),
        }
    }
}

fn number(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text)
        .ok()
        .filter(|_| digits)?
        .parse()
        .ok()
}

impl Chunk {
    fn new() -> Chunk {
        Chunk::Size {
            value: 0,
            digits: 0,
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<usize, &'static str> {
        let mut at = 0;
        while at < bytes.len() && *self != Chunk::Over {
            if let Chunk::Data(left) = self {
                let taken = (bytes.len() - at).min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= taken as u64;
                at += taken;
                if *left == 0 {
                    *self = Chunk::DataEnd;
                }
                continue;
            }
            *self = self.step(bytes[at]).ok_or("a malformed chunk")?;
            at += 1;
        }
        Ok(at)
    }

    fn step(self, byte: u8) -> Option<Chunk> {
        Some(match (self, byte) {
            (Chunk::Size { value, digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = char::from(byte).to_digit(16)?;
                let digits = Some(digits + 1).filter(|&digits| digits <= DIGITS)?;
                let value = value * 16 + u64::from(digit);
                Chunk::Size { value, digits }
            }
            (Chunk::Size { digits: 0, .. }, _) => return None,
            (Chunk::Size { value, .. } | Chunk::Extension { value, .. }, b'\r') => {
                Chunk::SizeEnd(value)
            }
            (Chunk::Size { value, .. }, b';') => Chunk::Extension { value, length: 0 },
            (Chunk::Extension { value, length }, b' '..=b'~') if length < LINE => {
                let length = length + 1;
                Chunk::Extension { value, length }
            }
            (Chunk::SizeEnd(0), b'\n') => Chunk::End,
            (Chunk::SizeEnd(value), b'\n') => Chunk::Data(value),
            (Chunk::DataEnd, b'\r') => Chunk::DataLast,
            (Chunk::DataLast, b'\n') => Chunk::new(),
            (Chunk::End, b'\r') => Chunk::Last,
            (Chunk::Last, b'\n') => Chunk::Over,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn body(headers: &str) -> Result<Body, &'static str> {
        let text = format!("POST http://a/ HTTP/1.1\r\n{headers}\r\n");
        Body::of(&wharf_toolbox::http::head(text.as_bytes()).unwrap().unwrap())
    }

    #[test]
    fn an_end_that_could_be_read_in_two_ways_is_refused() {
        assert_eq!(body("Content-Length: 12\r\n"), Ok(Body::Length(12)));
        assert!(body("Transfer-Encoding: Chunked\r\n").is_ok());
        assert_eq!(body(""), Ok(Body::Length(0)));
        for headers in [
            "Content-Length: 1\r\nContent-Length: 1\r\n",
            "Content-Length: 1, 1\r\n",
            "Content-Length: +1\r\n",
            "Content-Length: 0x1\r\n",
            "Content-Length:\r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: xchunked\r\n",
        ] {
            assert!(body(headers).is_err(), "{headers:?}");
        }
    }

    #[test]
    fn malformed_chunks_are_refused() {
        for text in [
            "\r\n",
            "g\r\n",
            "1\nx",
            "1\r\nxy",
            "1\r\nx\n",
            "0\r\nA: b\r\n\r\n",
            "-1\r\n",
            "1 \r\n",
            "fffffffffffffffff\r\n",
            "1;\0\r\n",
        ] {
            let mut body = Body::Chunked(Chunk::new());
            assert!(body.take(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn chunks_end_where_they_end_however_they_are_cut(
            parts in proptest::collection::vec("[ -~\r\n]{1,20}", 0..5),
            after in "[ -~]{0,9}",
            cut in 1usize..40,
        ) {
            let mut text = String::new();
            for part in &parts {
                text += &format!("{:x};e=\"1\"\r\n{part}\r\n", part.len());
            }
            text += "0\r\n\r\n";
            let (whole, text) = (text.len(), text + &after);
            let mut body = Body::Chunked(Chunk::new());
            let mut taken = 0;
            for piece in text.as_bytes().chunks(cut) {
                taken += body.take(piece).unwrap();
            }
            prop_assert_eq!(&body, &Body::Chunked(Chunk::Over));
            prop_assert_eq!(taken, whole);
        }
    }
}
