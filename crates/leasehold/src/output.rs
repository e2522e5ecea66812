//! How answers are printed: a table for people, JSON for programs, a name for scripts. Data goes to stdout, everything
//! else to stderr. (Product, *The command line*.)

use std::io::{self, Write};

use clap::{Args, ValueEnum};
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

use crate::failure::UsageError;

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    // Columns for people.
    #[default]
    Table,
    // One JSON document, fields named as in the API.
    Json,
    // One JSON document per line.
    Jsonl,
    // Only the name or id, one per line.
    Name,
}

/// The output flags of every command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// How to print the answer: columns, JSON with the API's field names, JSON by line, or only the id
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,

    /// Print only the one thing a script wants, and nothing of ours on stderr
    #[arg(short, long)]
    pub quiet: bool,
}

/// Whether the person wants no colours. (no-color.org: set and not empty.)
#[expect(clippy::disallowed_methods, reason = "a binary reads its own environment")]
pub(crate) fn no_colour() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// Something that can be a row of a table.
pub(crate) trait Row: Serialize {
    /// The heads of its columns.
    const HEADS: &'static [&'static str];

    /// Its cells, one per head.
    fn cells(&self) -> Vec<String>;

    /// Its name or id.
    fn name(&self) -> String;
}

impl OutputArgs {
    /// The form to print: `-q` alone means names.
    pub(crate) fn format(&self) -> Format {
        if self.quiet && self.output == Format::Table { Format::Name } else { self.output }
    }

    /// Refuses `-o name` for `what` is shown once, before it is made: its name would be all that is left.
    pub(crate) fn check_shows(&self, what: &str) -> Result<(), UsageError> {
        if self.output == Format::Name {
            let text =
                format!("-o name would not show {what}, which is shown once: say -q to print it alone, or -o json");
            return Err(UsageError(text));
        }
        Ok(())
    }

    /// Prints a list.
    pub(crate) fn list<T: Row>(&self, items: &[T]) -> io::Result<()> {
        self.write_list(items, &mut io::stdout().lock()).map_err(|error| cannot_write("stdout", &error))
    }

    fn write_list<T: Row>(&self, items: &[T], out: &mut impl Write) -> io::Result<()> {
        match self.format() {
            Format::Table => {
                for line in table(items).lines() {
                    writeln!(out, "{}", line.trim_end())?;
                }
                Ok(())
            }
            Format::Json => {
                serde_json::to_writer_pretty(&mut *out, items)?;
                writeln!(out)
            }
            Format::Jsonl => items.iter().try_for_each(|item| {
                serde_json::to_writer(&mut *out, item)?;
                writeln!(out)
            }),
            Format::Name => items.iter().try_for_each(|item| writeln!(out, "{}", item.name())),
        }
    }

    /// Prints one thing; `page` writes its form for people.
    pub(crate) fn one<T: Serialize>(
        &self,
        item: &T,
        name: &str,
        page: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        self.write_one(item, name, page, &mut io::stdout().lock()).map_err(|error| cannot_write("stdout", &error))
    }

    fn write_one<T: Serialize>(
        &self,
        item: &T,
        name: &str,
        page: impl FnOnce(&mut dyn Write) -> io::Result<()>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        match self.format() {
            Format::Table => {
                let mut text = Vec::new();
                page(&mut text)?;
                out.write_all(harmless(&String::from_utf8_lossy(&text)).as_bytes())
            }
            Format::Json => {
                serde_json::to_writer_pretty(&mut *out, item)?;
                writeln!(out)
            }
            Format::Jsonl => {
                serde_json::to_writer(&mut *out, item)?;
                writeln!(out)
            }
            Format::Name => writeln!(out, "{name}"),
        }
    }

    /// Says something of ours on stderr, unless told to be quiet. That stderr is gone is no reason to stop.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            let _ = writeln!(io::stderr().lock(), "{}", harmless(text));
        }
    }
}

/// What stands on one line of ours and stays there: what people and machines named may hold any character.
pub(crate) fn on_one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// `text` without what a terminal obeys instead of showing it.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && !matches!(c, '\n' | '\t') { '\u{fffd}' } else { c }).collect()
}

/// A stream of ours that cannot be written, named. The kind stays: who closed a pipe on purpose is told nothing.
pub(crate) fn cannot_write(name: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write to {name}: {error}"))
}

fn table<T: Row>(items: &[T]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(T::HEADS.iter().map(|head| head.to_uppercase()));
    for item in items {
        table.add_row(item.cells().iter().map(|cell| on_one_line(cell)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Pet(&'static str, &'static str);

    impl Row for Pet {
        const HEADS: &'static [&'static str] = &["name", "kind"];

        fn cells(&self) -> Vec<String> {
            vec![self.0.to_owned(), self.1.to_owned()]
        }

        fn name(&self) -> String {
            self.0.to_owned()
        }
    }

    #[test]
    fn a_table_has_one_line_per_item_and_aligned_columns() {
        let pets = [Pet("Rex", "dog"), Pet("Tom the Great", "cat\nand more")];
        let lines: Vec<String> = table(&pets).lines().map(|line| line.trim_end().to_owned()).collect();
        assert_eq!(lines, ["NAME           KIND", "Rex            dog", "Tom the Great  cat and more"]);
    }

    #[test]
    fn no_text_of_somebody_reaches_the_terminal_as_a_command() {
        let pet = Pet("Rex", "dog\u{1b}]0;owned\u{7}\u{9b}2J");
        let output = OutputArgs { output: Format::Table, quiet: false };
        let mut text = Vec::new();
        output.write_one(&pet, "Rex", |out| writeln!(out, "a\t{}", pet.1), &mut text).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), "a\tdog\u{fffd}]0;owned\u{fffd}\u{fffd}2J\n");
        assert!(!table(&[pet]).lines().any(|line| line.contains(char::is_control)));
    }

    #[test]
    fn quiet_alone_means_names() {
        let output = |output, quiet| OutputArgs { output, quiet }.format();
        assert_eq!(output(Format::Table, true), Format::Name);
        assert_eq!(output(Format::Json, true), Format::Json);
        assert_eq!(output(Format::Table, false), Format::Table);
    }
}
