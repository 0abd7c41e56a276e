//! Where runs are kept, and the name of this machine.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{Env, Error};

/// The state directory, absolute; not made here.
pub(super) fn directory(env: &Env, cwd: &Path) -> Result<PathBuf, Error> {
    if let Some(path) = env.path("WHARF_HOME") {
        return Ok(cwd.join(path));
    }
    let base = env
        .absolute("XDG_STATE_HOME")
        .or_else(|| Some(env.home()?.join(".local/state")));
    base.map(|base| base.join("wharf")).ok_or(Error::NoHome)
}

/// 16 hex digits that stay the same on this machine: of its machine id, else kept in the state directory.
pub(super) fn machine(machine_id: &Path, state: &Path) -> Result<String, Error> {
    let id = std::fs::read_to_string(machine_id).unwrap_or_default();
    let id = id.trim();
    // An image prepared for cloning holds an empty file or this word.
    if id.is_empty() || id == "uninitialized" {
        return kept(state);
    }
    // The id itself is confidential by its own documentation, so only a hash of it leaves.
    let hash = Sha256::digest(format!("wharf {id}").as_bytes());
    Ok(hex(&hash[..8]))
}

fn kept(state: &Path) -> Result<String, Error> {
    let path = state.join("machine");
    let fault = |operation| {
        let path = path.clone();
        move |source| Error::Io {
            operation,
            path,
            source,
        }
    };
    if let Some(id) = known(&path) {
        return Ok(id);
    }
    let mut random = [0; 8];
    let mut source = std::fs::File::open("/dev/urandom").map_err(fault("name this machine in"))?;
    source
        .read_exact(&mut random)
        .map_err(fault("name this machine in"))?;
    std::fs::create_dir_all(state).map_err(fault("make the directory of"))?;
    let mut file = tempfile::NamedTempFile::new_in(state).map_err(fault("write"))?;
    file.write_all(hex(&random).as_bytes())
        .map_err(fault("write"))?;
    // Whoever comes second takes the first one's name.
    let _ = file.persist_noclobber(&path);
    known(&path).ok_or_else(|| fault("read back")(std::io::ErrorKind::InvalidData.into()))
}

fn known(path: &Path) -> Option<String> {
    let id = std::fs::read_to_string(path).ok()?;
    let id = id.trim();
    (id.len() == 16 && id.bytes().all(|c| c.is_ascii_hexdigit())).then(|| id.to_owned())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_directory_follows_the_variables_in_order() {
        let cwd = Path::new("/c");
        let all = [
            ("WHARF_HOME", "w"),
            ("XDG_STATE_HOME", "/x"),
            ("HOME", "/h"),
        ];
        let of = |vars: &[(&str, &str)]| directory(&Env::of(vars), cwd).unwrap();
        assert_eq!(of(&all), Path::new("/c/w"));
        assert_eq!(of(&all[1..]), Path::new("/x/wharf"));
        assert_eq!(of(&all[2..]), Path::new("/h/.local/state/wharf"));
        assert_eq!(
            of(&[("XDG_STATE_HOME", "relative"), all[2]]),
            Path::new("/h/.local/state/wharf")
        );
        assert_eq!(directory(&Env::default(), cwd).unwrap_err().exit_code(), 3);
    }

    #[test]
    fn a_machine_keeps_its_name_and_hides_its_id() {
        let dir = tempfile::tempdir().unwrap();
        let id = dir.path().join("machine-id");
        std::fs::write(&id, "0123456789abcdef0123456789abcdef\n").unwrap();
        let name = machine(&id, dir.path()).unwrap();
        assert_eq!(name.len(), 16);
        assert!(!name.starts_with("0123456"));
        assert_eq!(machine(&id, dir.path()).unwrap(), name);
        assert!(
            !dir.path().join("machine").exists(),
            "nothing is written without need"
        );
    }

    #[test]
    fn without_a_machine_id_a_name_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let none = dir.path().join("none");
        let name = machine(&none, &state).unwrap();
        assert_eq!(name.len(), 16);
        assert_eq!(machine(&none, &state).unwrap(), name);
    }
}
