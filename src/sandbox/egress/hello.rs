//! The server's name in the first message of TLS (RFC 8446, sections 4 and 5; RFC 6066, section 3).

/// Bytes of a first message, all its records together.
const LONGEST: usize = 64 << 10;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;

/// What stands in the bytes so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hello {
    /// Not all of it has come.
    More,
    /// Whole; the name, if it says one.
    Names(Option<String>),
    /// It is none, or a malformed one.
    Bad,
}

/// Reads the name from bytes that begin like TLS.
pub(super) fn read(bytes: &[u8]) -> Hello {
    let message = match message(bytes) {
        Ok(Some(message)) => message,
        Ok(None) if bytes.len() <= LONGEST => return Hello::More,
        Ok(None) | Err(()) => return Hello::Bad,
    };
    match name(&message) {
        Some(name) => Hello::Names(name),
        None => Hello::Bad,
    }
}

/// The first handshake message, put together from its records.
fn message(bytes: &[u8]) -> Result<Option<Vec<u8>>, ()> {
    let mut message = Vec::new();
    let mut rest = bytes;
    loop {
        if let Some(&[kind, high, middle, low]) = message.first_chunk::<4>() {
            let length = u32::from_be_bytes([0, high, middle, low]) as usize;
            if kind != CLIENT_HELLO || length > LONGEST {
                return Err(());
            }
            if message.len() >= 4 + length {
                message.truncate(4 + length);
                message.drain(..4);
                return Ok(Some(message));
            }
        }
        let Some(&[kind, major, _, high, low]) = rest.first_chunk::<5>() else {
            return Ok(None);
        };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if kind != HANDSHAKE || major != 3 || length == 0 || length > 1 << 14 {
            return Err(());
        }
        let Some(record) = rest.get(5..5 + length) else {
            return Ok(None);
        };
        message.extend_from_slice(record);
        rest = &rest[5 + length..];
    }
}

/// Takes fields off the front of bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn short(&mut self) -> Option<usize> {
        self.take(1).map(|byte| usize::from(byte[0]))
    }

    fn long(&mut self) -> Option<u16> {
        self.take(2).map(|two| u16::from_be_bytes([two[0], two[1]]))
    }

    /// A field with its length in two bytes before it.
    fn field(&mut self) -> Option<Reader<'a>> {
        let length = self.long()?;
        self.take(usize::from(length)).map(Reader)
    }
}

/// Nothing when the message is malformed; inside it nothing when it names no server.
fn name(message: &[u8]) -> Option<Option<String>> {
    let mut message = Reader(message);
    message.take(2 + 32)?;
    let session = message.short()?;
    message.take(session)?;
    message.field()?;
    let compression = message.short()?;
    message.take(compression)?;
    if message.0.is_empty() {
        return Some(None);
    }
    let mut extensions = message.field()?;
    if !message.0.is_empty() {
        return None;
    }
    let mut found = None;
    while !extensions.0.is_empty() {
        let (kind, body) = (extensions.long()?, extensions.field()?);
        if kind == SERVER_NAME {
            // Two of them could be read as one or the other.
            if found.is_some() {
                return None;
            }
            found = Some(only_name(body)?);
        }
    }
    Some(found)
}

fn only_name(mut body: Reader<'_>) -> Option<String> {
    let mut list = body.field()?;
    let kind = list.short()?;
    let name = list.field()?;
    let alone = kind == 0 && list.0.is_empty() && body.0.is_empty();
    let text = std::str::from_utf8(name.0).ok().filter(|_| alone)?;
    wharf_toolbox::http::name(text)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn field(bytes: &[u8]) -> Vec<u8> {
        let length = u16::try_from(bytes.len()).unwrap();
        [&length.to_be_bytes(), bytes].concat()
    }

    fn server_name(name: &str) -> Vec<u8> {
        let entry = [&[0], field(name.as_bytes()).as_slice()].concat();
        [&[0, 0], field(&field(&entry)).as_slice()].concat()
    }

    /// The first bytes of a client that asks for these names.
    pub fn client(names: &[&str]) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0, 2, 0x13, 1, 1, 0]);
        let mut extensions = [&[0, 43], field(&[2, 3, 4]).as_slice()].concat();
        for name in names {
            extensions.extend(server_name(name));
        }
        body.extend(field(&extensions));
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[CLIENT_HELLO], &length[1..], &body].concat()
    }

    /// In records of at most so many bytes.
    pub fn records(message: &[u8], most: usize) -> Vec<u8> {
        let record = |part: &[u8]| [&[HANDSHAKE, 3, 1], field(part).as_slice()].concat();
        message.chunks(most).flat_map(record).collect()
    }

    #[test]
    fn a_name_is_read_however_it_is_cut() {
        let message = client(&["Www.Example.org"]);
        for most in [1, 3, 50, 16_000] {
            let bytes = records(&message, most);
            for cut in 0..bytes.len() {
                assert_eq!(read(&bytes[..cut]), Hello::More, "{most} {cut}");
            }
            let wanted = Hello::Names(Some("www.example.org".into()));
            assert_eq!(read(&bytes), wanted, "{most}");
            assert_eq!(read(&[bytes, vec![23, 3, 3, 0]].concat()), wanted);
        }
        assert_eq!(read(&records(&client(&[]), 999)), Hello::Names(None));
    }

    #[test]
    fn what_is_no_clear_name_is_bad() {
        let two = records(&client(&["a.example", "b.example"]), 999);
        assert_eq!(read(&two), Hello::Bad);
        assert_eq!(read(&records(&client(&["a\0b"]), 999)), Hello::Bad);
        assert_eq!(read(&records(&client(&[""]), 999)), Hello::Bad);
        let mut other = records(&client(&["a.example"]), 999);
        other[5] = 2;
        assert_eq!(read(&other), Hello::Bad);
        let mut empty = vec![HANDSHAKE, 3, 1, 0, 0];
        empty.extend(records(&client(&["a"]), 999));
        assert_eq!(read(&empty), Hello::Bad);
        assert_eq!(read(&records(&[1, 255, 255, 255], 9)), Hello::Bad);
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0usize..200) {
            let _ = read(&bytes);
            let mut hello = records(&client(&["a.example"]), 40);
            let place = at % hello.len();
            hello[place] = bytes.first().copied().unwrap_or(0);
            let _ = read(&hello);
        }
    }
}
