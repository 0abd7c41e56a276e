//! How spans are made and where they go, in plain types.

use std::time::Duration;

use super::origin::Origin;

/// How spans are made and where they go.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// No span is made at all.
    pub disabled: bool,
    /// None: spans have ids and go nowhere.
    pub target: Option<Target>,
    pub service: String,
    /// Attributes of the resource beside `service.name`.
    pub resource: Vec<(String, String)>,
    /// A W3C `traceparent` whose span becomes the run's parent.
    pub traceparent: Option<String>,
    pub tracestate: Option<String>,
    /// The trace that a run goes on with; it beats `traceparent`.
    pub origin: Option<Origin>,
    /// Values that must never stand in a span.
    pub secrets: Vec<String>,
}

/// An OTLP receiver.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Whole: for HTTP with its path.
    pub endpoint: String,
    pub protocol: Protocol,
    pub headers: Vec<(String, String)>,
    /// Of one export, its retries included.
    pub timeout: Duration,
    pub gzip: bool,
    /// Spans that wait at most; more are dropped and counted.
    pub queue: usize,
    /// Spans of one request at most.
    pub batch: usize,
    /// How long a span waits for company.
    pub delay: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    HttpProtobuf,
    Grpc,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            disabled: false,
            target: None,
            service: "wharf".to_owned(),
            resource: Vec::new(),
            traceparent: None,
            tracestate: None,
            origin: None,
            secrets: Vec::new(),
        }
    }
}

impl Target {
    /// A receiver at a whole endpoint, everything else at its default.
    pub fn new(protocol: Protocol, endpoint: impl Into<String>) -> Self {
        Self {
            endpoint: endpoint.into(),
            protocol,
            headers: Vec::new(),
            timeout: Duration::from_secs(10),
            gzip: false,
            queue: 2_048,
            batch: 512,
            delay: Duration::from_secs(2),
        }
    }

    /// The endpoint as it may be shown: no user, no query.
    pub(super) fn shown(&self) -> String {
        let plain = self.endpoint.split(['?', '#']).next().unwrap_or_default();
        match (plain.split_once("://"), plain.rfind('@')) {
            (Some((scheme, _)), Some(at)) => format!("{scheme}://{}", &plain[at + 1..]),
            _ => plain.to_owned(),
        }
    }

    /// A likely cause of a failed export: the other protocol's port or path.
    pub(super) fn mismatch(&self) -> Option<&'static str> {
        let rest = self.endpoint.split_once("://").map_or("", |(_, rest)| rest);
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        match self.protocol {
            Protocol::HttpProtobuf if authority.ends_with(":4317") => Some(
                "4317 is the usual port of gRPC: set OTEL_EXPORTER_OTLP_PROTOCOL=grpc or use 4318",
            ),
            Protocol::Grpc if authority.ends_with(":4318") || authority.ends_with(":6006") => Some(
                "this is the usual port of OTLP over HTTP: set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf or use 4317",
            ),
            Protocol::Grpc if !path.is_empty() => Some(
                "an endpoint of gRPC has no path: set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf or leave the path out",
            ),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mismatch_of_port_and_protocol_is_recognised() {
        let hint = |protocol, endpoint: &str| Target::new(protocol, endpoint).mismatch();
        assert!(hint(Protocol::HttpProtobuf, "http://h:4317/v1/traces").is_some());
        assert!(hint(Protocol::Grpc, "http://h:4318").is_some());
        assert!(hint(Protocol::Grpc, "http://h:9000/v1/traces").is_some());
        assert!(hint(Protocol::HttpProtobuf, "http://h:4318/v1/traces").is_none());
        assert!(hint(Protocol::Grpc, "http://h:4317").is_none());
    }

    #[test]
    fn what_is_shown_of_an_endpoint_holds_no_password() {
        let target = Target::new(Protocol::HttpProtobuf, "https://u:pw@h:1/p?key=1");
        assert_eq!(target.shown(), "https://h:1/p");
    }
}
