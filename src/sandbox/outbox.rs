//! What goes to one toolbox: queues by urgency, and the task that writes them to the stream.

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{
    UnboundedReceiver, UnboundedSender, WeakUnboundedSender, unbounded_channel,
};
use wharf_toolbox::seal::{self, Seals};
use wharf_toolbox::wire::{Frame, INSIDE, Kind};

use super::link::Word;
use super::{Break, Cause};

/// The queues to the writer; data is bounded by the toolbox's credit.
pub(super) struct Outbox {
    control: UnboundedSender<Frame>,
    data: UnboundedSender<Frame>,
    outward: UnboundedSender<Frame>,
}

/// Their other ends, in the order in which they are written.
pub(super) struct Inbox {
    control: UnboundedReceiver<Frame>,
    data: UnboundedReceiver<Frame>,
    outward: UnboundedReceiver<Frame>,
}

impl Inbox {
    async fn next(&mut self) -> Option<Frame> {
        tokio::select! {
            biased;
            Some(frame) = self.control.recv() => Some(frame),
            Some(frame) = self.data.recv() => Some(frame),
            Some(frame) = self.outward.recv() => Some(frame),
            else => None,
        }
    }

    /// What is queued already.
    fn ready(&mut self) -> Option<Frame> {
        let queued = self.control.try_recv().or_else(|_| self.data.try_recv());
        queued.or_else(|_| self.outward.try_recv()).ok()
    }
}

impl Outbox {
    /// The two ends of empty queues.
    pub(super) fn new() -> (Outbox, Inbox) {
        let (control, first) = unbounded_channel();
        let (data, second) = unbounded_channel();
        let (outward, third) = unbounded_channel();
        let inbox = Inbox {
            control: first,
            data: second,
            outward: third,
        };
        let outbox = Outbox {
            control,
            data,
            outward,
        };
        (outbox, inbox)
    }

    /// A writer that is gone has said so to the hub itself.
    pub(super) fn push(&self, frame: Frame) {
        // A close must not overtake the data before it.
        let queue = match frame.kind {
            Kind::Data | Kind::Close if frame.channel & INSIDE != 0 => &self.outward,
            Kind::Data | Kind::Close => &self.data,
            _ => &self.control,
        };
        let _ = queue.send(frame);
    }
}

/// Bytes that one write gathers.
const BATCH: usize = 64 << 10;

/// Writes what is queued until nobody can queue more, or the stream fails.
pub(super) async fn write(
    mut writer: impl AsyncWrite + Unpin,
    mut inbox: Inbox,
    mut seals: Option<Seals>,
    words: WeakUnboundedSender<Word>,
) {
    let mut bytes = Vec::new();
    while let Some(frame) = inbox.next().await {
        bytes.clear();
        seal::encode(&frame, &mut seals, &mut bytes);
        // What is queued already goes out in the same write, control first.
        while bytes.len() < BATCH {
            match inbox.ready() {
                Some(frame) => seal::encode(&frame, &mut seals, &mut bytes),
                None => break,
            }
        }
        let written = async {
            writer.write_all(&bytes).await?;
            writer.flush().await
        };
        if let Err(error) = written.await {
            if let Some(words) = words.upgrade() {
                let reason = format!("the stream cannot be written: {error}");
                let _ = words.send(Word::Break(Break::new(Cause::Engine, reason)));
            }
            return;
        }
    }
    // The toolbox takes the end of its input as the end of the sandbox; so does a failure here.
    let _ = writer.shutdown().await;
}
