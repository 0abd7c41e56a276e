//! Reading, writing, listing and searching files of the sandbox, each within its cap.

use bytes::Bytes;
use serde_json::Value;

use super::clip::{self, thousands};
use super::spec::{
    FOUND_CHARS, GREP_DEFAULT, GREP_MAX, LINE_CHARS, LIST_MAX, READ_BYTES, READ_LINES, WRITE_BYTES,
};
use super::{Output, path};
use crate::sandbox::{Answer, Error, Sandbox, Search};

/// `read_file`: lines from 1 under a header that says which of how many.
pub async fn read(arguments: &Value, sandbox: &dyn Sandbox) -> Result<Output, Error> {
    let path = text(arguments, "path");
    let first = number(arguments, "offset").unwrap_or(1).max(1) as usize;
    let limit = number(arguments, "limit").map_or(READ_LINES, |n| n.max(1) as usize);
    let bytes = match whole(sandbox, path).await? {
        Ok(bytes) => bytes,
        Err(reason) => return Ok(fault(path, &reason)),
    };
    if bytes.is_empty() {
        return Ok(Output::done(format!("{path}: an empty file")));
    }
    if is_binary(&bytes) {
        return Ok(fault(
            path,
            &format!(
                "a binary file of {} bytes; look at it with a command",
                thousands(bytes.len() as u64)
            ),
        ));
    }
    Ok(excerpt(path, &clip::clean(&bytes), first, limit))
}

fn excerpt(path: &str, text: &str, first: usize, limit: usize) -> Output {
    let lines: Vec<&str> = text
        .strip_suffix('\n')
        .unwrap_or(text)
        .split('\n')
        .collect();
    let total = lines.len();
    if first > total {
        return fault(
            path,
            &format!("it has {total} lines, none from line {first} on"),
        );
    }
    let mut body = String::new();
    let mut last = first - 1;
    for line in lines.iter().skip(first - 1).take(limit) {
        let line = cut_line(line);
        if body.len() + line.len() + 1 > READ_BYTES {
            break;
        }
        body.push_str(&line);
        body.push('\n');
        last += 1;
    }
    let more = if last < total {
        format!(", go on with offset {}", last + 1)
    } else {
        String::new()
    };
    Output::done(format!(
        "{path}: lines {first}-{last} of {total}{more}\n{body}"
    ))
}

fn cut_line(line: &str) -> String {
    let total = line.chars().count();
    if total <= LINE_CHARS {
        return line.to_string();
    }
    let kept: String = line.chars().take(LINE_CHARS).collect();
    format!(
        "{kept} [… {} characters of this line cut …]",
        thousands((total - LINE_CHARS) as u64)
    )
}

/// `write_file`.
pub async fn write(arguments: &Value, sandbox: &dyn Sandbox) -> Result<Output, Error> {
    let path = text(arguments, "path");
    let content = text(arguments, "content");
    let size = content.len();
    if size > WRITE_BYTES {
        let reason = format!(
            "{} bytes are more than one write takes",
            thousands(size as u64)
        );
        return Ok(fault(path, &reason));
    }
    match sandbox
        .write(path, Bytes::from(content.to_string()))
        .await?
    {
        Ok(()) => Ok(Output::done(format!(
            "wrote {} bytes to {path}",
            thousands(size as u64)
        ))),
        Err(reason) => Ok(fault(path, &reason)),
    }
}

/// `list_files`.
pub async fn list(arguments: &Value, sandbox: &dyn Sandbox) -> Result<Output, Error> {
    let pattern = arguments.get("pattern").and_then(Value::as_str);
    let pattern = pattern
        .map(path::normal)
        .filter(|p| !p.is_empty() && p != ".");
    let shown = pattern.clone().unwrap_or_else(|| "**".to_string());
    Ok(match sandbox.list(pattern.as_deref(), LIST_MAX).await? {
        Ok(found) if found.lines.is_empty() => Output::done(format!("no file matches {shown}")),
        Ok(found) => {
            let cut = if found.cut {
                ", cut there: narrow the pattern"
            } else {
                ""
            };
            let count = found.lines.len();
            let lines = lines(&found.lines);
            Output::done(format!("{count} files match {shown}{cut}\n{lines}"))
        }
        Err(reason) => fault(&shown, &reason),
    })
}

/// `grep`.
pub async fn grep(arguments: &Value, sandbox: &dyn Sandbox) -> Result<Output, Error> {
    let asked = number(arguments, "max_results").map_or(GREP_DEFAULT, |n| n.max(1) as usize);
    let search = Search {
        pattern: text(arguments, "pattern").to_string(),
        glob: arguments
            .get("glob")
            .and_then(Value::as_str)
            .map(path::normal)
            .filter(|glob| glob != "."),
        limit: asked.min(GREP_MAX),
    };
    let shown = clip::line(&search.pattern, 80);
    Ok(match sandbox.grep(&search).await? {
        Ok(found) if found.lines.is_empty() => Output::done(format!("no line matches {shown}")),
        Ok(found) => {
            let cut = if found.cut {
                ", cut there: narrow the search"
            } else {
                ""
            };
            let count = found.lines.len();
            let lines = lines(&found.lines);
            let verb = if count == 1 {
                "line matches"
            } else {
                "lines match"
            };
            Output::done(format!("{count} {verb} {shown}{cut}\n{lines}"))
        }
        Err(reason) => fault(&shown, &reason),
    })
}

/// Each on a line of its own and cut there, all within the bytes of a read.
fn lines(lines: &[String]) -> String {
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        let line = clip::line(line, FOUND_CHARS);
        if text.len() + line.len() + 1 > READ_BYTES {
            text.push_str(&format!("[… {} more cut here …]\n", lines.len() - index));
            break;
        }
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// A whole file within the cap; the inner error is for the agent.
pub async fn whole(sandbox: &dyn Sandbox, path: &str) -> Result<Answer<Vec<u8>>, Error> {
    const CHUNK: u64 = 1 << 20;
    let mut bytes = Vec::new();
    loop {
        let part = match sandbox.read(path, bytes.len() as u64, CHUNK).await? {
            Ok(part) => part,
            Err(reason) => return Ok(Err(reason)),
        };
        if part.size > WRITE_BYTES as u64 {
            return Ok(Err(format!(
                "a file of {} bytes is too large for this tool; take what you need with a command",
                thousands(part.size)
            )));
        }
        bytes.extend_from_slice(&part.bytes);
        let full = bytes.len() as u64 >= part.size;
        // A file that shrank meanwhile gives nothing more; one that grew past the cap is cut off here.
        if part.bytes.is_empty() || full || bytes.len() > WRITE_BYTES {
            return Ok(Ok(bytes));
        }
    }
}

/// A zero byte in its first 8 KiB, as git tells it.
pub fn is_binary(bytes: &[u8]) -> bool {
    bytes.iter().take(8 << 10).any(|b| *b == 0)
}

/// What could not be done with a path, and why.
pub fn fault(path: &str, reason: &str) -> Output {
    Output::refused("tool_error", format!("{}: {reason}", clip::line(path, 200)))
}

/// A checked text argument.
pub fn text<'a>(arguments: &'a Value, name: &str) -> &'a str {
    arguments
        .get(name)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// A checked number argument.
pub fn number(arguments: &Value, name: &str) -> Option<i64> {
    arguments.get(name).and_then(Value::as_i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_stays_under_its_cap_and_says_where_to_go_on() {
        let text = "x".repeat(99) + "\n";
        let out = excerpt("a", &text.repeat(1_000), 11, 5_000);
        assert!(
            out.text
                .starts_with("a: lines 11-330 of 1000, go on with offset 331\n"),
            "{}",
            &out.text[..60]
        );
        assert!(out.text.len() <= READ_BYTES + 60);
        let long = excerpt("a", &"б".repeat(LINE_CHARS + 5), 1, 1);
        assert!(long.text.contains("[… 5 characters of this line cut …]"));
        assert!(excerpt("a", "one\n", 3, 1).failed);
    }
}
