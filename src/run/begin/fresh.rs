//! A run's directory before the run has begun: gone again when it never does.

use std::path::PathBuf;

/// Removes the directory when dropped, unless the run has begun by then.
pub(in crate::run) struct Fresh(Option<PathBuf>);

impl Fresh {
    /// Of a directory that was made just now, for this run alone.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self(Some(dir.into()))
    }

    /// What happens from now on can be read in it.
    pub fn begun(mut self) {
        self.0 = None;
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if let Some(dir) = self.0.take()
            && let Err(error) = std::fs::remove_dir_all(&dir)
        {
            tracing::warn!(dir = %dir.display(), %error, "a run that did not begin left its directory");
        }
    }
}
