//! What git would make of a file's bytes on their way into a commit: the attributes of the operator's
//! repository, asked and never run.

use std::collections::BTreeSet;
use std::path::Path;

use bytes::Bytes;

use super::Error;
use super::git::{Call, Git};
use super::laid::Laid;
use super::store::fields;

/// The attributes that change content.
const ASKED: [&str; 5] = ["filter", "working-tree-encoding", "ident", "text", "eol"];

/// A pointer of Git LFS has fewer bytes.
const POINTER: usize = 1024;

/// What becomes of a file's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Passage {
    AsIs,
    /// Line ends become LF.
    Text,
    /// As `Text`, unless it looks binary or is committed with CRLF already.
    Auto,
    /// `$Id$` is folded in it.
    Ident,
    /// Git LFS: a pointer stays what it is, everything else becomes one.
    Lfs,
    /// Only a program of the operator's tells: the filter of this name.
    Filter(Vec<u8>),
    /// The file is committed in UTF-8 and checked out in this encoding.
    Encoding(Vec<u8>),
}

/// The file that gives attributes to what lies in its folder and below.
pub(super) const FILE: &[u8] = b".gitattributes";

/// What becomes of each of these paths, which begin at `source`, in order; by the attributes that
/// `laid` holds, else by those of the working tree.
pub(super) async fn passages(
    git: &Git,
    source: &Path,
    laid: Option<&Laid>,
    paths: &BTreeSet<&[u8]>,
) -> Result<Vec<Passage>, Error> {
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    let by_setting = converts_by_itself(git, source).await?;
    let call = match laid {
        Some(laid) => laid.call("check-attr"),
        None => Call::new("check-attr", source),
    };
    let call = call.args(["-z", "--stdin"]).args(ASKED);
    let mut input = Vec::new();
    for at in paths {
        input.extend_from_slice(at);
        input.push(0);
    }
    let answer = git.ask(call, &input).await?;
    let answer: Vec<&[u8]> = fields(&answer).collect();
    if answer.len() != paths.len() * ASKED.len() * 3 {
        return Err(super::git::unreadable(
            "check-attr",
            &format!("{} fields for {} paths", answer.len(), paths.len()),
        ));
    }
    let values = answer.chunks(3).map(|field| field[2]);
    let values: Vec<&[u8]> = values.collect();
    Ok(values
        .chunks(ASKED.len())
        .map(|of| passage(of, by_setting))
        .collect())
}

/// Whether the repository's own configuration turns line ends of whatever looks like text.
async fn converts_by_itself(git: &Git, source: &Path) -> Result<bool, Error> {
    let call = Call::new("config", source).args(["--local", "--get", "core.autocrlf"]);
    let output = git.try_ask(call, b"").await?;
    match output.code {
        0 => Ok(!matches!(
            output.stdout.trim_ascii(),
            b"false" | b"no" | b"off" | b"0"
        )),
        1 => Ok(false),
        _ => Err(output.into_error("config")),
    }
}

/// The values in the order of `ASKED`.
fn passage(values: &[&[u8]], by_setting: bool) -> Passage {
    let [filter, encoding, ident, text, eol] = values else {
        return Passage::AsIs;
    };
    let named = |value: &[u8]| !matches!(value, b"unspecified" | b"unset" | b"set");
    if *filter == b"lfs" {
        return Passage::Lfs;
    }
    if named(filter) {
        return Passage::Filter(filter.to_vec());
    }
    if named(encoding) && !encoding.eq_ignore_ascii_case(b"utf-8") {
        return Passage::Encoding(encoding.to_vec());
    }
    if *ident == b"set" {
        return Passage::Ident;
    }
    match *text {
        b"set" | b"input" => Passage::Text,
        b"unset" => Passage::AsIs,
        b"auto" => Passage::Auto,
        _ if matches!(*eol, b"lf" | b"crlf") => Passage::Text,
        _ if by_setting => Passage::Auto,
        _ => Passage::AsIs,
    }
}

/// With LF at the ends of lines; None when it has no others.
pub(super) fn with_lf(content: &[u8]) -> Option<Bytes> {
    if !has_crlf(content) {
        return None;
    }
    let mut out = Vec::with_capacity(content.len());
    let mut rest = content.iter().copied().peekable();
    while let Some(byte) = rest.next() {
        if byte != b'\r' || rest.peek() != Some(&b'\n') {
            out.push(byte);
        }
    }
    Some(out.into())
}

/// True for what Git LFS keeps in a repository in the place of a file.
pub(super) fn is_pointer(content: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(content) else {
        return false;
    };
    let keys = ["oid sha256:", "size "];
    content.len() < POINTER
        && text.starts_with("version https://git-lfs.github.com/spec/")
        && keys
            .iter()
            .all(|key| text.lines().any(|line| line.starts_with(key)))
}

pub(super) fn has_crlf(content: &[u8]) -> bool {
    content.windows(2).any(|pair| pair == b"\r\n")
}

/// As git tells it for `text=auto`: a NUL, a CR that stands alone, or too much that cannot be printed.
pub(super) fn is_binary(content: &[u8]) -> bool {
    let lone = |at: usize| content[at] == b'\r' && content.get(at + 1) != Some(&b'\n');
    if content.contains(&0) || (0..content.len()).any(lone) {
        return true;
    }
    let odd = |byte: &&u8| match **byte {
        8 | 9 | 10 | 12 | 13 | 27 => false,
        byte => byte < 32 || byte == 127,
    };
    let odd = content.iter().filter(odd).count();
    (content.len() - odd) >> 7 < odd
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_says_what_becomes_of_content() {
        let none: &[u8] = b"unspecified";
        let of = |at: usize, value: &'static str, by_setting: bool| {
            let mut values = [none; 5];
            values[at] = value.as_bytes();
            passage(&values, by_setting)
        };
        assert_eq!(passage(&[none; 5], false), Passage::AsIs);
        assert_eq!(passage(&[none; 5], true), Passage::Auto);
        assert_eq!(of(0, "lfs", false), Passage::Lfs);
        assert_eq!(of(0, "crypt", false), Passage::Filter(b"crypt".to_vec()));
        assert_eq!(of(0, "unset", false), Passage::AsIs);
        assert!(matches!(of(1, "UTF-16", false), Passage::Encoding(_)));
        assert_eq!(of(1, "UTF-8", false), Passage::AsIs);
        assert_eq!(of(2, "set", false), Passage::Ident);
        assert_eq!(of(3, "set", false), Passage::Text);
        assert_eq!(of(3, "auto", false), Passage::Auto);
        assert_eq!(of(3, "unset", true), Passage::AsIs);
        assert_eq!(of(4, "crlf", false), Passage::Text);
    }

    #[test]
    fn a_pointer_is_told_from_what_it_points_to() {
        let pointer = format!(
            "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 5\n",
            "0".repeat(64)
        );
        assert!(is_pointer(pointer.as_bytes()));
        assert!(!is_pointer(b"\x89PNG") && !is_pointer(b""));
        assert!(!is_pointer(b"version https://git-lfs.github.com/spec/v1\n"));
        let long = format!("{pointer}{}", "x".repeat(POINTER));
        assert!(!is_pointer(long.as_bytes()));
    }

    #[test]
    fn line_ends_become_lf_and_a_lone_cr_stays() {
        assert_eq!(with_lf(b"a\r\nb\r\n").unwrap(), "a\nb\n");
        assert_eq!(with_lf(b"a\rb\r\r\n").unwrap(), "a\rb\r\n");
        assert_eq!(with_lf(b"a\nb\r"), None);
    }

    #[test]
    fn what_looks_binary_is_binary() {
        assert!(is_binary(b"a\0b") && is_binary(b"a\rb\r\n") && is_binary(b"\x01"));
        assert!(!is_binary(b"a\r\nb\r\n") && !is_binary(b"") && !is_binary("\u{e9}\n".as_bytes()));
    }
}
