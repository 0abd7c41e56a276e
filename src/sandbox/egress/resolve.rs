//! Names to addresses, once a connection and never inside a sandbox.

use std::io;
use std::net::IpAddr;

use futures::future::BoxFuture;

/// Finds the addresses of a host.
pub trait Resolve: Send + Sync {
    /// All of them, best first. The caller limits the time.
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// By the machine's own resolver.
#[derive(Clone, Copy, Debug)]
pub struct System;

impl Resolve for System {
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.map(|place| place.ip()).collect())
        })
    }
}
