//! Server-sent events out of bytes that may be cut anywhere.

/// Bytes one line may have.
const LINE_CAP: usize = 1 << 20;
/// Bytes the data of one event may have.
const EVENT_CAP: usize = 16 << 20;

/// One event that carries data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The `event:` field, empty when there was none.
    pub name: String,
    pub data: String,
}

/// A line or an event grew past its cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// What was read so far of the line and the event under way.
#[derive(Debug, Default)]
pub struct Parser {
    line: Vec<u8>,
    name: String,
    data: Vec<u8>,
    has_data: bool,
    /// The first line is over: a byte order mark can no longer come.
    begun: bool,
    /// The last byte was a CR: an LF right after it belongs to the same line end.
    after_cr: bool,
}

impl Parser {
    /// Takes the next bytes; whole events are pushed to `out`.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<Event>) -> Result<(), TooLong> {
        for &byte in bytes {
            let after_cr = std::mem::replace(&mut self.after_cr, byte == b'\r');
            match byte {
                b'\n' if after_cr => {}
                b'\n' | b'\r' => self.line_ended(out)?,
                _ if self.line.len() == LINE_CAP => return Err(TooLong),
                _ => self.line.push(byte),
            }
        }
        Ok(())
    }

    /// Bytes of data that no event has yet.
    pub fn unfinished(&self) -> usize {
        let line = match self.line.starts_with(b"data") {
            true => self.line.len(),
            false => 0,
        };
        self.data.len() + line
    }

    /// The stream is over: servers that leave out the last blank line are still heard.
    pub fn end(mut self, out: &mut Vec<Event>) -> Result<(), TooLong> {
        if !self.line.is_empty() {
            self.line_ended(out)?;
        }
        self.event_ended(out);
        Ok(())
    }

    fn line_ended(&mut self, out: &mut Vec<Event>) -> Result<(), TooLong> {
        let line = std::mem::take(&mut self.line);
        let mut line = line.as_slice();
        if !std::mem::replace(&mut self.begun, true) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            self.event_ended(out);
            return Ok(());
        }
        let (field, value) = match line.iter().position(|&b| b == b':') {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &line[..0]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"event" => self.name = String::from_utf8_lossy(value).into_owned(),
            b"data" => {
                if self.data.len() + value.len() >= EVENT_CAP {
                    return Err(TooLong);
                }
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            }
            // Comments (an empty field), `id`, `retry` and what we do not know say nothing to us.
            _ => {}
        }
        Ok(())
    }

    fn event_ended(&mut self, out: &mut Vec<Event>) {
        let name = std::mem::take(&mut self.name);
        let data = std::mem::take(&mut self.data);
        self.has_data = false;
        if !data.is_empty() {
            let data = String::from_utf8_lossy(&data).into_owned();
            out.push(Event { name, data });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(pieces: &[&[u8]]) -> Vec<Event> {
        let (mut parser, mut out) = (Parser::default(), Vec::new());
        for piece in pieces {
            parser.feed(piece, &mut out).unwrap();
        }
        parser.end(&mut out).unwrap();
        out
    }

    fn event(name: &str, data: &str) -> Event {
        Event {
            name: name.into(),
            data: data.into(),
        }
    }

    const ODD: &str = "\u{feff}: PROCESSING\n\n:\nevent: ping\ndata: {\"type\":\"ping\"}\n\ndata: : keepalive\n\nretry: 3000\n\ndata:\n\ndata:{\"a\":\r\ndata: \"é\u{2028}\"}\r\n\r\nid: 7\rdata: one\r\rdata: [DONE]";

    fn expected() -> Vec<Event> {
        vec![
            event("ping", "{\"type\":\"ping\"}"),
            event("", ": keepalive"),
            event("", "{\"a\":\n\"é\u{2028}\"}"),
            event("", "one"),
            event("", "[DONE]"),
        ]
    }

    #[test]
    fn odd_framing_is_read() {
        assert_eq!(parse(&[ODD.as_bytes()]), expected());
    }

    #[test]
    fn every_cut_reads_the_same() {
        let bytes = ODD.as_bytes();
        for at in 0..=bytes.len() {
            assert_eq!(
                parse(&[&bytes[..at], &bytes[at..]]),
                expected(),
                "cut at {at}"
            );
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(parse(&single), expected());
    }

    #[test]
    fn data_of_an_event_that_never_ends_is_told() {
        let (mut parser, mut out) = (Parser::default(), Vec::new());
        parser.feed(b"data: one\n\n: a comment", &mut out).unwrap();
        assert_eq!((parser.unfinished(), out.len()), (0, 1));
        parser.feed(b"\ndata: 12345\ndata: 678", &mut out).unwrap();
        assert_eq!((parser.unfinished(), out.len()), (5 + 9, 1));
        parser.feed(b"\n\n", &mut out).unwrap();
        assert_eq!((parser.unfinished(), out.len()), (0, 2));
    }

    #[test]
    fn an_endless_line_or_event_is_refused() {
        let (mut parser, mut out) = (Parser::default(), Vec::new());
        assert_eq!(
            parser.feed(&vec![b'x'; LINE_CAP + 1], &mut out),
            Err(TooLong)
        );
        let line = format!("data: {}\n", "y".repeat(LINE_CAP - 6));
        let mut parser = Parser::default();
        let fed = (0..17).try_for_each(|_| parser.feed(line.as_bytes(), &mut out));
        assert_eq!(fed, Err(TooLong));
        assert!(out.is_empty());
    }

    proptest! {
        #[test]
        fn any_bytes_read_the_same_however_cut(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b':'), Just(b'd'), any::<u8>()], 0..200),
            cut in 0usize..200,
        ) {
            let at = cut.min(bytes.len());
            prop_assert_eq!(parse(&[&bytes[..at], &bytes[at..]]), parse(&[&bytes]));
        }
    }
}
