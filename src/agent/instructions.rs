//! What the AGENTS.md files of a workspace come to in a first message: the nearest counts.

use super::words::fenced;
use crate::tools::clip;

/// Characters of all of them.
const AGENTS_MD: usize = 8_000;
/// Characters of the names of those that do not fit.
const NAMES: usize = 2_000;

/// The one at the top whole before all else, then the others while there is room; at least all their names.
pub fn told(files: &[(String, String)]) -> String {
    let files: Vec<&(String, String)> = files.iter().filter(|f| !f.1.trim().is_empty()).collect();
    let mut left = AGENTS_MD;
    let mut body = String::new();
    let mut named = Vec::new();
    if files.len() > 1 {
        body.push_str(
            "Where two of these speak of the same, the one nearest to the file that you work on counts.\n",
        );
    }
    for (path, text) in files {
        let size = text.chars().count();
        if path.contains('/') && size > left {
            named.push(path.as_str());
            continue;
        }
        let shown = clip::middle(text, left);
        left = left.saturating_sub(size);
        if path.contains('/') {
            body.push_str(&format!("\n{path}, for everything beside and below it:\n"));
        }
        body.push_str(&format!("{}\n", fenced(&shown)));
    }
    if !named.is_empty() {
        body.push_str(&format!(
            "\nRead these before you work beside or below them: {}\n",
            clip::line(&named.join(", "), NAMES)
        ));
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> (String, String) {
        (path.to_owned(), text.to_owned())
    }

    #[test]
    fn nested_ones_are_told_within_the_room_and_named_beyond() {
        let top = file("AGENTS.md", "Use tabs.");
        let alone = told(std::slice::from_ref(&top));
        assert!(
            alone.contains("Use tabs.") && !alone.contains("nearest"),
            "{alone}"
        );
        let text = told(&[
            top,
            file("app/AGENTS.md", "Use spaces."),
            file("docs/AGENTS.md", &"x".repeat(AGENTS_MD)),
            file("empty/AGENTS.md", " \n"),
        ]);
        assert!(
            text.contains("the one nearest to the file that you work on counts"),
            "{text}"
        );
        assert!(
            text.contains("app/AGENTS.md, for everything beside and below it:\n```\nUse spaces.")
        );
        assert!(text.contains("Read these before you work beside or below them: docs/AGENTS.md"));
        assert!(!text.contains("empty/AGENTS.md") && !text.contains(&"x".repeat(100)));
        let long = told(&[file("AGENTS.md", &"y".repeat(3 * AGENTS_MD))]);
        assert!(long.contains("characters cut here") && long.chars().count() < AGENTS_MD + 100);
        assert_eq!(told(&[]), "");
    }
}
