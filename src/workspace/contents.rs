//! File contents as a stream, one after another, from one git process.

use std::io;
use std::process::Stdio;

use bytes::{Bytes, BytesMut};
use futures::stream::{self, BoxStream, StreamExt};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};

use super::{Error, Store};
use crate::id::BlobId;

/// The largest chunk handed out, in bytes.
const CHUNK: usize = 64 * 1024;
/// Ids asked for at once: few enough that asking never fills the pipe while answers wait.
const GROUP: usize = 256;

struct Reader {
    // Held so that dropping the stream kills the process.
    _child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    blobs: std::vec::IntoIter<BlobId>,
    /// Answers still to come of what was asked.
    asked: usize,
    /// Bytes still to come of the current file, without the line break after it.
    left: u64,
    inside: bool,
}

impl Store {
    /// The contents of these blobs, in order, cut into chunks; a blob that is not there is an error.
    pub fn read(&self, blobs: Vec<BlobId>) -> BoxStream<'static, io::Result<Bytes>> {
        if blobs.is_empty() {
            return stream::empty().boxed();
        }
        match self.reader(blobs) {
            Ok(reader) => stream::try_unfold(reader, |mut reader| async move {
                Ok(reader.next().await?.map(|chunk| (chunk, reader)))
            })
            .boxed(),
            Err(error) => stream::once(async { Err(io::Error::other(error)) }).boxed(),
        }
    }

    /// The contents of these blobs, each whole, in order.
    pub(super) async fn read_all(&self, blobs: Vec<BlobId>) -> Result<Vec<Bytes>, Error> {
        if blobs.is_empty() {
            return Ok(Vec::new());
        }
        let mut contents = Vec::with_capacity(blobs.len());
        let mut reader = self.reader(blobs)?;
        while let Some(content) = reader
            .whole()
            .await
            .map_err(|source| self.read_error(source))?
        {
            contents.push(content);
        }
        Ok(contents)
    }

    fn read_error(&self, source: io::Error) -> Error {
        Error::Io {
            operation: "read contents from",
            path: self.dir.clone(),
            source,
        }
    }

    fn reader(&self, blobs: Vec<BlobId>) -> Result<Reader, Error> {
        let call = self.call("cat-file").args(["--batch", "--buffer"]);
        let mut child = self.git.spawn(&call, Stdio::piped(), Stdio::piped())?;
        let gone = || self.read_error(io::ErrorKind::BrokenPipe.into());
        // Nothing is read from stderr: its pipe is closed, what matters stands in the answers.
        drop(child.stderr.take());
        Ok(Reader {
            stdin: child.stdin.take().ok_or_else(gone)?,
            stdout: BufReader::with_capacity(CHUNK, child.stdout.take().ok_or_else(gone)?),
            _child: child,
            blobs: blobs.into_iter(),
            asked: 0,
            left: 0,
            inside: false,
        })
    }
}

impl Reader {
    /// The next chunk of any file; None after the last.
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if self.left > 0 {
                return self.chunk().await.map(Some);
            }
            if self.inside {
                self.inside = false;
                self.stdout.read_u8().await?;
            }
            if self.asked == 0 && !self.ask().await? {
                return Ok(None);
            }
            self.left = self.head().await?;
            self.asked -= 1;
            self.inside = true;
        }
    }

    /// The next file; None after the last.
    async fn whole(&mut self) -> io::Result<Option<Bytes>> {
        if self.asked == 0 && !self.ask().await? {
            return Ok(None);
        }
        let size = self.head().await?;
        self.asked -= 1;
        let mut content = Vec::new();
        (&mut self.stdout)
            .take(size)
            .read_to_end(&mut content)
            .await?;
        if content.len() as u64 != size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.stdout.read_u8().await?;
        Ok(Some(content.into()))
    }

    async fn chunk(&mut self) -> io::Result<Bytes> {
        let want = usize::try_from(self.left).map_or(CHUNK, |left| left.min(CHUNK));
        let mut buffer = BytesMut::with_capacity(want);
        let mut limited = (&mut self.stdout).take(want as u64);
        if limited.read_buf(&mut buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= buffer.len() as u64;
        Ok(buffer.freeze())
    }

    /// Asks for the next group; false when there is nothing left to ask.
    async fn ask(&mut self) -> io::Result<bool> {
        let mut text = String::new();
        for blob in self.blobs.by_ref().take(GROUP) {
            text.push_str(blob.as_str());
            text.push('\n');
            self.asked += 1;
        }
        if self.asked == 0 {
            return Ok(false);
        }
        self.stdin.write_all(text.as_bytes()).await?;
        self.stdin.flush().await?;
        Ok(true)
    }

    /// The size in `ID blob SIZE`.
    async fn head(&mut self) -> io::Result<u64> {
        let mut line = String::new();
        self.stdout.read_line(&mut line).await?;
        let mut words = line.split_whitespace().skip(1);
        match (words.next(), words.next().map(str::parse)) {
            (Some("blob"), Some(Ok(size))) => Ok(size),
            _ => Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("the store has no such content: {}", line.trim()),
            )),
        }
    }
}
