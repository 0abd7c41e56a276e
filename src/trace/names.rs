//! Every attribute name that a span may carry, and the values that are fixed words.
//!
//! The GenAI names are those of the semantic conventions 1.41 and, where the later 0.1 set renamed
//! one without taking its place, that name too. A test fails on such a literal anywhere else.

/// The version of the conventions that the scope declares.
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.41.0";
/// The instrumentation scope.
pub const SCOPE: &str = "wharf";

pub const OPERATION: &str = "gen_ai.operation.name";
pub const PROVIDER: &str = "gen_ai.provider.name";
pub const CONVERSATION: &str = "gen_ai.conversation.id";
pub const WORKFLOW: &str = "gen_ai.workflow.name";
pub const AGENT: &str = "gen_ai.agent.name";
pub const AGENT_DESCRIPTION: &str = "gen_ai.agent.description";
pub const REQUEST_MODEL: &str = "gen_ai.request.model";
pub const REQUEST_STREAM: &str = "gen_ai.request.stream";
pub const REQUEST_MAX_TOKENS: &str = "gen_ai.request.max_tokens";
pub const REQUEST_TEMPERATURE: &str = "gen_ai.request.temperature";
pub const RESPONSE_ID: &str = "gen_ai.response.id";
pub const RESPONSE_MODEL: &str = "gen_ai.response.model";
pub const FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
/// Cached input is part of it.
pub const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
pub const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
pub const CACHE_READ_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
/// Not of the conventions; Langfuse reads it.
pub const USAGE_COST: &str = "gen_ai.usage.cost";
pub const TOOL: &str = "gen_ai.tool.name";
pub const TOOL_CALL: &str = "gen_ai.tool.call.id";
pub const TOOL_TYPE: &str = "gen_ai.tool.type";

/// The event that carries a verdict.
pub const EVALUATION_RESULT: &str = "gen_ai.evaluation.result";
pub const EVALUATION_NAME: &str = "gen_ai.evaluation.name";
/// `pass`, `fail` or `unknown`.
pub const EVALUATION_LABEL: &str = "gen_ai.evaluation.score.label";
/// 1.0 for pass, 0.0 for fail; absent for unknown.
pub const EVALUATION_SCORE: &str = "gen_ai.evaluation.score.value";

pub const ERROR_TYPE: &str = "error.type";
pub const SERVER_ADDRESS: &str = "server.address";
pub const SERVER_PORT: &str = "server.port";
pub const PROCESS_EXECUTABLE: &str = "process.executable.name";
pub const PROCESS_EXIT_CODE: &str = "process.exit.code";
pub const CONTAINER_ID: &str = "container.id";
pub const CONTAINER_IMAGE: &str = "container.image.name";

pub const SPAN_KIND: &str = "openinference.span.kind";
pub const SESSION: &str = "session.id";
pub const LLM_SYSTEM: &str = "llm.system";
pub const LLM_PROVIDER: &str = "llm.provider";
pub const LLM_MODEL: &str = "llm.model_name";
pub const LLM_PROMPT_TOKENS: &str = "llm.token_count.prompt";
pub const LLM_COMPLETION_TOKENS: &str = "llm.token_count.completion";
pub const LLM_TOTAL_TOKENS: &str = "llm.token_count.total";
pub const LLM_CACHE_READ_TOKENS: &str = "llm.token_count.prompt_details.cache_read";
pub const LLM_COST: &str = "llm.cost.total";
pub const OI_TOOL: &str = "tool.name";
pub const OI_TOOL_CALL: &str = "tool.id";
pub const OI_AGENT: &str = "agent.name";
pub const NODE: &str = "graph.node.id";
pub const NODE_NAME: &str = "graph.node.name";
pub const NODE_PARENT: &str = "graph.node.parent_id";

pub const RUN: &str = "wharf.run.id";
pub const SUBTASK: &str = "wharf.subtask.id";
pub const ROUND: &str = "wharf.round";
pub const ROLE_KIND: &str = "wharf.role.kind";
/// Attempts behind one logical model call, the first included.
pub const ATTEMPTS: &str = "wharf.attempts";
/// True where the server gave no figures and they are estimates.
pub const USAGE_ESTIMATED: &str = "wharf.usage.estimated";
pub const SANDBOX_RUNTIME: &str = "wharf.sandbox.runtime";
/// What a run or an agent came to: `passed`, `failed`, `done` …
pub const STATUS: &str = "wharf.status";
/// The git tree that a verdict names.
pub const TREE: &str = "wharf.tree";
/// The process exit code of a run.
pub const EXIT_CODE: &str = "wharf.exit_code";

/// An event: an attempt of a model call failed.
pub const ATTEMPT_FAILED: &str = "wharf.attempt.failed";
/// Which attempt of its call, from 1.
pub const ATTEMPT: &str = "wharf.attempt.number";
/// Seconds until the next attempt; absent when there is none.
pub const RETRY_SECONDS: &str = "wharf.attempt.retry_seconds";

/// An event: a sandbox wanted to reach a server.
pub const EGRESS: &str = "wharf.egress";
