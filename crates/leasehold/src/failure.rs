//! How a command fails: a sentence on stderr and the exit code that goes with it.

use std::io::{self, Write as _};

use crate::client::RequestError;
use crate::exit::Exit;
use crate::output::harmless;
use crate::spec::SpecError;
use crate::target::TargetError;

/// A command line that clap accepts and that still makes no sense.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub String);

/// A failure that ends with a code of its own.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Told {
    /// How the command ends.
    pub exit: Exit,
    /// What is said.
    pub text: String,
}

/// The exit code of an error: that of the first cause which has one of its own.
pub(crate) fn exit(error: &anyhow::Error) -> Exit {
    let of_cause = |cause: &(dyn std::error::Error + 'static)| {
        if let Some(request) = cause.downcast_ref::<RequestError>() {
            return Some(request.exit());
        }
        if let Some(told) = cause.downcast_ref::<Told>() {
            return Some(told.exit);
        }
        if let Some(TargetError::Closed { .. }) = cause.downcast_ref() {
            return Some(Exit::NotAllowed);
        }
        let usage = cause.is::<UsageError>()
            || matches!(cause.downcast_ref(), Some(SpecError::Mistakes(_)))
            || matches!(cause.downcast_ref(), Some(TargetError::Address(_)));
        usage.then_some(Exit::Usage)
    };
    error.chain().find_map(of_cause).unwrap_or(Exit::Error)
}

/// Whether whoever read our output went away: `leasehold runs list | head` is no error.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let closed = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    // A connection that breaks this way is a failure like any other: only our own output may go quietly.
    let is_connection = |cause: &(dyn std::error::Error + 'static)| {
        matches!(cause.downcast_ref(), Some(RequestError::Unreachable { .. }))
    };
    !error.chain().any(is_connection) && error.chain().any(closed)
}

/// Says an error with its causes.
pub(crate) fn tell(error: &anyhow::Error) {
    // That stderr is gone cannot be told anywhere.
    let _ = writeln!(io::stderr().lock(), "error: {}", harmless(&text(error)));
}

/// An error with its causes, each cause that is not part of the sentence already.
pub(crate) fn text(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let said = cause.to_string();
        if text.contains(&said) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&said);
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;
    use leasehold_wire::api::problem::{Problem, ProblemCode};

    use super::*;

    #[test]
    fn the_exit_code_is_that_of_the_cause() {
        let missing = RequestError::Refused(Box::new(Problem::new(ProblemCode::NotFound, "no run")));
        let error = Err::<(), _>(missing).context("cannot cancel").unwrap_err();
        assert_eq!(exit(&error), Exit::NotFound);
        assert_eq!(exit(&UsageError("no".to_owned()).into()), Exit::Usage);
        assert_eq!(exit(&SpecError::Mistakes(Vec::new()).into()), Exit::Usage);
        assert_eq!(exit(&anyhow::anyhow!("else")), Exit::Error);
    }

    #[test]
    fn a_closed_pipe_is_told_from_other_errors() {
        let error = io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(is_closed_pipe(&anyhow::Error::from(error).context("writing")));
        assert!(!is_closed_pipe(&anyhow::anyhow!("else")));
        let source = io::Error::from(io::ErrorKind::BrokenPipe);
        let connection = RequestError::Unreachable { target: "there".to_owned(), source };
        assert!(!is_closed_pipe(&connection.into()), "a broken connection is told");
    }
}
