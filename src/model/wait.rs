//! How long a server asks us to wait, in all the shapes servers write it.

use std::time::Duration;

use reqwest::header::HeaderMap;

/// The longest wait that is told apart from longer ones: a year.
const MOST: Duration = Duration::from_secs(365 * 86_400);

/// Reads `retry-after-ms`, then `retry-after` (seconds, fractions, a date); None for none or nonsense.
/// A time past is zero, several headers count as the longest. Whether one waits so long is decided
/// elsewhere: a wait that is cut short would only be asked for again.
pub fn asked(headers: &HeaderMap, now: jiff::Timestamp) -> Option<Duration> {
    let longest = |name: &str, read: &dyn Fn(&str) -> Option<f64>| {
        headers
            .get_all(name)
            .iter()
            .filter_map(|value| read(value.to_str().ok()?.trim()))
            .reduce(f64::max)
    };
    let seconds =
        longest("retry-after-ms", &|text| Some(number(text)? / 1000.0)).or_else(|| {
            longest("retry-after", &|text| {
                number(text).or_else(|| until(text, now))
            })
        })?;
    Some(Duration::from_secs_f64(
        seconds.clamp(0.0, MOST.as_secs_f64()),
    ))
}

/// Plain decimal notation only: no exponent, no `inf`, no `nan`.
fn number(text: &str) -> Option<f64> {
    let plain = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+');
    text.chars().all(plain).then(|| text.parse().ok())?
}

/// Seconds from `now` to an HTTP date.
fn until(text: &str, now: jiff::Timestamp) -> Option<f64> {
    let parser = jiff::fmt::rfc2822::DateTimeParser::new().relaxed_weekday(true);
    let then = parser.parse_timestamp(text).ok()?;
    Some(then.duration_since(now).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    fn of(pairs: &[(&'static str, &[u8])]) -> Option<f64> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let value = HeaderValue::from_bytes(value).unwrap();
            headers.append(HeaderName::from_static(name), value);
        }
        let now: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        asked(&headers, now).map(|wait| wait.as_secs_f64())
    }

    #[test]
    fn every_shape_of_retry_after() {
        let table: [(&[u8], Option<f64>); 14] = [
            (b"2", Some(2.0)),
            (b" 7 ", Some(7.0)),
            (b"3600", Some(3600.0)),
            (b"0", Some(0.0)),
            (b"-1", Some(0.0)),
            (b"1.5", Some(1.5)),
            (b"Wed, 21 Oct 2015 07:28:00 GMT", Some(0.0)),
            (b"Thu, 01 Jan 2026 00:00:03 GMT", Some(3.0)),
            (b"Tue, 01 Jun 9999 00:00:00 GMT", Some(31_536_000.0)),
            (b"soon", None),
            ("²".as_bytes(), None),
            (b"99999999999999999999", Some(31_536_000.0)),
            (b"inf", None),
            (b"", None),
        ];
        for (text, expected) in table {
            let shown = String::from_utf8_lossy(text);
            assert_eq!(of(&[("retry-after", text)]), expected, "{shown:?}");
        }
    }

    #[test]
    fn several_headers_and_milliseconds() {
        assert_eq!(of(&[]), None);
        assert_eq!(
            of(&[("retry-after", b"2"), ("retry-after", b"5")]),
            Some(5.0)
        );
        assert_eq!(
            of(&[("retry-after", b"x"), ("retry-after", b"5")]),
            Some(5.0)
        );
        assert_eq!(
            of(&[("retry-after-ms", b"250"), ("retry-after", b"9")]),
            Some(0.25)
        );
        assert_eq!(
            of(&[("retry-after-ms", b"?"), ("retry-after", b"9")]),
            Some(9.0)
        );
    }
}
