//! Which files git itself takes for unchanged although their bytes differ from HEAD's: line ends or
//! a filter were applied at checkout. Told from the index's own times and sizes; no filter runs.

use std::collections::BTreeMap;
use std::path::Path;

use super::disk::{self, Root};
use super::git::{Call, Git, unreadable};
use super::{Error, path};
use crate::id::BlobId;

/// What the index remembers of a file: content, modification time, size.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Remembered {
    blob: BlobId,
    /// Seconds and nanoseconds.
    time: (i64, i64),
    size: u32,
}

/// The index of the operator's repository, below the workspace.
pub(super) struct Settled {
    files: BTreeMap<Vec<u8>, Remembered>,
    /// When the index was written: a file as young as that may have changed unseen.
    written: (i64, i64),
    root: Root,
}

impl Settled {
    /// Reads the index; it is not refreshed.
    pub(super) async fn read(git: &Git, dir: &Path) -> Result<Self, Error> {
        use std::os::unix::fs::MetadataExt;
        let call =
            Call::new("rev-parse", dir).args(["--path-format=absolute", "--git-path", "index"]);
        let answer = git.ask(call, b"").await?;
        let index = path::as_path(answer.strip_suffix(b"\n").unwrap_or(&answer));
        let written = match std::fs::metadata(index) {
            Ok(meta) => (meta.mtime(), meta.mtime_nsec()),
            // Without an index nothing is settled.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => (i64::MIN, 0),
            Err(source) => {
                return Err(Error::Io {
                    operation: "look at",
                    path: index.to_owned(),
                    source,
                });
            }
        };
        let call = Call::new("ls-files", dir).args(["-z", "-s", "--debug"]);
        let answer = git.ask(call, b"").await?;
        Ok(Self {
            files: parse(&answer)?,
            written,
            root: Root::open(dir)?,
        })
    }

    /// True when the file on disk is the one the index took this content from.
    pub(super) fn holds(&self, at: &[u8], blob: &BlobId) -> Result<bool, Error> {
        let Some(known) = self.files.get(at).filter(|known| known.blob == *blob) else {
            return Ok(false);
        };
        let stat = self.root.stat(at);
        let Ok(stat) = stat.map_err(|errno| disk::failed("look at", at, errno))? else {
            return Ok(false);
        };
        let nanoseconds = i64::try_from(stat.st_mtime_nsec).unwrap_or(-1);
        let same_time = known.time == (stat.st_mtime, nanoseconds);
        // The index keeps sizes in 32 bits.
        let same_size = i64::from(known.size) == stat.st_size & i64::from(u32::MAX);
        Ok(same_time && same_size && known.time < self.written)
    }
}

/// Reads `MODE ID STAGE<tab>path NUL` with five lines of detail behind each.
fn parse(answer: &[u8]) -> Result<BTreeMap<Vec<u8>, Remembered>, Error> {
    let mut files = BTreeMap::new();
    let mut rest = answer;
    while !rest.is_empty() {
        let bad = || unreadable("ls-files", &path::display(&rest[..rest.len().min(100)]));
        let end = rest.iter().position(|&byte| byte == 0).ok_or_else(bad)?;
        let (entry, detail) = (&rest[..end], &rest[end + 1..]);
        let breaks = detail
            .iter()
            .enumerate()
            .filter(|&(_, &byte)| byte == b'\n');
        let after = breaks.map(|(at, _)| at + 1).nth(4).ok_or_else(bad)?;
        let (name, remembered) = remembered(entry, &detail[..after]).ok_or_else(bad)?;
        files.insert(name, remembered);
        rest = &detail[after..];
    }
    Ok(files)
}

fn remembered(entry: &[u8], detail: &[u8]) -> Option<(Vec<u8>, Remembered)> {
    let tab = entry.iter().position(|&byte| byte == b'\t')?;
    let blob = std::str::from_utf8(&entry[..tab]).ok()?.split(' ').nth(1)?;
    let detail = std::str::from_utf8(detail).ok()?;
    let after = |key: &str| {
        detail
            .lines()
            .find_map(|line| line.trim_start().strip_prefix(key))
    };
    let (seconds, nanoseconds) = after("mtime: ")?.split_once(':')?;
    let remembered = Remembered {
        blob: BlobId::new(blob),
        time: (seconds.parse().ok()?, nanoseconds.parse().ok()?),
        size: after("size: ")?.split_whitespace().next()?.parse().ok()?,
    };
    Some((entry[tab + 1..].to_vec(), remembered))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_and_cut_ones_refused() {
        let one = b"100644 ab 0\ta\nb\0  ctime: 1:2\n  mtime: 3:4\n  dev: 5\tino: 6\n  uid: 0\tgid: 0\n  size: 7\tflags: 0\n";
        let two = [&one[..], one].concat();
        let files = parse(&two).unwrap();
        assert_eq!(files[&b"a\nb".to_vec()].time, (3, 4));
        assert_eq!(files[&b"a\nb".to_vec()].size, 7);
        assert!(parse(&one[..one.len() - 4]).is_err());
    }
}
