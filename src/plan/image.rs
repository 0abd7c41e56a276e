//! The `image` key of a sandbox: a name, or a Dockerfile to build from.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::check;
use super::error::Error;
use super::files::Loader;
use super::network::{get, known, string};
use super::yaml::At;
use super::{Plan, raw};

const KEYS: [&str; 2] = ["dockerfile", "context"];

/// Where the image of a sandbox comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// A reference that the engine has or can pull.
    Named(String),
    /// A Dockerfile and the folder whose files it may take; relative to the plan until `anchor`.
    Built {
        dockerfile: PathBuf,
        context: PathBuf,
    },
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Image::Named(name) => f.write_str(name),
            Image::Built { dockerfile, .. } => write!(f, "{}", dockerfile.display()),
        }
    }
}

impl Image {
    /// As a plan file has it.
    pub(super) fn written(&self) -> Value {
        match self {
            Image::Named(name) => json!(name),
            Image::Built {
                dockerfile,
                context,
            } => json!({"dockerfile": dockerfile, "context": context}),
        }
    }

    fn anchor(&mut self, folder: &Path) {
        if let Image::Built {
            dockerfile,
            context,
        } = self
        {
            *dockerfile = folder.join(&*dockerfile);
            *context = folder.join(&*context);
        }
    }
}

impl Plan {
    /// Makes the paths of builds begin at the folder of the plan file.
    pub fn anchor(&mut self, folder: &Path) {
        let roles = self.roles.values_mut().map(|role| &mut role.sandbox);
        for sandbox in roles.chain([&mut self.sandbox]) {
            sandbox.image.anchor(folder);
        }
    }
}

/// Reads the key's value.
pub(super) fn read(at: &At<'_>, value: &Value) -> Result<Image, Error> {
    let hint = "write a name such as `wharf/python` or `node:22`, or `{dockerfile: PATH}`";
    match value {
        Value::String(name) => named(at, name).map(Image::Named),
        Value::Object(keys) => built(at, keys),
        _ => Err(at.value_fault(format!("`{at}` must be a name or a map"), hint)),
    }
}

fn named(at: &At<'_>, name: &str) -> Result<String, Error> {
    let name = check::text(at, name)?;
    if name.contains(|c: char| c.is_whitespace() || c.is_control()) {
        let message = format!("`{name}` is no image name");
        return Err(at.value_fault(message, "write a name such as `wharf/python` or `node:22`"));
    }
    Ok(name)
}

fn built(at: &At<'_>, keys: &Map<String, Value>) -> Result<Image, Error> {
    known(at, keys, &KEYS)?;
    let path = |key: &str| -> Result<Option<PathBuf>, Error> {
        let at = at.key(key);
        let Some(value) = get(keys, key) else {
            return Ok(None);
        };
        let text = string(&at, value)?;
        if text.contains(char::is_control) {
            return Err(at.value_fault(format!("`{at}` is no path"), "write a path"));
        }
        Ok(Some(PathBuf::from(text)))
    };
    let Some(dockerfile) = path("dockerfile")? else {
        let message = format!("`{at}` names no `dockerfile`");
        return Err(at.value_fault(message, "add `dockerfile: PATH`, relative to the plan file"));
    };
    let beside = dockerfile.parent().map(Path::to_owned).unwrap_or_default();
    let context = path("context")?.unwrap_or(match beside.as_os_str().is_empty() {
        true => PathBuf::from("."),
        false => beside,
    });
    Ok(Image::Built {
        dockerfile,
        context,
    })
}

/// Loads the Dockerfile that a `sandbox` map names, so that a missing one is told before anything starts
/// and the plan's hash covers it.
pub(super) fn load(
    at: &At<'_>,
    sandbox: Option<&raw::Sandbox>,
    loader: &mut Loader<'_>,
) -> Result<(), Error> {
    let at = at.key("sandbox").key("image");
    let Some(value) = sandbox.and_then(|sandbox| sandbox.image.as_ref()) else {
        return Ok(());
    };
    match read(&at, value)? {
        Image::Named(_) => Ok(()),
        Image::Built { dockerfile, .. } => {
            let path = dockerfile.display().to_string();
            loader.text(&at.key("dockerfile"), &path).map(drop)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Pull, parse};

    fn plan(sandbox: &str) -> Result<Plan, Error> {
        let text = format!("version: 1\nmodel: replay:x\nsandbox: {sandbox}\n");
        parse(&text, "plan.yaml", &|path| match path {
            "img/Dockerfile" | "Dockerfile" => Ok("FROM scratch".to_owned()),
            other => Err(format!("no file {other}")),
        })
    }

    fn refusal(sandbox: &str) -> String {
        plan(sandbox).unwrap_err().to_string()
    }

    #[test]
    fn a_dockerfile_brings_its_folder_and_begins_at_the_plan() {
        let mut read = plan("{image: {dockerfile: img/Dockerfile}, pull: always}").unwrap();
        assert_eq!(read.sandbox.pull, Pull::Always);
        read.anchor(Path::new("/plans"));
        let built = |dockerfile: &str, context: &str| Image::Built {
            dockerfile: dockerfile.into(),
            context: context.into(),
        };
        let wanted = built("/plans/img/Dockerfile", "/plans/img");
        assert_eq!(read.sandbox.image, wanted);
        assert!(read.roles.values().all(|role| role.sandbox.image == wanted));
        let beside = plan("{image: {dockerfile: Dockerfile}}").unwrap();
        assert_eq!(beside.sandbox.image, built("Dockerfile", "."));
        let other = plan("{image: {dockerfile: img/Dockerfile, context: .}}").unwrap();
        assert_eq!(other.sandbox.image, built("img/Dockerfile", "."));
        assert_eq!(
            other.sandbox.image.written(),
            json!({"dockerfile": "img/Dockerfile", "context": "."})
        );
    }

    #[test]
    fn the_dockerfile_counts_for_the_plans_hash() {
        let of = |text: &'static str| {
            let plan = "version: 1\nsandbox: {image: {dockerfile: D}}\n";
            parse(plan, "plan.yaml", &|_| Ok(text.to_owned()))
                .unwrap()
                .hash
        };
        assert_ne!(of("FROM a"), of("FROM b"));
    }

    #[test]
    fn what_is_wrong_is_told_at_its_place() {
        for (sandbox, said) in [
            ("{image: {dockerfle: x}}", "unknown key `dockerfle`"),
            ("{image: {context: x}}", "names no `dockerfile`"),
            (
                "{image: {dockerfile: gone}}",
                "cannot read `gone`: no file gone",
            ),
            ("{image: {dockerfile: 3}}", "must be text"),
            ("{image: [a]}", "must be a name or a map"),
            ("{image: a b}", "`a b` is no image name"),
            ("{pull: sometimes}", "sometimes"),
        ] {
            let told = refusal(sandbox);
            assert!(
                told.contains(said) && told.contains("plan.yaml:3:"),
                "{told}"
            );
        }
        let told = refusal("{image: {dockerfle: x}}");
        assert!(told.contains("did you mean `dockerfile`"), "{told}");
    }
}
