//! All faults of a plan file that can be told apart: each part that has one is taken out, and the rest
//! is read again.

use super::error::Error;
use super::parse::parse;
use super::words::NO_ANCHOR;

/// Parts that are taken out at most.
const MOST: usize = 20;

/// Parts whose faults may only follow from a part that is gone.
const FOLLOWS: [(&str, &[&str]); 7] = [
    ("roles", &["subtasks", "model"]),
    ("role_files", &["roles", "subtasks"]),
    ("tools", &["roles", "role_files", "permissions", "subtasks"]),
    ("run", &["subtasks"]),
    ("sandbox", &["roles", "role_files"]),
    ("agent", &["roles", "role_files"]),
    ("subtasks", &["roles"]),
];

/// The faults of a plan file, the first that `parse` gives first; none when it is whole.
pub fn faults(text: &str, name: &str, load: &dyn Fn(&str) -> Result<String, String>) -> Vec<Error> {
    let mut lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    let mut gone: Vec<String> = Vec::new();
    for _ in 0..MOST {
        let Err(error) = parse(&lines.join("\n"), name, load) else {
            break;
        };
        let part = (error.file == name).then(|| part(&lines, error.line));
        let part = part.flatten();
        let key = part.as_ref().map(|part| part.0.clone());
        // An anchor may have gone with its part.
        let lost = !gone.is_empty() && error.message.starts_with(NO_ANCHOR);
        if !lost && !key.as_ref().is_some_and(|key| follows(key, &gone)) {
            found.push(error);
        }
        // What belongs to no part is about the file as a whole, or about another file.
        let Some((key, from, to)) = part.filter(|part| part.0 != "version") else {
            break;
        };
        lines[from..to].fill("");
        gone.push(key);
    }
    found
}

fn follows(key: &str, gone: &[String]) -> bool {
    let after = FOLLOWS
        .iter()
        .filter(|(first, _)| gone.iter().any(|g| g == first));
    after.into_iter().any(|(_, then)| then.contains(&key))
}

/// The key at the left margin whose lines hold line `number` (from 1), with their range.
fn part(lines: &[&str], number: usize) -> Option<(String, usize, usize)> {
    let at = number.checked_sub(1).filter(|at| *at < lines.len())?;
    let from = (0..=at).rev().find(|at| key(lines[*at]).is_some())?;
    let after = lines[from + 1..].iter();
    let to = after
        .enumerate()
        .find(|(_, line)| key(line).is_some())
        .map_or(lines.len(), |(more, _)| from + 1 + more);
    Some((key(lines[from])?, from, to))
}

fn key(line: &str) -> Option<String> {
    let begins = line.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    let (key, _) = line.split_once(':')?;
    begins.then(|| key.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Vec<(usize, String)> {
        let found = faults(text, "p.yaml", &|_| Err("no file".to_owned()));
        found.into_iter().map(|e| (e.line, e.message)).collect()
    }

    #[test]
    fn every_part_has_its_fault_and_a_whole_plan_none() {
        assert_eq!(told("version: 1\n"), []);
        let text = "version: 1\nrolls: {}\nrun:\n  parallel: 0\nprotect: [\"/x\"]\ntask: \" \"\n";
        let lines: Vec<usize> = told(text).iter().map(|(line, _)| *line).collect();
        assert_eq!(lines.len(), 4, "{:?}", told(text));
        for line in [2, 4, 5, 6] {
            assert!(lines.contains(&line), "{line} in {lines:?}");
        }
    }

    #[test]
    fn what_follows_from_a_fault_is_no_fault_of_its_own() {
        let text = "version: 1\nroles:\n  looker: {prompt: x, tols: []}\n\
                    subtasks:\n  - {id: a, role: looker, brief: b}\n";
        let found = told(text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, 3);
    }

    #[test]
    fn an_alias_whose_anchor_went_with_another_fault_is_none_of_its_own() {
        let text = "version: 1\nname: &n [x]\ntask: *n\n";
        let found = told(text);
        assert_eq!(found.len(), 1, "{found:?}");
        let found = told("version: 1\ntask: *nowhere\n");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].1.starts_with(NO_ANCHOR), "{found:?}");
    }

    #[test]
    fn a_file_that_cannot_be_read_as_a_whole_has_one_fault() {
        assert_eq!(told("version: 1\nrun: {\n").len(), 1);
        assert_eq!(told("version: 2\nrun: {parallel: 0}\n").len(), 1);
        assert_eq!(told("").len(), 1);
        assert_eq!(told("- a\n- b\n").len(), 1);
    }
}
