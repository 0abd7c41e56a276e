//! What an operator can do about an error: the next step, as exact as the error allows.

use std::time::Duration;

use super::{Error, StatusKind, retry};

impl Error {
    /// What to do next; empty when nothing helps.
    pub fn hint(&self) -> String {
        match self {
            Self::Connect { url, reason } => unreached(url, reason),
            Self::Timeout { .. } => "see whether the server is loaded or stuck, then try again; \
                 `wharf doctor --model PROVIDER/NAME` makes one small call"
                .to_owned(),
            Self::Cut { .. } => "try again later, or name another model with --model; a proxy before \
                 the server may cut long answers"
                .to_owned(),
            Self::NotRecorded { .. } => {
                "a recording answers only the conversation it was made from; name a model with --model"
                    .to_owned()
            }
            Self::Setup { hint, .. } => hint.clone(),
            Self::Status {
                url,
                status,
                message,
                kind,
                retry_after,
            } => match kind {
                StatusKind::Key => key(*status, message),
                StatusKind::Quota => {
                    "raise the quota of the key, or name another model with --model".to_owned()
                }
                StatusKind::ContextOverflow => {
                    "name the model's agent.context_window in the plan".to_owned()
                }
                StatusKind::Limited => limited(*retry_after),
                StatusKind::Server => {
                    "try again later, or name another model with --model".to_owned()
                }
                StatusKind::Refused => refused(url, *status, message),
            },
        }
    }

    /// True when every other call to the same model would meet the same: nobody needs to try.
    pub fn holds_for_all(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Timeout { .. } | Self::Setup { .. } => true,
            Self::Status {
                kind,
                status,
                message,
                retry_after,
                ..
            } => match kind {
                StatusKind::Key | StatusKind::Quota => true,
                StatusKind::Limited => retry_after.is_some_and(|wait| wait > retry::LONGEST),
                // The address or the model's name is wrong, or a page stands where answers should be.
                StatusKind::Refused => {
                    matches!(status, 300..=399 | 404 | 405 | 410)
                        || (*status == 200 && is_page(message))
                }
                StatusKind::ContextOverflow | StatusKind::Server => false,
            },
            Self::Cut { .. } | Self::NotRecorded { .. } => false,
        }
    }
}

fn unreached(url: &str, reason: &str) -> String {
    let reason = reason.to_lowercase();
    if reason.contains("certificate") || reason.contains("tls") {
        return "the server's certificate is not trusted here, or it speaks no TLS: see whether \
                base_url should begin with http://, or name the file of the authority that signed it in \
                SSL_CERT_FILE (a proxy may sign certificates of its own)"
            .to_owned();
    }
    if reason.contains("dns") || reason.contains("resolve") || reason.contains("lookup") {
        return "the host's name is not known here: look at base_url and at the name server"
            .to_owned();
    }
    let local = ["//127.", "//localhost", "//[::1]"]
        .iter()
        .any(|host| url.contains(host));
    if local {
        "start the server, or mend the port of base_url; inside a container 127.0.0.1 is the \
         container itself"
            .to_owned()
    } else {
        "look at base_url, at the network and at the proxy settings; `wharf models` asks again"
            .to_owned()
    }
}

fn key(status: u16, message: &str) -> String {
    if is_page(message) {
        return "a web page refused it, not the model's server: look for a proxy or a firewall \
                before base_url"
            .to_owned();
    }
    match status {
        403 => {
            "the key may not use this model: look at its rights, or name another model".to_owned()
        }
        _ => "set the variable of the key to a valid one; `wharf config show` names it".to_owned(),
    }
}

fn limited(retry_after: Option<Duration>) -> String {
    match retry_after {
        Some(wait) if wait > retry::LONGEST => format!(
            "the server asks to wait {} s, and Wharf waits at most {} s at a time: resume the run \
             then, or name another model with --model",
            wait.as_secs(),
            retry::LONGEST.as_secs()
        ),
        _ => "lower run.parallel, raise the key's limit, or name further models in `model`"
            .to_owned(),
    }
}

fn refused(url: &str, status: u16, message: &str) -> String {
    let text = message.to_lowercase();
    if matches!(status, 300..=399) {
        return "base_url leads elsewhere: write the address it leads to, or log in at the proxy"
            .to_owned();
    }
    if text.contains("enable-auto-tool-choice") {
        return "start vLLM with --enable-auto-tool-choice and the --tool-call-parser of the model"
            .to_owned();
    }
    // OpenRouter says it with a 404, before which nothing of the address is wrong.
    let no_tools = [
        "does not support tools",
        "does not support tool use",
        "tool use is not supported",
        "support tool use",
        "does not support function calling",
        "does not support parameters: ['tools']",
    ];
    if no_tools.iter().any(|words| text.contains(words)) {
        return "this model cannot call tools, and agents work by tools: name another model"
            .to_owned();
    }
    if text.contains("unexpected endpoint") {
        return "nothing is at this address: base_url probably lacks `/v1` at its end".to_owned();
    }
    if is_page(message) && status == 200 {
        return "a web page answered, not a model's server: look at base_url (most servers want \
                `/v1` at its end) and for a proxy that wants a log-in"
            .to_owned();
    }
    if matches!(status, 404 | 405) {
        let names_model = text.contains("model") && !is_page(message);
        return if names_model {
            "the server does not have this model: `wharf models` lists what it has".to_owned()
        } else if url.contains("/v1/") {
            "nothing is at this address: look at base_url; `kind` must be the protocol that the \
             server speaks"
                .to_owned()
        } else {
            "nothing is at this address: base_url probably lacks `/v1` at its end".to_owned()
        };
    }
    if text.contains("effort") || text.contains("thinking") {
        return "the model takes no such effort: change or remove agent.effort".to_owned();
    }
    "the server refuses the request itself: its words say why; another `profile` of the provider, or \
     another model, may take it"
        .to_owned()
}

fn is_page(message: &str) -> bool {
    let text = message.to_lowercase();
    text.contains("(text/html)") || text.contains("<html") || text.contains("<!doctype")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(url: &str, status: u16, message: &str, kind: StatusKind) -> Error {
        Error::Status {
            url: url.into(),
            status,
            message: message.into(),
            kind,
            retry_after: None,
        }
    }

    #[test]
    fn each_error_names_its_next_step() {
        use StatusKind::{Key, Limited, Refused};
        let (plain, v1) = ("http://h/chat/completions", "http://h/v1/chat/completions");
        let table = [
            (status(plain, 404, "Not Found", Refused), "`/v1`", true),
            (status(v1, 404, "Not Found", Refused), "`kind`", true),
            (
                status(v1, 404, "The model `x` does not exist", Refused),
                "wharf models",
                true,
            ),
            (
                status(v1, 302, "a redirect to https://login/", Refused),
                "leads elsewhere",
                true,
            ),
            (
                status(v1, 200, "<html>Log in (text/html)", Refused),
                "web page",
                true,
            ),
            (status(v1, 401, "bad key", Key), "variable", true),
            (status(v1, 403, "<html> (text/html)", Key), "firewall", true),
            (status(v1, 400, "unknown field", Refused), "profile", false),
            (
                status(v1, 400, "requires --enable-auto-tool-choice", Refused),
                "vLLM",
                false,
            ),
            (
                status(
                    v1,
                    404,
                    "No endpoints found that support tool use.",
                    Refused,
                ),
                "cannot call tools",
                true,
            ),
            (
                status(plain, 200, "Unexpected endpoint or method.", Refused),
                "`/v1`",
                false,
            ),
            (status(v1, 429, "slow", Limited), "run.parallel", false),
        ];
        for (error, words, for_all) in table {
            assert!(error.hint().contains(words), "{error}: {}", error.hint());
            assert_eq!(error.holds_for_all(), for_all, "{error}");
        }
    }

    #[test]
    fn a_wait_beyond_the_limit_is_said_with_its_length() {
        let error = Error::Status {
            url: "u".into(),
            status: 429,
            message: "m".into(),
            kind: StatusKind::Limited,
            retry_after: Some(Duration::from_secs(3600)),
        };
        assert!(error.hint().contains("3600 s") && error.hint().contains("120 s"));
        assert!(error.holds_for_all());
    }

    #[test]
    fn who_cannot_be_reached_is_told_by_its_address() {
        let unreached = |url: &str, reason: &str| {
            Error::Connect {
                url: url.into(),
                reason: reason.into(),
            }
            .hint()
        };
        assert!(unreached("http://127.0.0.1:1/v1", "refused").contains("start the server"));
        assert!(unreached("https://h/v1", "invalid peer certificate").contains("http://"));
        assert!(unreached("https://h/v1", "dns error").contains("name"));
    }
}
