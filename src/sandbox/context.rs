//! A build context of this machine as one tar: every file that its `.dockerignore` leaves in, in a
//! fixed order and without times and owners, so that equal files are equal bytes.

use std::fs::{File, Metadata};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::ignore_file::IgnoreFile;

/// Most files, folders and links of a context, and most bytes: more is a mistake sooner than a wish.
const ENTRIES: usize = 50_000;
const BYTES: u64 = 512 << 20;
const IGNORE_FILE: &str = ".dockerignore";

/// A context that was read.
pub(super) struct Packed {
    /// The tar, at its beginning.
    pub(super) tar: File,
    /// Names all that is in it, 64 hex digits.
    pub(super) hash: String,
    /// The Dockerfile's path within.
    pub(super) dockerfile: String,
    /// Its text.
    pub(super) text: String,
}

/// Reads a context; what keeps it from being read is told by the path at fault.
pub(super) fn pack(folder: &Path, dockerfile: &Path) -> Result<Packed, String> {
    let folder = folder.canonicalize().map_err(|error| of(folder, &error))?;
    let real = dockerfile
        .canonicalize()
        .map_err(|error| of(dockerfile, &error))?;
    let within = real.strip_prefix(&folder).ok().and_then(Path::to_str);
    let Some(within) = within else {
        return Err(format!(
            "{} does not lie in its context {}",
            dockerfile.display(),
            folder.display()
        ));
    };
    let text = std::fs::read_to_string(&real).map_err(|error| of(&real, &error))?;
    let ignore = match std::fs::read_to_string(folder.join(IGNORE_FILE)) {
        Ok(text) => IgnoreFile::read(&text)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => IgnoreFile::default(),
        Err(error) => return Err(of(&folder.join(IGNORE_FILE), &error)),
    };
    let mut packer = Packer {
        keep: [PathBuf::from(within), PathBuf::from(IGNORE_FILE)],
        tar: tar::Builder::new(Hashing {
            file: tempfile::tempfile().map_err(|error| format!("a file for the tar: {error}"))?,
            hash: Sha256::new(),
        }),
        folder,
        ignore,
        entries: 0,
        bytes: 0,
    };
    packer.folder(Path::new(""))?;
    let done = packer.tar.into_inner();
    let Hashing { mut file, hash } = done.map_err(|error| format!("writing the tar: {error}"))?;
    file.rewind()
        .map_err(|error| format!("reading the tar: {error}"))?;
    let digest = hash.finalize();
    Ok(Packed {
        tar: file,
        hash: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
        dockerfile: within.to_owned(),
        text,
    })
}

fn of(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

struct Packer {
    folder: PathBuf,
    ignore: IgnoreFile,
    /// What the builder itself reads, whatever is left out.
    keep: [PathBuf; 2],
    tar: tar::Builder<Hashing>,
    entries: usize,
    bytes: u64,
}

impl Packer {
    fn folder(&mut self, at: &Path) -> Result<(), String> {
        let whole = self.folder.join(at);
        let list = std::fs::read_dir(&whole).map_err(|error| of(&whole, &error))?;
        let mut names = Vec::new();
        for entry in list {
            names.push(entry.map_err(|error| of(&whole, &error))?.file_name());
        }
        names.sort();
        for name in names {
            self.entry(&at.join(name))?;
        }
        Ok(())
    }

    fn entry(&mut self, at: &Path) -> Result<(), String> {
        let whole = self.folder.join(at);
        let meta = std::fs::symlink_metadata(&whole).map_err(|error| of(&whole, &error))?;
        let kept = self.keep.iter().any(|keep| keep == at);
        let out = !kept && self.ignore.leaves_out(at);
        if meta.is_dir() {
            let holds_kept = self.keep.iter().any(|keep| keep.starts_with(at));
            if out && !holds_kept && !self.ignore.takes_back() {
                return Ok(());
            }
            if !out {
                self.counted(&whole, 0)?;
                let header = header(tar::EntryType::Directory, 0, &meta);
                self.put(header, at, &mut std::io::empty())?;
            }
            return self.folder(at);
        }
        if out {
            return Ok(());
        }
        self.counted(&whole, meta.len())?;
        if meta.is_symlink() {
            let target = std::fs::read_link(&whole).map_err(|error| of(&whole, &error))?;
            let mut header = header(tar::EntryType::Symlink, 0, &meta);
            let put = self.tar.append_link(&mut header, at, &target);
            return put.map_err(|error| of(&whole, &error));
        }
        if !meta.is_file() {
            return Err(format!(
                "{} is neither a file, a folder nor a link; name it in {IGNORE_FILE}",
                whole.display()
            ));
        }
        self.file(at, &whole, &meta)
    }

    fn file(&mut self, at: &Path, whole: &Path, meta: &Metadata) -> Result<(), String> {
        let mut file = File::open(whole).map_err(|error| of(whole, &error))?;
        let mut exactly = Read::by_ref(&mut file).take(meta.len());
        let header = header(tar::EntryType::Regular, meta.len(), meta);
        self.put(header, at, &mut exactly)?;
        // A tar whose entry is shorter than it says is another tar from there on.
        match exactly.limit() {
            0 => Ok(()),
            _ => Err(format!("{} changed while it was read", whole.display())),
        }
    }

    fn put(
        &mut self,
        mut header: tar::Header,
        at: &Path,
        content: &mut dyn Read,
    ) -> Result<(), String> {
        let put = self.tar.append_data(&mut header, at, content);
        put.map_err(|error| of(&self.folder.join(at), &error))
    }

    fn counted(&mut self, at: &Path, bytes: u64) -> Result<(), String> {
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.entries > ENTRIES || self.bytes > BYTES {
            return Err(format!(
                "the context {} is larger than {ENTRIES} files or {} MiB (at {}); leave files out by \
                 {IGNORE_FILE}, or name a smaller context",
                self.folder.display(),
                BYTES >> 20,
                at.display()
            ));
        }
        Ok(())
    }
}

fn header(kind: tar::EntryType, size: u64, meta: &Metadata) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(meta.permissions().mode() & 0o7777);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

/// Hashes what is written.
struct Hashing {
    file: File,
    hash: Sha256,
}

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.hash.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        dir
    }

    fn packed(dir: &tempfile::TempDir) -> Result<Packed, String> {
        pack(dir.path(), &dir.path().join("Dockerfile"))
    }

    fn names(packed: Packed) -> Vec<String> {
        let mut archive = tar::Archive::new(packed.tar);
        let entries = archive.entries().unwrap();
        entries
            .map(|entry| entry.unwrap().path().unwrap().display().to_string())
            .collect()
    }

    #[test]
    fn equal_files_are_an_equal_context_wherever_and_whenever_they_are() {
        let files = [("Dockerfile", "FROM scratch"), ("a/b", "1"), ("c", "2")];
        let (one, two) = (folder(&files), folder(&files));
        let first = packed(&one).unwrap();
        assert_eq!(first.hash, packed(&two).unwrap().hash);
        assert_eq!(
            (first.dockerfile.as_str(), first.text.as_str()),
            ("Dockerfile", "FROM scratch")
        );
        std::fs::write(two.path().join("c"), "3").unwrap();
        assert_ne!(first.hash, packed(&two).unwrap().hash);
        assert_eq!(names(first), ["Dockerfile", "a", "a/b", "c"]);
    }

    #[test]
    fn what_is_left_out_is_not_read_and_counts_for_nothing() {
        let dir = folder(&[
            (".dockerignore", "*\n!src\nsrc/*.log\n"),
            ("Dockerfile", "FROM scratch"),
            ("secret", "x"),
            ("src/a.rs", "a"),
            ("src/b.log", "b"),
        ]);
        let first = packed(&dir).unwrap();
        let hash = first.hash.clone();
        assert_eq!(
            names(first),
            [".dockerignore", "Dockerfile", "src", "src/a.rs"]
        );
        std::fs::write(dir.path().join("secret"), "y").unwrap();
        assert_eq!(packed(&dir).unwrap().hash, hash);
    }

    #[test]
    fn links_are_carried_and_not_followed() {
        let dir = folder(&[("Dockerfile", "FROM scratch")]);
        std::os::unix::fs::symlink("/etc", dir.path().join("out")).unwrap();
        let mut archive = tar::Archive::new(packed(&dir).unwrap().tar);
        let link = archive.entries().unwrap().nth(1).unwrap().unwrap();
        assert_eq!(link.link_name().unwrap().unwrap(), Path::new("/etc"));
    }

    #[test]
    fn what_cannot_be_sent_is_named() {
        let dir = folder(&[("in/x", "")]);
        let said = packed(&dir).err().unwrap();
        assert!(said.contains("Dockerfile"), "{said}");
        let outside = folder(&[("Dockerfile", "FROM scratch")]);
        let said = pack(&dir.path().join("in"), &outside.path().join("Dockerfile"));
        assert!(said.err().unwrap().contains("does not lie in its context"));
        std::fs::write(dir.path().join("Dockerfile"), "FROM scratch").unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("s")).unwrap();
        let said = packed(&dir).err().unwrap();
        assert!(said.contains("/s is neither"), "{said}");
    }
}
