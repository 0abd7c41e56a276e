//! A file's bytes as text: what is no UTF-8 is refused at its place.

use super::error::Error;

/// The text of a plan file, or of one that it names.
///
/// # Errors
/// The first byte that belongs to no UTF-8 text, with its line and its column in characters.
pub fn text(file: &str, bytes: Vec<u8>) -> Result<String, Error> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let bytes = error.as_bytes();
        let before = String::from_utf8_lossy(&bytes[..at]);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default();
        let place = (line, column.chars().count() + 1);
        let message = format!("the file is not UTF-8 text: byte 0x{:02x}", bytes[at]);
        let wide = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
        let hint = match wide {
            true => "it looks like UTF-16: save it as UTF-8, such as by `iconv -f UTF-16 -t UTF-8`",
            false => "save it as UTF-8, such as by `iconv -f LATIN1 -t UTF-8`",
        };
        Error::at(
            (file, &String::from_utf8_lossy(bytes)),
            place,
            message,
            hint,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_that_is_no_text_is_named_by_line_and_column() {
        for (bytes, place, said) in [
            (&b"version: 1\nname: caf\xe9\n"[..], (2, 10), "byte 0xe9"),
            ("a: ü\nb: ö".as_bytes(), (0, 0), ""),
            (&b"\xff\xfev\0e\0"[..], (1, 1), "byte 0xff"),
            (&b"ok\n\xf0\x9f\x9a"[..], (2, 1), "byte 0xf0"),
            ("ü\u{fe}: ".as_bytes(), (0, 0), ""),
            (&b"\xc3\xbc\xc3("[..], (1, 2), "byte 0xc3"),
        ] {
            match text("p.yaml", bytes.to_vec()) {
                Ok(text) => assert_eq!(((0, 0), text.as_bytes()), (place, bytes)),
                Err(error) => {
                    assert_eq!((error.line, error.column), place, "{error}");
                    assert!(error.message.contains(said), "{error}");
                    assert_eq!(error.hint.contains("UTF-16"), said == "byte 0xff");
                }
            }
        }
    }
}
