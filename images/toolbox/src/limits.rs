//! The resource limits of process 1, which an agent of the same user can change from outside it.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const WATCHED: [Resource; 8] = [
    Resource::As,
    Resource::Cpu,
    Resource::Data,
    Resource::Fsize,
    Resource::Nofile,
    Resource::Nproc,
    Resource::Stack,
    Resource::Core,
];

/// The limits as they were at the start.
pub struct Limits(Vec<Rlimit>);

impl Limits {
    /// The limits now.
    pub fn now() -> Limits {
        Limits(WATCHED.map(getrlimit).to_vec())
    }

    /// Puts back what was changed; says what cannot be.
    pub fn restore(&self) -> Result<(), String> {
        for (resource, then) in WATCHED.into_iter().zip(&self.0) {
            let now = getrlimit(resource);
            let same = now.current == then.current && now.maximum == then.maximum;
            if !same && setrlimit(resource, *then).is_err() {
                return Err(format!(
                    "a resource limit was changed from inside: {resource:?}"
                ));
            }
        }
        Ok(())
    }
}
