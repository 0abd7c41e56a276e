//! Paths as git and agents hold them: bytes between slashes, checked component by component.

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::Mode;

/// Code points that some file systems ignore, so that `.g\u{200c}it` is `.git` there.
const IGNORED: &[char] = &[
    '\u{200c}', '\u{200d}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{202b}', '\u{202c}', '\u{202d}',
    '\u{202e}', '\u{206a}', '\u{206b}', '\u{206c}', '\u{206d}', '\u{206e}', '\u{206f}', '\u{feff}',
];

/// The longest path that a sandbox takes, in bytes: what one system call can name.
const LONGEST: usize = 4096;

/// Why a path can never be part of a snapshot; `Ok` when it can.
pub fn check(path: &[u8], mode: Option<Mode>) -> Result<(), &'static str> {
    if path.is_empty() {
        return Err("the path is empty");
    }
    if path.len() > LONGEST {
        return Err("the path is longer than 4096 bytes");
    }
    if path.contains(&0) {
        return Err("the path holds a NUL byte");
    }
    if path[0] == b'/' {
        return Err("the path is absolute");
    }
    for component in path.split(|&byte| byte == b'/') {
        match component {
            b"" => return Err("the path has an empty component"),
            b"." | b".." => return Err("the path has a `.` or `..` component"),
            _ if is_git(component) => return Err("the path has a component that names `.git`"),
            _ => {}
        }
    }
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    if mode == Some(Mode::Link) && is_modules(name) {
        return Err("`.gitmodules` may not be a link");
    }
    Ok(())
}

/// True where some file system would open `.git` by this name.
fn is_git(component: &[u8]) -> bool {
    let name = folded(component);
    name == ".git" || is_short(&name, ".git") || is_short(&name, "git~1")
}

fn is_modules(component: &[u8]) -> bool {
    let name = folded(component);
    name == ".gitmodules" || is_short(&name, ".gitmodules") || name.starts_with("gitmod~")
}

/// Lower case and without ignorable code points; bytes that are no text stay apart from all names.
fn folded(component: &[u8]) -> String {
    String::from_utf8_lossy(component)
        .chars()
        .filter(|c| !IGNORED.contains(c))
        .flat_map(char::to_lowercase)
        .collect()
}

/// NTFS drops trailing dots and spaces, and opens a stream behind a colon.
fn is_short(name: &str, of: &str) -> bool {
    name.strip_prefix(of).is_some_and(|rest| {
        let end = rest.find(['\\', ':']).unwrap_or(rest.len());
        rest[..end].chars().all(|c| c == '.' || c == ' ')
    })
}

/// A path for people: bytes that are no text as `\xFF`, control characters escaped.
pub fn display(path: &[u8]) -> String {
    let mut shown = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}') {
                shown.extend(c.escape_default());
            } else {
                shown.push(c);
            }
        }
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(shown, "\\x{byte:02X}");
        }
    }
    shown
}

/// The same bytes as a path of this system.
pub(super) fn as_path(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

/// Every folder above a path, nearest first, without the top.
pub(super) fn parents(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.iter()
        .enumerate()
        .rev()
        .filter(|&(_, &byte)| byte == b'/')
        .map(|(at, _)| &path[..at])
}

/// `prefix/path`, or the path alone at the top.
pub(super) fn join(prefix: &[u8], path: &[u8]) -> Vec<u8> {
    if prefix.is_empty() {
        return path.to_vec();
    }
    [prefix, b"/", path].concat()
}

/// True for a folder itself and for every path below it.
pub(super) fn is_within(folder: &[u8], at: &[u8]) -> bool {
    at.strip_prefix(folder)
        .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// The form that git reads as any path whatever its bytes: in double quotes, octal where not plain.
pub(super) fn quoted(path: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(path.len() + 2);
    text.push(b'"');
    for &byte in path {
        match byte {
            b'"' | b'\\' => text.extend([b'\\', byte]),
            b' '..=b'~' => text.push(byte),
            _ => text.extend(format!("\\{byte:03o}").into_bytes()),
        }
    }
    text.push(b'"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_git_are_refused_in_every_disguise() {
        for bad in [
            ".git",
            ".GIT/config",
            "a/.gIt/hooks/x",
            ".git ",
            ".git.",
            ".git . .",
            "git~1",
            "GIT~1/x",
            ".git::$INDEX_ALLOCATION",
            ".git\\config",
            ".g\u{200c}it",
            "\u{feff}.git/x",
            "..",
            "a/../b",
            ".",
            "a//b",
            "/etc",
            "",
            "a/",
            "a\0b",
        ] {
            assert!(check(bad.as_bytes(), None).is_err(), "{bad:?}");
        }
        for good in [
            ".gitignore",
            ".github/x",
            "git",
            "a.git",
            "git~2",
            ".gitx",
            "-n",
            "a -> b",
            "a\nb",
            "...",
            "CON",
        ] {
            assert_eq!(check(good.as_bytes(), None), Ok(()), "{good:?}");
        }
        assert!(check(b"\xff", None).is_ok());
        assert!(check(b".gitmodules", Some(Mode::Link)).is_err());
        assert!(check(b".gitmodules", Some(Mode::File)).is_ok());
    }

    #[test]
    fn display_neutralises_what_a_terminal_would_obey() {
        assert_eq!(display(b"a\x1b[2Jb\xff\n"), "a\\u{1b}[2Jb\\xFF\\n");
        assert_eq!(display("café".as_bytes()), "café");
    }

    #[test]
    fn parents_are_nearest_first() {
        let all: Vec<&[u8]> = parents(b"a/b/c").collect();
        assert_eq!(all, [&b"a/b"[..], b"a"]);
        assert_eq!(join(b"", b"x"), b"x");
        assert_eq!(join(b"p/q", b"x"), b"p/q/x");
        assert_eq!(quoted(b"a\"\\\n\xff"), b"\"a\\\"\\\\\\012\\377\"");
    }
}
