//! Our images at the engine: what is there, how large, when it was last used; and their removal.

use std::collections::{BTreeMap, HashSet};

use bollard::models::ImageSummary;
use bollard::query_parameters::{
    ListContainersOptions, ListImagesOptions, RemoveImageOptionsBuilder,
};

use super::bake::BAKED;
use super::build;
use super::call::{self, LONG, SHORT};
use super::commit::MADE_FOR;
use super::docker::Docker;
use super::image::inspect;
use super::profile::KIND;
use super::recipe::BUILT;
use super::workspace_layer::LAYERS;
use super::{Error, spare};

/// One of our images at the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRow {
    /// `wharf/baked:KEY`.
    pub name: String,
    pub id: String,
    /// Bytes, those of shared layers included.
    pub size: u64,
    /// Bytes above the named image it stands on.
    pub own: u64,
    /// Seconds since 1970.
    pub created: i64,
    /// Seconds since 1970; as exact as runs note it, which is when they begin to use it.
    pub last_used: i64,
    /// For a cached image, the plan's name it was made for.
    pub made_for: Option<String>,
    /// Made on the way and made again when it is missing: what the cap counts.
    pub cached: bool,
    /// A container uses it.
    pub in_use: bool,
    /// Ids of the images it stands on.
    pub beneath: Vec<String>,
}

/// Notes that an image is used now: giving it its own name again is what the engine keeps a time of.
pub(super) async fn used(docker: &Docker, name: &str) {
    let Some((repo, tag)) = name.rsplit_once(':') else {
        return;
    };
    if let Err(error) = build::tag(docker, name, repo, tag).await {
        tracing::debug!(image = name, %error, "its use was not noted");
    }
}

impl Docker {
    /// Lists the images this program made, newest first.
    pub async fn images(&self) -> Result<Vec<ImageRow>, Error> {
        let options = ListImagesOptions {
            // Those without a name that others stand on, too: sizes are differences.
            all: true,
            ..ListImagesOptions::default()
        };
        let call = self.api.list_images(Some(options));
        let mut list = call::bounded("listing images", SHORT, call).await?;
        for image in &mut list {
            image.parent_id = whole(std::mem::take(&mut image.parent_id));
        }
        let mut rows = rows(&list, &self.used_images().await?);
        for row in rows.iter_mut().filter(|row| row.cached) {
            row.last_used = self.last_used(&row.name).await?.max(row.created);
        }
        rows.sort_by(|a, b| b.created.cmp(&a.created).then(a.name.cmp(&b.name)));
        Ok(rows)
    }

    /// The cached images that `clean_images` would remove, so that the rest has at most `cap` bytes.
    pub async fn spare_images(&self, cap: u64) -> Result<Vec<ImageRow>, Error> {
        let now = jiff::Timestamp::now().as_second();
        Ok(spare::spare(self.images().await?, cap, now))
    }

    /// Removes the spare images; gives those that are gone now.
    pub async fn clean_images(&self, cap: u64) -> Result<Vec<ImageRow>, Error> {
        let mut gone = Vec::new();
        for row in self.spare_images(cap).await? {
            let options = RemoveImageOptionsBuilder::new().build();
            let call = self.api.remove_image(&row.name, Some(options), None);
            match call::found("removing an image", LONG, call).await {
                Ok(_) => gone.push(row),
                Err(error) => tracing::warn!(image = %row.name, %error, "not removed"),
            }
        }
        Ok(gone)
    }

    /// Zero where the engine keeps no such time, or the image has gone meanwhile.
    async fn last_used(&self, name: &str) -> Result<i64, Error> {
        let found = inspect(self, name).await?;
        let at = found
            .and_then(|image| image.metadata)
            .and_then(|metadata| metadata.last_tag_time);
        let at = at.and_then(|at| at.to_string().parse::<jiff::Timestamp>().ok());
        Ok(at.map_or(0, jiff::Timestamp::as_second))
    }

    /// Ids of the images that containers of any owner and state use.
    async fn used_images(&self) -> Result<HashSet<String>, Error> {
        let options = ListContainersOptions {
            all: true,
            ..ListContainersOptions::default()
        };
        let call = self.api.list_containers(Some(options));
        let list = call::bounded("listing containers", SHORT, call).await?;
        Ok(list
            .into_iter()
            .filter_map(|summary| summary.image_id)
            .collect())
    }
}

/// Our images of a list of all; of those without a name only what nobody stands on.
fn rows(list: &[ImageSummary], used: &HashSet<String>) -> Vec<ImageRow> {
    let all: BTreeMap<&str, &ImageSummary> = list
        .iter()
        .map(|image| (image.id.as_str(), image))
        .collect();
    let parents: HashSet<&str> = list.iter().map(|image| image.parent_id.as_str()).collect();
    list.iter()
        .filter(|image| image.labels.contains_key(KIND))
        .flat_map(|image| {
            let kind = image.labels.get(KIND).map(String::as_str);
            let mut names: Vec<String> = image
                .repo_tags
                .iter()
                .map(|tag| short(tag))
                .filter(|tag| ours(tag))
                .map(str::to_owned)
                .collect();
            let cached = matches!(kind, Some("baked" | "layer" | "built"));
            if cached && nameless(image) && !parents.contains(image.id.as_str()) {
                names.push(image.id.clone());
            }
            let beneath = ancestors(&all, image);
            let named = beneath.iter().find(|image| !nameless(image));
            let size = bytes(image.size);
            let row = |name: String| ImageRow {
                cached: cached && (name == image.id || is_cached(&name)),
                name,
                id: image.id.clone(),
                size,
                own: size.saturating_sub(named.map_or(0, |image| bytes(image.size))),
                created: image.created,
                last_used: image.created,
                made_for: image.labels.get(MADE_FOR).cloned(),
                in_use: used.contains(&image.id),
                beneath: beneath.iter().map(|image| image.id.clone()).collect(),
            };
            names.into_iter().map(row).collect::<Vec<_>>()
        })
        .collect()
}

/// The images that one stands on, the nearest first.
fn ancestors<'a>(
    all: &BTreeMap<&str, &'a ImageSummary>,
    image: &ImageSummary,
) -> Vec<&'a ImageSummary> {
    let mut found: Vec<&ImageSummary> = Vec::new();
    let mut next = all.get(image.parent_id.as_str());
    while let Some(image) = next.filter(|_| found.len() < all.len()) {
        found.push(image);
        next = all.get(image.parent_id.as_str());
    }
    found
}

fn nameless(image: &ImageSummary) -> bool {
    image.repo_tags.iter().all(|tag| tag.ends_with(":<none>"))
}

fn bytes(size: i64) -> u64 {
    u64::try_from(size).unwrap_or(0)
}

/// An id as images have it: Podman leaves out how it was hashed where it speaks of another image.
fn whole(id: String) -> String {
    let bare = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if bare { format!("sha256:{id}") } else { id }
}

/// A name without the place that Podman puts before the names of images that are at no registry; it finds
/// them without it.
fn short(tag: &str) -> &str {
    let places = ["localhost/", "docker.io/"];
    let bare = places.iter().find_map(|place| tag.strip_prefix(place));
    bare.unwrap_or(tag)
}

/// A stranger's image made from one of ours inherits the label but not the name.
fn ours(tag: &str) -> bool {
    tag.starts_with("wharf/") && !tag.ends_with(":<none>")
}

fn is_cached(name: &str) -> bool {
    let repo = name.rsplit_once(':').map(|(repo, _)| repo);
    repo.is_some_and(|repo| repo == BAKED || repo == LAYERS || repo == BUILT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(id: &str, parent: &str, size: i64, kind: &str, tags: &[&str]) -> ImageSummary {
        ImageSummary {
            id: id.to_owned(),
            parent_id: parent.to_owned(),
            size,
            labels: [(KIND.to_owned(), kind.to_owned())].into(),
            repo_tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            ..ImageSummary::default()
        }
    }

    #[test]
    fn an_id_is_made_whole_and_no_other_word_is_changed() {
        let bare = "7b".repeat(32);
        let long = format!("sha256:{bare}");
        assert_eq!((whole(bare), whole(long.clone())), (long.clone(), long));
        for word in ["", "<missing>", "7b7b"] {
            assert_eq!(whole(word.to_owned()), word);
        }
    }

    #[test]
    fn an_image_counts_what_it_has_above_the_named_one_it_stands_on() {
        let list = [
            image("base", "", 100, "base", &["wharf/base:x"]),
            image("baked", "base", 110, "baked", &["wharf/baked:x"]),
            image("files", "baked", 900, "layer", &["<none>:<none>"]),
            image("layer", "files", 910, "layer", &["wharf/layer:x"]),
            image("lost", "baked", 950, "layer", &["<none>:<none>"]),
            image("other", "baked", 500, "baked", &["stranger/app:1"]),
            image(
                "its",
                "base",
                100,
                "base",
                &["localhost/wharf/base:y", "localhost/app:1"],
            ),
            image("far", "", 100, "baked", &["far.example/wharf/baked:x"]),
        ];
        let used = HashSet::from(["layer".to_owned()]);
        let rows = rows(&list, &used);
        let seen: Vec<_> = rows
            .iter()
            .map(|row| (row.name.as_str(), row.own, row.cached, row.in_use))
            .collect();
        let wanted = [
            ("wharf/base:x", 100, false, false),
            ("wharf/baked:x", 10, true, false),
            ("wharf/layer:x", 800, true, true),
            ("lost", 840, true, false),
            ("wharf/base:y", 0, false, false),
        ];
        assert_eq!(seen, wanted);
        assert_eq!(rows[2].beneath, ["files", "baked", "base"]);
    }
}
