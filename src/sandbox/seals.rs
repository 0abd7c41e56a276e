//! What the frames of one sandbox are sealed with, where its runtime lets commands take up process 1's streams.

use std::fs::File;
use std::io::Read;

use wharf_toolbox::message::{HostHello, ToolboxHello};
use wharf_toolbox::seal::{Key, Seals, Side};

/// A key that nobody can guess; without one, a toolbox that has to seal gives up.
pub(super) fn key() -> Option<Key> {
    let mut key = Key([0; 32]);
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut key.0));
    match read {
        Ok(()) => Some(key),
        Err(error) => {
            tracing::warn!(%error, "no key for a sandbox could be made");
            None
        }
    }
}

/// The seals of either direction, Wharf's first, where the toolbox wants them; it is an error where no
/// key was given.
pub(super) fn of(
    hello: &HostHello,
    greeting: &ToolboxHello,
) -> Result<(Option<Seals>, Option<Seals>), &'static str> {
    match (greeting.sealed, &hello.key) {
        (false, _) => Ok((None, None)),
        (true, Some(key)) => Ok((
            Some(Seals::new(key, Side::Wharf)),
            Some(Seals::new(key, Side::Toolbox)),
        )),
        (true, None) => Err("the toolbox wants seals without a key"),
    }
}
