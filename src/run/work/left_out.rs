//! What was left out of a snapshot, as one line of the journal: `path: reason`, read back as the two.

/// The line. A path may hold what parts the two, so the reason may not.
pub(in crate::run) fn line((path, why): &(String, String)) -> String {
    let why = why.trim_end_matches(": ").replace(": ", " - ");
    format!("{path}: {why}")
}

/// Path and reason of a line.
pub(in crate::run) fn pair(line: &str) -> (String, String) {
    let (path, why) = line.rsplit_once(": ").unwrap_or((line, ""));
    (path.to_owned(), why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever path and reason hold, the path alone comes back as the path.
    #[test]
    fn a_path_is_told_from_its_reason() {
        for path in ["a.txt", "a: b", "dir/", ": ", "x:: y"] {
            for why in [
                "ignored",
                "cannot be read: Permission denied",
                "a: b: c",
                "x:",
                ": ",
            ] {
                let left = (path.to_owned(), why.to_owned());
                let (got, reason) = pair(&line(&left));
                assert_eq!(got, path, "{why}");
                assert!(!reason.contains(": "), "{reason}");
            }
        }
        let plain = ("a: b".to_owned(), "ignored".to_owned());
        assert_eq!(pair(&line(&plain)), plain);
    }
}
