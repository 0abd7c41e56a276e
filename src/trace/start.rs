//! What each kind of span says at its start and at its end, in plain types.

/// What the root span says.
#[derive(Clone, Debug, Default)]
pub struct RunStart {
    pub run: String,
    pub plan: String,
}

/// What an agent's span says.
#[derive(Clone, Debug, Default)]
pub struct AgentStart {
    pub run: String,
    pub role: String,
    pub subtask: String,
    pub description: String,
    pub provider: String,
    pub model: String,
    pub round: u32,
    /// `coordinator`, `worker`, `merger` or `verifier`: decides the OpenInference kind.
    pub kind: &'static str,
}

/// What a chat span says at its start.
#[derive(Clone, Debug, Default)]
pub struct ChatStart {
    pub run: String,
    pub provider: String,
    pub model: String,
    pub host: Option<String>,
    pub port: Option<u16>,
    pub stream: bool,
    pub reply_tokens: u64,
    pub temperature: Option<f64>,
    pub agent: String,
}

/// What a chat span says once the model answered.
#[derive(Clone, Debug, Default)]
pub struct ChatEnd {
    pub response_id: Option<String>,
    pub response_model: Option<String>,
    pub finish: String,
    pub usage: ChatUsage,
    pub attempts: u32,
}

/// What a model call used, attempts without an answer included.
#[derive(Clone, Debug, Default)]
pub struct ChatUsage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cached_tokens: u64,
    /// A server gave no figures: these are estimates, and so is the cost.
    pub estimated: bool,
    pub cost_usd: Option<f64>,
}

/// What a sandbox command's span says.
#[derive(Clone, Debug, Default)]
pub struct ExecStart {
    /// `bash`, `sh`: the program started.
    pub executable: String,
    pub container: String,
    pub image: String,
    pub runtime: String,
}
