//! The way out of a sandbox without a network: programs inside ask the toolbox's proxy, it asks here.
//!
//! Owns: the decision who may be reached, name look-ups, connections to servers, what credentials
//! are added to requests, the limits on all of it.
//! Takes: a `Policy`, and channels that the toolbox opened.
//! Gives: bytes both ways, and each decision to the policy's listener.
//! Never: a look-up or a connection for a host that the policy does not name; a credential inside.

mod address;
mod attend;
mod body;
mod decide;
mod dial;
mod first;
mod hello;
mod office;
mod passage;
mod policy;
mod relay;
mod request;
mod resolve;
mod tls;

pub use address::{Kind, kind};
pub use decide::{Grant, Refusal, decide};
pub use policy::{
    Credential, Decision, Host, Inject, Listener, Policy, Rule, Sink, Step, VARIABLES,
};
pub use resolve::{Resolve, System};

pub(super) use office::Office;
pub(super) use passage::{Inlet, Knock, knock};

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The port of the proxy inside a container.
pub const PORT: u16 = 3128;

/// How this machine reaches servers; the same for every sandbox of an engine.
#[derive(Clone)]
pub struct Way {
    /// Finds the addresses of names.
    pub resolve: Arc<dyn Resolve>,
    /// A PEM bundle of authorities to trust in place of the system's.
    pub authorities: Option<PathBuf>,
    /// Values of credentials by the names that plans give them.
    pub credentials: BTreeMap<String, Credential>,
    /// How long each step may take.
    pub patience: Patience,
}

/// How long a connection may take for what.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// To find a host's addresses.
    pub resolve: Duration,
    /// To connect to one address, TLS included.
    pub connect: Duration,
    /// Without a byte either way.
    pub idle: Duration,
}

/// What one sandbox is given to go out by.
pub struct Exit {
    /// Who may be reached.
    pub policy: Policy,
    /// How.
    pub way: Way,
    /// The proxy's port on the sandbox's loopback; 0 takes any that is free.
    pub port: u16,
}

impl Default for Way {
    fn default() -> Self {
        Self {
            resolve: Arc::new(System),
            authorities: None,
            credentials: BTreeMap::new(),
            patience: Patience::default(),
        }
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            resolve: Duration::from_secs(10),
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(300),
        }
    }
}

impl std::fmt::Debug for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Way")
            .field("authorities", &self.authorities)
            .field("credentials", &self.credentials)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}
