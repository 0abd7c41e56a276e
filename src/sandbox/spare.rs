//! Which cached images may go so that the rest keeps within a size: oldest last use first.

use std::collections::BTreeSet;

use super::shelf::ImageRow;

/// Seconds after its last use during which an image may still be wanted by a run that has no
/// container of it at the moment.
const FRESH: i64 = 3600;

/// The images to remove, in this order, so that those that stay have at most `cap` bytes. Never one
/// that a container uses, that another one stands on, or that was used within the last hour; one
/// that lost its name to a twin goes at once.
pub(super) fn spare(rows: Vec<ImageRow>, cap: u64, now: i64) -> Vec<ImageRow> {
    let (lost, mut rows): (Vec<_>, Vec<_>) = rows
        .into_iter()
        .filter(|row| row.cached)
        .partition(|row| row.name == row.id);
    let mut gone: Vec<ImageRow> = lost.into_iter().filter(|row| !row.in_use).collect();
    rows.sort_by(|a, b| a.last_used.cmp(&b.last_used).then(a.name.cmp(&b.name)));
    let mut total: u64 = rows.iter().map(|row| row.own).sum();
    while total > cap {
        let beneath: BTreeSet<String> = rows.iter().flat_map(|row| row.beneath.clone()).collect();
        let may_go = |row: &ImageRow| {
            !row.in_use && !beneath.contains(&row.id) && now.saturating_sub(row.last_used) >= FRESH
        };
        let Some(at) = rows.iter().position(may_go) else {
            break;
        };
        let row = rows.remove(at);
        total = total.saturating_sub(row.own);
        gone.push(row);
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, last_used: i64, own: u64) -> ImageRow {
        ImageRow {
            name: name.to_owned(),
            id: format!("sha256:{name}"),
            size: own,
            own,
            created: 0,
            last_used,
            made_for: Some("x".to_owned()),
            cached: true,
            in_use: false,
            beneath: Vec::new(),
        }
    }

    fn names(rows: &[ImageRow], cap: u64) -> Vec<String> {
        let spare = spare(rows.to_vec(), cap, 100_000);
        spare.into_iter().map(|row| row.name).collect()
    }

    #[test]
    fn the_oldest_go_until_the_rest_fits() {
        let rows = [row("c", 30, 10), row("a", 10, 10), row("b", 20, 10)];
        assert_eq!(names(&rows, 30), [""; 0]);
        assert_eq!(names(&rows, 29), ["a"]);
        assert_eq!(names(&rows, 10), ["a", "b"]);
        assert_eq!(names(&rows, 0), ["a", "b", "c"]);
    }

    #[test]
    fn what_is_used_or_was_just_now_stays_whatever_the_cap() {
        let mut used = row("used", 10, 10);
        used.in_use = true;
        let mut base = row("base", 20, 0);
        base.cached = false;
        assert_eq!(names(&[used, row("new", 99_000, 10), base], 0), [""; 0]);
    }

    #[test]
    fn what_another_stands_on_goes_after_it() {
        let baked = row("baked", 10, 10);
        let layer = ImageRow {
            beneath: vec![baked.id.clone()],
            ..row("layer", 20, 10)
        };
        assert_eq!(names(&[baked.clone(), layer.clone()], 15), ["layer"]);
        assert_eq!(
            names(&[baked.clone(), layer.clone()], 5),
            ["layer", "baked"]
        );
        let used = ImageRow {
            in_use: true,
            ..layer
        };
        assert_eq!(names(&[baked, used], 0), [""; 0]);
    }

    #[test]
    fn one_that_lost_its_name_goes_though_there_is_room() {
        let nameless = row("sha256:x", 99_999, 1);
        let nameless = ImageRow {
            id: nameless.name.clone(),
            ..nameless
        };
        let used = ImageRow {
            in_use: true,
            ..nameless.clone()
        };
        assert_eq!(names(&[nameless], u64::MAX), ["sha256:x"]);
        assert_eq!(names(&[used], u64::MAX), [""; 0]);
    }
}
