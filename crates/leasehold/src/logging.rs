//! The control plane's own log: lines on stderr, as text for people or JSON for collectors.

use std::io::{self, IsTerminal as _};

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::Subscriber;

/// The form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum LogFormat {
    // For people.
    #[default]
    Text,
    // One JSON document per line.
    Json,
}

/// Starts logging, once per process. `LEASEHOLD_LOG` says what, in the form of `RUST_LOG`; else `default`.
pub(crate) fn start(format: LogFormat, default: &str) {
    let filter = EnvFilter::builder().with_env_var("LEASEHOLD_LOG").try_from_env();
    let filter = filter.unwrap_or_else(|_| EnvFilter::new(default));
    // A line that cannot be written (a full disk, a collector that went away) is lost; told on stderr, it would end who wrote it.
    let lines = Subscriber::builder().with_env_filter(filter).with_writer(io::stderr).log_internal_errors(false);
    let started = match format {
        LogFormat::Text => {
            let colours = io::stderr().is_terminal() && !crate::output::no_colour();
            tracing::subscriber::set_global_default(lines.with_ansi(colours).finish())
        }
        LogFormat::Json => tracing::subscriber::set_global_default(lines.json().finish()),
    };
    debug_assert!(started.is_ok(), "logging is started once");
}
