//! Large outputs of calls and large parts of requests: kept beside the journal under the hash of their bytes, each once.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{Error, Event};

/// Bytes of a result's text that stay in its line; a command's two streams of 8,000 characters and
/// the 32,000 bytes of a file that was read are above it.
pub(super) const LARGEST: usize = 8 << 10;
/// Bytes of a larger text that stay there for whoever reads the lines alone.
const SHOWN: usize = 400;
/// The folder in the run's directory.
const FOLDER: &str = "calls";
/// The key that names the file.
const KEY: &str = "text_file";
/// Other parts of a message or a tool that may be large, and the key that names the file of one.
const REST: [&str; 4] = ["calls", "native", "schema", "description"];
const REST_KEY: &str = "json_file";

/// Puts the large texts of a turn's results beside the journal in `dir` and shortens them in the
/// event. What was put is on disk when this returns.
pub(super) fn put(dir: &Path, event: &mut Event) -> std::io::Result<()> {
    let (holders, more) = match event {
        Event::TurnDone { results, .. } => (results, None),
        Event::RequestMade {
            messages, tools, ..
        } => (messages, tools.as_mut()),
        _ => return Ok(()),
    };
    let mut named = false;
    let folder = dir.join(FOLDER);
    for holder in holders {
        named |= put_text(&folder, holder)?;
        named |= put_rest(&folder, holder)?;
    }
    for tool in more.into_iter().flatten() {
        named |= put_rest(&folder, tool)?;
    }
    if named {
        // Names that were there already as well: whoever put them may have been killed before this.
        File::open(&folder)?.sync_all()?;
    }
    Ok(())
}

/// True for the events of which parts may stand beside.
pub(super) fn may_be_large(event: &Event) -> bool {
    matches!(event, Event::TurnDone { .. } | Event::RequestMade { .. })
}

fn put_text(folder: &Path, holder: &mut Value) -> std::io::Result<bool> {
    let Some(text) = holder["text"].as_str().filter(|t| t.len() > LARGEST) else {
        return Ok(false);
    };
    let (name, bytes) = (hash(text.as_bytes()), text.len());
    keep(folder, &name, text.as_bytes())?;
    let shown = text[..text.floor_char_boundary(SHOWN)].to_owned();
    holder["text"] = shown.into();
    holder[KEY] = name.into();
    holder["text_bytes"] = bytes.into();
    Ok(true)
}

/// Everything else of a message or a tool that is large: calls with a file's content, a provider's own
/// blocks, a schema.
fn put_rest(folder: &Path, holder: &mut Value) -> std::io::Result<bool> {
    let mut named = false;
    for key in REST {
        let Some(value) = holder.get(key) else {
            continue;
        };
        let text = value.to_string();
        if text.len() > LARGEST {
            let name = hash(text.as_bytes());
            keep(folder, &name, text.as_bytes())?;
            named = true;
            holder[key] = serde_json::json!({ REST_KEY: name });
        }
    }
    Ok(named)
}

/// A result, message or tool with all that stands beside, from the run's directory.
pub fn whole(dir: &Path, holder: &Value) -> Result<Value, Error> {
    let mut holder = holder.clone();
    if let Some(name) = holder[KEY].as_str() {
        let text = read(dir, name)?;
        holder["text"] = text.into();
    }
    for key in REST {
        let Some(name) = holder[key][REST_KEY].as_str() else {
            continue;
        };
        let text = read(dir, name)?;
        holder[key] = serde_json::from_str(&text).map_err(|_| Error::Beside {
            path: dir.join(FOLDER).join(name),
            what: "is no JSON".to_owned(),
        })?;
    }
    Ok(holder)
}

fn read(dir: &Path, name: &str) -> Result<String, Error> {
    let path = dir.join(FOLDER).join(name);
    let beside = |what: String| Error::Beside {
        path: path.clone(),
        what,
    };
    if !is_hash(name) {
        return Err(beside("is no name of an output".to_owned()));
    }
    let bytes = std::fs::read(&path).map_err(|error| beside(format!("read an output: {error}")))?;
    if hash(&bytes) != name {
        return Err(beside("is not what it was when it was written".to_owned()));
    }
    String::from_utf8(bytes).map_err(|_| beside("is no text".to_owned()))
}

/// A file of these bytes is there, and they are on disk; its name may not be yet.
fn keep(folder: &Path, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let path: PathBuf = folder.join(name);
    if std::fs::metadata(&path).is_ok_and(|about| about.len() == bytes.len() as u64) {
        return Ok(());
    }
    if !folder.is_dir() {
        std::fs::create_dir_all(folder)?;
        // The folder's own name.
        folder
            .parent()
            .map_or(Ok(()), |dir| File::open(dir)?.sync_all())?;
    }
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

fn hash(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_hash(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::id::{RoleName, SubtaskId};
    use crate::journal::Agent;

    fn turn(text: &str) -> Event {
        Event::TurnDone {
            agent: Agent {
                round: 1,
                subtask: SubtaskId::new("a"),
                role: RoleName::new("coder"),
            },
            turn: 1,
            results: vec![json!({"number": 1, "text": text})],
            snapshot: None,
            left_out: Vec::new(),
        }
    }

    fn result(event: &Event) -> Value {
        match event {
            Event::TurnDone { results, .. } => results[0].clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_large_text_is_kept_beside_and_read_back_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let mut small = turn("small");
        put(dir.path(), &mut small).unwrap();
        assert_eq!(result(&small), json!({"number": 1, "text": "small"}));
        assert!(!dir.path().join(FOLDER).exists());

        let text = "ü".repeat(LARGEST);
        let mut large = turn(&text);
        put(dir.path(), &mut large).unwrap();
        let kept = result(&large);
        assert!(kept["text"].as_str().unwrap().len() <= SHOWN);
        assert_eq!(kept["text_bytes"], text.len());
        assert_eq!(whole(dir.path(), &kept).unwrap()["text"], text);

        let file = dir.path().join(FOLDER).join(kept[KEY].as_str().unwrap());
        std::fs::write(&file, "changed").unwrap();
        assert!(whole(dir.path(), &kept).is_err());
        // Written again, it is whole again.
        put(dir.path(), &mut turn(&text)).unwrap();
        assert!(whole(dir.path(), &kept).is_ok());
        std::fs::remove_file(&file).unwrap();
        assert!(whole(dir.path(), &kept).is_err());
        let mut astray = kept;
        astray[KEY] = json!("../journal.jsonl");
        assert!(whole(dir.path(), &astray).is_err());
    }
}
