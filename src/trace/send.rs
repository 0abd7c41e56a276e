//! The way out: an OTLP exporter that is built, used and dropped on one plain thread.
//!
//! The HTTP client blocks and must not meet an async runtime, the gRPC client needs one: each is
//! driven by what it can stand.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use opentelemetry_otlp::tonic_types::metadata::MetadataMap;
use opentelemetry_otlp::{
    Compression, SpanExporter, WithExportConfig, WithHttpConfig, WithTonicConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};

use super::options::{Protocol, Target};

/// An exporter with what drives it.
pub(super) struct Sender {
    exporter: SpanExporter,
    driver: Driver,
}

enum Driver {
    Parked,
    Runtime(tokio::runtime::Runtime),
}

impl Sender {
    /// Connects to nothing yet; an error is a word of the configuration that cannot be used.
    pub(super) fn build(target: &Target, resource: &Resource) -> Result<Self, String> {
        // Both clients take the process's provider; a second installation is refused and harmless.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (mut exporter, driver) = match target.protocol {
            Protocol::HttpProtobuf => (http(target)?, Driver::Parked),
            Protocol::Grpc => {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .map_err(|error| error.to_string())?;
                let exporter = runtime.block_on(async { grpc(target) })?;
                (exporter, Driver::Runtime(runtime))
            }
        };
        exporter.set_resource(resource);
        Ok(Self { exporter, driver })
    }

    /// Sends one batch, with the exporter's own few retries; blocks for the target's timeout at most.
    pub(super) fn send(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let export = self.exporter.export(batch);
        match &self.driver {
            Driver::Parked => wait(export),
            Driver::Runtime(runtime) => runtime.block_on(export),
        }
    }
}

fn http(target: &Target) -> Result<SpanExporter, String> {
    let headers: HashMap<String, String> = target.headers.iter().cloned().collect();
    let mut builder = SpanExporter::builder()
        .with_http()
        .with_protocol(opentelemetry_otlp::Protocol::HttpBinary)
        .with_endpoint(&target.endpoint)
        .with_timeout(target.timeout)
        .with_headers(headers);
    if target.gzip {
        builder = builder.with_compression(Compression::Gzip);
    }
    builder.build().map_err(|error| error.to_string())
}

fn grpc(target: &Target) -> Result<SpanExporter, String> {
    let headers: HashMap<String, String> = target.headers.iter().cloned().collect();
    let headers = (&headers)
        .try_into()
        .map_err(|_| "a header cannot be sent as it is".to_owned())?;
    let mut builder = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(&target.endpoint)
        .with_timeout(target.timeout)
        .with_metadata(MetadataMap::from_headers(headers));
    if target.gzip {
        builder = builder.with_compression(Compression::Gzip);
    }
    builder.build().map_err(|error| error.to_string())
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls a future on this thread, asleep in between.
fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(out) => return out,
            Poll::Pending => std::thread::park(),
        }
    }
}
