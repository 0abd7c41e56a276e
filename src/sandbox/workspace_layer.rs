//! A layer of the image that holds a large workspace whole, so that agents do not wait for it.
//!
//! It is made the way a sandbox is opened: the tree goes to a container's toolbox, which proves that
//! it lies there, and the container is committed. What the toolbox of a container on that image sees
//! of it becomes the ledger, which a second commit puts beside the toolbox. Whoever makes the same
//! layer at the same time makes it in containers of its own; the name goes to the last one, and both
//! hold the same.

use std::sync::Arc;

use bollard::query_parameters::UploadToContainerOptionsBuilder;
use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;
use wharf_toolbox::ledger::{self, Entry, Kind};

use super::build::packing;
use super::call::{self, LONG};
use super::commit::{Committed, commit};
use super::docker::Docker;
use super::image::{inspect, short_hash};
use super::remote_tree::{self, Below, Sent, wire_mode};
use super::vacant::{Layer, Vacancy};
use super::{Error, Labels, Network, Progress, Spec, Tree};
use super::{container, open, profile, shelf};

/// The repository of layers; a tag is the key of what one holds.
pub(super) const LAYERS: &str = "wharf/layer";
/// Changes when layers are made otherwise, so that older ones are not taken for equal.
const FORMAT: &[u8] = b"2";

/// Gives the layer of the tree on the spec's image, made now unless the engine has it.
pub(super) async fn make(
    docker: &Docker,
    spec: &Spec,
    tree: Arc<Tree>,
    progress: &dyn Progress,
    cancel: &CancellationToken,
) -> Result<Layer, Error> {
    let name = name(&tree);
    let history = spec.history.as_ref().map_or("", |history| &history.tip);
    let key = short_hash(&[
        FORMAT,
        spec.image.id.as_bytes(),
        name.as_bytes(),
        history.as_bytes(),
    ]);
    let layer = Layer {
        image: format!("{LAYERS}:{key}"),
        base: spec.image.id.clone(),
        name,
        tree,
    };
    let work = async {
        if stands(docker, &layer).await? {
            return Ok(());
        }
        let turn = async { docker.layers.acquire().await.map_err(|_| Error::Cancelled) };
        let _turn = call::unless(cancel, turn).await?;
        if stands(docker, &layer).await? {
            return Ok(());
        }
        let maker = Maker {
            docker,
            spec: bare(spec),
            layer: &layer,
            key: &key,
            cancel,
        };
        maker.run(progress).await
    };
    work.await.map(|()| layer)
}

/// Names a tree by all that is known of it without reading its contents.
fn name(tree: &Tree) -> String {
    let mut hash = Sha256::new();
    for (path, entry) in &tree.entries {
        hash.update((path.len() as u64).to_be_bytes());
        hash.update(path);
        hash.update(format!("{:?} {} {}\n", entry.mode, entry.size, entry.id));
    }
    let digest = hash.finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn stands(docker: &Docker, layer: &Layer) -> Result<bool, Error> {
    let found = inspect(docker, &layer.image).await?.is_some();
    if found {
        shelf::used(docker, &layer.image).await;
    }
    Ok(found)
}

/// A sandbox of the run with nothing of one role: its environment would be the image's.
fn bare(spec: &Spec) -> Spec {
    Spec {
        env: std::collections::BTreeMap::new(),
        network: Network::None,
        labels: Labels {
            subtask: "layer".to_owned(),
            ..spec.labels.clone()
        },
        ..spec.clone()
    }
}

struct Maker<'a> {
    docker: &'a Docker,
    spec: Spec,
    layer: &'a Layer,
    key: &'a str,
    cancel: &'a CancellationToken,
}

impl Maker<'_> {
    async fn run(mut self, progress: &dyn Progress) -> Result<(), Error> {
        let files = self.layer.tree.entries.len();
        progress.say(&format!(
            "layer: putting {files} files into the image (1/2)"
        ));
        let vacancy = open::start(self.docker, &self.spec, None, self.cancel).await?;
        let filled = call::unless(self.cancel, self.fill(&vacancy)).await;
        vacancy.end().await;
        let (image, sent) = filled?;
        self.spec.image.id = image;
        self.spec.history = None;

        progress.say("layer: noting how they lie there (2/2)");
        let mut vacancy = open::start(self.docker, &self.spec, None, self.cancel).await?;
        vacancy.without_git();
        let told = call::unless(self.cancel, self.look(&vacancy)).await;
        vacancy.end().await;
        let entries =
            proved(&self.layer.tree, &sent.hashes, told?).map_err(|path| Error::Engine {
                operation: "making a layer of the workspace",
                reason: format!(
                    "the image does not hold {:?}",
                    String::from_utf8_lossy(&path)
                ),
            })?;
        self.note(&entries).await
    }

    /// Puts the tree into a container and commits it; the id of what became of it.
    async fn fill(&self, vacancy: &Vacancy) -> Result<(String, Sent), Error> {
        let sent = vacancy
            .remote()
            .send(Below::Nothing, &self.layer.tree)
            .await?;
        let image = self.commit(vacancy.container(), None).await?;
        Ok((image, sent))
    }

    /// What a container on the committed image sees of the tree.
    async fn look(&self, vacancy: &Vacancy) -> Result<Vec<Entry>, Error> {
        let below = Below::Looked(&self.layer.tree);
        vacancy.remote().send(below, &self.layer.tree).await?;
        vacancy.remote().ledger().await
    }

    /// Puts the ledger into the image and gives it the layer's name.
    async fn note(&self, entries: &[Entry]) -> Result<(), Error> {
        let tar = packed(&self.layer.name, entries)?;
        let body = profile::profile(&self.spec, &self.docker.info.facts, None);
        let id = container::create(self.docker, body, self.cancel).await?;
        let work = async {
            let options = UploadToContainerOptionsBuilder::new().path("/").build();
            let body = bollard::body_full(tar);
            let call = self
                .docker
                .api
                .upload_to_container(&id, Some(options), body);
            call::bounded("putting a layer's ledger into an image", LONG, call).await?;
            self.commit(&id, Some((LAYERS, self.key))).await
        };
        let done = call::unless(self.cancel, work).await;
        container::remove(self.docker, &id).await;
        done.map(drop)
    }

    async fn commit(&self, container: &str, name: Option<(&str, &str)>) -> Result<String, Error> {
        let committed = Committed {
            container,
            name,
            kind: "layer",
            made_for: &self.spec.image.name,
            more: Vec::new(),
            allowance: remote_tree::allowance(&self.layer.tree),
        };
        commit(self.docker, committed).await
    }
}

/// The ledger's entries with the hashes that were sent; `Err` is a path of the tree that does not
/// lie in the image as it was sent.
fn proved(tree: &Tree, hashes: &[[u8; 32]], told: Vec<Entry>) -> Result<Vec<Entry>, Vec<u8>> {
    let mut entries = Vec::with_capacity(told.len());
    let mut wanted = tree.entries.iter().zip(hashes).peekable();
    for mut entry in told {
        if let Kind::Carried(stamp, hash) = &mut entry.kind {
            let Some(((path, file), sent)) = wanted.next() else {
                return Err(entry.path);
            };
            let same = *path == entry.path
                && stamp.size == file.size
                && stamp.kind() == Some(wire_mode(file.mode));
            if !same {
                return Err(path.clone());
            }
            *hash = *sent;
        }
        entries.push(entry);
    }
    match wanted.next() {
        Some(((path, _), _)) => Err(path.clone()),
        None => Ok(entries),
    }
}

/// A tar of the ledger at its place.
fn packed(name: &str, entries: &[Entry]) -> Result<Bytes, Error> {
    let text = ledger::write(name, entries).map_err(|fault| Error::Engine {
        operation: "writing a layer's ledger",
        reason: fault.to_string(),
    })?;
    let mut header = tar::Header::new_gnu();
    header.set_size(text.len() as u64);
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    let path = ledger::PATH.trim_start_matches('/');
    let mut tar = tar::Builder::new(Vec::new());
    tar.append_data(&mut header, path, text.as_slice())
        .map_err(packing)?;
    Ok(Bytes::from(tar.into_inner().map_err(packing)?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use futures::StreamExt;
    use futures::stream::BoxStream;
    use wharf_toolbox::stamp::Stamp;

    use super::super::{Contents, Entry as File, Mode};
    use super::*;

    struct Nothing;

    impl Contents for Nothing {
        fn read(&self, _: Vec<String>) -> BoxStream<'static, std::io::Result<Bytes>> {
            futures::stream::empty().boxed()
        }
    }

    fn tree(files: &[(&str, Mode, u64, &str)]) -> Tree {
        let entries = files.iter().map(|(path, mode, size, id)| {
            let (mode, size, id) = (*mode, *size, (*id).to_owned());
            (path.as_bytes().to_vec(), File { mode, size, id })
        });
        Tree {
            entries: entries.collect::<BTreeMap<_, _>>(),
            contents: Arc::new(Nothing),
        }
    }

    fn told(path: &str, mode: u32, size: u64) -> Entry {
        let stamp = Stamp {
            changed: (1, 0),
            inode: 1,
            size,
            mode,
        };
        Entry {
            path: path.as_bytes().to_vec(),
            kind: Kind::Carried(stamp, [0; 32]),
        }
    }

    #[test]
    fn a_tree_has_another_name_for_every_difference() {
        let names = [
            name(&tree(&[("a", Mode::File, 1, "x")])),
            name(&tree(&[("b", Mode::File, 1, "x")])),
            name(&tree(&[("a", Mode::Executable, 1, "x")])),
            name(&tree(&[("a", Mode::File, 2, "x")])),
            name(&tree(&[("a", Mode::File, 1, "y")])),
            name(&tree(&[])),
        ];
        let distinct: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
    }

    #[test]
    fn an_image_that_lacks_or_changed_a_file_is_no_layer() {
        let tree = tree(&[("a", Mode::File, 1, "x"), ("b", Mode::Executable, 2, "y")]);
        let hashes = [[1; 32], [2; 32]];
        let (a, b) = (told("a", 0o100_644, 1), told("b", 0o100_755, 2));
        let out = Entry {
            path: b"junk/".to_vec(),
            kind: Kind::LeftOut,
        };
        let whole = proved(&tree, &hashes, vec![a.clone(), b.clone(), out]).unwrap();
        let hash = |entry: &Entry| match entry.kind {
            Kind::Carried(_, hash) => hash[0],
            _ => 0,
        };
        assert_eq!(whole.iter().map(hash).collect::<Vec<_>>(), [1, 2, 0]);
        for (entries, missing) in [
            (vec![a.clone()], "b"),
            (vec![b.clone()], "a"),
            (vec![a.clone(), told("b", 0o100_644, 2)], "b"),
            (vec![a.clone(), told("b", 0o100_755, 3)], "b"),
            (vec![a, b, told("c", 0o100_644, 1)], "c"),
        ] {
            assert_eq!(proved(&tree, &hashes, entries), Err(missing.into()));
        }
    }
}
