//! Servers on loopback: HTTP that keeps what it heard, TLS, and odd ones.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// What a server does with a connection, by the path that is asked for:
/// `/` answers with the path, `/endless` never stops, `/broken` stops too early.
pub struct Server {
    pub address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// HTTP in the clear.
    pub async fn http() -> Server {
        Server::start(None).await
    }

    /// HTTP over TLS, for `api.test` and `tls.test`.
    pub async fn https() -> Server {
        let certificates = CertificateDer::pem_slice_iter(include_bytes!("server.pem"))
            .collect::<Result<Vec<_>, _>>()
            .unwrap();
        let key = PrivateKeyDer::from_pem_slice(include_bytes!("server.key")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(certificates, key)
            .unwrap();
        Server::start(Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn start(tls: Option<TlsAcceptor>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (heads, connections) = (Arc::<Mutex<Vec<String>>>::default(), Arc::default());
        let (kept, counted) = (heads.clone(), Arc::clone(&connections));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                AtomicUsize::fetch_add(&counted, 1, Ordering::SeqCst);
                let (tls, kept) = (tls.clone(), kept.clone());
                tokio::spawn(serve(stream, tls, kept));
            }
        });
        Server {
            address,
            heads,
            connections,
            task,
        }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The heads of all requests so far.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn serve(stream: TcpStream, tls: Option<TlsAcceptor>, heads: Arc<Mutex<Vec<String>>>) {
    let Some(tls) = tls else {
        return answer(stream, &heads).await;
    };
    // A client that does not like the certificate goes away.
    if let Ok(stream) = tls.accept(stream).await {
        answer(stream, &heads).await;
    }
}

async fn answer<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, heads: &Mutex<Vec<String>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let path = head.split(' ').nth(1).unwrap().to_owned();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "))
        .map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    heads.lock().unwrap().push(head);
    let sent = match path.as_str() {
        "/endless" => endless(&mut stream).await,
        _ => {
            let text = format!("{path} {length}\n");
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
                text.len()
            );
            stream.write_all(head.as_bytes()).await
        }
    };
    if sent.is_ok() {
        // The end may find the client gone.
        drop(stream.shutdown().await);
    }
}

async fn endless<S: AsyncWrite + Unpin>(stream: &mut S) -> std::io::Result<()> {
    stream
        .write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        .await?;
    loop {
        stream.write_all(&[b'x'; 16 << 10]).await?;
    }
}

/// A server that does one thing with each connection.
pub async fn each<F, W>(work: F) -> SocketAddr
where
    F: Fn(TcpStream) -> W + Send + 'static,
    W: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(work(stream));
        }
    });
    address
}
