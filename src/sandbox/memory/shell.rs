//! The shell of the sandbox in memory: words, steps, and what each does to the files.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use super::{Mode, relative};

/// Files by path.
pub(super) type Files = BTreeMap<Vec<u8>, (Mode, Bytes)>;

/// A line under way.
pub(super) struct Shell {
    steps: VecDeque<Step>,
    /// Of the last step.
    pub status: i32,
    /// What was printed.
    pub stdout: Vec<u8>,
    /// What went wrong.
    pub stderr: Vec<u8>,
}

struct Step {
    words: Vec<String>,
    /// Skipped after a step that failed.
    only_after_success: bool,
}

impl Shell {
    /// A line that has not begun.
    pub fn new(line: &str) -> Shell {
        Shell {
            steps: steps(line),
            status: 0,
            stdout: Vec::new(),
            stderr: Vec::new(),
        }
    }

    /// Goes on until the end, or until a pause that the caller has to wait for.
    pub fn step(&mut self, files: &mut Files) -> Option<Duration> {
        while let Some(Step {
            words,
            only_after_success,
        }) = self.steps.pop_front()
        {
            if only_after_success && self.status != 0 {
                continue;
            }
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            match words.as_slice() {
                [] => {}
                ["sleep", seconds] => match seconds.parse().map(Duration::try_from_secs_f64) {
                    Ok(Ok(pause)) => {
                        self.status = 0;
                        return Some(pause);
                    }
                    _ => self.status = 1,
                },
                ["exit", code] => {
                    self.status = code.parse().unwrap_or(2);
                    self.steps.clear();
                }
                words => self.status = self.simple(words, files),
            }
        }
        None
    }

    fn simple(&mut self, words: &[&str], files: &mut Files) -> i32 {
        match words {
            ["true"] => 0,
            ["false"] => 1,
            ["echo", text @ .., ">", file] => self.put(files, file, Bytes::new(), text),
            ["echo", text @ .., ">>", file] => {
                let before = self.content(files, file).unwrap_or_default();
                self.put(files, file, before, text)
            }
            ["echo", text @ ..] => {
                self.stdout
                    .extend_from_slice(format!("{}\n", text.join(" ")).as_bytes());
                0
            }
            ["cat", file] => match self.content(files, file) {
                Some(content) => {
                    self.stdout.extend_from_slice(&content);
                    0
                }
                None => self.missing("cat", file),
            },
            ["rm", file] => match relative(file).ok().and_then(|path| files.remove(&path)) {
                Some(_) => 0,
                None => self.missing("rm", file),
            },
            ["test", "-f", file] => i32::from(self.content(files, file).is_none()),
            ["grep", "-q", text, file] => match self.content(files, file) {
                Some(content) => i32::from(!String::from_utf8_lossy(&content).contains(text)),
                None => self.missing("grep", file) + 1,
            },
            other => {
                let name = other.first().copied().unwrap_or_default();
                self.stderr
                    .extend_from_slice(format!("sh: {name}: not found\n").as_bytes());
                127
            }
        }
    }

    fn content(&self, files: &Files, file: &str) -> Option<Bytes> {
        files
            .get(&relative(file).ok()?)
            .map(|(_, content)| content.clone())
    }

    fn put(&mut self, files: &mut Files, file: &str, before: Bytes, text: &[&str]) -> i32 {
        let Ok(path) = relative(file) else {
            return self.missing("sh", file);
        };
        let content = [before.as_ref(), text.join(" ").as_bytes(), b"\n"].concat();
        let mode = files.get(&path).map_or(Mode::File, |(mode, _)| *mode);
        files.insert(path, (mode, content.into()));
        0
    }

    fn missing(&mut self, program: &str, file: &str) -> i32 {
        let line = format!("{program}: {file}: No such file or directory\n");
        self.stderr.extend_from_slice(line.as_bytes());
        1
    }
}

/// Cuts a line into steps of words; quotes keep blanks and operators, and are taken off.
fn steps(line: &str) -> VecDeque<Step> {
    let mut steps = VecDeque::from([Step {
        words: Vec::new(),
        only_after_success: false,
    }]);
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (' ' | '\t' | '\n' | ';' | '>', None) => {
                end_word(&mut steps, &mut word);
                if matches!(c, '\n' | ';') {
                    steps.push_back(Step {
                        words: Vec::new(),
                        only_after_success: false,
                    });
                } else if c == '>' {
                    let operator = if chars.next_if_eq(&'>').is_some() {
                        ">>"
                    } else {
                        ">"
                    };
                    end_word(&mut steps, &mut Some(operator.to_owned()));
                }
            }
            ('&', None) if chars.next_if_eq(&'&').is_some() => {
                end_word(&mut steps, &mut word);
                steps.push_back(Step {
                    words: Vec::new(),
                    only_after_success: true,
                });
            }
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    end_word(&mut steps, &mut word);
    steps
}

fn end_word(steps: &mut VecDeque<Step>, word: &mut Option<String>) {
    if let (Some(step), Some(word)) = (steps.back_mut(), word.take()) {
        step.words.push(word);
    }
}
