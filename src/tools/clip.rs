//! Cutting and cleaning text for a model: by characters, never inside one, head and tail kept.

/// Head and tail of a stream as text, what is missing between them named in place, with the word on
/// where it is.
pub fn stream(head: &[u8], tail: &[u8], cut: u64, rest: Option<&str>) -> String {
    if cut == 0 {
        return clean(&[head, tail].concat());
    }
    let kept = |bytes: &[u8]| clean(bytes);
    let place = rest.map(|rest| format!("; {rest}")).unwrap_or_default();
    let head = kept(without_torn_end(head));
    let tail = kept(without_torn_start(tail));
    format!(
        "{head}\n[… {} bytes cut here{place} …]\n{tail}",
        thousands(cut)
    )
}

/// At most `limit` characters, half of the beginning and half of the end, the count cut between.
pub fn middle(text: &str, limit: usize) -> String {
    let total = text.chars().count();
    if total <= limit {
        return text.to_string();
    }
    let half = limit / 2;
    let head: String = text.chars().take(half).collect();
    let tail: String = text.chars().skip(total - half).collect();
    let cut = thousands((total - 2 * half) as u64);
    format!("{head}\n[… {cut} characters cut here …]\n{tail}")
}

/// The last `limit` characters, with a word on what stood before them.
pub fn tail(text: &str, limit: usize) -> String {
    let total = text.chars().count();
    if total <= limit {
        return text.to_string();
    }
    let kept: String = text.chars().skip(total - limit).collect();
    format!(
        "[… {} characters cut here …]\n{kept}",
        thousands((total - limit) as u64)
    )
}

/// One line of at most `limit` characters, cut at its end.
pub fn line(text: &str, limit: usize) -> String {
    let flat: String = clean(text.as_bytes())
        .chars()
        .map(|c| if c == '\n' || c == '\t' { ' ' } else { c })
        .collect();
    if flat.chars().count() <= limit {
        return flat;
    }
    let kept: String = flat.chars().take(limit.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// Bytes as text: bad UTF-8 replaced, control characters made visible but for newline and tab.
pub fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' | '\t' => out.push(c),
            '\r' if chars.peek() == Some(&'\n') => {}
            c if (c as u32) < 0x20 => out.push(picture(c)),
            '\u{7f}' => out.push('\u{2421}'),
            '\u{80}'..='\u{9f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                out.push(char::REPLACEMENT_CHARACTER);
            }
            c => out.push(c),
        }
    }
    out
}

/// 12345 as `12,345`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The printable picture that Unicode has for each C0 control character.
fn picture(control: char) -> char {
    char::from_u32(0x2400 + control as u32).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// Less the beginning of a character whose rest was cut away.
fn without_torn_end(bytes: &[u8]) -> &[u8] {
    for back in 1..=bytes.len().min(3) {
        let at = bytes.len() - back;
        let needs = match bytes[at] {
            0xC0..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF7 => 4,
            0x80..=0xBF => continue,
            _ => return bytes,
        };
        return if needs > back { &bytes[..at] } else { bytes };
    }
    bytes
}

/// Less the end of a character whose beginning was cut away.
fn without_torn_start(bytes: &[u8]) -> &[u8] {
    let torn = bytes
        .iter()
        .take(3)
        .take_while(|b| (0x80..=0xBF).contains(*b))
        .count();
    &bytes[torn..]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn controls_become_visible_and_newlines_stay() {
        let text = clean(b"a\0b\x1b[2J\r\nc\td\x07\xff");
        assert_eq!(text, "a\u{2400}b\u{241b}[2J\nc\td\u{2407}\u{fffd}");
    }

    #[test]
    fn a_cut_says_how_much_and_where_the_rest_is() {
        let text = stream(
            b"head",
            b"FATAL-AT-END",
            12_345,
            Some("the full text is in /tmp/full"),
        );
        assert_eq!(
            text,
            "head\n[… 12,345 bytes cut here; the full text is in /tmp/full …]\nFATAL-AT-END"
        );
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_234_567), "1,234,567");
    }

    #[test]
    fn a_character_cut_in_two_leaves_no_replacement_at_the_seam() {
        let text = "xб€😀".repeat(5);
        for at in 0..=text.len() {
            let out = stream(&text.as_bytes()[..at], &text.as_bytes()[at..], 1, None);
            assert!(!out.contains('\u{fffd}'), "cut at {at}: {out}");
        }
    }

    proptest! {
        #[test]
        fn no_cut_of_any_bytes_panics_or_exceeds_its_limit(
            bytes in proptest::collection::vec(any::<u8>(), 0..400),
            at in 0usize..400,
            limit in 0usize..300,
        ) {
            let at = at.min(bytes.len());
            let whole = clean(&bytes);
            prop_assert!(!whole.chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
            let _ = stream(&bytes[..at], &bytes[at..], 7, None);
            let marker = 40;
            prop_assert!(middle(&whole, limit).chars().count() <= limit + marker);
            prop_assert!(tail(&whole, limit).chars().count() <= limit + marker);
            prop_assert!(line(&whole, limit.max(1)).chars().count() <= limit.max(1));
        }
    }
}
