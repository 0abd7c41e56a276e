//! The list of system calls that a sandbox may make, and how an engine is given it: Docker as text,
//! Podman as a file on its own machine.

use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use super::image::short_hash;

/// The list itself.
const LIST: &str = include_str!("../../docker/seccomp.json");
/// The folder of the state directory that holds it for engines that read a file.
const FOLDER: &str = "seccomp";

/// What engines take differently, although they speak one language.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    #[default]
    Docker,
    /// It reads the list of system calls from this file, limits no number of files in a tmpfs, and chooses
    /// runtime and AppArmor profile by itself.
    Podman { list: PathBuf },
}

impl Dialect {
    /// The list, as this engine is given it.
    pub(super) fn option(&self) -> String {
        match self {
            Self::Docker => format!("seccomp={LIST}"),
            Self::Podman { list } => format!("seccomp={}", list.display()),
        }
    }
}

/// Puts the list into a file that is this user's alone and named by what it holds; gives its path.
/// A file of that name that holds anything else is replaced.
pub(super) fn keep(state: &Path) -> Result<PathBuf, String> {
    let folder = state.join(FOLDER);
    let path = folder.join(format!("{}.json", short_hash(&[LIST.as_bytes()])));
    if !path.is_absolute() || path.to_str().is_none() {
        return Err(format!(
            "{}: an engine could not be told of that place",
            path.display()
        ));
    }
    // An engine reads through a link, so what counts is what it would read.
    if std::fs::read(&path).is_ok_and(|there| there == LIST.as_bytes()) {
        return Ok(path);
    }
    write(&folder, &path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

/// In one step, so that nobody reads a half of it.
fn write(folder: &Path, path: &Path) -> std::io::Result<()> {
    let mut private = std::fs::DirBuilder::new();
    private.recursive(true).mode(0o700).create(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(LIST.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_list_is_kept_for_this_user_alone_and_put_right_where_it_was_changed() {
        let state = tempfile::tempdir().unwrap();
        let path = keep(state.path()).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        for other in ["", "{\"defaultAction\": \"SCMP_ACT_ALLOW\"}"] {
            std::fs::write(&path, other).unwrap();
            assert_eq!(keep(state.path()).unwrap(), path);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), LIST);
        }
        let folder = std::fs::read_dir(path.parent().unwrap()).unwrap();
        assert_eq!(folder.count(), 1, "nothing half-written is left");
        assert!(Dialect::Podman { list: path }.option().len() < 4096);
        assert!(Dialect::default().option().ends_with(LIST));
    }

    #[test]
    fn a_place_that_cannot_be_written_or_named_is_told() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(keep(file.path()).unwrap_err().contains("seccomp"));
        assert!(
            keep(Path::new("here"))
                .unwrap_err()
                .contains("could not be told")
        );
    }

    /// By it process 1 sees that it is this list that holds.
    #[test]
    fn the_list_has_its_mark_and_nothing_else_decides_on_that_call() {
        let list: serde_json::Value = serde_json::from_str(LIST).unwrap();
        let rules: Vec<_> = list["syscalls"].as_array().unwrap().iter().collect();
        let of = |rule: &&&serde_json::Value| {
            let names = rule["names"].as_array().unwrap().iter();
            names.filter(|name| *name == "nfsservctl").count() > 0
        };
        let marked: Vec<_> = rules.iter().filter(of).collect();
        assert_eq!(marked.len(), 1);
        assert_eq!(marked[0]["errnoRet"], wharf_toolbox::held::MARK);
        assert_eq!(marked[0]["action"], "SCMP_ACT_ERRNO");
    }

    #[test]
    fn it_denies_what_it_must() {
        let json: serde_json::Value = serde_json::from_str(LIST).unwrap();
        assert_eq!(json["defaultAction"], "SCMP_ACT_ERRNO");
        let allowed = |name: &str| {
            json["syscalls"].as_array().unwrap().iter().any(|rule| {
                rule["action"] == "SCMP_ACT_ALLOW"
                    && rule.get("args").is_none()
                    && rule["names"].as_array().unwrap().iter().any(|n| n == name)
            })
        };
        for name in [
            "ptrace",
            "mount",
            "bpf",
            "io_uring_setup",
            "unshare",
            "mknod",
            "mknodat",
            "clone",
            "socket",
        ] {
            assert!(!allowed(name), "{name}");
        }
        assert!(allowed("fchmodat2") && allowed("execve"));
    }
}
