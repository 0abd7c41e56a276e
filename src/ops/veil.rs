//! What a recording that is given away must not tell: secrets, where things lie on this machine, its name.

use serde_json::Value;

use crate::journal::Mask;

/// The directory that agents work in, the same on every machine.
const WORKSPACE: &str = "/workspace";
/// Stands for the operator's home.
const HOME: &str = "/home/user";
/// Stands for the machine's name.
const HOST: &str = "host";
/// A machine's name with fewer characters is an ordinary word, as `vm` is, and says nothing of it.
const HOST_MIN: usize = 4;
/// Stands for the operator's name.
const USER: &str = "user";
/// Names that are the same everywhere or are ordinary words.
const NOBODY: [&str; 8] = [
    "root", "user", "agent", "admin", "nobody", "ubuntu", "debian", "runner",
];
/// Endings of servers that anybody may use.
const PUBLIC: [&str; 5] = [
    "openai.com",
    "anthropic.com",
    "azure.com",
    "googleapis.com",
    "openrouter.ai",
];
/// Homes that are the same everywhere, in containers too.
const ANYBODY: [&str; 3] = ["/", "/root", "/home/agent"];

/// What is known of this machine and its operator.
#[derive(Clone, Default)]
pub struct Veil {
    secrets: Mask,
    /// Whole words and paths, each with what stands instead; the longest first.
    words: Vec<(String, &'static str)>,
}

/// Where things lie.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// The operator's home, absolute.
    pub home: Option<String>,
    /// The machine's name.
    pub host: Option<String>,
    /// The directory that the run worked on, absolute.
    pub workspace: Option<String>,
    /// The operator's name on this machine.
    pub user: Option<String>,
    /// Servers that the run or its operator used: names, with a port or without.
    pub servers: Vec<String>,
}

impl Veil {
    /// Hides these values and places.
    pub fn new(secrets: &[String], places: &Places) -> Self {
        let path = |path: &String| path.trim_end_matches('/').to_owned();
        let known = |path: &String| path.starts_with('/') && !ANYBODY.contains(&path.as_str());
        let mut words = Vec::new();
        let paths = [(&places.workspace, WORKSPACE), (&places.home, HOME)];
        for (place, word) in paths {
            let place = place.as_ref().map(path).filter(known);
            words.extend(place.map(|place| (place, word)));
        }
        let host = places.host.as_deref().map(str::trim).unwrap_or_default();
        if host.len() >= HOST_MIN && host != "localhost" {
            words.push((host.to_owned(), HOST));
        }
        let user = places.user.as_deref().map(str::trim).unwrap_or_default();
        if user.len() >= HOST_MIN && !NOBODY.contains(&user) {
            words.push((user.to_owned(), USER));
        }
        let own = places.servers.iter().map(|server| bare(server));
        words.extend(
            own.filter(|name| is_own(name))
                .map(|name| (name.to_owned(), HOST)),
        );
        words.retain(|(known, word)| known != word);
        words.sort_by_key(|(known, _)| std::cmp::Reverse(known.len()));
        Self {
            secrets: Mask::new(secrets),
            words,
        }
    }

    /// Takes all of it out of every text of a value, keys of objects apart; gives how many texts changed.
    pub fn value(&self, value: &mut Value) -> usize {
        match value {
            Value::String(text) => {
                let hidden = self.text(text);
                let changed = hidden != *text;
                *text = hidden;
                usize::from(changed)
            }
            Value::Array(items) => items.iter_mut().map(|item| self.value(item)).sum(),
            Value::Object(fields) => fields.values_mut().map(|field| self.value(field)).sum(),
            _ => 0,
        }
    }

    fn text(&self, text: &str) -> String {
        let text = self.secrets.text(text);
        let hide = |text: String, (known, word): &(String, &'static str)| whole(&text, known, word);
        self.words.iter().fold(text, hide)
    }
}

/// A server's name without scheme, user, port and path.
fn bare(server: &str) -> &str {
    let rest = server.split_once("://").map_or(server, |(_, rest)| rest);
    let rest = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    match rest.strip_prefix('[') {
        Some(six) => six.split(']').next().unwrap_or_default(),
        None => rest.split(':').next().unwrap_or_default(),
    }
}

/// True for a server whose name says something of the operator's place.
fn is_own(name: &str) -> bool {
    let loopback = name
        .parse::<std::net::IpAddr>()
        .is_ok_and(|a| a.is_loopback());
    let public = |ending: &str| name == ending || name.ends_with(&format!(".{ending}"));
    name.len() >= HOST_MIN
        && name != "localhost"
        && !loopback
        && !PUBLIC.iter().any(|ending| public(ending))
}

/// Replaces a word where it stands alone: `/home/me` is neither in `/home/mentor` nor in `/old/home/me`.
fn whole(text: &str, known: &str, word: &str) -> String {
    let part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let is_path = known.starts_with('/');
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for (at, _) in text.match_indices(known) {
        let before = text[..at].chars().next_back();
        let after = text[at + known.len()..].chars().next();
        let alone =
            !before.is_some_and(|c| part(c) || (is_path && c == '.')) && !after.is_some_and(part);
        if alone && at >= from {
            out.push_str(&text[from..at]);
            out.push_str(word);
            from = at + known.len();
        }
    }
    out.push_str(&text[from..]);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn veil() -> Veil {
        let places = Places {
            home: Some("/home/mira/".to_owned()),
            host: Some("buildbox-7\n".to_owned()),
            workspace: Some("/home/mira/shop".to_owned()),
            user: Some("mira".to_owned()),
            servers: [
                "https://u:p@gpu1.corp.example:8443/v1?k=1",
                "[2001:db8::7]:443",
                "10.1.2.3:80",
                "api.openai.com:443",
                "127.0.0.1:9",
                "tcp://builds.corp.example:2376",
            ]
            .map(str::to_owned)
            .into(),
        };
        Veil::new(&["pass\"word1".to_owned()], &places)
    }

    #[test]
    fn secrets_places_and_the_machine_s_name_are_replaced_wherever_they_stand() {
        let arguments = json!({"command": "cd /home/mira/shop && echo pass\"word1 > ~/x"});
        let mut value = json!({"calls": [{"arguments": arguments.to_string()}],
            "text": "on buildbox-7: /home/mira/.ssh, file:///home/mira", "other": 7});
        assert_eq!(veil().value(&mut value), 2);
        let inner: Value =
            serde_json::from_str(value["calls"][0]["arguments"].as_str().unwrap()).unwrap();
        assert_eq!(inner["command"], "cd /workspace && echo [secret] > ~/x");
        assert_eq!(value["text"], "on host: /home/user/.ssh, file:///home/user");
    }

    #[test]
    fn the_operator_and_the_servers_are_not_named() {
        let said = "mira asked gpu1.corp.example:8443 and https://builds.corp.example/x, 10.1.2.3, \
                    [2001:db8::7], api.openai.com, 127.0.0.1; /srv/mira/x, mirabel";
        let mut value = json!(said);
        veil().value(&mut value);
        assert_eq!(
            value,
            "user asked host:8443 and https://host/x, host, [host], api.openai.com, 127.0.0.1; \
             /srv/user/x, mirabel"
        );
    }

    #[test]
    fn what_only_looks_like_them_stays() {
        let mut value = json!("/home/mirabel /srv/home/mira2 buildbox-77 rebuildbox-7");
        assert_eq!(veil().value(&mut value), 0);
        let places = Places {
            home: Some("/root".to_owned()),
            host: Some("vm".to_owned()),
            workspace: Some("/workspace".to_owned()),
            user: Some("root".to_owned()),
            servers: vec!["localhost:1".to_owned()],
        };
        let mut value = json!("ls /root on a vm in /workspace");
        assert_eq!(Veil::new(&[], &places).value(&mut value), 0);
    }
}
