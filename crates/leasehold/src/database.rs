//! Which database a control plane keeps its state in: a file of its data directory, or PostgreSQL.
//!
//! The URL may hold a password, so it is never printed, and where it was typed on the command line it does not stay there:
//! everybody on the machine can read that. (Product, *The command line*; control design, *Store*.)

use std::ffi::OsString;
use std::fmt;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use zeroize::Zeroizing;

use crate::failure::UsageError;

/// The variable that carries a URL.
const VARIABLE: &str = "LEASEHOLD_DATABASE";
/// The flag that does.
const FLAG: &str = "--database";

const HELP: &str =
    "PostgreSQL, shared by any number of replicas: postgres://USER@HOST/DATABASE; without it, SQLite in --data";

/// Where the database is; the same flags for everything that opens one.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct DatabaseArgs {
    #[arg(long, env = VARIABLE, value_name = "URL", hide_env_values = true, help = HELP)]
    database: Option<Typed>,

    /// A file that holds the URL, for one with a password
    #[arg(long, env = "LEASEHOLD_DATABASE_FILE", value_name = "FILE", conflicts_with = "database")]
    database_file: Option<PathBuf>,
}

/// A value as it was typed: looked at later, since the parser of the command line repeats what it refuses.
#[derive(Clone)]
struct Typed(Zeroizing<String>);

impl From<String> for Typed {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

impl fmt::Debug for Typed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Typed(…)")
    }
}

/// The URL of a PostgreSQL database. Never printed.
#[derive(Clone)]
pub(crate) struct DatabaseUrl(Zeroizing<String>);

impl DatabaseUrl {
    /// The whole of it, for the one who connects.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// What may be said of it: everything but the password, and whatever else could be a part of it.
    pub(crate) fn without_password(&self) -> String {
        let (before, after) = self.split().unwrap_or((&self.0, ""));
        let told = format!("{before}{after}");
        let Some((place, parameters)) = told.split_once('?') else { return told };
        let kept: Vec<&str> = parameters.split('&').filter(|parameter| !may_hold_password(parameter)).collect();
        if kept.is_empty() { place.to_owned() } else { format!("{place}?{}", kept.join("&")) }
    }

    /// The URL in front of its password, and what follows it. The driver takes slashes and question marks for a part of a
    /// password, so what stands before the last `@` may be one.
    fn split(&self) -> Option<(&str, &str)> {
        let authority = self.0.find("://")? + 3;
        let at = authority + self.0[authority..].rfind('@')?;
        let colon = authority + self.0[authority..at].find(':')?;
        Some((&self.0[..colon], &self.0[at..]))
    }

    fn has_password(&self) -> bool {
        let parameters = self.0.split_once('?').map_or("", |(_, parameters)| parameters);
        self.split().is_some() || parameters.split('&').any(may_hold_password)
    }
}

impl std::str::FromStr for DatabaseUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Self(Zeroizing::new(text.to_owned())));
        }
        let scheme = text.split_once("://").map_or("no scheme", |(scheme, _)| scheme);
        Err(format!(
            "expected postgres://USER@HOST[:PORT]/DATABASE, got a URL with {scheme} (for SQLite leave it out: it is in --data)"
        ))
    }
}

/// Whether a parameter is the password, or one whose name is spelled so that it could be.
fn may_hold_password(parameter: &str) -> bool {
    let name = parameter.split('=').next().unwrap_or_default();
    name.to_ascii_lowercase().contains("pass") || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DatabaseUrl(…)")
    }
}

impl DatabaseArgs {
    /// The URL of PostgreSQL, where one is set; none means SQLite.
    pub(crate) fn url(&self) -> anyhow::Result<Option<DatabaseUrl>> {
        let Some(file) = &self.database_file else {
            let parsed = self.database.as_ref().map(|Typed(text)| text.parse()).transpose();
            return Ok(parsed.map_err(|error| UsageError(format!("{FLAG}: {error}")))?);
        };
        let text = std::fs::read_to_string(file).map(Zeroizing::new);
        let text = text
            .map_err(|error| UsageError(format!("cannot read the database's URL from {}: {error}", file.display())))?;
        let parsed = text.parse().map(Some);
        Ok(parsed.map_err(|error| UsageError(format!("{}: {error}", file.display())))?)
    }
}

/// Starts this program again, the URL moved from its arguments to its environment, where the arguments hold a password:
/// those of a process are read by everybody on the machine, its environment by its user alone. Returns where there is
/// nothing to hide, and where the system refuses.
pub(crate) fn hide_password() {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let Some((arguments, url)) = without_password(&arguments) else { return };
    let Ok(program) = std::env::current_exe() else { return };
    let Some((name, rest)) = arguments.split_first() else { return };
    let error = Command::new(program).arg0(name).args(rest).env(VARIABLE, url.reveal()).exec();
    let _ = writeln!(
        std::io::stderr(),
        "warning: the password in --database can be read by everybody on this machine ({error}); use {VARIABLE}_FILE"
    );
}

/// The arguments without `--database URL`, and the URL; none, where no URL with a password is among them.
fn without_password(arguments: &[OsString]) -> Option<(Vec<OsString>, DatabaseUrl)> {
    let mut kept = Vec::new();
    let mut found = None;
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        // What follows belongs to a command of the user.
        if argument == "--" {
            kept.push(argument.clone());
            break;
        }
        let text = argument.to_str().unwrap_or_default();
        let value = if argument == FLAG {
            rest.next().and_then(|value| value.to_str())
        } else if let Some(value) = text.strip_prefix(FLAG).and_then(|value| value.strip_prefix('=')) {
            Some(value)
        } else {
            kept.push(argument.clone());
            continue;
        };
        // Said twice or malformed: the parser tells.
        if found.is_some() {
            return None;
        }
        found = Some(value?.parse::<DatabaseUrl>().ok()?);
    }
    kept.extend(rest.cloned());
    Some((kept, found.filter(DatabaseUrl::has_password)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_url_is_told_without_its_password() {
        for (url, told) in [
            ("postgres://u:secret@h:5432/d", "postgres://u@h:5432/d"),
            ("postgres://u:se:cr@et@h/d?sslmode=require", "postgres://u@h/d?sslmode=require"),
            ("postgres://u:Zk3/secret+x@h:5432/d", "postgres://u@h:5432/d"),
            ("postgres://u:se?secret@h/d?sslmode=require", "postgres://u@h/d?sslmode=require"),
            ("postgres://u:p@secret/w#rd@h/d", "postgres://u@h/d"),
            ("postgres://u@h/d?password=secret&sslmode=require", "postgres://u@h/d?sslmode=require"),
            ("postgres://u@h/d?sslpassword=secret", "postgres://u@h/d"),
            ("postgres://u@h/d?p%61ssword=secret", "postgres://u@h/d"),
            ("postgresql://u@h/d", "postgresql://u@h/d"),
            ("postgres://h/d", "postgres://h/d"),
        ] {
            let url: DatabaseUrl = url.parse().unwrap();
            assert_eq!(url.without_password(), told);
            assert!(!format!("{url:?}").contains("secret"));
        }
        for (wrong, word) in [("mysql://u:secret@h/d", "mysql"), ("/var/lib/x", "no scheme"), ("sqlite://x", "sqlite")]
        {
            let told = wrong.parse::<DatabaseUrl>().unwrap_err();
            assert!(told.contains(word) && !told.contains("secret"), "{told}");
        }
    }

    #[test]
    fn a_password_leaves_the_arguments_and_nothing_else_does() {
        for (line, kept) in [
            ("leasehold serve --database postgres://u:p@h/d --data x", "leasehold serve --data x"),
            ("leasehold serve --data x --database=postgres://u:p@h/d", "leasehold serve --data x"),
            ("leasehold serve --database postgres://u@h/d?password=p", "leasehold serve"),
            ("leasehold serve --database postgres://u:p/q@h/d", "leasehold serve"),
            ("leasehold serve --database postgres://u:p?q@h/d", "leasehold serve"),
        ] {
            let (arguments, url) = without_password(&words(line)).unwrap();
            assert_eq!(arguments, words(kept));
            assert!(url.has_password());
        }
        for line in [
            "leasehold serve",
            "leasehold serve --database postgres://u@h/d",
            "leasehold serve --database mysql://u:p@h/d",
            "leasehold serve --database",
            "leasehold run -- psql --database postgres://u:p@h/d",
        ] {
            assert!(without_password(&words(line)).is_none(), "{line}");
        }
    }
}
