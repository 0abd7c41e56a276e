//! What servers that call themselves compatible differ in, and how an error teaches it.

use crate::model::{Error, StatusKind};

/// The form of requests one server reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Answers as a stream of events.
    pub stream: bool,
    /// Knows `stream_options`.
    pub stream_usage: bool,
    /// The reply limit is `max_completion_tokens`, not `max_tokens`.
    pub completion_limit: bool,
    /// An assistant message with only calls has `""` for its content, not null.
    pub empty_text: bool,
}

impl Profile {
    /// What is assumed of a host before it was asked.
    pub fn of(host: &str) -> Self {
        Self {
            stream: true,
            stream_usage: true,
            completion_limit: host == "api.openai.com" || host.ends_with(".openai.azure.com"),
            empty_text: false,
        }
    }

    pub fn bits(self) -> u8 {
        u8::from(self.stream)
            | u8::from(self.stream_usage) << 1
            | u8::from(self.completion_limit) << 2
            | u8::from(self.empty_text) << 3
    }

    pub fn from_bits(bits: u8) -> Self {
        Self {
            stream: bits & 1 != 0,
            stream_usage: bits & 2 != 0,
            completion_limit: bits & 4 != 0,
            empty_text: bits & 8 != 0,
        }
    }

    /// The form to try next when `error` says that this one was not understood. `has_null` tells
    /// whether the request held a null content, at which some servers break with a bare 500.
    pub fn after(self, error: &Error, has_null: bool) -> Option<Self> {
        let Error::Status {
            status,
            message,
            kind,
            ..
        } = error
        else {
            return None;
        };
        let text = message.to_lowercase();
        if *status == 500 && *kind == StatusKind::Server && has_null {
            return Some(Self {
                empty_text: true,
                ..self
            });
        }
        if !matches!(status, 400 | 422) || *kind != StatusKind::Refused {
            return None;
        }
        if text.contains("max_completion_tokens") {
            return Some(Self {
                completion_limit: !self.completion_limit,
                ..self
            });
        }
        if text.contains("stream_options") && self.stream && self.stream_usage {
            return Some(Self {
                stream_usage: false,
                ..self
            });
        }
        let names_null = ["null", "none", "string"]
            .iter()
            .any(|word| text.contains(word));
        (has_null && text.contains("content") && names_null).then_some(Self {
            empty_text: true,
            ..self
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(status: u16, message: &str) -> Error {
        Error::Status {
            url: "u".into(),
            status,
            message: message.into(),
            kind: if status == 500 {
                StatusKind::Server
            } else {
                StatusKind::Refused
            },
            retry_after: None,
        }
    }

    #[test]
    fn bits_keep_every_profile() {
        for bits in 0..16 {
            assert_eq!(Profile::from_bits(bits).bits(), bits);
        }
    }

    #[test]
    fn an_error_teaches_the_form() {
        let first = Profile::of("127.0.0.1");
        let after = |status, text, null| first.after(&error(status, text), null);
        let limit = after(
            400,
            "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens'",
            false,
        );
        assert!(limit.unwrap().completion_limit);
        assert!(
            !after(422, "extra field stream_options", false)
                .unwrap()
                .stream_usage
        );
        assert!(after(500, "", true).unwrap().empty_text);
        assert!(
            after(400, "content must be a string", true)
                .unwrap()
                .empty_text
        );
        assert_eq!(after(500, "", false), None);
        assert_eq!(after(400, "unknown model", true), None);
        assert_eq!(after(404, "max_completion_tokens", true), None);
        assert!(Profile::of("api.openai.com").completion_limit);
    }
}
