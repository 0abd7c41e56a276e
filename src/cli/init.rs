//! `wharf init`: a first plan for the project at hand.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::fault::Fault;
use super::{out, record};
use crate::ops::{Project, detect};

/// The name of the plan that `wharf run` finds by itself.
pub const NAME: &str = "wharf.yaml";

/// Write a first wharf.yaml here, with suggestions for the project it finds
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  cd my-project && wharf init && wharf plan check wharf.yaml")]
pub struct Args {
    /// Write here instead of ./wharf.yaml; an existing file is not replaced
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Answer with one JSON object
    #[arg(long)]
    json: bool,
}

/// Writes the plan; an existing file stays.
pub fn act(args: &Args) -> Result<i32, Fault> {
    let here = std::env::current_dir()
        .map_err(|error| Fault::environment(format!("find the current directory: {error}")))?;
    let project = detect(&here);
    let name = here
        .file_name()
        .map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let file = args.output.clone().unwrap_or_else(|| PathBuf::from(NAME));
    let path = here.join(&file);
    record::write_new(&path, &plan(&name, &project))?;
    if args.json {
        out::json(&serde_json::json!({"file": path, "kind": project.kind}))?;
    } else {
        let what = match project.kind {
            "unknown" => "; what kind of project this is could not be told".to_owned(),
            "empty" => "; the directory is empty".to_owned(),
            kind => format!(" for a project of kind {kind}"),
        };
        let (file, flag) = match &args.output {
            Some(file) => (file.as_path(), format!(" -f {}", file.display())),
            None => (Path::new(NAME), String::new()),
        };
        out::print(&format!(
            "wrote {}{what}\nnext: edit its model and acceptance, then\n  wharf plan check {}\n  \
             wharf run{flag} \"TASK\"",
            path.display(),
            file.display(),
        ))?;
    }
    Ok(0)
}

fn plan(directory: &str, project: &Project) -> String {
    let mut text = String::new();
    let mut line = |content: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{content}");
    };
    line(
        "# A plan for Wharf. Every key but `version` is optional; `wharf plan schema` describes them all.",
    );
    line("version: 1");
    line(&format!("name: {}", name(directory)));
    line("");
    line("# provider/model; or give --model. Keys come from OPENAI_API_KEY or ANTHROPIC_API_KEY.");
    line("# model: anthropic/claude-sonnet-5");
    line("");
    line("sandbox:");
    line(&format!("  image: {}", quoted(project.image)));
    line("  # Agents have no network; what the project needs is fetched once, here.");
    line(&list("  setup", &project.setup, "make deps"));
    line("");
    line("# Existing files that agents may not change.");
    line(&list("protect", &project.protect, "tests/**"));
    line("");
    line("# Wharf runs these on the merged result; their exit codes are facts for the verdict.");
    line("acceptance:");
    line(&list("  commands", &project.acceptance, "make test"));
    line("  # criteria: [\"Prices are rounded to cents\"]");
    line("");
    line("# run: {parallel: 4, cost_usd: 5, time: 60m}");
    text
}

/// `key: ["a", "b"]`, or the same as a comment where there is nothing to suggest.
fn list(key: &str, values: &[&str], example: &str) -> String {
    let indent: String = key.chars().take_while(|c| *c == ' ').collect();
    if values.is_empty() {
        return format!("{indent}# {}: [{}]", key.trim_start(), quoted(example));
    }
    let values: Vec<String> = values.iter().map(|value| quoted(value)).collect();
    format!("{key}: [{}]", values.join(", "))
}

/// A JSON string, which is a YAML string as well.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A name from the directory's, in the form of every id.
fn name(directory: &str) -> String {
    let plain: String = directory
        .to_lowercase()
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '_' {
                c
            } else {
                '-'
            }
        })
        .take(40)
        .collect();
    let trimmed = plain.trim_matches(['-', '_']).to_owned();
    if crate::id::is_valid(&trimmed) {
        trimmed
    } else {
        "project".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_and_lists_without_a_suggestion_are_comments() {
        assert_eq!(name("My Project (2)"), "my-project--2");
        assert_eq!(name("日本"), "project");
        assert_eq!(list("  setup", &[], "x"), "  # setup: [\"x\"]");
        assert_eq!(list("protect", &["a\"b"], "x"), "protect: [\"a\\\"b\"]");
    }
}
