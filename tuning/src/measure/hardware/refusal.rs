//! Explains why an event is not counted, with the remedy.
//!
//! Maps the errors of `perf_event_open` to sentences and groups events by sentence. Owns no
//! descriptor.

use std::fmt::Write;
use std::io::{Error, ErrorKind};

/// The explanation for a processor event that could not be opened.
pub(super) fn reason(error: &Error, paranoid: Option<&str>) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied => format!(
            "not permitted (kernel.perf_event_paranoid is {}): run `sysctl kernel.perf_event_paranoid=1` or give the \
             program CAP_PERFMON (`setcap cap_perfmon+ep FILE`); in a container, seccomp must let perf_event_open pass",
            paranoid.unwrap_or("not readable")
        ),
        ErrorKind::NotFound | ErrorKind::Unsupported => {
            "this machine does not support them: a virtual machine needs a virtual PMU (QEMU `-cpu host,pmu=on`), and the \
             kernel CONFIG_PERF_EVENTS"
                .to_owned()
        }
        ErrorKind::ResourceBusy => {
            "another profiler holds the processor's counters: stop it".to_owned()
        }
        _ => format!("the kernel refused: {error}"),
    }
}

/// The explanation for a kernel event if only user space may be counted.
pub(super) fn kernel_only(paranoid: Option<&str>) -> String {
    let denied = Error::from(ErrorKind::PermissionDenied);
    format!("they happen in the kernel, {}", reason(&denied, paranoid))
}

/// Events that are not counted, grouped by reason.
#[derive(Debug, Default)]
pub(super) struct Missing(Vec<(String, Vec<&'static str>)>);

impl Missing {
    pub(super) fn add(&mut self, event: &'static str, reason: String) {
        match self.0.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, events)) => events.push(event),
            None => self.0.push((reason, vec![event])),
        }
    }

    /// One clause per reason; empty if nothing is missing.
    pub(super) fn words(&self) -> String {
        let mut text = String::new();
        for (reason, events) in &self.0 {
            let between = if text.is_empty() { "" } else { "; " };
            let _ = write!(text, "{between}{}: {reason}", events.join(", "));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_names_a_remedy() {
        for (kind, word) in [
            (
                ErrorKind::PermissionDenied,
                "kernel.perf_event_paranoid is 4",
            ),
            (ErrorKind::NotFound, "virtual PMU"),
            (ErrorKind::Unsupported, "CONFIG_PERF_EVENTS"),
            (ErrorKind::ResourceBusy, "another profiler"),
        ] {
            let text = reason(&Error::from(kind), Some("4"));
            assert!(text.contains(word), "{text}");
        }
        let text = reason(&Error::from_raw_os_error(24), None);
        assert!(text.contains("os error 24"), "{text}");
        assert!(kernel_only(None).contains("is not readable"));
    }

    #[test]
    fn a_reason_is_stated_once() {
        let mut missing = Missing::default();
        assert_eq!(missing.words(), "");
        missing.add("cycles", "no PMU".to_owned());
        missing.add("migrations", "not permitted".to_owned());
        missing.add("instructions", "no PMU".to_owned());
        assert_eq!(
            missing.words(),
            "cycles, instructions: no PMU; migrations: not permitted"
        );
    }
}
