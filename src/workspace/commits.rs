//! What the operator's commits say of themselves, made fit to be said again.

use std::path::Path;

use bytes::Bytes;

use super::Error;
use super::git::{Call, DATE, Git, unreadable};

/// Bytes of a message that are said again.
const MESSAGE: usize = 16 << 10;
/// Seconds past which no date is believed (the year 36812), and minutes of the widest time zone.
const LATEST: u64 = 1 << 40;
const WIDEST: u64 = 1400;

/// A commit's own words.
pub(super) struct Told {
    /// As the operator's repository has it.
    pub id: String,
    author: Vec<u8>,
    committer: Vec<u8>,
    message: Vec<u8>,
}

impl Told {
    /// The opening of the `at`th commit of a line, each on the one before.
    pub fn opening(&self, at: usize) -> Bytes {
        let mark = at + 1;
        let mut text = format!("commit refs/heads/history\nmark :{mark}\n").into_bytes();
        for (word, who) in [("author", &self.author), ("committer", &self.committer)] {
            text.extend(format!("{word} ").into_bytes());
            text.extend(ident(who));
            text.push(b'\n');
        }
        let message = &self.message[..self.message.len().min(MESSAGE)];
        text.extend(format!("data {}\n", message.len()).into_bytes());
        text.extend_from_slice(message);
        text.push(b'\n');
        if at > 0 {
            text.extend(format!("from :{at}\n").into_bytes());
        }
        text.into()
    }
}

/// Reads commits, in the order of their ids.
pub(super) async fn read(git: &Git, dir: &Path, ids: &[String]) -> Result<Vec<Told>, Error> {
    let call = Call::bare("cat-file", dir).arg("--batch");
    let input: String = ids.iter().map(|id| format!("{id}\n")).collect();
    let answer = git.ask(call, input.as_bytes()).await?;
    let mut rest = answer.as_slice();
    let mut told = Vec::with_capacity(ids.len());
    for id in ids {
        let (one, after) = one(id, rest).ok_or_else(|| unreadable("cat-file", id))?;
        told.push(one);
        rest = after;
    }
    Ok(told)
}

/// `ID commit SIZE LF`, the object, LF.
fn one<'a>(id: &str, answer: &'a [u8]) -> Option<(Told, &'a [u8])> {
    let end = answer.iter().position(|&byte| byte == b'\n')?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let size = head.strip_prefix(id)?.strip_prefix(" commit ")?;
    let size: usize = size.parse().ok()?;
    let object = answer.get(end + 1..end + 1 + size)?;
    let rest = answer.get(end + 2 + size..)?;
    let split = object.windows(2).position(|two| two == b"\n\n");
    let (headers, message) = match split {
        Some(at) => (&object[..at], &object[at + 2..]),
        None => (object, &b""[..]),
    };
    let header = |word: &[u8]| {
        let mut lines = headers.split(|&byte| byte == b'\n');
        let line = lines.find_map(|line| line.strip_prefix(word));
        line.unwrap_or_default().to_vec()
    };
    let told = Told {
        id: id.to_owned(),
        author: header(b"author "),
        committer: header(b"committer "),
        message: message.to_vec(),
    };
    Some((told, rest))
}

/// `Name <mail> SECONDS ZONE` in the only form that an import takes, whatever the commit has.
fn ident(line: &[u8]) -> Vec<u8> {
    let open = line.iter().position(|&byte| byte == b'<');
    let close = line.iter().rposition(|&byte| byte == b'>');
    let (name, mail, when) = match (open, close) {
        (Some(open), Some(close)) if open < close => {
            (&line[..open], &line[open + 1..close], &line[close + 1..])
        }
        _ => (line, &b""[..], &b""[..]),
    };
    let plain = |bytes: &[u8]| -> Vec<u8> {
        let kept = bytes.iter().filter(|byte| !b"<>\n\0".contains(byte));
        let kept: Vec<u8> = kept.copied().collect();
        kept.trim_ascii().to_vec()
    };
    let mut text = plain(name);
    if !text.is_empty() {
        text.push(b' ');
    }
    text.push(b'<');
    text.extend(plain(mail));
    text.extend(format!("> {}", date(when)).into_bytes());
    text
}

fn date(when: &[u8]) -> String {
    let text = String::from_utf8_lossy(when);
    let mut words = text.split_whitespace();
    let seconds = words.next().and_then(|word| word.parse::<u64>().ok());
    let seconds = seconds.filter(|&seconds| seconds < LATEST).unwrap_or(DATE);
    let zone = words.next().filter(|zone| {
        let digits = zone.strip_prefix(['+', '-']).unwrap_or_default();
        digits.len() == 4 && digits.parse::<u64>().is_ok_and(|zone| zone <= WIDEST)
    });
    format!("{seconds} {}", zone.unwrap_or("+0000"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_dates_are_made_fit_to_be_said_again() {
        for (line, said) in [
            ("A B <a@b> 1700000000 +0200", "A B <a@b> 1700000000 +0200"),
            ("A <a<b>c> 5 -0330", "A <abc> 5 -0330"),
            ("<> 5 +9999", "<> 5 +0000"),
            ("nobody", "nobody <> 946684800 +0000"),
            ("", "<> 946684800 +0000"),
            ("A <a> -7 +0000", "A <a> 946684800 +0000"),
        ] {
            assert_eq!(String::from_utf8_lossy(&ident(line.as_bytes())), said);
        }
    }

    #[test]
    fn a_cut_answer_is_no_commit() {
        let id = "0123456789012345678901234567890123456789";
        let object = "tree x\nauthor A <a> 1 +0000\ncommitter C <c> 2 +0000\n\nhello\n\nmore\n";
        let answer = format!("{id} commit {}\n{object}\n", object.len());
        let (told, rest) = one(id, answer.as_bytes()).unwrap();
        assert_eq!(told.message, b"hello\n\nmore\n");
        assert_eq!(told.author, b"A <a> 1 +0000");
        assert!(rest.is_empty());
        for cut in 0..answer.len() {
            assert!(one(id, &answer.as_bytes()[..cut]).is_none(), "{cut}");
        }
    }
}
