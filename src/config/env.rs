//! The environment of the process, read once; a value of it can be named as a secret.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use super::Error;

/// Shorter values would mask ordinary words.
pub(super) const SECRET_MIN: usize = 8;

/// Parts of names that say the value is a secret.
const SECRET_NAMES: [&str; 9] = [
    "API_KEY",
    "APIKEY",
    "ACCESS_KEY",
    "PRIVATE_KEY",
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "CREDENTIAL",
];

/// Variables by name. No `Debug`: it holds secrets.
#[derive(Clone, Default)]
pub struct Env(BTreeMap<String, OsString>);

impl Env {
    /// The process's own.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that reads the environment"
    )]
    pub fn of_process() -> Self {
        let named = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value));
        Self(std::env::vars_os().filter_map(named).collect())
    }

    /// One made by hand.
    pub fn of(variables: &[(&str, &str)]) -> Self {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), OsString::from(value));
        Self(variables.iter().map(pair).collect())
    }

    /// A text; empty and unset are the same.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let value = self.0.get(name)?.to_str()?.to_owned();
        (!value.is_empty()).then_some(value)
    }

    /// A path, whatever its bytes; empty and unset are the same.
    pub(super) fn path(&self, name: &str) -> Option<PathBuf> {
        let value = self.0.get(name)?;
        (!value.is_empty()).then(|| PathBuf::from(value))
    }

    /// A path that the XDG rules accept: a relative one counts as unset.
    pub(super) fn absolute(&self, name: &str) -> Option<PathBuf> {
        self.path(name).filter(|path| path.is_absolute())
    }

    pub(super) fn home(&self) -> Option<PathBuf> {
        self.absolute("HOME")
    }

    /// A switch: on for `1`, `true`, `yes`, `on`.
    pub(super) fn is_on(&self, name: &str) -> Result<bool, Error> {
        let Some(value) = self.text(name) else {
            return Ok(false);
        };
        match value.to_ascii_lowercase().as_str() {
            "1" | "true" | "yes" | "on" => Ok(true),
            "0" | "false" | "no" | "off" => Ok(false),
            _ => Err(Error::Value {
                name: name.to_owned(),
                value,
                why: "write true or false".to_owned(),
            }),
        }
    }

    /// Values whose names say that they are secrets, and passwords inside addresses.
    pub(super) fn secrets(&self) -> Vec<String> {
        let mut secrets = Vec::new();
        for (name, value) in &self.0 {
            let Some(value) = value.to_str() else {
                continue;
            };
            let name = name.to_ascii_uppercase();
            let is_path = value.starts_with('/');
            if SECRET_NAMES.iter().any(|part| name.contains(part)) && !is_path {
                secrets.push(value.to_owned());
            }
            secrets.extend(password(value));
        }
        secrets
    }

    /// Proxy settings as the host has them, for builds that need the network.
    pub(super) fn proxies(&self) -> Vec<(String, String)> {
        const NAMES: [&str; 4] = ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"];
        let names = NAMES
            .iter()
            .flat_map(|name| [(*name).to_owned(), name.to_ascii_lowercase()]);
        names
            .filter_map(|name| self.text(&name).map(|value| (name, value)))
            .collect()
    }
}

/// The password of `scheme://user:password@host`.
fn password(value: &str) -> Option<String> {
    let (_, rest) = value.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let (user, _) = authority.rsplit_once('@')?;
    let (_, password) = user.split_once(':')?;
    Some(password.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_give_secrets() {
        let env = Env::of(&[
            ("TAVILY_API_KEY", "tvly-canary"),
            ("GITHUB_TOKEN", "ghp_canary"),
            ("DB", "postgres://u:canarypw@h/x"),
            ("TOKEN_FILE", "/run/token"),
            ("EDITOR", "vi"),
        ]);
        assert_eq!(env.secrets(), ["canarypw", "ghp_canary", "tvly-canary"]);
    }

    #[test]
    fn a_switch_is_on_off_or_an_error() {
        let env = Env::of(&[("A", "1"), ("B", "No"), ("C", "maybe"), ("D", "")]);
        assert!(env.is_on("A").unwrap());
        assert!(!env.is_on("B").unwrap());
        assert!(!env.is_on("D").unwrap());
        assert!(!env.is_on("E").unwrap());
        assert_eq!(env.is_on("C").unwrap_err().exit_code(), 2);
    }
}
