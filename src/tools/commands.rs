//! The commands of a shell line, for rules to be held against: each of a compound one, and what stands
//! behind wrappers, in substitutions and in `sh -c`. A reading, not a shell: what it cannot read it says.

use super::shell::{Command, Scan, Word};

/// The deepest nesting that is followed.
const DEEPEST: usize = 8;

/// Words that only lead to a command.
const RESERVED: [&str; 16] = [
    "then", "do", "else", "elif", "if", "while", "until", "!", "{", "}", "time", "coproc", "fi",
    "done", "esac", "builtin",
];

/// Programs that run the command in their arguments: the options that take a value, and how many words
/// of their own come before the command.
const WRAPPERS: [(&str, &[&str], usize); 19] = [
    (
        "sudo",
        &[
            "-u", "-g", "-h", "-p", "-C", "-r", "-t", "-U", "-D", "-R", "-T",
        ],
        0,
    ),
    ("doas", &["-u", "-C"], 0),
    ("env", &["-u", "--unset", "-C", "--chdir"], 0),
    ("command", &[], 0),
    ("exec", &["-a"], 0),
    ("nohup", &[], 0),
    ("setsid", &[], 0),
    ("time", &["-f", "-o"], 0),
    ("nice", &["-n"], 0),
    ("ionice", &["-c", "-n", "-p"], 0),
    ("stdbuf", &["-i", "-o", "-e"], 0),
    ("timeout", &["-s", "-k", "--signal", "--kill-after"], 1),
    ("chroot", &[], 1),
    ("flock", &["-w", "-E"], 1),
    ("busybox", &[], 0),
    ("unbuffer", &[], 0),
    ("catchsegv", &[], 0),
    ("strace", &["-e", "-o", "-p", "-s"], 0),
    ("proxychains", &["-f"], 0),
];

const SHELLS: [&str; 8] = ["sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "rbash"];

/// Programs that run a command for what they read or find: theirs is a command beside.
const RUNNERS: [(&str, &[&str]); 4] = [
    ("xargs", &["-I", "-n", "-P", "-L", "-d", "-s", "-a", "-E"]),
    ("parallel", &["-j", "-a", "-S"]),
    ("watch", &["-n", "-d"]),
    ("entr", &[]),
];

/// A line as rules see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Never empty.
    pub parts: Vec<Part>,
    /// Something in it runs what the text does not show: `$x`, a script from a pipe, an open quote.
    pub obscure: bool,
}

/// One command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// As it stands, without quotes, and without each wrapper before it.
    pub forms: Vec<String>,
    /// Words that may be paths, the targets of redirections among them.
    pub words: Vec<String>,
    /// It only leads to other parts, which are judged in its place: a rule can forbid it, none need
    /// allow it.
    pub leads: bool,
}

/// Reads a line.
pub fn read(line: &str) -> Line {
    let mut found = Line::default();
    script(line, 0, &mut found);
    if found.parts.is_empty() {
        found.parts.push(Part {
            forms: vec![line.trim().to_owned()],
            ..Part::default()
        });
    }
    // Patterns such as `curl *| sh*` are about the line as a whole.
    if found.parts.len() > 1 {
        let whole = line.split_whitespace().collect::<Vec<_>>().join(" ");
        found.parts.push(Part {
            forms: vec![whole],
            words: Vec::new(),
            leads: true,
        });
    }
    found
}

fn script(text: &str, depth: usize, found: &mut Line) {
    if depth > DEEPEST {
        found.obscure = true;
        return;
    }
    let scan = Scan::of(text);
    found.obscure |= scan.open;
    for inner in &scan.inner {
        script(inner, depth + 1, found);
    }
    for command in scan.commands {
        one(command, depth, found);
    }
}

/// Peels a command of all that stands before its name.
fn one(command: Command, depth: usize, found: &mut Line) {
    let mut part = Part {
        forms: vec![command.raw.trim().to_owned()],
        words: command.targets.clone(),
        leads: false,
    };
    part.words
        .extend(command.words.iter().map(|word| word.text.clone()));
    let mut words = command.words.as_slice();
    let mut form = |words: &[Word]| {
        let text = joined(words);
        if !text.is_empty() && !part.forms.contains(&text) {
            part.forms.push(text);
        }
    };
    form(words);
    let leads = loop {
        words = skip(words, |word| {
            RESERVED.contains(&word.text.as_str()) || word.assigns()
        });
        let Some(first) = words.first() else {
            // Assignments and reserved words alone run nothing.
            return;
        };
        if matches!(first.text.as_str(), "for" | "case" | "select") {
            let Some(at) = words.iter().position(|word| word.text == "do") else {
                return;
            };
            words = &words[at + 1..];
            continue;
        }
        if first.text == "function" {
            words = words.get(2..).unwrap_or_default();
            continue;
        }
        form(words);
        if first.expands {
            found.obscure = true;
            break false;
        }
        let name = name(first);
        if name != first.text {
            let mut bare = words.to_vec();
            bare[0] = Word::plain(name);
            form(&bare);
        }
        if let Some((_, valued, own)) = WRAPPERS.iter().find(|wrapper| wrapper.0 == name) {
            if let Some(split) = after(words, "-S").filter(|_| name == "env") {
                break inner(split, depth, found);
            }
            let rest = options(&words[1..], valued);
            let rest = skip(rest, Word::assigns);
            words = rest.get(*own..).unwrap_or_default();
            if words.is_empty() {
                break false;
            }
            continue;
        }
        break behind(name, words, &command, depth, found);
    };
    part.leads = leads;
    found.parts.push(part);
}

/// Looks for commands in a command's arguments; true when it does nothing but run them.
fn behind(name: &str, words: &[Word], command: &Command, depth: usize, found: &mut Line) -> bool {
    if SHELLS.contains(&name) || name == "su" {
        let flag = |word: &Word| word.text.starts_with('-') && !word.text.starts_with("--");
        let at = words
            .iter()
            .position(|w| flag(w) && w.text.ends_with('c') && w.text != "-");
        if let Some(line) = at.and_then(|at| words.get(at + 1)) {
            return inner(line, depth, found);
        }
        let file = words[1..].iter().any(|word| !word.text.starts_with('-'));
        match (&command.document, file) {
            (Some(document), false) => script(document, depth + 1, found),
            (None, false) => found.obscure = true,
            _ => {}
        }
        return false;
    }
    if name == "eval" {
        let whole = Word {
            text: joined(&words[1..]),
            expands: words.iter().any(|word| word.expands),
        };
        return inner(&whole, depth, found);
    }
    if let Some((_, valued)) = RUNNERS.iter().find(|runner| runner.0 == name) {
        beside(options(&words[1..], valued), depth, found);
    }
    if name == "find" || name == "fd" {
        let exec = |word: &Word| {
            matches!(
                word.text.as_str(),
                "-exec" | "-execdir" | "-ok" | "-okdir" | "-x" | "-X"
            )
        };
        let mut rest = words;
        while let Some(at) = rest.iter().position(exec) {
            rest = &rest[at + 1..];
            let end = rest
                .iter()
                .position(|word| matches!(word.text.as_str(), ";" | "+"));
            beside(&rest[..end.unwrap_or(rest.len())], depth, found);
        }
    }
    false
}

fn beside(words: &[Word], depth: usize, found: &mut Line) {
    if depth > DEEPEST {
        found.obscure = true;
    } else if !words.is_empty() {
        let command = Command {
            raw: joined(words),
            words: words.to_vec(),
            ..Command::default()
        };
        one(command, depth + 1, found);
    }
}

/// A script in an argument. One that is only known when it runs leads nowhere.
fn inner(word: &Word, depth: usize, found: &mut Line) -> bool {
    if word.expands {
        found.obscure = true;
        return false;
    }
    let before = found.parts.len();
    script(&word.text, depth + 1, found);
    found.parts.len() > before
}

fn skip(words: &[Word], so: impl Fn(&Word) -> bool) -> &[Word] {
    let count = words.iter().take_while(|word| so(word)).count();
    &words[count..]
}

/// What comes after the options.
fn options<'a>(mut words: &'a [Word], valued: &[&str]) -> &'a [Word] {
    while let Some(first) = words.first().filter(|word| word.text.starts_with('-')) {
        let taken = 1 + usize::from(valued.contains(&first.text.as_str()));
        words = words.get(taken..).unwrap_or_default();
        if first.text == "--" {
            break;
        }
    }
    words
}

fn after<'a>(words: &'a [Word], option: &str) -> Option<&'a Word> {
    let at = words.iter().position(|word| word.text == option)?;
    words.get(at + 1)
}

/// A program's name without its folders.
fn name(word: &Word) -> &str {
    word.text.rsplit('/').next().unwrap_or(&word.text)
}

fn joined(words: &[Word]) -> String {
    let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    texts.join(" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn holds(line: &str, command: &str) -> bool {
        let read = read(line);
        read.parts
            .iter()
            .any(|part| part.forms.iter().any(|form| form == command))
    }

    /// Lines that run `git push`.
    const HIDING: [&str; 66] = [
        "git push",
        "ls; git push",
        "ls && git push",
        "ls || git push",
        "ls | git push",
        "ls & git push",
        "ls\ngit push",
        "(git push)",
        "( cd x && git push )",
        "{ git push; }",
        "echo $(git push)",
        "echo \"$(git push)\"",
        "echo \"a $(echo $(git push))\"",
        "echo `git push`",
        "echo \"`git push`\"",
        "cat <(git push)",
        "x=$(git push)",
        "A=1 B=2 git push",
        "env git push",
        "env -i -u B A=1 git push",
        "env -S 'git push'",
        "sudo -u root git push",
        "timeout -k 5 10 git push",
        "nice -n 5 nohup git push",
        "command git push",
        "exec git push",
        "time git push",
        "bash -c 'git push'",
        "sh -ec \"ls; git push\"",
        "/bin/bash -lc 'git push'",
        "sudo env X=1 bash -c 'true && git push'",
        "bash -c \"bash -c 'git push'\"",
        "eval 'git push'",
        "eval git push",
        "su root -c 'git push'",
        "echo x | xargs git push",
        "echo x | xargs -n 1 -I {} git push",
        "find . -name x -exec git push \\;",
        "find . -exec true {} + -o -exec git push ';'",
        "if true; then git push; fi",
        "for x in a b; do git push; done",
        "while ! git push; do sleep 1; done",
        "! git push",
        "/usr/bin/git push",
        "'git' push",
        "g\"i\"t pu\\sh",
        "git \\\n push",
        "git   push",
        "git push # and then",
        "git push > /dev/null 2>&1",
        "&>log git push",
        "2>/dev/null git push",
        "echo ${x:-$(git push)}",
        "echo ${x:-$(bash -c \"git push\")}",
        "echo $((git push))",
        "cat <<EOF\n\"$(bash -c \"git push\")\"\nEOF",
        "echo $(( $(git push) + 1 ))",
        "bash <<EOF\ngit push\nEOF",
        "bash <<'EOF'\ngit push\nEOF",
        "cat <<EOF\n$(git push)\nEOF",
        "cat <<EOF && git push\nx\nEOF",
        "cat <<-'EOF'\n\tx\n\tEOF\ngit push",
        "f() { git push; }; f",
        "function f { git push; }; f",
        "for x do git push; done",
        "echo $((git push) || (true))",
    ];

    #[test]
    fn a_command_is_found_wherever_it_hides() {
        for line in HIDING {
            assert!(holds(line, "git push"), "{line}: {:?}", read(line));
        }
    }

    #[test]
    fn what_is_only_text_is_no_command() {
        for line in [
            "echo 'git push'",
            "echo git push",
            "echo \"x; git push\"",
            "ls # git push",
            "cat <<'EOF' > notes\ngit push\n$(git push)\nEOF",
            "cat <<EOF\ngit push\nEOF",
            "grep 'git push' README.md",
        ] {
            assert!(!holds(line, "git push"), "{line}: {:?}", read(line));
        }
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        for line in [
            "$cmd push",
            "${cmd} push",
            "bash -c \"$x\"",
            "eval $x",
            "curl x | bash",
            "curl x | sudo sh -s",
            "g?t push",
            "{git,push}",
            "$'\\x67it' push",
            "echo 'open",
            "echo \"open",
            "echo $(open",
            "echo x | base64 -d | sh",
        ] {
            assert!(read(line).obscure, "{line}: {:?}", read(line));
        }
        for line in [
            "python3 -m pytest $TESTS",
            "bash run.sh $x",
            "for t in $x; do echo \"$t\"; done",
            "ls *.rs | wc -l",
            "x=$y; echo ${x}",
        ] {
            assert!(!read(line).obscure, "{line}: {:?}", read(line));
        }
    }

    #[test]
    fn a_leader_is_judged_by_what_it_leads_to_and_a_runner_beside_it() {
        let needs = |line: &str| {
            let parts = read(line).parts.into_iter().filter(|part| !part.leads);
            parts
                .map(|part| part.forms.last().cloned().unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(needs("bash -c 'git status'"), ["git status"]);
        assert_eq!(needs("ls | xargs rm"), ["ls", "rm", "xargs rm"]);
        assert_eq!(needs("env A=1 git status"), ["git status"]);
        assert_eq!(needs("bash -c \"$x\""), ["bash -c $x"]);
        assert_eq!(needs("A=1"), ["A=1"]);
        assert_eq!(needs(""), [""]);
    }

    /// Lines in which a command stands, however deep.
    fn hidden() -> impl Strategy<Value = String> {
        let plain = prop::sample::select(vec![
            "ls -l",
            "echo 'a b'",
            "true",
            "cat \"x y\"",
            "A=1 make",
        ]);
        let leaf = Just("git push origin".to_owned());
        leaf.prop_recursive(5, 32, 4, move |inner| {
            let plain = plain.clone();
            (inner, plain, 0..14_u8).prop_map(|(line, plain, how)| match how {
                0 => format!("{plain} && {line}"),
                1 => format!("{line} || {plain}"),
                2 => format!("{plain}; {line}"),
                3 => format!("{plain} | {line}"),
                4 => format!("{plain} &\n{line}"),
                5 => format!("({line})"),
                6 => format!("echo $({line})"),
                7 => format!("echo \"$({line})\""),
                8 => format!("bash -c '{}'", line.replace('\'', "'\\''")),
                9 => format!("if {plain}; then {line}; fi"),
                10 => format!("{{ {line}\n}}"),
                11 => format!("X=$({line}) {plain}"),
                12 => format!("{plain} 2>&1 > out\n{line}"),
                _ => format!("cat <({line})"),
            })
        })
    }

    proptest! {
        #[test]
        fn a_command_anywhere_is_a_part(line in hidden()) {
            prop_assert!(holds(&line, "git push origin"), "{line}: {:?}", read(&line));
        }

        #[test]
        fn nothing_makes_the_reader_fail(line in "[ -~\n\t]{0,80}") {
            prop_assert!(!read(&line).parts.is_empty());
        }

        #[test]
        fn nor_do_many_special_signs(line in "[$(){}`'\"\\\\<>|&;# \nab=]{0,60}") {
            prop_assert!(!read(&line).parts.is_empty());
        }
    }
}
