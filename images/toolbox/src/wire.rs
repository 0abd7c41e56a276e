//! Frames: nine bytes of header, then a body; the only thing that ever crosses the stream.
//!
//! Header: length of the body (u32, little endian), kind (u8), channel (u32, little endian).
//! Channel 0 carries the hello and the pings; every call has a channel of its own. Channels that the
//! toolbox opens, for ways out of the sandbox, have the bit `INSIDE`; each of their two directions
//! ends by a close of its own, whose body is empty unless the end came too early, and a cancel from
//! either side ends both.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Both sides must say the same version in their hello.
pub const VERSION: u32 = 3;
/// Most bytes of one data frame.
pub const MAX_DATA: usize = 64 * 1024;
/// Most bytes of a frame that carries JSON.
pub const MAX_CONTROL: usize = 256 * 1024;
/// Bytes of data that a channel may have under way before the other side gives more.
pub const CREDIT: u32 = 256 * 1024;
/// The bit of the number of every channel that the toolbox opens.
pub const INSIDE: u32 = 1 << 31;
/// Bytes of a header.
pub const HEADER: usize = 9;

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// First in each direction.
    Hello = 1,
    /// Starts a call; body: `message::Request`. From inside it asks for a way out: `message::Reach`.
    Open = 2,
    /// Bytes of a call.
    Data = 3,
    /// Allows the other side more data; body: u32, little endian.
    Credit = 4,
    /// The sender says no more on this channel; from the toolbox with a `message::Reply`.
    Close = 5,
    /// Beside the order of data; body: `message::Signal`.
    Signal = 6,
    /// Wharf's word on a channel opened from inside; body: `message::Answer`.
    Answer = 7,
}

/// One unit of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What it is for.
    pub kind: Kind,
    /// Whose it is.
    pub channel: u32,
    /// JSON, or bytes for data and credit.
    pub body: Vec<u8>,
}

/// Takes out of `owed` what the other side should be given credit for now: nothing until it is half
/// of a channel's credit, so that a short call costs no frame of its own and a long one never waits.
pub fn due(owed: &mut u32) -> Option<u32> {
    (*owed >= CREDIT / 2).then(|| std::mem::take(owed))
}

/// Why bytes are no frame or no message; it ends the sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The kind byte is unknown.
    Kind(u8),
    /// The body is longer than its kind allows.
    Length(usize),
    /// The body is no JSON of the type wanted.
    Json(String),
    /// The message is well formed and out of place.
    Order(&'static str),
    /// The seal behind a frame is not the one that belongs there.
    Seal,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Kind(kind) => write!(f, "frame of unknown kind {kind}"),
            Fault::Length(length) => write!(f, "frame of {length} bytes is over the limit"),
            Fault::Json(error) => write!(f, "message not understood: {error}"),
            Fault::Order(what) => write!(f, "{what}"),
            Fault::Seal => write!(f, "a frame that the other side did not send"),
        }
    }
}

impl std::error::Error for Fault {}

impl Frame {
    /// A frame of bytes; the caller keeps data within `MAX_DATA`.
    pub fn data(channel: u32, body: Vec<u8>) -> Frame {
        Frame {
            kind: Kind::Data,
            channel,
            body,
        }
    }

    /// Allows `bytes` more on a channel.
    pub fn credit(channel: u32, bytes: u32) -> Frame {
        Frame {
            kind: Kind::Credit,
            channel,
            body: bytes.to_le_bytes().to_vec(),
        }
    }

    /// The end of one direction of a channel opened from inside.
    pub fn end(channel: u32) -> Frame {
        Frame {
            kind: Kind::Close,
            channel,
            body: Vec::new(),
        }
    }

    /// The end of what a server says, before it said all.
    pub fn cut(channel: u32) -> Frame {
        Frame {
            body: vec![1],
            ..Frame::end(channel)
        }
    }

    /// A frame with a JSON body; fails when it is over `MAX_CONTROL`.
    pub fn json<T: Serialize>(kind: Kind, channel: u32, message: &T) -> Result<Frame, Fault> {
        let body = serde_json::to_vec(message).map_err(|e| Fault::Json(e.to_string()))?;
        if body.len() > MAX_CONTROL {
            return Err(Fault::Length(body.len()));
        }
        Ok(Frame {
            kind,
            channel,
            body,
        })
    }

    /// Reads the JSON body.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        serde_json::from_slice(&self.body).map_err(|e| Fault::Json(e.to_string()))
    }

    /// The amount of a credit frame.
    pub fn amount(&self) -> Result<u32, Fault> {
        let bytes: [u8; 4] = self
            .body
            .as_slice()
            .try_into()
            .map_err(|_| Fault::Order("credit of a wrong size"))?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Appends the frame to `out` as it crosses the stream.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let length = u32::try_from(self.body.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&length.to_le_bytes());
        out.push(self.kind as u8);
        out.extend_from_slice(&self.channel.to_le_bytes());
        out.extend_from_slice(&self.body);
    }

    /// The first frame of `bytes` and how many bytes it took, or nothing when more are needed.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Frame, usize)>, Fault> {
        let Some((l, rest)) = bytes.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let Some((&kind, rest)) = rest.split_first() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*l) as usize;
        let kind = Kind::of(kind)?;
        if length > kind.limit() {
            return Err(Fault::Length(length));
        }
        let Some((channel, rest)) = rest.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let Some(body) = rest.get(..length) else {
            return Ok(None);
        };
        let channel = u32::from_le_bytes(*channel);
        Ok(Some((
            Frame {
                kind,
                channel,
                body: body.to_vec(),
            },
            HEADER + length,
        )))
    }
}

impl Kind {
    fn of(byte: u8) -> Result<Kind, Fault> {
        Ok(match byte {
            1 => Kind::Hello,
            2 => Kind::Open,
            3 => Kind::Data,
            4 => Kind::Credit,
            5 => Kind::Close,
            6 => Kind::Signal,
            7 => Kind::Answer,
            other => return Err(Fault::Kind(other)),
        })
    }

    fn limit(self) -> usize {
        match self {
            Kind::Data => MAX_DATA,
            Kind::Credit => 4,
            Kind::Hello | Kind::Open | Kind::Close | Kind::Signal | Kind::Answer => MAX_CONTROL,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Signal;

    fn sample() -> Vec<Frame> {
        vec![
            Frame::json(Kind::Signal, 0, &Signal::Ping).unwrap(),
            Frame::data(7, vec![0, 255, 10]),
            Frame::data(7, Vec::new()),
            Frame::credit(u32::MAX, 65_536),
        ]
    }

    #[test]
    fn a_stream_cut_at_every_byte_gives_the_same_frames() {
        let mut stream = Vec::new();
        for frame in sample() {
            frame.encode(&mut stream);
        }
        for cut in 0..=stream.len() {
            let (mut buffer, mut seen) = (Vec::new(), Vec::new());
            for part in [&stream[..cut], &stream[cut..]] {
                buffer.extend_from_slice(part);
                while let Some((frame, used)) = Frame::decode(&buffer).unwrap() {
                    seen.push(frame);
                    buffer.drain(..used);
                }
            }
            assert_eq!(seen, sample(), "cut at {cut}");
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn a_header_over_the_limit_is_refused_before_its_body_arrives() {
        let mut bytes = u32::try_from(MAX_DATA + 1).unwrap().to_le_bytes().to_vec();
        bytes.push(Kind::Data as u8);
        assert_eq!(Frame::decode(&bytes), Err(Fault::Length(MAX_DATA + 1)));
    }

    #[test]
    fn credit_comes_back_in_halves_and_always_leaves_room_for_a_frame() {
        let most = u32::try_from(MAX_DATA).unwrap();
        for part in [1, 1000, most - 1, most] {
            let (mut owed, mut taken, mut given) = (0, 0, 0);
            while taken < 3 * CREDIT {
                assert!(
                    CREDIT - (taken - given) >= most,
                    "stuck after {taken} in parts of {part}"
                );
                taken += part;
                owed += part;
                given += due(&mut owed).unwrap_or(0);
            }
            assert_eq!(taken - given, owed);
            assert!(given >= CREDIT);
        }
        let mut short = 100;
        assert_eq!((due(&mut short), short), (None, 100));
    }

    #[test]
    fn an_unknown_kind_and_bad_json_are_faults() {
        assert_eq!(Frame::decode(&[0, 0, 0, 0, 9]), Err(Fault::Kind(9)));
        let frame = Frame {
            kind: Kind::Signal,
            channel: 1,
            body: b"{\"nope\"".to_vec(),
        };
        assert!(matches!(frame.parse::<Signal>(), Err(Fault::Json(_))));
        assert!(Frame::data(1, vec![1]).amount().is_err());
    }

    #[test]
    fn a_message_too_long_is_not_made_into_a_frame() {
        let long = "x".repeat(MAX_CONTROL);
        assert!(matches!(
            Frame::json(Kind::Open, 1, &long),
            Err(Fault::Length(_))
        ));
    }
}
