//! Seals of frames, for where commands can take up the streams of process 1: who has not got the key of the
//! sandbox, which crossed the stream before there were commands, can neither make a frame, nor change,
//! repeat, reorder or swallow one without being found out by the next.
//!
//! Behind each frame stands HMAC-SHA256 (RFC 2104) of its direction, its number and its bytes.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::wire::{Fault, Frame};

/// Bytes of a seal.
pub const SEAL: usize = 32;
/// Bytes of a block of SHA-256.
const BLOCK: usize = 64;

/// What both sides of one sandbox know and nobody else; it is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(pub [u8; 32]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Key, D::Error> {
        <[u8; 32]>::deserialize(from).map(Key)
    }
}

/// Whose frames they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Those that Wharf sends.
    Wharf = 1,
    /// Those that process 1 sends.
    Toolbox = 2,
}

/// The seals of one direction, each for one frame, in order.
#[derive(Clone)]
pub struct Seals {
    inner: Sha256,
    outer: Sha256,
    next: u64,
}

impl Seals {
    /// The first is that of the first frame after the greeting.
    pub fn new(key: &Key, from: Side) -> Seals {
        let (inner, outer) = keyed(&key.0);
        let inner = inner.chain_update([from as u8]);
        Seals {
            inner,
            outer,
            next: 0,
        }
    }

    /// The seal of the next frame, by its bytes as they cross the stream.
    fn seal(&mut self, frame: &[u8]) -> [u8; SEAL] {
        let number = self.next.to_le_bytes();
        self.next += 1;
        let inner = self.inner.clone().chain_update(number).chain_update(frame);
        self.outer
            .clone()
            .chain_update(inner.finalize())
            .finalize()
            .into()
    }
}

/// The two hashes of HMAC with the key in them.
fn keyed(key: &[u8; 32]) -> (Sha256, Sha256) {
    let (mut inner, mut outer) = ([0x36; BLOCK], [0x5c; BLOCK]);
    for (at, byte) in key.iter().enumerate() {
        inner[at] ^= byte;
        outer[at] ^= byte;
    }
    (
        Sha256::new().chain_update(inner),
        Sha256::new().chain_update(outer),
    )
}

/// Appends a frame to `out`, sealed where there are seals.
pub fn encode(frame: &Frame, seals: &mut Option<Seals>, out: &mut Vec<u8>) {
    let at = out.len();
    frame.encode(out);
    if let Some(seals) = seals {
        let seal = seals.seal(&out[at..]);
        out.extend_from_slice(&seal);
    }
}

/// The first frame of `bytes` and how many bytes it took with its seal, or nothing when more are needed.
pub fn decode(bytes: &[u8], seals: &mut Option<Seals>) -> Result<Option<(Frame, usize)>, Fault> {
    let Some((frame, used)) = Frame::decode(bytes)? else {
        return Ok(None);
    };
    let Some(seals) = seals else {
        return Ok(Some((frame, used)));
    };
    let Some(said) = bytes.get(used..used + SEAL) else {
        return Ok(None);
    };
    let seal = seals.seal(&bytes[..used]);
    // Every byte is looked at, so that the time tells nobody how much of a guess was right.
    let unlike = seal.iter().zip(said).fold(0, |all, (a, b)| all | (a ^ b));
    match unlike {
        0 => Ok(Some((frame, used + SEAL))),
        _ => Err(Fault::Seal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Kind;

    fn seals(from: Side) -> Option<Seals> {
        Some(Seals::new(&Key([7; 32]), from))
    }

    fn sample() -> [Frame; 3] {
        [
            Frame::data(7, b"one".to_vec()),
            Frame::credit(7, 4),
            Frame::data(7, b"one".to_vec()),
        ]
    }

    fn stream() -> Vec<u8> {
        let (mut bytes, mut seals) = (Vec::new(), seals(Side::Toolbox));
        for frame in sample() {
            encode(&frame, &mut seals, &mut bytes);
        }
        bytes
    }

    /// The frames of a stream, until its end or a fault.
    fn read(mut bytes: &[u8], from: Side) -> (Vec<Frame>, Option<Fault>) {
        let (mut seals, mut seen) = (seals(from), Vec::new());
        loop {
            match decode(bytes, &mut seals) {
                Ok(Some((frame, used))) => {
                    seen.push(frame);
                    bytes = &bytes[used..];
                }
                Ok(None) => return (seen, None),
                Err(fault) => return (seen, Some(fault)),
            }
        }
    }

    /// Test case 1 of RFC 4231, its key filled up to a block as HMAC does.
    #[test]
    fn the_code_is_hmac_sha256() {
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        let (inner, outer) = keyed(&key);
        let inner = inner.chain_update(b"Hi There").finalize();
        let code = outer.chain_update(inner).finalize();
        let hex: String = code.iter().map(|byte| format!("{byte:02x}")).collect();
        let wanted = "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7";
        assert_eq!(hex, wanted);
    }

    #[test]
    fn what_was_sealed_is_read_and_a_cut_stream_waits_for_its_rest() {
        let bytes = stream();
        assert_eq!(read(&bytes, Side::Toolbox), (sample().to_vec(), None));
        for cut in 0..bytes.len() {
            let (seen, fault) = read(&bytes[..cut], Side::Toolbox);
            assert_eq!(fault, None, "cut at {cut}");
            assert!(seen.len() < 3);
        }
    }

    #[test]
    fn no_byte_can_be_changed() {
        for at in 0..stream().len() {
            let mut bytes = stream();
            bytes[at] ^= 1;
            let (seen, fault) = read(&bytes, Side::Toolbox);
            // A length that grew waits for bytes that the next frames are then taken for.
            assert!(fault.is_some() || seen.len() < 3, "byte {at}");
            assert_eq!(seen, sample()[..seen.len()], "byte {at}");
        }
    }

    #[test]
    fn no_frame_can_be_added_repeated_reordered_left_out_or_turned_round() {
        let one = stream().len() / 3;
        let mut parts = Vec::new();
        let (mut rest, mut all) = (stream(), seals(Side::Toolbox));
        while let Some((_, used)) = decode(&rest, &mut all).unwrap() {
            parts.push(rest.drain(..used).collect::<Vec<u8>>());
        }
        assert!(parts.len() == 3 && one > SEAL);
        let mut forged = Vec::new();
        encode(&sample()[0], &mut None, &mut forged);
        forged.extend_from_slice(&[0; SEAL]);
        let orders: [Vec<&[u8]>; 5] = [
            vec![&forged],
            vec![&parts[0], &forged],
            // The first and the third say the same; their numbers differ.
            vec![&parts[2]],
            vec![&parts[0], &parts[0]],
            vec![&parts[0], &parts[2]],
        ];
        for (n, order) in orders.iter().enumerate() {
            let (_, fault) = read(&order.concat(), Side::Toolbox);
            assert_eq!(fault, Some(Fault::Seal), "order {n}");
        }
        assert_eq!(
            read(&stream(), Side::Wharf),
            (Vec::new(), Some(Fault::Seal))
        );
        let hello = Frame::json(Kind::Hello, 0, &Key([1; 32])).unwrap();
        assert_eq!(hello.parse::<Key>().unwrap(), Key([1; 32]));
        assert_eq!(format!("{:?}", Key([1; 32])), "Key");
    }
}
