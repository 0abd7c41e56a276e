//! Our images at the engine: what is there, and which baked ones nobody needs any more.

use std::collections::{BTreeMap, HashMap, HashSet};

use bollard::query_parameters::{
    ListContainersOptions, ListImagesOptions, RemoveImageOptionsBuilder,
};

use super::Error;
use super::bake::{BAKED, BAKED_FOR};
use super::call::{self, LONG, SHORT};
use super::docker::Docker;
use super::profile::KIND;

/// One of our images at the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRow {
    /// `wharf/baked:KEY`.
    pub name: String,
    pub id: String,
    /// Bytes, those of shared layers included.
    pub size: u64,
    /// Seconds since 1970.
    pub created: i64,
    /// For a baked image, the plan's name it was baked for.
    pub baked_for: Option<String>,
    /// A container uses it.
    pub in_use: bool,
}

impl Docker {
    /// Lists the images this program made, newest first.
    pub async fn images(&self) -> Result<Vec<ImageRow>, Error> {
        let options = ListImagesOptions {
            filters: Some(HashMap::from([("label".to_owned(), vec![KIND.to_owned()])])),
            ..ListImagesOptions::default()
        };
        let call = self.api.list_images(Some(options));
        let list = call::bounded("listing images", SHORT, call).await?;
        let used = self.used_images().await?;
        let mut rows: Vec<ImageRow> = list
            .into_iter()
            .flat_map(|image| {
                let in_use = used.contains(&image.id);
                let baked_for = image.labels.get(BAKED_FOR).cloned();
                let names = image.repo_tags.into_iter().filter(|tag| ours(tag));
                names
                    .map(move |name| ImageRow {
                        name,
                        id: image.id.clone(),
                        size: u64::try_from(image.size).unwrap_or(0),
                        created: image.created,
                        baked_for: baked_for.clone(),
                        in_use,
                    })
                    .collect::<Vec<_>>()
            })
            .collect();
        rows.sort_by(|a, b| b.created.cmp(&a.created).then(a.name.cmp(&b.name)));
        Ok(rows)
    }

    /// The baked images that `clean_images` would remove: unused, not the newest of their plan's
    /// name, and all past the newest `cap`.
    pub async fn spare_images(&self, cap: usize) -> Result<Vec<ImageRow>, Error> {
        Ok(spare(self.images().await?, cap))
    }

    /// Removes the spare baked images; gives those that are gone now.
    pub async fn clean_images(&self, cap: usize) -> Result<Vec<ImageRow>, Error> {
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

/// A stranger's image made from one of ours inherits the label but not the name.
fn ours(tag: &str) -> bool {
    tag.starts_with("wharf/") && !tag.ends_with(":<none>")
}

/// Rows newest first in, the removable ones out.
fn spare(rows: Vec<ImageRow>, cap: usize) -> Vec<ImageRow> {
    let mut newest: BTreeMap<Option<String>, ()> = BTreeMap::new();
    let mut kept = 0;
    let prefix = format!("{BAKED}:");
    rows.into_iter()
        .filter(|row| row.name.starts_with(&prefix))
        .filter(|row| {
            let first = newest.insert(row.baked_for.clone(), ()).is_none();
            let keep = (row.in_use || first || kept < cap) && (row.in_use || kept < cap.max(1));
            kept += usize::from(keep);
            !keep
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, created: i64, baked_for: &str, in_use: bool) -> ImageRow {
        ImageRow {
            name: name.to_owned(),
            id: format!("sha256:{created}"),
            size: 1,
            created,
            baked_for: Some(baked_for.to_owned()),
            in_use,
        }
    }

    #[test]
    fn only_old_unused_baked_images_are_spare() {
        let rows = vec![
            row("wharf/baked:e", 5, "a", false),
            row("wharf/baked:d", 4, "a", false),
            row("wharf/baked:c", 3, "a", false),
            row("wharf/baked:b", 2, "a", true),
            row("wharf/python:a", 1, "", false),
        ];
        let names = |cap| {
            let spare = spare(rows.clone(), cap);
            spare.into_iter().map(|row| row.name).collect::<Vec<_>>()
        };
        assert_eq!(names(2), ["wharf/baked:c"]);
        assert_eq!(names(9), [""; 0]);
        assert_eq!(names(0), ["wharf/baked:d", "wharf/baked:c"]);
    }
}
