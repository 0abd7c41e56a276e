//! Where the paths of a run's patches begin, and the command that applies one there: pure.

use std::path::Path;

use crate::journal::State;
use crate::run::shared::Shared;
use crate::workspace::Base;

/// A run's directory as its patches see it: they begin at the top of the repository, or at the
/// directory itself when the run worked on a copy or in no repository.
#[derive(Clone, Debug)]
pub struct Root {
    workspace: String,
    /// The workspace's place inside its repository.
    place: String,
    /// Its place inside a repository that ignores it.
    outer: String,
    copy: bool,
}

impl Root {
    /// None while the journal has no base snapshot.
    pub fn of(state: &State) -> Option<Self> {
        let (_, started) = state.started.as_ref()?;
        let base: Base = serde_json::from_value(state.base.as_ref()?.details.clone()).ok()?;
        Some(Self {
            workspace: started.workspace.clone(),
            place: base.prefix,
            outer: base.outer,
            copy: started.options["copy"] == true,
        })
    }

    /// Of a run that goes on.
    pub(in crate::run) fn of_run(shared: &Shared) -> Self {
        Self {
            workspace: shared.workspace.display().to_string(),
            place: shared.base.prefix.clone(),
            outer: shared.base.outer.clone(),
            copy: shared.plan.workspace.copy,
        }
    }

    /// What stands before every path in a patch.
    pub fn prefix(&self) -> &str {
        if self.copy { "" } else { &self.place }
    }

    /// The command that applies the patch at `path`, to be typed anywhere.
    pub fn command(&self, path: &str) -> String {
        // In a directory of a repository git skips what a patch names outside of it without a word,
        // so it is always run at the top; also where that repository ignores the directory.
        let place = match self.place.as_str() {
            "" => self.outer.as_str(),
            place => place,
        };
        let up = Path::new(place).components().count();
        let top = Path::new(&self.workspace).ancestors().nth(up);
        let top = top.unwrap_or(Path::new("/")).display().to_string();
        let inside = match (self.prefix(), place) {
            ("", place) if !place.is_empty() => format!("--directory={} ", quoted(place)),
            _ => String::new(),
        };
        format!("git -C {} apply {inside}{}", quoted(&top), quoted(path))
    }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@%,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(workspace: &str, place: &str, copy: bool) -> Root {
        Root {
            workspace: workspace.to_owned(),
            place: place.to_owned(),
            outer: String::new(),
            copy,
        }
    }

    #[test]
    fn a_patch_begins_at_the_top_of_the_repository_or_at_the_copied_directory() {
        let inside = root("/r/a b/c", "a b/c", false);
        assert_eq!(inside.prefix(), "a b/c");
        assert_eq!(inside.command("/s/p"), "git -C /r apply /s/p");
        let copy = root("/r/a b/c", "a b/c", true);
        assert_eq!(copy.prefix(), "");
        assert_eq!(
            copy.command("/s/p"),
            "git -C /r apply --directory='a b/c' /s/p"
        );
        for copy in [false, true] {
            let mut ignored = root("/r/out/in", "", copy);
            ignored.outer = "out/in".to_owned();
            assert_eq!(ignored.prefix(), "");
            let command = "git -C /r apply --directory=out/in /s/p";
            assert_eq!(ignored.command("/s/p"), command);
        }
        let alone = root("/it's", "", true);
        assert_eq!(alone.command("/s/p"), r"git -C '/it'\''s' apply /s/p");
    }
}
