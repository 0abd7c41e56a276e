//! Progress while a run goes on: one thread owns the terminal and the event stream, everybody else
//! sends to it and goes on.
//!
//! Owns: what is drawn on standard error during a run, the lines of `--events`, the keys of whoever is
//! asked for consent.
//! Takes: notices, questions and the live board of `run`, log lines.
//! Gives: a `run::Watch`.
//! Never: makes its callers wait.

mod bars;

use std::io::Write;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::approve::Questions;
use super::keyboard::Keyboard;
use super::{out, text, wording};
use crate::run::{Answer, Board, Notice, Question, Reply, Watch};
use bars::Bars;

/// Time between two drawings.
const FRAME: Duration = Duration::from_millis(200);

/// How long the thread may take to give the terminal back when nobody waits for the run.
const LEAVE: Duration = Duration::from_millis(500);

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
    /// None once it was waited for.
    thread: Option<JoinHandle<()>>,
    askable: bool,
}

/// Sends to that thread; cheap to clone.
#[derive(Clone)]
pub struct Teller {
    queue: mpsc::Sender<Said>,
    /// A person is at the terminal.
    askable: bool,
}

enum Said {
    Notice(Notice),
    Board(Arc<Board>),
    Text(String),
    Question(Box<Question>, Reply),
    Done,
}

impl Live {
    /// Takes over standard error.
    pub fn start(look: Look) -> std::io::Result<Self> {
        let (queue, said) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("progress".to_owned())
            .spawn(move || Screen::new(look).serve(&said))?;
        Ok(Self {
            queue,
            thread: Some(thread),
            askable: Keyboard::is_there(),
        })
    }

    /// A sender for the run, for signals and for log lines.
    pub fn teller(&self) -> Teller {
        Teller {
            queue: self.queue.clone(),
            askable: self.askable,
        }
    }

    /// Draws what is still queued and gives the terminal back.
    pub fn close(mut self) {
        drop(self.queue.send(Said::Done));
        // A panic in the thread was reported by the hook.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

impl Drop for Live {
    /// On the way out in a hurry: the terminal is given back as it was, unless that takes too long.
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        drop(self.queue.send(Said::Done));
        let since = Instant::now();
        while !thread.is_finished() && since.elapsed() < LEAVE {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Teller {
    /// True where a person can be asked.
    pub fn can_ask(&self) -> bool {
        self.askable
    }

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

    fn ask(&self, question: Question) -> Option<tokio::sync::oneshot::Receiver<Answer>> {
        if !self.askable {
            return None;
        }
        let (reply, answer) = tokio::sync::oneshot::channel();
        let asked = self.queue.send(Said::Question(Box::new(question), reply));
        asked.is_ok().then_some(answer)
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
    questions: Questions,
    /// The last prompt that was written where nothing moves.
    prompted: bool,
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
            questions: Questions::new(),
            prompted: false,
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
                Ok(Said::Question(question, reply)) => self.questions.add(*question, reply),
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    self.ask();
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

    /// Keeps the questions going; where nothing moves the prompt is a line of its own, once.
    fn ask(&mut self) {
        let turn = self.questions.turn();
        for line in &turn.lines {
            self.line(line);
        }
        if !turn.lines.is_empty() || turn.prompt.is_none() {
            self.prompted = false;
        }
        match (&mut self.bars, turn.prompt) {
            (Some(bars), prompt) => bars.prompt(prompt),
            (None, Some(prompt)) if !self.prompted => {
                self.prompted = true;
                self.line(&prompt);
            }
            (None, _) => {}
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
    match notice {
        Notice::AgentTurn { .. } => true,
        // What was consented to for the run would fill the screen.
        Notice::Decided { allowed, again, .. } => *allowed && *again,
        _ => false,
    }
}
