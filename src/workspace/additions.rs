//! Where a result adds a file and something stands already that the base does not hold: git ignored
//! it, or it came meanwhile.

use std::path::Path;

use super::disk::{Found, Root};
use super::{Difference, DifferenceStatus, Error, Store, path};

impl Store {
    /// New paths of a change at which something stands in the operator's directory, for display. What
    /// cannot be looked at may be there.
    pub fn in_the_way(&self, dir: &Path, differences: &[Difference]) -> Result<Vec<String>, Error> {
        let root = Root::open(dir)?;
        let added = differences
            .iter()
            .filter(|difference| difference.status == DifferenceStatus::Added);
        // A folder in the place of a file, or the other way round, may be the base's own: git asks there.
        let free =
            |found: &Found| matches!(found, Found::Absent | Found::Blocked(_) | Found::Directory);
        let standing = added.filter(|added| !root.find(&added.path).is_ok_and(|at| free(&at)));
        Ok(standing.map(|added| path::display(&added.path)).collect())
    }
}
