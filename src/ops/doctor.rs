//! The checks of `doctor`: each says yes, no or could-not-tell, and what to do next.

use std::io::{ErrorKind, Write as _};
use std::path::Path;

use serde::Serialize;

use super::engine::About;

/// Bytes that should be free where the state is.
const FREE: u64 = 2 << 30;
/// Bytes written on trial.
const PROBE: usize = 256 << 10;
/// The oldest engine API that is enough.
const API: (u32, u32) = (1, 41);

/// What a check came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Ok,
    /// Nothing stops a run, but the operator should know.
    Note,
    Failed,
    /// It could not be told, which counts as failed.
    Unknown,
}

/// One line of `doctor`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    pub name: &'static str,
    pub state: State,
    /// What was found.
    pub found: String,
    /// What to do next; empty when nothing is.
    pub next: String,
}

impl Check {
    /// A check that passed.
    pub fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, State::Ok, found, "")
    }

    /// A check that did not pass, with the next step.
    pub fn failed(name: &'static str, found: impl Into<String>, next: impl Into<String>) -> Self {
        Self::new(name, State::Failed, found, next)
    }

    /// Any outcome.
    pub fn new(
        name: &'static str,
        state: State,
        found: impl Into<String>,
        next: impl Into<String>,
    ) -> Self {
        Self {
            name,
            state,
            found: found.into(),
            next: next.into(),
        }
    }

    /// True when a run can start in spite of it.
    pub fn passes(&self) -> bool {
        matches!(self.state, State::Ok | State::Note)
    }
}

/// Whether the state directory can be written, by writing to it.
pub fn state_directory(state: &Path) -> Check {
    let name = "state directory";
    match probe(state) {
        Ok(()) => Check::ok(name, format!("{} can be written", state.display())),
        Err(error) => Check::failed(
            name,
            format!("{}: {error}", state.display()),
            match error.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                    "free some space there, or name another place by WHARF_HOME"
                }
                _ => "make it writable, or name another one by WHARF_HOME",
            },
        ),
    }
}

/// Writes as much as a run's first records and makes sure that it reached the disk: a full one takes
/// names for a long time and bytes no more.
fn probe(state: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(state)?;
    let mut file = tempfile::Builder::new()
        .prefix(".doctor-")
        .tempfile_in(state)?;
    file.write_all(&[b'.'; PROBE])?;
    file.as_file().sync_all()
}

/// Whether the disk under the state directory has room.
pub fn disk(state: &Path) -> Check {
    let name = "free disk";
    let place = state
        .ancestors()
        .find(|path| path.exists())
        .unwrap_or(state);
    match rustix::fs::statvfs(place) {
        Ok(disk) => free(name, disk.f_bavail.saturating_mul(disk.f_frsize), place),
        Err(error) => Check::new(
            name,
            State::Unknown,
            format!("{}: {error}", place.display()),
            "look with `df` whether 2 GiB are free there",
        ),
    }
}

/// Whether the engine's API is new enough.
pub fn engine_api(name: &'static str, found: String, api: &str) -> Check {
    let numbers = api
        .split_once('.')
        .and_then(|(major, minor)| Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?)));
    match numbers {
        Some(version) if version >= API => Check::ok(name, found),
        Some(_) => Check::failed(name, found, "install Docker 20.10 or newer (API 1.41)"),
        None => Check::new(
            name,
            State::Unknown,
            found,
            "its API version could not be read",
        ),
    }
}

/// What an operator should know of where the engine is and how it was come by; nothing when it is
/// the first place tried, and no stranger can reach it.
pub fn engine_place(about: &About) -> Vec<Check> {
    let mut checks = Vec::new();
    if !about.passed_over.is_empty() {
        checks.push(Check::new(
            "engines tried",
            State::Note,
            format!("before it: {}", about.passed_over.join("; ")),
            "start that engine, or name the one you mean by DOCKER_HOST",
        ));
    }
    let bare = ["tcp://", "http://"]
        .iter()
        .any(|scheme| about.address.starts_with(scheme));
    if bare && !about.encrypted {
        checks.push(Check::new(
            "engine address",
            State::Note,
            "plain TCP: whoever reaches that port is root on the engine's machine",
            "use certificates (DOCKER_TLS_VERIFY, DOCKER_CERT_PATH) or ssh://",
        ));
    }
    checks
}

/// Whether the engine says that it can set a sandbox's limits; what holds is seen in each sandbox.
pub fn limits(unable: &[String]) -> Check {
    let name = "sandbox limits";
    if unable.is_empty() {
        return Check::ok(name, "the engine refuses none");
    }
    Check::new(
        name,
        State::Note,
        format!("the engine says that it cannot limit {}", unable.join(", ")),
        "sandboxes start with a warning, and not at all with `sandbox.strict`",
    )
}

/// Whether the images of ours are there; a run makes missing ones by itself.
pub fn base_images<'a>(names: impl Iterator<Item = &'a str>) -> Check {
    let names: Vec<&str> = names.collect();
    let missing: Vec<&str> = ["wharf/base", "wharf/python"]
        .into_iter()
        .filter(|image| {
            !names
                .iter()
                .any(|name| name.split(':').next() == Some(image))
        })
        .collect();
    if missing.is_empty() {
        return Check::ok("images", "wharf/base and wharf/python are there");
    }
    let found = format!(
        "{} not built yet; the first run that needs one builds it",
        missing.join(" and ")
    );
    Check::new(
        "images",
        State::Note,
        found,
        "`wharf images build` does it ahead",
    )
}

fn free(name: &'static str, bytes: u64, place: &Path) -> Check {
    let found = format!(
        "{:.1} GiB free at {}",
        bytes as f64 / (1u64 << 30) as f64,
        place.display()
    );
    if bytes >= FREE {
        Check::ok(name, found)
    } else {
        Check::failed(
            name,
            found,
            "free some space: `wharf clean --runs --older-than 7d` helps",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_directory_under_a_file_fails_with_the_next_step() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let check = state_directory(&file.path().join("x"));
        assert_eq!(check.state, State::Failed);
        assert!(check.next.contains("WHARF_HOME"));
        assert!(!check.passes());
    }

    #[test]
    fn too_little_space_fails_and_enough_passes() {
        let at = Path::new("/x");
        assert!(!free("d", FREE - 1, at).passes());
        assert!(free("d", FREE, at).passes());
        assert!(
            disk(Path::new("/no/such/place"))
                .found
                .contains("free at /")
        );
    }

    #[test]
    fn could_not_tell_does_not_pass() {
        assert!(!Check::new("d", State::Unknown, "", "").passes());
    }

    #[test]
    fn an_old_or_unreadable_api_does_not_pass() {
        let passes = |api: &str| engine_api("e", String::new(), api).passes();
        assert!(passes("1.41") && passes("1.100") && passes("2.0"));
        assert!(!passes("1.40") && !passes("") && !passes("new"));
    }

    #[test]
    fn a_plain_port_and_a_place_passed_over_are_noted() {
        let about = |address: &str, encrypted, passed_over: &[&str]| About {
            address: address.to_owned(),
            encrypted,
            passed_over: passed_over.iter().map(|&place| place.to_owned()).collect(),
            ..About::default()
        };
        assert_eq!(engine_place(&about("unix:///a", false, &[])), []);
        assert_eq!(engine_place(&about("tcp://a:1", true, &[])), []);
        let noted = engine_place(&about(
            "tcp://a:1",
            false,
            &["unix:///b (rootless): refused"],
        ));
        assert_eq!(noted.len(), 2);
        assert!(noted.iter().all(Check::passes), "{noted:?}");
        assert!(noted[0].found.contains("rootless"), "{noted:?}");
    }

    #[test]
    fn limits_that_the_engine_cannot_set_are_noted() {
        let check = limits(&["memory".to_owned(), "pids".to_owned()]);
        assert!(
            check.passes() && check.found.ends_with("memory, pids"),
            "{check:?}"
        );
        assert_eq!(limits(&[]).state, State::Ok);
    }

    #[test]
    fn missing_images_are_noted_and_stop_nothing() {
        let check = base_images(["wharf/base:abc", "wharf/baked:1"].into_iter());
        assert!(check.passes() && check.found.starts_with("wharf/python not built"));
        assert_eq!(
            base_images(["wharf/base:a", "wharf/python:b"].into_iter()).state,
            State::Ok
        );
    }
}
