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
        let of = |status| {
            let of = differences.iter().filter(move |d| d.status == status);
            of.map(|difference| &difference.path)
        };
        // A folder that becomes a file, or the other way round, is the base's own: what was in it goes.
        let goes = |at: &[u8]| of(DifferenceStatus::Deleted).any(|gone| path::is_within(at, gone));
        let standing = of(DifferenceStatus::Added).filter(|at| match root.find(at) {
            Ok(Found::Absent) => false,
            Ok(Found::Directory) => !goes(at),
            Ok(Found::Blocked(above)) => !goes(&above),
            Ok(Found::File | Found::Link | Found::Other(_)) | Err(_) => true,
        });
        Ok(standing.map(|at| path::display(at)).collect())
    }
}
