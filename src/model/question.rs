//! One question as JSON to an address of the operator's own, which is no model: an approver.

use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Url, redirect};

use super::http::is_loopback;

/// Bytes of an answer.
const MOST: usize = 64 << 10;

/// Posts the question and gives the whole answer. Anything but status 200 within the limit is an error in
/// words; no redirect is followed and nothing is asked twice.
///
/// # Errors
/// Why there is no answer.
pub async fn post(url: &str, body: Vec<u8>, limit: Duration) -> Result<Vec<u8>, String> {
    let url = Url::parse(url).map_err(|error| format!("its address is no URL: {error}"))?;
    // Whoever installed a provider before is right; without one no TLS client can be made.
    drop(rustls::crypto::ring::default_provider().install_default());
    let mut builder = Client::builder()
        .redirect(redirect::Policy::none())
        .user_agent(concat!("wharf/", env!("CARGO_PKG_VERSION")));
    if is_loopback(&url) {
        builder = builder.no_proxy();
    }
    let client = builder
        .build()
        .map_err(|error| format!("HTTP could not be set up: {error}"))?;
    let asked = async {
        let request = client.post(url).header(CONTENT_TYPE, "application/json");
        let sent = request.body(body).send().await;
        let mut response =
            sent.map_err(|error| format!("it could not be asked: {}", bare(error)))?;
        let status = response.status().as_u16();
        if status != 200 {
            return Err(format!("it answered with status {status}"));
        }
        let mut answer = Vec::new();
        let cut = |error| format!("its answer broke off: {}", bare(error));
        while let Some(piece) = response.chunk().await.map_err(cut)? {
            answer.extend_from_slice(&piece);
            if answer.len() > MOST {
                return Err(format!("its answer is longer than {} KiB", MOST >> 10));
            }
        }
        Ok(answer)
    };
    let late = |_| {
        Err(format!(
            "it did not answer within {} s",
            limit.as_secs_f64()
        ))
    };
    tokio::time::timeout(limit, asked)
        .await
        .unwrap_or_else(late)
}

/// An address may hold what is nobody's business.
fn bare(error: reqwest::Error) -> String {
    super::http::cause(&error.without_url())
}
