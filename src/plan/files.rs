//! Files a plan names: prompts, and role files with front matter.

use super::error::Error;
use super::raw;
use super::roles::Layer;
use super::yaml::{At, Source};

/// What to look at when a file cannot be read.
const LOADING: &str = "paths are relative to the plan file, and files are UTF-8 text";

/// Loads files and keeps what was loaded, for the plan's hash.
pub(super) struct Loader<'a> {
    pub load: &'a dyn Fn(&str) -> Result<String, String>,
    pub loaded: Vec<(String, String)>,
}

/// A role file, taken apart.
pub(super) struct RoleFile {
    pub source: Source,
    pub name: String,
    pub role: raw::Role,
    pub prompt: String,
}

impl RoleFile {
    /// The file as a layer of the role it names.
    pub fn layer(&self) -> Layer<'_> {
        Layer {
            at: self.source.top(),
            filed: true,
            role: self.role.clone(),
            prompt: Some(self.prompt.clone()),
        }
    }
}

impl Loader<'_> {
    /// The text of a file named at a place of a plan.
    pub fn text(&mut self, at: &At<'_>, file: &str) -> Result<String, Error> {
        if file.trim().is_empty() {
            return Err(
                at.value_fault(format!("`{at}` is empty"), "name a file, or remove the key")
            );
        }
        let text = (self.load)(file).map_err(|reason| {
            let message = format!("cannot read `{file}`: {reason}");
            at.value_fault(message, LOADING)
        })?;
        self.loaded.push((file.to_owned(), text.clone()));
        Ok(text)
    }

    /// A prompt file's text without the comment that may open it.
    pub fn prompt(&mut self, at: &At<'_>, file: &str) -> Result<String, Error> {
        let text = self.text(at, file)?;
        let prompt = without_comment(&text);
        if prompt.is_empty() {
            return Err(at.value_fault(
                format!("the prompt in `{file}` is empty"),
                "write a prompt into it",
            ));
        }
        Ok(prompt.to_owned())
    }

    /// The role files of a pattern or a path. A path with `*`, `?` or `[` is answered by `load`
    /// with the paths it stands for, one a line.
    pub fn roles(&mut self, at: &At<'_>, pattern: &str) -> Result<Vec<RoleFile>, Error> {
        let mut paths = vec![pattern.to_owned()];
        if pattern.contains(['*', '?', '[']) {
            let list = self.text(at, pattern)?;
            paths = list
                .lines()
                .map(str::to_owned)
                .filter(|line| !line.is_empty())
                .collect();
            paths.sort();
            if paths.is_empty() {
                let message = format!("no file matches `{pattern}`");
                return Err(at.value_fault(message, "paths are relative to the plan file"));
            }
        }
        let mut files = Vec::new();
        for path in paths {
            let text = self.text(at, &path)?;
            files.push(role_file(&path, &text)?);
        }
        Ok(files)
    }
}

/// Text without one HTML comment at its top.
fn without_comment(text: &str) -> &str {
    let text = text.trim();
    match text
        .strip_prefix("<!--")
        .and_then(|rest| rest.split_once("-->"))
    {
        Some((_, rest)) => rest.trim(),
        None => text,
    }
}

fn role_file(path: &str, text: &str) -> Result<RoleFile, Error> {
    let place = |line, message: &str, hint: &str| Error::at((path, text), (line, 1), message, hint);
    let plain = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let start = "a role file starts with front matter: `---`, keys such as `name: tester`, `---`";
    let Some(rest) = plain.strip_prefix("---\n") else {
        return Err(place(1, "the file has no front matter", start));
    };
    let Some((front, body)) = rest.split_once("\n---") else {
        return Err(place(
            1,
            "the front matter has no end",
            "close it with a line `---`",
        ));
    };
    // One line break stands for the opening `---`, so that lines count as in the file.
    let source = Source::read(path, &format!("\n{front}\n"))?;
    let keys: raw::FrontMatter = source.values()?;
    let body = body
        .split_once('\n')
        .map(|(_, body)| body)
        .unwrap_or_default();
    let prompt = without_comment(body).to_owned();
    if prompt.is_empty() {
        let last = plain.lines().count();
        return Err(place(
            last,
            "the role file has no prompt",
            "write it below the front matter",
        ));
    }
    let top = source.top();
    let Some(name) = keys.name else {
        return Err(top.key_fault("`name` is missing", "add `name:` to the front matter"));
    };
    super::roles::role_name(&top.key("name"), &name)?;
    let inherits = |words: &raw::Words| matches!(words, raw::Words::One(word) if word == "inherit");
    let role = raw::Role {
        kind: keys.kind,
        description: keys.description,
        prompt: None,
        prompt_file: None,
        tools: keys.tools,
        model: keys.model.filter(|words| !inherits(words)),
        sandbox: keys.sandbox,
        agent: keys.agent,
    };
    Ok(RoleFile {
        source,
        name,
        role,
        prompt,
    })
}
