//! What the `OTEL_…` variables mean: where spans go, over which protocol, under which name.
//!
//! The variables are read by a closure that `config` hands in; nothing here touches the environment.

use std::time::Duration;

use super::options::{Options, Protocol, Target};

impl Options {
    /// Reads the variables; what made no sense is left out and told in the second part.
    pub fn read(var: &dyn Fn(&str) -> Option<String>) -> (Self, Vec<String>) {
        let mut reader = Reader {
            var,
            warnings: Vec::new(),
        };
        let mut options = Self {
            disabled: reader.is_true("OTEL_SDK_DISABLED"),
            ..Self::default()
        };
        for (key, value) in reader.pairs("OTEL_RESOURCE_ATTRIBUTES") {
            match key.as_str() {
                "service.name" => options.service = value,
                _ => options.resource.push((key, value)),
            }
        }
        if let Some(name) = reader.get("OTEL_SERVICE_NAME") {
            options.service = name;
        }
        options.traceparent = reader.get("TRACEPARENT");
        options.tracestate = reader.get("TRACESTATE");
        if !options.disabled && reader.wants_otlp() {
            options.target = reader.target();
        }
        if let Some(target) = &options.target {
            options.secrets = target.headers.iter().map(|h| h.1.clone()).collect();
        }
        reader.warn_of_capture();
        (options, reader.warnings)
    }
}

struct Reader<'a> {
    var: &'a dyn Fn(&str) -> Option<String>,
    warnings: Vec<String>,
}

impl Reader<'_> {
    /// An empty variable counts as unset.
    fn get(&self, name: &str) -> Option<String> {
        let value = (self.var)(name)?;
        let value = value.trim();
        (!value.is_empty()).then(|| value.to_owned())
    }

    fn is_true(&self, name: &str) -> bool {
        self.get(name)
            .is_some_and(|v| v.eq_ignore_ascii_case("true"))
    }

    /// The variable of the signal, else the general one; with the name it was found under.
    fn exporter(&self, what: &str) -> Option<(String, String)> {
        ["OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"]
            .iter()
            .map(|prefix| format!("{prefix}{what}"))
            .find_map(|name| self.get(&name).map(|value| (name, value)))
    }

    fn warn(&mut self, text: String) {
        self.warnings.push(text);
    }

    fn wants_otlp(&mut self) -> bool {
        let Some(list) = self.get("OTEL_TRACES_EXPORTER") else {
            return true;
        };
        let mut wanted = false;
        for word in list.split(',').map(str::trim) {
            match word {
                "otlp" => wanted = true,
                "none" | "" => {}
                other => self.warn(format!(
                    "OTEL_TRACES_EXPORTER names `{other}`, which wharf does not have: use otlp or none"
                )),
            }
        }
        wanted
    }

    fn target(&mut self) -> Option<Target> {
        let protocol = self.protocol();
        let endpoint = self.endpoint(protocol)?;
        let default = Target::new(protocol, endpoint);
        let headers = match self.exporter("HEADERS") {
            Some((name, _)) => self.pairs(&name),
            None => Vec::new(),
        };
        let timeout = self.exporter("TIMEOUT").map(|(name, _)| name);
        Some(Target {
            headers,
            timeout: self.millis(timeout.as_deref(), default.timeout),
            gzip: self.gzip(),
            queue: self.count("OTEL_BSP_MAX_QUEUE_SIZE", default.queue),
            batch: self.count("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", default.batch),
            delay: self.millis(Some("OTEL_BSP_SCHEDULE_DELAY"), default.delay),
            ..default
        })
    }

    fn protocol(&mut self) -> Protocol {
        match self.exporter("PROTOCOL") {
            None => Protocol::HttpProtobuf,
            Some((name, value)) => match value.to_ascii_lowercase().as_str() {
                "grpc" => Protocol::Grpc,
                "http/protobuf" => Protocol::HttpProtobuf,
                _ => {
                    self.warn(format!(
                        "{name} is `{value}`; wharf speaks grpc and http/protobuf, and uses http/protobuf"
                    ));
                    Protocol::HttpProtobuf
                }
            },
        }
    }

    /// A signal's endpoint is used as it is, the general one gets the path of traces under HTTP.
    fn endpoint(&mut self, protocol: Protocol) -> Option<String> {
        let (name, value) = self.exporter("ENDPOINT")?;
        let lower = value.to_ascii_lowercase();
        let rest = lower
            .strip_prefix("http://")
            .or_else(|| lower.strip_prefix("https://"));
        match rest {
            None => {
                self.warn(format!(
                    "{name} is `{value}`, which has no scheme: write http://{value} (or https://); no span is sent"
                ));
                None
            }
            Some(host) if host.is_empty() || host.starts_with(['/', ':', '?']) => {
                self.warn(format!(
                    "{name} is `{value}`, which names no host; no span is sent"
                ));
                None
            }
            Some(_) if protocol == Protocol::Grpc => Some(value.trim_end_matches('/').to_owned()),
            Some(_) if name.contains("TRACES") => Some(value),
            Some(_) => {
                let stem = value.trim_end_matches('/');
                let stem = stem.strip_suffix("/v1/traces").unwrap_or(stem);
                Some(format!("{stem}/v1/traces"))
            }
        }
    }

    fn gzip(&mut self) -> bool {
        match self.exporter("COMPRESSION") {
            None => false,
            Some((_, value)) if value.eq_ignore_ascii_case("gzip") => true,
            Some((_, value)) if value.eq_ignore_ascii_case("none") => false,
            Some((name, value)) => {
                self.warn(format!(
                    "{name} is `{value}`; wharf knows gzip and none, and uses none"
                ));
                false
            }
        }
    }

    fn millis(&mut self, name: Option<&str>, default: Duration) -> Duration {
        let Some((name, value)) = name.and_then(|n| self.get(n).map(|v| (n, v))) else {
            return default;
        };
        match value.parse::<u64>() {
            Ok(millis) if millis > 0 => Duration::from_millis(millis),
            _ => {
                self.warn(format!(
                    "{name} is `{value}`, not a number of milliseconds; {} is used",
                    default.as_millis()
                ));
                default
            }
        }
    }

    fn count(&mut self, name: &str, default: usize) -> usize {
        let Some(value) = self.get(name) else {
            return default;
        };
        match value.parse::<usize>() {
            Ok(count) if (1..=1_000_000).contains(&count) => count,
            _ => {
                self.warn(format!(
                    "{name} is `{value}`, not a usable number; {default} is used"
                ));
                default
            }
        }
    }

    /// `key=value,key=value` with percent-encoded values. A bad pair is named by its key alone.
    fn pairs(&mut self, name: &str) -> Vec<(String, String)> {
        let text = self.get(name).unwrap_or_default();
        let mut pairs = Vec::new();
        for (at, pair) in text.split(',').map(str::trim).enumerate() {
            match pair.split_once('=') {
                _ if pair.is_empty() => {}
                Some((key, value)) if !key.trim().is_empty() => {
                    pairs.push((key.trim().to_owned(), decode(value.trim())));
                }
                _ => self.warn(format!(
                    "entry {} of {name} is not key=value; it is left out",
                    at + 1
                )),
            }
        }
        pairs
    }

    fn warn_of_capture(&mut self) {
        const NAME: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";
        let off = ["no_content", "false", "0"];
        if let Some(value) = self.get(NAME)
            && !off.contains(&value.to_ascii_lowercase().as_str())
        {
            self.warn(format!(
                "{NAME} is `{value}`; wharf never records content in spans"
            ));
        }
    }
}

/// Undoes percent-encoding; what is not one stays as written.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes
            .get(at + 1..at + 3)
            .filter(|_| bytes[at] == b'%')
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .filter(|hex| hex.bytes().all(|c| c.is_ascii_hexdigit()))
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        out.push(byte.unwrap_or(bytes[at]));
        at += if byte.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(vars: &[(&str, &str)]) -> (Options, Vec<String>) {
        let vars: Vec<(String, String)> = vars
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        Options::read(&move |name| vars.iter().find(|v| v.0 == name).map(|v| v.1.clone()))
    }

    fn endpoint(vars: &[(&str, &str)]) -> Option<String> {
        read(vars).0.target.map(|target| target.endpoint)
    }

    const GENERAL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
    const SIGNAL: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
    const GRPC: (&str, &str) = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");

    #[test]
    fn nothing_set_means_no_target_and_no_word() {
        let (options, warnings) = read(&[]);
        assert_eq!(options, Options::default());
        assert!(warnings.is_empty());
    }

    #[test]
    fn the_general_endpoint_gets_the_path_once() {
        for given in [
            "http://h:4318",
            "http://h:4318/",
            "http://h:4318/v1/traces",
            "http://h:4318/v1/traces/",
        ] {
            assert_eq!(
                endpoint(&[(GENERAL, given)]).unwrap(),
                "http://h:4318/v1/traces",
                "{given}"
            );
        }
        assert_eq!(
            endpoint(&[(GENERAL, "https://h/otel/")]).unwrap(),
            "https://h/otel/v1/traces"
        );
    }

    #[test]
    fn the_signal_endpoint_is_used_as_it_is_and_wins() {
        let both = [(GENERAL, "http://a:1"), (SIGNAL, "http://b:6006/x/")];
        assert_eq!(endpoint(&both).unwrap(), "http://b:6006/x/");
        assert_eq!(
            endpoint(&[(SIGNAL, "http://h:4317"), GRPC]).unwrap(),
            "http://h:4317"
        );
    }

    #[test]
    fn grpc_has_no_path() {
        assert_eq!(
            endpoint(&[(GENERAL, "http://h:4317/"), GRPC]).unwrap(),
            "http://h:4317"
        );
    }

    #[test]
    fn without_scheme_or_host_nothing_is_sent_and_it_is_said() {
        for (given, word) in [
            ("h:4317", "no scheme"),
            ("https://", "no host"),
            ("http://:4318", "no host"),
        ] {
            let (options, warnings) = read(&[(GENERAL, given)]);
            assert_eq!(options.target, None, "{given}");
            assert!(warnings[0].contains(word), "{warnings:?}");
        }
    }

    #[test]
    fn exporter_none_and_disabled_send_nothing() {
        let on = (GENERAL, "http://h:4318");
        assert_eq!(endpoint(&[on, ("OTEL_TRACES_EXPORTER", "none")]), None);
        assert_eq!(endpoint(&[on, ("OTEL_SDK_DISABLED", "TRUE")]), None);
        let (options, warnings) = read(&[on, ("OTEL_TRACES_EXPORTER", "console, otlp")]);
        assert!(options.target.is_some());
        assert!(warnings[0].contains("console"));
    }

    #[test]
    fn headers_are_decoded_and_count_as_secrets() {
        let (options, warnings) = read(&[
            (GENERAL, "http://h:4318"),
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                "authorization=Basic%20abc%3D, broken ,x=%zz",
            ),
        ]);
        let target = options.target.unwrap();
        assert_eq!(
            target.headers[0],
            ("authorization".to_owned(), "Basic abc=".to_owned())
        );
        assert_eq!(target.headers[1].1, "%zz");
        assert_eq!(options.secrets[0], "Basic abc=");
        assert_eq!(
            warnings,
            ["entry 2 of OTEL_EXPORTER_OTLP_HEADERS is not key=value; it is left out"]
        );
    }

    #[test]
    fn a_bad_number_keeps_the_default_and_is_said() {
        let (options, warnings) = read(&[
            (GENERAL, "http://h:4318"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "-3"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "brotli"),
        ]);
        let target = options.target.unwrap();
        assert_eq!(target.timeout, Duration::from_secs(10));
        assert!(!target.gzip);
        assert_eq!(warnings.len(), 2);
    }

    #[test]
    fn the_service_name_beats_the_resource() {
        let (options, _) = read(&[
            (
                "OTEL_RESOURCE_ATTRIBUTES",
                "service.name=a,deployment.environment.name=ci",
            ),
            ("OTEL_SERVICE_NAME", "b"),
        ]);
        assert_eq!(options.service, "b");
        assert_eq!(
            options.resource,
            [("deployment.environment.name".to_owned(), "ci".to_owned())]
        );
    }
}
