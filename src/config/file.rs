//! The user's own file, `$XDG_CONFIG_HOME/wharf/config.yaml`: defaults below every plan.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{Env, Error};
use crate::plan;

/// The largest file that is read, in bytes.
const LARGEST: usize = 1 << 20;

/// Every key of the file. Scalars are kept as text, so that one reader judges flag, variable and file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct File {
    pub model: Option<Words>,
    pub role_models: BTreeMap<String, Words>,
    pub parallel: Option<Scalar>,
    pub budget_tokens: Option<Scalar>,
    pub budget_usd: Option<Scalar>,
    pub timeout: Option<Scalar>,
    pub mode: Option<Scalar>,
    /// Bytes of cached images.
    pub cache: Option<Scalar>,
    pub providers: BTreeMap<String, FileProvider>,
    /// As in a plan; they run where this file stands.
    pub hooks: Option<plan::HooksForm>,
    /// As `permissions.approver` of a plan.
    pub approver: Option<plan::ApproverForm>,
    /// By `provider/model`.
    pub prices: BTreeMap<String, FilePrice>,
}

/// A model server, written as in a plan.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileProvider {
    pub kind: FileKind,
    pub base_url: String,
    #[serde(default)]
    pub api_key_env: Option<String>,
    /// How the server differs from others of its kind.
    #[serde(default)]
    pub profile: Option<String>,
    #[serde(default)]
    pub context_window: Option<u64>,
    #[serde(default)]
    pub price: Option<FilePrice>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FileKind {
    Openai,
    #[serde(rename = "openai-responses")]
    OpenaiResponses,
    Anthropic,
}

/// US dollars a million tokens.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FilePrice {
    pub input: f64,
    /// Default: as `input`.
    #[serde(default)]
    pub cached_input: Option<f64>,
    pub output: f64,
}

/// One word or a list of words.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Words {
    One(String),
    Many(Vec<String>),
}

/// A number or a text, kept as text.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Scalar {
    Int(i64),
    Float(f64),
    Text(String),
}

impl Words {
    pub(super) fn list(&self) -> Vec<String> {
        match self {
            Self::One(word) => vec![word.clone()],
            Self::Many(words) => words.clone(),
        }
    }
}

impl Scalar {
    pub(super) fn text(&self) -> String {
        match self {
            Self::Int(number) => number.to_string(),
            Self::Float(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

/// The file and where it is; a missing one is an empty one.
pub(super) fn read(env: &Env) -> Result<(File, PathBuf), Error> {
    let config = env.absolute("XDG_CONFIG_HOME");
    let config = config.or_else(|| Some(env.home()?.join(".config")));
    let Some(path) = config.map(|dir| dir.join("wharf/config.yaml")) else {
        return Ok((File::default(), PathBuf::from("config.yaml")));
    };
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok((parse(&text, &path)?, path)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok((File::default(), path)),
        Err(source) => Err(Error::Io {
            operation: "read the config file",
            path,
            source,
        }),
    }
}

fn parse(text: &str, path: &Path) -> Result<File, Error> {
    let fault = |line, column, message: String| Error::File {
        path: path.to_owned(),
        line,
        column,
        message,
    };
    if text.len() > LARGEST {
        return Err(fault(1, 1, "the file is larger than 1 MiB".to_owned()));
    }
    let blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    if text.lines().all(blank) {
        return Ok(File::default());
    }
    let options = serde_saphyr::options! {
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options::<File>(text, options).map_err(|error| {
        let place = error
            .location()
            .map_or((1, 1), |at| (at.line(), at.column()));
        let message = error.without_snippet().to_string();
        // The place stands in front already.
        let tail = format!(" at line {}, column {}", place.0, place.1);
        let message = message.strip_suffix(&tail).unwrap_or(&message);
        let meant = meant(message).unwrap_or_default();
        fault(place.0, place.1, format!("{message}{meant}"))
    })
}

/// The known key that an unknown one was meant to be, as the end of the message that lists them all.
fn meant(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("unknown field `")?;
    let (word, rest) = rest.split_once('`')?;
    let (_, known) = rest.split_once("expected one of ")?;
    let known = known.split(',').map(|name| name.trim_matches([' ', '`']));
    let near = plan::nearest(word, known)?;
    Some(format!("; did you mean `{near}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<File, String> {
        parse(text, Path::new("config.yaml")).map_err(|error| error.to_string())
    }

    #[test]
    fn reads_every_key() {
        let file = read(
            "model: [a/b, c/d]\nrole_models: {coder: e/f}\nparallel: 8\nbudget_tokens: 1_000\nbudget_usd: 2.5\n\
             timeout: 30m\nmode: ask\ncache: 5g\nproviders:\n  local: {kind: openai, base_url: 'http://h/v1', price: {input: 1, output: 2}}\n",
        )
        .unwrap();
        assert_eq!(file.model.unwrap().list(), ["a/b", "c/d"]);
        assert_eq!(file.role_models["coder"].list(), ["e/f"]);
        assert_eq!(file.parallel.unwrap().text(), "8");
        assert_eq!(file.budget_usd.unwrap().text(), "2.5");
        assert_eq!(file.cache.unwrap().text(), "5g");
        assert!(file.providers["local"].price.is_some());
    }

    #[test]
    fn an_empty_file_says_nothing() {
        for text in ["", "# nothing\n\n"] {
            assert!(read(text).unwrap().model.is_none());
        }
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_place() {
        let error = read("model: a/b\nparalel: 3\n").unwrap_err();
        assert!(error.starts_with("config.yaml:2:1: "), "{error}");
        assert!(error.ends_with("did you mean `parallel`?"), "{error}");
        let error = read("providers:\n  x: {kind: openai, base_urls: y}\n").unwrap_err();
        assert!(error.ends_with("did you mean `base_url`?"), "{error}");
        let error = read("zebra: 1\n").unwrap_err();
        assert!(!error.contains("did you mean"), "{error}");
        let error = read("providers:\n  x: {kind: other, base_url: y}\n").unwrap_err();
        assert!(error.starts_with("config.yaml:2:"), "{error}");
    }
}
