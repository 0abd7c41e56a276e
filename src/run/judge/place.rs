//! Places that evidence names, by their text alone: pure.

/// A place that evidence names: both ends of a range, or the one line twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place<'a> {
    pub path: &'a str,
    pub first: u64,
    pub last: u64,
}

/// `path:line`, `path:line-line` or, as compilers write it, `path:line:column`; a number that none can hold
/// is the largest. None for an address, which begins with a scheme.
pub(super) fn place(word: &str) -> Option<Place<'_>> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse().unwrap_or(u64::MAX))
    };
    let (path, lines) = word.rsplit_once(':').filter(|_| !word.contains("://"))?;
    let (first, last) = match lines.split_once(['-', '–']) {
        Some((first, last)) => (number(first)?, Some(number(last)?)),
        None => (number(lines)?, None),
    };
    match path
        .rsplit_once(':')
        .map(|(path, line)| (path, number(line)))
    {
        Some((path, Some(line))) if last.is_none() => Some(Place {
            path,
            first: line,
            last: line,
        }),
        _ => Some(Place {
            path,
            first,
            last: last.unwrap_or(first),
        }),
    }
}

/// True for `localhost:8080`, `12:30` or `exit:0`: without a folder and an ending it may be no path at all.
pub(super) fn is_bare(word: &str) -> bool {
    let Some(Place { path, .. }) = place(word) else {
        return false;
    };
    let ending = path.rsplit_once('.').map(|(_, ending)| ending);
    let named = ending.is_some_and(|ending| !ending.bytes().all(|byte| byte.is_ascii_digit()));
    !path.contains('/') && !named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_nothing_can_hold_are_places_all_the_same() {
        let huge = "99999999999999999999999";
        let at = |path, first, last| Some(Place { path, first, last });
        assert_eq!(place(&format!("a:{huge}")), at("a", u64::MAX, u64::MAX));
        assert_eq!(place(&format!("a:1-{huge}")), at("a", 1, u64::MAX));
        assert_eq!(place(":1"), at("", 1, 1));
        assert_eq!(place("a:7:3"), at("a", 7, 7));
        for none in [
            "a:-1",
            "a:",
            "a",
            "a:1x",
            "a:+1",
            "a: 1",
            "a:1-",
            "a:1-x",
            "http://a:1",
        ] {
            assert_eq!(place(none), None, "{none}");
        }
    }
}
