//! TLS to a server that Wharf itself speaks to, its certificate verified against the host's name.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Speaks TLS on a connection; the error is for people and names no secret.
pub(super) async fn connect(
    authorities: Option<&Path>,
    host: &str,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, String> {
    // The system's authorities are some hundred files or one large one.
    let authorities = authorities.map(Path::to_owned);
    let config = tokio::task::spawn_blocking(move || configuration(authorities.as_deref()))
        .await
        .map_err(|error| format!("TLS could not be set up: {error}"))??;
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| format!("TLS cannot be spoken to {host}"))?;
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .map_err(|error| format!("TLS failed: {error}"))
}

fn configuration(authorities: Option<&Path>) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS could not be set up: {error}"))?;
    let mut config = builder
        .with_root_certificates(roots(authorities)?)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// The authorities of the bundle, or the system's; none at all is an error.
fn roots(authorities: Option<&Path>) -> Result<RootCertStore, String> {
    let certificates: Vec<CertificateDer<'static>> = match authorities {
        Some(path) => CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect)
            .map_err(|error| format!("{}: {error}", path.display()))?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates);
    match added {
        0 => Err("this machine trusts no certificate authority".to_owned()),
        _ => Ok(roots),
    }
}
