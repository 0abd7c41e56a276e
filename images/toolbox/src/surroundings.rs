//! What the image and the arguments give: folders, programs, the environment of commands.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use wharf_toolbox::ledger;

/// Programs are looked for here when the image has no PATH.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Set where the image does not: no pagers, no prompts, no colours, text in UTF-8.
const DEFAULTS: [(&str, &str); 12] = [
    ("PATH", PATH),
    ("LANG", "C.UTF-8"),
    ("TERM", "dumb"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("MANPAGER", "cat"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    ("PIP_NO_INPUT", "1"),
    ("PYTHONUNBUFFERED", "1"),
    ("NO_COLOR", "1"),
];

/// The folders of a sandbox.
pub struct Folders {
    /// /workspace, or the first argument.
    pub workspace: PathBuf,
    /// HOME, or the second argument.
    pub home: PathBuf,
    /// /tmp, or the third argument.
    pub temporary: PathBuf,
    /// The file `ledger::PATH`, or the fourth argument.
    pub ledger: PathBuf,
}

impl Folders {
    /// From the arguments and the environment of process 1.
    pub fn of(arguments: &[OsString], environment: &BTreeMap<OsString, OsString>) -> Folders {
        let argument = |at: usize| arguments.get(at).map(PathBuf::from);
        let home = environment.get(OsStr::new("HOME")).map(PathBuf::from);
        Folders {
            workspace: argument(0).unwrap_or_else(|| "/workspace".into()),
            home: argument(1).or(home).unwrap_or_else(|| "/home/agent".into()),
            temporary: argument(2).unwrap_or_else(|| "/tmp".into()),
            ledger: argument(3).unwrap_or_else(|| ledger::PATH.into()),
        }
    }
}

/// The environment of commands: the image's, what it lacks, what Wharf asks.
pub fn environment(
    image: &BTreeMap<OsString, OsString>,
    folders: &Folders,
    asked: BTreeMap<String, String>,
) -> BTreeMap<OsString, OsString> {
    let mut all: BTreeMap<OsString, OsString> = DEFAULTS
        .iter()
        .map(|(name, value)| ((*name).into(), (*value).into()))
        .collect();
    all.insert("TMPDIR".into(), folders.temporary.clone().into());
    all.extend(image.clone());
    all.insert("HOME".into(), folders.home.clone().into());
    all.extend(
        asked
            .into_iter()
            .map(|(name, value)| (name.into(), value.into())),
    );
    all
}

/// The first executable of this name on the PATH of commands.
pub fn program(name: &str, environment: &BTreeMap<OsString, OsString>) -> Option<String> {
    let path = environment.get(OsStr::new("PATH"))?.to_str()?;
    path.split(':')
        .filter(|folder| !folder.is_empty())
        .map(|folder| Path::new(folder).join(name))
        .find(|file| {
            file.metadata()
                .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
        })
        .and_then(|file| file.to_str().map(str::to_owned))
}
