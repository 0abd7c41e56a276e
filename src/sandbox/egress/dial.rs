//! From a grant to a connected server: looked up once, every address checked, and exactly a checked
//! one dialled.

use std::net::{IpAddr, SocketAddr};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::decide::{Grant, Refusal};
use super::{Way, address, tls};

/// Addresses of one host that are tried.
const TRIED: usize = 4;

/// A connection to a server.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connected server, and where it is.
pub(super) struct Server {
    pub stream: Box<dyn Stream>,
    pub address: SocketAddr,
}

/// Connects to the host of a grant.
pub(super) async fn dial(way: &Way, grant: &Grant) -> Result<Server, Refusal> {
    let addresses = find(way, grant).await?;
    let mut last = String::new();
    for address in addresses.into_iter().take(TRIED) {
        let address = SocketAddr::new(address, grant.dialled);
        match timeout(way.patience.connect, connect(way, grant, address)).await {
            Ok(Ok(stream)) => return Ok(Server { stream, address }),
            Ok(Err(reason)) => last = format!("{address}: {reason}"),
            Err(_) => last = format!("{address}: no answer in time"),
        }
    }
    let reason = format!("{}:{} could not be reached", grant.host, grant.dialled);
    Err(Refusal::unreachable(reason).because(last))
}

/// The addresses of the host that may be dialled.
async fn find(way: &Way, grant: &Grant) -> Result<Vec<IpAddr>, Refusal> {
    let found = match grant.address {
        Some(address) => vec![address],
        None => look_up(way, &grant.host).await?,
    };
    let written = grant.address.is_some();
    let (open, shut): (Vec<IpAddr>, Vec<IpAddr>) = found
        .into_iter()
        .partition(|&found| address::kind(found).open(grant.private, written));
    match (open.is_empty(), shut.first()) {
        (false, _) => Ok(open),
        (true, Some(&shut)) => {
            let word = address::kind(shut).word();
            let reason = format!("{} leads to {word}", grant.host);
            Err(Refusal::forbidden(reason).because(shut.to_string()))
        }
        (true, None) => Err(Refusal::unreachable(format!(
            "{} has no address",
            grant.host
        ))),
    }
}

async fn look_up(way: &Way, host: &str) -> Result<Vec<IpAddr>, Refusal> {
    match timeout(way.patience.resolve, way.resolve.resolve(host)).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) => {
            Err(Refusal::unreachable(format!("{host} was not found")).because(error.to_string()))
        }
        Err(_) => Err(Refusal::unreachable(format!(
            "{host} was not found in time"
        ))),
    }
}

async fn connect(way: &Way, grant: &Grant, address: SocketAddr) -> Result<Box<dyn Stream>, String> {
    let words = |error: std::io::Error| error.to_string();
    let stream = TcpStream::connect(address).await.map_err(words)?;
    stream.set_nodelay(true).map_err(words)?;
    if grant.tls {
        let stream = tls::connect(way.authorities.as_deref(), &grant.host, stream).await?;
        return Ok(Box::new(stream));
    }
    Ok(Box::new(stream))
}
