//! What servers of models differ in, as data: profiles, and what a server's own words teach of it.
//!
//! Owns: `profiles.json`, the quirks, the lessons.
//! Takes: a wire, a host, a profile's name; an error and what the refused request held.
//! Gives: the form to write a request in, and the form to try next.
//! Never: sends anything.

mod quirks;

use std::sync::LazyLock;

use serde::Deserialize;

use super::{Error, StatusKind, Wire};

pub use quirks::{Learned, Quirk, Quirks};

/// Where a key goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Auth {
    /// `authorization: Bearer KEY`.
    #[serde(rename = "bearer")]
    Bearer,
    /// `x-api-key: KEY`.
    #[serde(rename = "x-api-key")]
    XApiKey,
    /// `api-key: KEY`, which is Azure's.
    #[serde(rename = "api-key")]
    ApiKey,
}

/// How a server is told to think more or less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffortForm {
    /// `reasoning_effort: WORD`.
    ReasoningEffort,
    /// `reasoning: {effort: WORD}`.
    Reasoning,
    /// `thinking: {type: enabled, budget_tokens: N}`.
    Thinking,
    /// `thinking: {type: adaptive}` and `output_config: {effort: WORD}`.
    OutputConfig,
}

/// What is known of a kind of server before it was asked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    pub name: String,
    pub wires: Vec<Wire>,
    /// A whole host name, or the end of one that begins with a dot.
    pub hosts: Vec<String>,
    /// It is used only where an operator names it.
    #[serde(default)]
    named_only: bool,
    pub auth: Auth,
    #[serde(default)]
    starts_with: Vec<Quirk>,
    /// In the order in which they are tried.
    pub effort: Vec<EffortForm>,
    /// The most tools one request may offer; None: no limit is known.
    #[serde(default)]
    pub tools: Option<usize>,
}

impl Profile {
    /// The quirks known from the start.
    pub fn quirks(&self) -> Quirks {
        self.starts_with
            .iter()
            .fold(Quirks::default(), |all, &one| all.with(one))
    }

    /// How effort is said under these quirks; None where no (further) way is known.
    pub fn effort_form(&self, quirks: Quirks) -> Option<EffortForm> {
        let at = usize::from(quirks.has(Quirk::OtherEffort));
        self.effort.get(at).copied()
    }
}

/// A part of a request that a lesson is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The wish for figures at a stream's end.
    Usage,
    Temperature,
    Effort,
    /// What the model thought, sent back.
    Reasoning,
    /// Marks of what is to be cached.
    Cache,
    System,
    UserAfterResult,
    Results,
    Tools,
    /// The wish for thoughts in a form that goes back.
    Include,
    /// An assistant message without text.
    NullContent,
}

/// Whose quirk it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Owner {
    Provider,
    Model,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Lesson {
    quirk: Quirk,
    of: Owner,
    /// The same words may also take the quirk back.
    #[serde(default)]
    back: bool,
    #[serde(default)]
    needs: Option<Part>,
    /// Default: 400 and 422.
    #[serde(default)]
    status: Vec<u16>,
    #[serde(default)]
    all: Vec<String>,
    any: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "about")]
    _about: String,
    profiles: Vec<Profile>,
    lessons: Vec<Lesson>,
}

static FILE: LazyLock<File> = LazyLock::new(|| {
    let file = serde_json::from_str(include_str!("profiles.json"));
    // A test reads the same text, so this holds in every build that was tested.
    file.unwrap_or(File {
        _about: String::new(),
        profiles: Vec::new(),
        lessons: Vec::new(),
    })
});

/// What is taken where no profile fits.
static PLAIN: Profile = Profile {
    name: String::new(),
    wires: Vec::new(),
    hosts: Vec::new(),
    named_only: true,
    auth: Auth::Bearer,
    starts_with: Vec::new(),
    effort: Vec::new(),
    tools: None,
};

/// The names an operator may write, with the wires of each.
pub fn names() -> Vec<(&'static str, &'static [Wire])> {
    let each = FILE.profiles.iter();
    each.map(|p| (p.name.as_str(), p.wires.as_slice()))
        .collect()
}

/// The profile of this name for a wire. `Err` says which there are.
pub fn named(name: &str, wire: Wire) -> Result<&'static Profile, Error> {
    let found = FILE.profiles.iter().find(|profile| profile.name == name);
    if let Some(profile) = found.filter(|profile| profile.wires.contains(&wire)) {
        return Ok(profile);
    }
    let fitting = names().into_iter().filter(|(_, w)| w.contains(&wire));
    let fitting: Vec<&str> = fitting.map(|(name, _)| name).collect();
    Err(Error::Setup {
        what: format!(
            "there is no profile {name:?} for the kind {}",
            wire.as_str()
        ),
        hint: format!("the profiles of this kind are {}", fitting.join(", ")),
    })
}

/// The profile that a host's name tells, else the common one of the wire.
pub fn of_host(wire: Wire, host: &str) -> &'static Profile {
    let of_wire = || {
        let all = FILE.profiles.iter();
        all.filter(move |p| p.wires.contains(&wire) && !p.named_only)
    };
    let fits = |pattern: &String| match pattern.strip_prefix('.') {
        Some(_) => host.ends_with(pattern.as_str()),
        None => host == pattern,
    };
    of_wire()
        .find(|profile| profile.hosts.iter().any(fits))
        .or_else(|| of_wire().find(|profile| profile.hosts.is_empty()))
        .unwrap_or(&PLAIN)
}

/// The quirks to try next when `error` says that a request under `quirks` was not understood, whose
/// parts `holds` knows. None: the words teach nothing new.
pub fn taught(
    profile: &Profile,
    quirks: Quirks,
    error: &Error,
    holds: &dyn Fn(Part) -> bool,
) -> Option<Quirks> {
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
    let refused = matches!(status, 400 | 422) && *kind == StatusKind::Refused;
    FILE.lessons.iter().find_map(|lesson| {
        let applies = match lesson.status.as_slice() {
            [] => refused,
            listed => {
                let unread = matches!(kind, StatusKind::Server | StatusKind::Refused);
                listed.contains(status) && unread
            }
        };
        let says = applies
            && lesson.all.iter().all(|word| text.contains(word))
            && lesson.any.iter().any(|word| text.contains(word))
            && lesson.needs.is_none_or(holds);
        if !says || (quirks.has(lesson.quirk) && !lesson.back) {
            return None;
        }
        let next = quirks.toggled(lesson.quirk);
        // Another way to say effort is no way where the profile knows none.
        let lost = lesson.quirk == Quirk::OtherEffort && profile.effort_form(next).is_none();
        (!lost).then_some(next)
    })
}

/// The quirks that every model of a provider shares.
pub fn shared() -> Quirks {
    let of_provider = FILE
        .lessons
        .iter()
        .filter(|lesson| lesson.of == Owner::Provider);
    of_provider.fold(
        Quirks::default().with(Quirk::Plain).with(Quirk::EmptyOnce),
        |all, lesson| all.with(lesson.quirk),
    )
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
    fn the_file_is_sound() {
        let file: File = serde_json::from_str(include_str!("profiles.json")).unwrap();
        assert!(file.profiles.len() > 8 && file.lessons.len() > 8);
        for wire in [Wire::OpenAi, Wire::Anthropic, Wire::Responses] {
            assert_ne!(of_host(wire, "host.example").name, "", "{wire:?}");
        }
        for profile in &file.profiles {
            assert!(!profile.wires.is_empty(), "{}", profile.name);
            assert_eq!(
                named(&profile.name, profile.wires[0]).unwrap().name,
                profile.name
            );
        }
        for lesson in &file.lessons {
            assert!(!lesson.any.is_empty(), "{lesson:?}");
            let lower = |word: &String| *word == word.to_lowercase();
            assert!(lesson.any.iter().all(lower) && lesson.all.iter().all(lower));
        }
    }

    #[test]
    fn a_host_tells_its_profile_and_a_name_must_fit_the_wire() {
        let of = |wire, host| of_host(wire, host).name.as_str();
        assert_eq!(of(Wire::OpenAi, "api.openai.com"), "openai");
        assert_eq!(of(Wire::Responses, "api.openai.com"), "openai");
        assert_eq!(of(Wire::OpenAi, "mine.openai.azure.com"), "azure");
        assert_eq!(
            of(Wire::OpenAi, "openai.azure.com.evil.example"),
            "compatible"
        );
        assert_eq!(of(Wire::OpenAi, "127.0.0.1"), "compatible");
        assert_eq!(of(Wire::Anthropic, "127.0.0.1"), "anthropic");
        assert_eq!(of(Wire::Responses, "127.0.0.1"), "responses");
        assert!(named("azure", Wire::Anthropic).is_err());
        match named("azur", Wire::OpenAi) {
            Err(Error::Setup { hint, .. }) => assert!(hint.contains("azure, openrouter"), "{hint}"),
            other => panic!("{other:?}"),
        }
    }

    type Taught = (u16, &'static str, &'static [Part], Option<Quirk>);

    /// Holds what a plain server's words teach against a table.
    fn teaches(table: &[Taught]) {
        let profile = of_host(Wire::OpenAi, "127.0.0.1");
        let none = Quirks::default();
        for (status, text, parts, wanted) in table {
            let holds = |part: Part| parts.contains(&part);
            let found = taught(profile, none, &error(*status, text), &holds);
            let wanted = wanted.map(|quirk| none.with(quirk));
            assert_eq!(found, wanted, "{status} {text}");
        }
    }

    #[test]
    fn an_error_teaches_the_form() {
        teaches(&[
            (
                400,
                "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens'",
                &[],
                Some(Quirk::CompletionLimit),
            ),
            (
                422,
                "extra field stream_options",
                &[Part::Usage],
                Some(Quirk::NoStreamUsage),
            ),
            (
                400,
                "Unsupported value: 'temperature' does not support 0.2",
                &[Part::Temperature],
                Some(Quirk::NoTemperature),
            ),
            (400, "bad temperature", &[], None),
            (500, "", &[Part::NullContent], Some(Quirk::EmptyText)),
            (500, "", &[], None),
            (
                400,
                "content must be a string",
                &[Part::NullContent],
                Some(Quirk::EmptyText),
            ),
            (400, "unknown model", &[Part::NullContent], None),
            (404, "max_completion_tokens", &[], None),
        ]);
    }

    #[test]
    fn an_error_teaches_the_rules_of_roles_and_ids() {
        teaches(&[
            (
                400,
                "System role not supported",
                &[Part::System],
                Some(Quirk::NoSystem),
            ),
            (
                400,
                "Unexpected role 'user' after role 'tool'",
                &[Part::UserAfterResult],
                Some(Quirk::FoldUser),
            ),
            (
                400,
                "Tool call id must be a-z, A-Z, 0-9, with a length of 9.",
                &[Part::Results],
                Some(Quirk::ShortIds),
            ),
            (
                400,
                "unknown field reasoning_effort",
                &[Part::Effort],
                Some(Quirk::OtherEffort),
            ),
        ]);
    }

    #[test]
    fn a_lesson_is_taken_once_and_only_where_there_is_another_form() {
        let profile = of_host(Wire::OpenAi, "api.openai.com");
        let effort = error(400, "unknown reasoning_effort");
        assert_eq!(
            taught(profile, profile.quirks(), &effort, &|_| true),
            None,
            "OpenAI's profile knows one way"
        );
        let limit = error(400, "max_completion_tokens is unknown");
        let back = taught(profile, profile.quirks(), &limit, &|_| false).unwrap();
        assert!(!back.has(Quirk::CompletionLimit));
        let null = error(400, "content is null");
        let known = Quirks::default().with(Quirk::EmptyText);
        assert_eq!(taught(profile, known, &null, &|_| true), None);
    }
}
