//! A pipe by which other threads wake the one that waits for sockets.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::pipe::PipeFlags;

/// Wakes; clones are the same. Without a sleeper it does nothing.
#[derive(Clone, Default)]
pub struct Waker(Option<Arc<OwnedFd>>);

/// Is woken.
pub struct Sleeper(OwnedFd);

/// The two ends.
pub fn pair() -> std::io::Result<(Waker, Sleeper)> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    Ok((Waker(Some(Arc::new(write))), Sleeper(read)))
}

impl Waker {
    /// Wakes the sleeper now or when it next lies down. A full pipe wakes it just as well.
    pub fn wake(&self) {
        if let Some(pipe) = &self.0 {
            let _ = rustix::io::write(pipe, &[0]);
        }
    }
}

impl Sleeper {
    /// Forgets the calls so far.
    pub fn rise(&self) {
        let mut bytes = [0; 512];
        while matches!(rustix::io::read(&self.0, &mut bytes), Ok(512)) {}
    }
}

impl AsFd for Sleeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
