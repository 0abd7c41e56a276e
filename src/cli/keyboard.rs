//! Single keys of the terminal on standard input, while somebody is asked something.

use std::io::IsTerminal as _;

use rustix::termios::{
    self, LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios,
};

/// The terminal in a state where a key comes at once and unseen; put back when dropped.
pub struct Keyboard {
    before: Termios,
    raw: Termios,
}

impl Keyboard {
    /// Is there a person at both ends of this process?
    pub fn is_there() -> bool {
        std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
    }

    /// Takes the terminal over; None when it is not this process's to read from now: reading it from the
    /// background would stop the whole run.
    pub fn take() -> Option<Self> {
        let stdin = std::io::stdin();
        let front = termios::tcgetpgrp(&stdin).ok()?;
        if front != rustix::process::getpgrp() {
            return None;
        }
        let before = termios::tcgetattr(&stdin).ok()?;
        let mut raw = before.clone();
        // Signals stay what they are: Ctrl-C ends the run, question or not.
        raw.local_modes
            .remove(LocalModes::ICANON | LocalModes::ECHO);
        raw.special_codes[SpecialCodeIndex::VMIN] = 0;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        termios::tcsetattr(&stdin, OptionalActions::Now, &raw).ok()?;
        Some(Self { before, raw })
    }

    /// Forgets what was typed so far.
    pub fn forget(&self) {
        // Where that cannot be done the time before a key counts still stands.
        let _ = termios::tcflush(std::io::stdin(), QueueSelector::IFlush);
    }

    /// The last key typed since, if there is one; it does not wait. An error: the terminal is gone.
    pub fn key(&self) -> std::io::Result<Option<u8>> {
        let stdin = std::io::stdin();
        if termios::tcgetpgrp(&stdin)? != rustix::process::getpgrp() {
            return Ok(None);
        }
        // A shell that had the terminal meanwhile (Ctrl-Z, fg) may have put its own state back.
        if termios::tcgetattr(&stdin)?
            .local_modes
            .contains(LocalModes::ICANON)
        {
            termios::tcsetattr(&stdin, OptionalActions::Now, &self.raw)?;
        }
        if rustix::io::ioctl_fionread(&stdin)? == 0 {
            return Ok(None);
        }
        let mut keys = [0u8; 64];
        let read = rustix::io::read(&stdin, &mut keys)?;
        // A key with more behind it is a sequence (an arrow) or something pasted: no answer.
        Ok((read == 1).then(|| keys[0]))
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        // A terminal that went away needs no state.
        let _ = termios::tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before);
    }
}
