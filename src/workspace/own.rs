//! Wharf's own files where they lie inside the operator's directory: neither taken nor shown nor
//! written to. A store within its own base would grow with each run and show agents what others did.

use std::path::{Component, Path, PathBuf};

use super::{Error, Store, path};

/// Why a path is left out.
pub(super) const WHY: &str = "Wharf's own files";
/// Where the state directory keeps its runs; nothing below is a workspace.
const RUNS: &str = "runs";

impl Store {
    /// The same store, which knows where Wharf keeps its files.
    #[must_use]
    pub fn keeping_out(mut self, own: &Path) -> Self {
        self.own = Some(own.to_owned());
        self
    }

    /// The place of Wharf's own files in a directory of the operator's; None where they lie elsewhere.
    /// A directory that is itself among them is refused.
    pub(super) fn own_place(&self, dir: &Path) -> Result<Option<Vec<u8>>, Error> {
        let Some(own) = &self.own else {
            return Ok(None);
        };
        let (dir, own) = (resolved(dir), resolved(own));
        if dir == own || dir.starts_with(own.join(RUNS)) {
            return Err(Error::Refused {
                what: format!("{} is where Wharf keeps its own files", dir.display()),
                hint: "name another directory with -C, or another place for Wharf's files with WHARF_HOME"
                    .into(),
            });
        }
        let below = own.strip_prefix(&dir).ok();
        Ok(below.map(|below| below.as_os_str().as_encoded_bytes().to_vec()))
    }
}

/// True for a path at, below or above the place: writing it would change what is there.
pub(super) fn touches(own: Option<&[u8]>, at: &[u8]) -> bool {
    own.is_some_and(|own| path::is_within(own, at) || path::is_within(at, own))
}

/// A path without links, as far as it exists.
fn resolved(at: &Path) -> PathBuf {
    let (mut rest, mut there) = (Vec::new(), at.to_owned());
    loop {
        if let Ok(mut found) = std::fs::canonicalize(&there) {
            rest.iter().rev().for_each(|part| found.push(part));
            return found;
        }
        let name = match there.components().next_back() {
            Some(Component::Normal(name)) => name.to_owned(),
            // Nothing of it can be looked at: it is compared as it is written.
            _ => return at.to_owned(),
        };
        there.pop();
        rest.push(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_exist_yet_is_resolved_as_far_as_it_does() {
        let dir = tempfile::tempdir().unwrap();
        let real = std::fs::canonicalize(dir.path()).unwrap().join("real");
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, dir.path().join("link")).unwrap();
        assert_eq!(resolved(&dir.path().join("link/a/b")), real.join("a/b"));
        assert_eq!(resolved(Path::new("/")), Path::new("/"));
    }

    #[test]
    fn a_file_in_place_of_a_folder_above_touches_it_too() {
        let own = Some(&b".local/state/wharf"[..]);
        for at in [
            ".local/state/wharf/runs/x",
            ".local/state/wharf",
            ".local",
            ".local/state",
        ] {
            assert!(touches(own, at.as_bytes()), "{at}");
        }
        for at in [".local/bin/x", ".local/state/wharf2", ".loc"] {
            assert!(!touches(own, at.as_bytes()), "{at}");
        }
        assert!(!touches(None, b"x"));
    }
}
