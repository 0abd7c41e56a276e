//! What one request to a model was, and what it used.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Where a request went and what it wished for, beside its messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// The provider's name in traces.
    pub provider: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    pub reply_tokens: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Everything that went out beside messages and tools, by the names of the server's protocol, in the
    /// form it was found to need when the attempt began. Empty: nothing is sent, or an earlier wharf asked.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub parameters: Map<String, Value>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Includes `cached_tokens`.
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cached_tokens: u64,
    pub estimated: bool,
}
