//! What the workspace stands at: which tree by name, and what of it is still to be read from the
//! ledger of the image's layer.

use std::io::Read;
use std::path::Path;

use wharf_toolbox::ledger::{self, Entry, Front, Kind};

use crate::link::Channel;
use crate::records::Stop;
use crate::tree::Workspace;
use crate::walk::{Known, Tree, walk};

/// A layer whose ledger was not read yet, and what was learned since.
pub struct Unread {
    front: Front,
    later: Vec<(Vec<u8>, Option<Known>)>,
}

impl Workspace {
    /// Makes sure that the workspace is at the tree of this name: the last one uploaded, or, before
    /// any, the one of the image's layer.
    pub fn stand_on(&mut self, name: &str) -> Result<(), Stop> {
        match &self.standing {
            Some(standing) if standing == name => return Ok(()),
            Some(_) => return Err(Stop::Failed("another tree lies in the workspace".into())),
            None => {}
        }
        let mut bytes = Vec::new();
        let read = std::fs::File::open(&self.ledger)
            .and_then(|file| file.take(4096).read_to_end(&mut bytes));
        let front = read.ok().and_then(|_| ledger::front(&bytes));
        match front {
            Some((front, _)) if front.name == name => {
                let later = Vec::new();
                self.unread = Some(Unread { front, later });
                Ok(())
            }
            _ => Err(Stop::Failed("the image has no layer of this tree".into())),
        }
    }

    /// The tree of this name lies in the workspace now.
    pub fn stands_at(&mut self, name: String) {
        self.standing = Some(name);
    }

    /// What was known is void; this is known instead.
    pub fn forget(&mut self, tree: Tree) {
        self.unread = None;
        self.base.clear();
        self.gone.clear();
        self.known = tree;
    }

    /// Takes up what an upload made of single paths.
    pub fn learn(&mut self, paths: Vec<(Vec<u8>, Option<Known>)>) {
        match &mut self.unread {
            Some(unread) => unread.later.extend(paths),
            None => enter(&mut self.known, paths),
        }
    }

    /// Reads the layer's ledger if that was not done yet: whatever looks at files needs it.
    pub fn load(&mut self) -> Result<(), Stop> {
        let Some(unread) = self.unread.take() else {
            return Ok(());
        };
        let Some(entries) = whole(&self.ledger, &unread.front) else {
            self.unread = Some(unread);
            return Err(Stop::Failed("the layer's ledger cannot be read".into()));
        };
        // Sorted by path, from which a tree is made at once.
        let mut known = Vec::with_capacity(entries.len());
        for Entry { path, kind } in entries {
            let (stamp, hash) = match kind {
                Kind::Carried(stamp, hash) => (stamp, Some(hash)),
                Kind::Image(stamp) => (stamp, None),
                Kind::LeftOut => {
                    self.base.insert(path);
                    continue;
                }
            };
            let carried = hash.is_some();
            known.push((
                path,
                Known {
                    stamp,
                    hash,
                    carried,
                    young: false,
                },
            ));
        }
        self.known = known.into_iter().collect();
        enter(&mut self.known, unread.later);
        Ok(())
    }

    /// Takes what else lies in the workspace for the image's own.
    pub fn settle(&mut self) {
        let found = walk(self.root(), &self.known, &self.gone);
        self.base
            .extend(found.left_out.into_iter().map(|(path, _)| path));
        for (path, stamp, _) in found.entries {
            self.known.entry(path).or_insert_with(|| Known {
                stamp,
                hash: None,
                carried: false,
                young: stamp.young(),
            });
        }
    }

    /// How many files the tree has; may count a file of a layer twice that was put again.
    pub fn size(&self) -> usize {
        let carried = |known: &&Known| known.carried;
        match &self.unread {
            None => self.known.values().filter(carried).count(),
            Some(Unread { front, later }) => front.files + later.len(),
        }
    }

    /// Sends what is known as the entries of a ledger; a hash that was not seen is all zeros.
    pub fn tell(&mut self, channel: &Channel) -> Result<(), Stop> {
        self.load()?;
        let mut bytes = Vec::new();
        let known = self.known.iter().map(|(path, known)| {
            let kind = match known.carried {
                true => Kind::Carried(known.stamp, known.hash.unwrap_or_default()),
                false => Kind::Image(known.stamp),
            };
            (path, kind)
        });
        for (path, kind) in known.chain(self.base.iter().map(|path| (path, Kind::LeftOut))) {
            let path = path.clone();
            ledger::encode(&Entry { path, kind }, &mut bytes)?;
        }
        Ok(channel.write(&bytes)?)
    }
}

fn enter(tree: &mut Tree, paths: Vec<(Vec<u8>, Option<Known>)>) {
    for (path, known) in paths {
        match known {
            Some(known) => drop(tree.insert(path, known)),
            None => drop(tree.remove(&path)),
        }
    }
}

fn whole(path: &Path, front: &Front) -> Option<Vec<Entry>> {
    let file = std::fs::File::open(path).ok()?;
    let mut bytes = Vec::new();
    file.take(ledger::MOST).read_to_end(&mut bytes).ok()?;
    let (read, entries) = ledger::read(&bytes)?;
    (read == *front).then_some(entries)
}
