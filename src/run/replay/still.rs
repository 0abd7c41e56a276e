//! A sandbox in which nothing runs: its calls came to what was recorded of them.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::recorded::Told;
use crate::sandbox::{
    Answer, Cause, Changes, Command, Error, Facts, Finished, Known, Listing, ProcessAction, Read,
    Sandbox, Search,
};

/// One agent's sandbox.
pub(super) struct Still {
    told: Arc<Told>,
    facts: Facts,
}

impl Still {
    pub fn new(told: Arc<Told>, facts: Facts) -> Self {
        Self { told, facts }
    }
}

/// Whatever is not known from the recording cannot be told.
fn nothing<T: Send + 'static>() -> BoxFuture<'static, Result<T, Error>> {
    Box::pin(async {
        Err(Error::Broken {
            cause: Cause::Unable,
            reason: "nothing runs in a replay with recorded tools".to_owned(),
        })
    })
}

impl Sandbox for Still {
    fn known(&self, number: u32, tool: &str, arguments: &Value) -> Option<Known> {
        Some(self.told.known(number, tool, arguments))
    }

    fn run<'a>(
        &'a self,
        _command: &'a Command,
        _cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Finished, Error>> {
        nothing()
    }

    fn process(
        &self,
        _id: u32,
        _action: ProcessAction,
    ) -> BoxFuture<'_, Result<Answer<Finished>, Error>> {
        nothing()
    }

    fn read<'a>(
        &'a self,
        _path: &'a str,
        _offset: u64,
        _limit: u64,
    ) -> BoxFuture<'a, Result<Answer<Read>, Error>> {
        nothing()
    }

    fn write<'a>(
        &'a self,
        _path: &'a str,
        _content: Bytes,
    ) -> BoxFuture<'a, Result<Answer<()>, Error>> {
        nothing()
    }

    fn list<'a>(
        &'a self,
        _pattern: Option<&'a str>,
        _limit: usize,
    ) -> BoxFuture<'a, Result<Answer<Listing>, Error>> {
        nothing()
    }

    fn grep<'a>(&'a self, _search: &'a Search) -> BoxFuture<'a, Result<Answer<Listing>, Error>> {
        nothing()
    }

    /// The run takes what a turn changed from the recording itself.
    fn scan(&self) -> BoxFuture<'_, Result<Changes, Error>> {
        nothing()
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}
