//! The one writer of a run's journal: a thread that batches lines and syncs once a batch.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::mask::Mask;
use super::read::{chain, read, sealed};
use super::{Error, Event, beside};

/// Appends events; cheap to clone. An append returns once its line is on disk.
#[derive(Clone)]
pub struct Writer {
    queue: mpsc::UnboundedSender<Job>,
    mask: Arc<Mask>,
}

/// The writer's thread, to be joined after the last `Writer` is dropped.
pub struct Handle {
    thread: std::thread::JoinHandle<()>,
}

struct Job {
    /// None: only a wait for what was queued before.
    event: Option<Event>,
    done: Option<oneshot::Sender<Result<u64, String>>>,
}

impl Writer {
    /// Creates or goes on with the journal at `path`; a torn tail is cut off first and its length returned.
    pub fn open(path: &Path) -> Result<(Self, Handle, u64), Error> {
        Self::masking(path, &[])
    }

    /// `open`, and none of these values is ever written.
    pub fn masking(path: &Path, secrets: &[String]) -> Result<(Self, Handle, u64), Error> {
        let io = |operation| {
            let path = path.to_owned();
            move |source| Error::Io {
                operation,
                path,
                source,
            }
        };
        // It holds all that models said: for its owner alone.
        let mut file = OpenOptions::new()
            .mode(0o600)
            .create(true)
            .append(true)
            .read(true)
            .open(path)
            .map_err(io("open"))?;
        let found = read(path)?;
        if found.torn > 0 {
            file.set_len(found.whole)
                .map_err(io("cut the torn tail of"))?;
        }
        let ends_without_newline =
            found.whole > 0 && std::fs::read(path).map_err(io("read"))?.last() != Some(&b'\n');
        if ends_without_newline {
            file.write_all(b"\n").map_err(io("append to"))?;
        }
        file.sync_all().map_err(io("sync"))?;
        sync_folder(path).map_err(io("sync the folder of"))?;
        let (queue, jobs) = mpsc::unbounded_channel();
        let mask = Arc::new(Mask::new(secrets));
        let tail = Tail {
            file,
            path: path.to_owned(),
            seq: found.lines.len() as u64,
            prev: found.chain,
            length: found.whole + u64::from(ends_without_newline),
            mask: mask.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || write_all(tail, jobs))
            .map_err(io("start the writer of"))?;
        Ok((Self { queue, mask }, Handle { thread }, found.torn))
    }

    /// What else is written beside the journal holds as little of the secrets as its lines do.
    pub fn mask(&self, value: &mut serde_json::Value) {
        self.mask.value(value);
    }

    /// Appends one event; returns its number once it is on disk.
    pub async fn append(&self, event: Event) -> Result<u64, Error> {
        self.send(Some(event)).await
    }

    async fn send(&self, event: Option<Event>) -> Result<u64, Error> {
        let (done, written) = oneshot::channel();
        let closed = |reason: &str| Error::Closed {
            reason: reason.to_owned(),
        };
        self.queue
            .send(Job {
                event,
                done: Some(done),
            })
            .map_err(|_| closed("its writer ended"))?;
        match written.await {
            Ok(Ok(seq)) => Ok(seq),
            Ok(Err(reason)) => Err(closed(&reason)),
            Err(_) => Err(closed("its writer ended")),
        }
    }

    /// Waits until everything queued so far is on disk.
    pub async fn flush(&self) -> Result<(), Error> {
        self.send(None).await.map(|_| ())
    }

    /// Appends one event whose loss in a crash would change nothing; a failure shows at the next `append`.
    pub fn note(&self, event: Event) {
        // A closed queue is reported by the next acknowledged append.
        drop(self.queue.send(Job {
            event: Some(event),
            done: None,
        }));
    }
}

impl Handle {
    /// Waits until everything queued is on disk. Every `Writer` must be dropped before.
    pub async fn close(self) {
        let joined = tokio::task::spawn_blocking(move || self.thread.join()).await;
        if !matches!(joined, Ok(Ok(()))) {
            tracing::warn!("the journal's writer ended by a panic");
        }
    }
}

struct Tail {
    file: File,
    path: PathBuf,
    seq: u64,
    prev: String,
    /// Bytes of whole lines.
    length: u64,
    mask: Arc<Mask>,
}

/// A line on its way to disk; `Line` reads it.
#[derive(serde::Serialize)]
struct Outgoing<'a> {
    seq: u64,
    at: jiff::Timestamp,
    prev: &'a str,
    #[serde(flatten)]
    event: &'a Event,
}

fn write_all(mut tail: Tail, mut jobs: mpsc::UnboundedReceiver<Job>) {
    let mut broken: Option<String> = None;
    while let Some(first) = jobs.blocking_recv() {
        let mut batch = vec![first];
        while batch.len() < 256 {
            match jobs.try_recv() {
                Ok(job) => batch.push(job),
                Err(_) => break,
            }
        }
        let before = tail.seq;
        let outcome = match &broken {
            Some(reason) => Err(reason.clone()),
            None => tail.append(&mut batch),
        };
        if let Err(reason) = &outcome {
            broken = Some(reason.clone());
        }
        let mut seq = before;
        for job in batch {
            seq += u64::from(job.event.is_some());
            if let Some(done) = job.done {
                // The appender may have been cancelled; the line stands all the same.
                drop(done.send(outcome.clone().map(|()| seq)));
            }
        }
    }
}

impl Tail {
    /// Writes a batch with one sync. After a failure the file is cut back to its last whole line, as
    /// far as that can be done, so that a full disk leaves no torn middle.
    fn append(&mut self, batch: &mut [Job]) -> Result<(), String> {
        let (mut seq, mut prev) = (self.seq, self.prev.clone());
        let mut bytes = Vec::new();
        for job in batch {
            let Some(event) = &mut job.event else {
                continue;
            };
            seq += 1;
            let text = self.line(seq, &prev, event)?;
            prev = chain(text.as_bytes());
            bytes.extend_from_slice(text.as_bytes());
            bytes.push(b'\n');
        }
        let written = self
            .file
            .write_all(&bytes)
            .and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            drop(self.file.set_len(self.length));
            return Err(self.say("append to", &error));
        }
        self.length += bytes.len() as u64;
        (self.seq, self.prev) = (seq, prev);
        Ok(())
    }

    /// An event as its line; what it holds beside that is on disk by then.
    fn line(&self, seq: u64, prev: &str, event: &mut Event) -> Result<String, String> {
        let encode = |error: serde_json::Error| format!("encode an event: {error}");
        let line = |event: &Event| {
            let at = jiff::Timestamp::now();
            serde_json::to_string(&Outgoing {
                seq,
                at,
                prev,
                event,
            })
        };
        let mut text = line(event).map_err(encode)?;
        if self.mask.hits(&text) {
            let mut value = serde_json::to_value(&*event).map_err(encode)?;
            self.mask.value(&mut value);
            *event = serde_json::from_value(value).map_err(encode)?;
            text = line(event).map_err(encode)?;
        }
        if text.len() > beside::LARGEST && beside::may_be_large(event) {
            let dir = self.path.parent().unwrap_or(Path::new("."));
            beside::put(dir, event).map_err(|error| self.say("keep an output beside", &error))?;
            text = line(event).map_err(encode)?;
        }
        Ok(sealed(&text))
    }

    fn say(&self, operation: &str, error: &std::io::Error) -> String {
        format!("{operation} {}: {error}", self.path.display())
    }
}

fn sync_folder(path: &Path) -> std::io::Result<()> {
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[tokio::test]
    async fn a_journal_is_its_owner_s_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let (writer, handle, _) = Writer::open(&path).unwrap();
        drop(writer);
        handle.close().await;
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[tokio::test]
    async fn what_was_appended_is_read_back_and_goes_on_after_a_torn_tail() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let (writer, handle, torn) = Writer::open(&path).unwrap();
        assert_eq!(torn, 0);
        for n in 1..=3 {
            let seq = writer
                .append(Event::Warned {
                    text: n.to_string(),
                })
                .await
                .unwrap();
            assert_eq!(seq, n);
        }
        drop(writer);
        handle.close().await;

        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"seq\":4,\"at\":\"2026").unwrap();
        let (writer, handle, torn) = Writer::open(&path).unwrap();
        assert_eq!(torn, 19);
        writer
            .append(Event::RoundStarted { round: 1 })
            .await
            .unwrap();
        drop(writer);
        handle.close().await;
        let found = read(&path).unwrap();
        assert_eq!(found.lines.len(), 4);
        assert_eq!(found.lines[3].event, Event::RoundStarted { round: 1 });
    }
}
