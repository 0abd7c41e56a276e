//! An OTLP receiver on loopback, HTTP and gRPC, that keeps what it was sent.
//!
//! It runs on a thread of its own, so that tests with and without a runtime can use it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span as WireSpan;
use prost::Message;
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// A running receiver; dropping it stops it.
pub struct Receiver {
    /// `http://127.0.0.1:PORT`, to which a sender adds `/v1/traces`.
    pub http_endpoint: String,
    /// `http://127.0.0.1:PORT`.
    pub grpc_endpoint: String,
    inbox: Inbox,
    stop: Option<oneshot::Sender<()>>,
}

/// One request as it came in.
#[derive(Clone, Debug)]
pub struct Request {
    /// The path of HTTP, empty for gRPC.
    pub path: String,
    pub headers: BTreeMap<String, String>,
    body: ExportTraceServiceRequest,
}

/// One span, flattened.
#[derive(Clone, Debug)]
pub struct Span {
    pub trace: String,
    pub id: String,
    /// None: a root.
    pub parent: Option<String>,
    pub name: String,
    /// 1 internal, 3 client.
    pub kind: i32,
    pub attributes: BTreeMap<String, Value>,
    /// Ids of the linked spans.
    pub links: Vec<String>,
    pub events: Vec<(String, BTreeMap<String, Value>)>,
    /// 0 unset, 2 error.
    pub status: i32,
    pub message: String,
    pub start: u64,
    pub end: u64,
    pub scope: String,
    pub schema_url: String,
    pub resource: BTreeMap<String, Value>,
}

type Inbox = Arc<Mutex<Vec<Request>>>;

impl Receiver {
    /// Listens on two free ports of loopback.
    pub fn start() -> Self {
        let bind = || {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            listener.set_nonblocking(true).unwrap();
            let endpoint = format!("http://{}", listener.local_addr().unwrap());
            (listener, endpoint)
        };
        let (http, http_endpoint) = bind();
        let (grpc, grpc_endpoint) = bind();
        let (stop, stopped) = oneshot::channel();
        let inbox = Inbox::default();
        let kept = inbox.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                tokio::select! {
                    () = serve_http(http, kept.clone()) => {}
                    () = serve_grpc(grpc, kept) => {}
                    _ = stopped => {}
                }
            });
        });
        Self {
            http_endpoint,
            grpc_endpoint,
            inbox,
            stop: Some(stop),
        }
    }

    /// Every request so far, in order.
    pub fn requests(&self) -> Vec<Request> {
        self.inbox.lock().unwrap().clone()
    }

    /// Every span so far, by start time.
    pub fn spans(&self) -> Vec<Span> {
        let mut spans: Vec<Span> = self.requests().iter().flat_map(flatten).collect();
        spans.sort_by_key(|span| span.start);
        spans
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }
}

async fn serve_http(listener: TcpListener, inbox: Inbox) {
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    let app = axum::Router::new().fallback(take_http).with_state(inbox);
    axum::serve(listener, app).await.unwrap();
}

async fn take_http(
    State(inbox): State<Inbox>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Vec<u8>, axum::http::StatusCode> {
    let body =
        ExportTraceServiceRequest::decode(body).map_err(|_| axum::http::StatusCode::BAD_REQUEST)?;
    keep(&inbox, uri.path(), &headers, body);
    Ok(ExportTraceServiceResponse::default().encode_to_vec())
}

async fn serve_grpc(listener: TcpListener, inbox: Inbox) {
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    tonic::transport::Server::builder()
        .add_service(TraceServiceServer::new(Grpc(inbox)))
        .serve_with_incoming(tonic::transport::server::TcpIncoming::from(listener))
        .await
        .unwrap();
}

struct Grpc(Inbox);

#[tonic::async_trait]
impl TraceService for Grpc {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        let headers = request.metadata().clone().into_headers();
        keep(&self.0, "", &headers, request.into_inner());
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

fn keep(inbox: &Inbox, path: &str, headers: &HeaderMap, body: ExportTraceServiceRequest) {
    let headers = headers
        .iter()
        .map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            (name.to_string(), value)
        })
        .collect();
    inbox.lock().unwrap().push(Request {
        path: path.to_owned(),
        headers,
        body,
    });
}

fn flatten(request: &Request) -> Vec<Span> {
    let mut spans = Vec::new();
    for resource in &request.body.resource_spans {
        let about = resource.resource.clone().unwrap_or_default();
        for scoped in &resource.scope_spans {
            let scope = scoped.scope.clone().unwrap_or_default();
            spans.extend(scoped.spans.iter().map(|span| Span {
                scope: scope.name.clone(),
                schema_url: scoped.schema_url.clone(),
                resource: map(&about.attributes),
                ..plain(span)
            }));
        }
    }
    spans
}

fn plain(span: &WireSpan) -> Span {
    let status = span.status.clone().unwrap_or_default();
    Span {
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: Some(hex(&span.parent_span_id)).filter(|id| !id.is_empty()),
        name: span.name.clone(),
        kind: span.kind,
        attributes: map(&span.attributes),
        links: span.links.iter().map(|link| hex(&link.span_id)).collect(),
        events: span
            .events
            .iter()
            .map(|event| (event.name.clone(), map(&event.attributes)))
            .collect(),
        status: status.code,
        message: status.message,
        start: span.start_time_unix_nano,
        end: span.end_time_unix_nano,
        scope: String::new(),
        schema_url: String::new(),
        resource: BTreeMap::new(),
    }
}

fn map(attributes: &[KeyValue]) -> BTreeMap<String, Value> {
    let map: BTreeMap<String, Value> = attributes
        .iter()
        .map(|a| (a.key.clone(), json_of(a.value.as_ref())))
        .collect();
    assert_eq!(map.len(), attributes.len(), "an attribute stands twice");
    map
}

fn json_of(value: Option<&AnyValue>) -> Value {
    match value.and_then(|value| value.value.as_ref()) {
        Some(Any::StringValue(text)) => json!(text),
        Some(Any::IntValue(number)) => json!(number),
        Some(Any::DoubleValue(number)) => json!(number),
        Some(Any::BoolValue(yes)) => json!(yes),
        Some(Any::ArrayValue(list)) => list.values.iter().map(|v| json_of(Some(v))).collect(),
        other => panic!("an attribute of a kind that is never sent: {other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
