//! An image that a plan describes by a Dockerfile: built through the engine, named by what went in.

use std::collections::HashSet;
use std::path::PathBuf;

use super::build::{self, Files, Order, Stage};
use super::commit::MADE_FOR;
use super::context::{self, Packed};
use super::docker::Docker;
use super::image::{inspect, proxies, short_hash};
use super::profile::KIND;
use super::pull::Pull;
use super::{Error, Progress, shelf};

/// The repository of images built from Dockerfiles; a tag is the key of what went in.
pub(super) const BUILT: &str = "wharf/built";
const HINT: &str = "the lines above are the builder's own; the classic builder of the engine's API is \
                    used, without BuildKit's additions";

/// A Dockerfile and the folder whose files it may take, absolute paths.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Recipe {
    pub dockerfile: PathBuf,
    pub context: PathBuf,
}

/// What may be asked of registries, and what was already.
pub(super) struct Fetching<'a> {
    pub(super) pull: Pull,
    pub(super) fetched: &'a mut HashSet<String>,
}

/// The name of the recipe's image at the engine, built now unless it is there.
pub(super) async fn ensure(
    docker: &Docker,
    recipe: &Recipe,
    fetching: Fetching<'_>,
    progress: &dyn Progress,
) -> Result<String, Error> {
    let title = recipe.dockerfile.display().to_string();
    let packed = pack(recipe).await.map_err(|reason| Error::Image {
        image: title.clone(),
        reason,
        hint: "correct `sandbox.image` in the plan, or the file it names".to_owned(),
    })?;
    let key = short_hash(&[packed.hash.as_bytes(), packed.dockerfile.as_bytes()]);
    let name = format!("{BUILT}:{key}");
    let again = fetching.pull == Pull::Always && !fetching.fetched.contains(&name);
    if !again && inspect(docker, &name).await?.is_some() {
        shelf::used(docker, &name).await;
        return Ok(name);
    }
    if fetching.pull == Pull::Never {
        all_there(docker, &title, &packed.text).await?;
    }
    let mut stage = Stage::new(progress, format!("image: building {title}"));
    let order = Order {
        tag: &name,
        title: &title,
        dockerfile: &packed.dockerfile,
        args: proxies(docker),
        labels: [
            (KIND.to_owned(), "built".to_owned()),
            (MADE_FOR.to_owned(), title.clone()),
        ]
        .into(),
        pull: fetching.pull == Pull::Always,
        hint: HINT,
    };
    build::build(docker, order, Files::Tar(packed.tar), &mut stage).await?;
    fetching.fetched.insert(name.clone());
    Ok(name)
}

/// Reads the context away from the threads that everything else waits on.
async fn pack(recipe: &Recipe) -> Result<Packed, String> {
    let recipe = recipe.clone();
    let work = move || context::pack(&recipe.context, &recipe.dockerfile);
    match tokio::task::spawn_blocking(work).await {
        Ok(packed) => packed,
        Err(error) => Err(format!("reading the context: {error}")),
    }
}

/// The builder fetches what it lacks, so under `never` it is asked only where it lacks nothing.
async fn all_there(docker: &Docker, title: &str, dockerfile: &str) -> Result<(), Error> {
    for base in bases(dockerfile) {
        let refuse = |what: &str| {
            Err(Error::Image {
                image: title.to_owned(),
                reason: format!(
                    "it stands on {base}, {what}, and `pull: never` forbids to fetch it"
                ),
                hint: "load that image (`docker pull`, `docker load`), or say `pull: missing`"
                    .to_owned(),
            })
        };
        if base.contains('$') {
            return refuse("which only the builder can resolve");
        }
        if inspect(docker, &base).await?.is_none() {
            return refuse("which the engine does not have");
        }
    }
    Ok(())
}

/// The images that a Dockerfile stands on, its own stages left out.
fn bases(dockerfile: &str) -> Vec<String> {
    let joined = dockerfile.replace("\\\r\n", " ").replace("\\\n", " ");
    let mut stages: Vec<String> = vec!["scratch".to_owned()];
    let mut bases = Vec::new();
    for line in joined.lines() {
        let mut words = line.split_whitespace();
        if !words
            .next()
            .is_some_and(|word| word.eq_ignore_ascii_case("from"))
        {
            continue;
        }
        let words: Vec<&str> = words.filter(|word| !word.starts_with("--")).collect();
        let Some(base) = words.first() else { continue };
        if !stages.contains(&base.to_lowercase()) {
            bases.push((*base).to_owned());
        }
        if let [_, by, stage, ..] = words.as_slice()
            && by.eq_ignore_ascii_case("as")
        {
            stages.push(stage.to_lowercase());
        }
    }
    bases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_images_beneath_are_those_of_from_less_stages() {
        let text = "ARG V=1\n# FROM comment\nFROM --platform=linux/amd64 golang:1.22 AS Build\nRUN x\n\
                    from debian:$V as two\nFROM build\nFROM scratch\nFROM \\\n  alpine:3\n";
        assert_eq!(bases(text), ["golang:1.22", "debian:$V", "alpine:3"]);
    }
}
