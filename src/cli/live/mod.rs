//! Progress while a run goes on: one thread owns the terminal and the event stream, everybody else
//! sends to it and goes on.
//!
//! Owns: what is drawn on standard error during a run, and the lines of `--events`.
//! Takes: notices and the live board of `run`, log lines.
//! Gives: a `run::Watch`.
//! Never: makes its callers wait.

mod bars;

use std::io::Write;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{out, text, wording};
use crate::run::{Board, Notice, Watch};
use bars::Bars;

/// Time between two drawings.
const FRAME: Duration = Duration::from_millis(200);

/// How much is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noise {
    Quiet,
    Normal,
    Verbose,
}

/// What goes where.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    pub noise: Noise,
    /// Write each notice as an object to standard output.
    pub events: bool,
}

/// The thread that owns the terminal.
pub struct Live {
    queue: mpsc::Sender<Said>,
    thread: JoinHandle<()>,
}

/// Sends to that thread; cheap to clone.
#[derive(Clone)]
pub struct Teller {
    queue: mpsc::Sender<Said>,
}

enum Said {
    Notice(Notice),
    Board(Arc<Board>),
    Text(String),
    Done,
}

impl Live {
    /// Takes over standard error.
    pub fn start(look: Look) -> std::io::Result<Self> {
        let (queue, said) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("progress".to_owned())
            .spawn(move || Screen::new(look).serve(&said))?;
        Ok(Self { queue, thread })
    }

    /// A sender for the run, for signals and for log lines.
    pub fn teller(&self) -> Teller {
        Teller {
            queue: self.queue.clone(),
        }
    }

    /// Draws what is still queued and gives the terminal back.
    pub fn close(self) {
        drop(self.queue.send(Said::Done));
        // A panic in the thread was reported by the hook.
        drop(self.thread.join());
    }
}

impl Teller {
    /// Shows a line, whatever is drawn at the moment.
    pub fn text(&self, text: &str) {
        drop(self.queue.send(Said::Text(text.to_owned())));
    }
}

impl Watch for Teller {
    fn notice(&self, notice: &Notice) {
        drop(self.queue.send(Said::Notice(notice.clone())));
    }

    fn board(&self, board: Arc<Board>) {
        drop(self.queue.send(Said::Board(board)));
    }
}

/// A log line under way; it is sent when dropped.
pub struct LogLine {
    teller: Teller,
    bytes: Vec<u8>,
}

impl LogLine {
    /// An empty line.
    pub fn new(teller: Teller) -> Self {
        Self {
            teller,
            bytes: Vec::new(),
        }
    }
}

impl Write for LogLine {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for LogLine {
    fn drop(&mut self) {
        let line = String::from_utf8_lossy(&self.bytes);
        if !line.trim().is_empty() {
            self.teller.text(line.trim_end());
        }
    }
}

struct Screen {
    look: Look,
    started: Instant,
    board: Option<Arc<Board>>,
    /// None without a terminal or when lines are asked for.
    bars: Option<Bars>,
}

impl Screen {
    fn new(look: Look) -> Self {
        let bars = match look.noise {
            Noise::Normal => Bars::on_terminal(),
            Noise::Quiet | Noise::Verbose => None,
        };
        Self {
            look,
            started: Instant::now(),
            board: None,
            bars,
        }
    }

    fn serve(mut self, said: &mpsc::Receiver<Said>) {
        let mut drawn = Instant::now();
        loop {
            match said.recv_timeout(FRAME.saturating_sub(drawn.elapsed())) {
                Ok(Said::Done) | Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Ok(Said::Board(board)) => self.board = Some(board),
                Ok(Said::Notice(notice)) => self.show(&notice),
                Ok(Said::Text(text)) => self.line(&text),
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    self.draw();
                    drawn = Instant::now();
                }
            }
        }
        if let Some(bars) = self.bars {
            bars.clear();
        }
    }

    fn show(&mut self, notice: &Notice) {
        if self.look.events {
            // A reader that went away is no error, and there is nobody to tell of another one.
            drop(out::json(notice));
        }
        match (self.look.noise, is_detail(notice)) {
            (Noise::Quiet, _) | (Noise::Normal, true) => {}
            _ => self.line(&wording::notice(notice)),
        }
        if let (Some(bars), Notice::Started { run, model, .. }) = (&mut self.bars, notice) {
            bars.name(run, model);
        }
    }

    fn line(&self, line: &str) {
        let line = text::plain(line);
        match &self.bars {
            Some(bars) => bars.above(&line),
            None => out::note(&format!(
                "{:>7} {line}",
                text::elapsed(self.started.elapsed())
            )),
        }
    }

    fn draw(&mut self) {
        if let (Some(bars), Some(board)) = (&mut self.bars, &self.board) {
            bars.draw(board, self.started.elapsed());
        }
    }
}

/// True for notices that only `-v` shows as lines.
fn is_detail(notice: &Notice) -> bool {
    matches!(notice, Notice::AgentTurn { .. })
}
