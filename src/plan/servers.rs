//! Model servers as a plan file writes them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::forms::Count;

/// A model server.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Provider {
    pub kind: ProviderKind,
    pub base_url: String,
    /// The environment variable that holds the key, where one is needed.
    #[serde(default)]
    pub api_key_env: Option<String>,
    /// How the server differs from others of its kind; default: what its host tells.
    #[serde(default)]
    pub profile: Option<Profile>,
    #[serde(default)]
    pub context_window: Option<Count>,
    #[serde(default)]
    pub price: Option<Price>,
}

/// The wire a server speaks.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ProviderKind {
    Openai,
    #[serde(rename = "openai-responses")]
    OpenaiResponses,
    Anthropic,
}

/// How a server differs from others of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Profile {
    Openai,
    Azure,
    Openrouter,
    Mistral,
    LlamaCpp,
    Vllm,
    Ollama,
    Litellm,
    Compatible,
    Anthropic,
    Responses,
}

/// US dollars a million tokens.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Price {
    pub input: f64,
    /// Default: as `input`.
    #[serde(default)]
    pub cached_input: Option<f64>,
    pub output: f64,
}
