//! Rust text as the walls read it: code without comments and literals, literals apart, tests apart.
//!
//! A wall that greps raw text fires on prose and misses what a comment hides; a full parser would cost a minute of
//! build for a question of a few tokens. This reads exactly as much of the lexical grammar as that question needs:
//! comments (nested ones too), strings of every kind, character literals against lifetimes.

/// A text between quotes, with the line it begins on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Literal {
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// One Rust file, taken apart. `code` has the lines of the original; comments and the insides of literals are blank.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) code: String,
    pub(crate) literals: Vec<Literal>,
}

impl Source {
    /// Takes a text apart.
    pub(crate) fn read(text: &str) -> Self {
        let mut reader = Reader { rest: text, line: 1, code: String::with_capacity(text.len()), literals: Vec::new() };
        reader.read();
        Self { code: reader.code, literals: reader.literals }
    }

    /// The same file without its `#[cfg(test)]` items: what ships.
    pub(crate) fn without_tests(mut self) -> Self {
        while let Some((begin, end)) = test_item(&self.code) {
            let (first, last) = (line_of(&self.code, begin), line_of(&self.code, end));
            self.literals.retain(|literal| literal.line < first || literal.line > last);
            let blank: String = self.code[begin..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
            self.code.replace_range(begin..end, &blank);
        }
        self
    }

    /// The lines (from 1) whose code names this path: `std::fs` is found in `std::fs::File` and `std::{fs, io}` alike.
    pub(crate) fn lines_naming(&self, path: &str) -> Vec<usize> {
        let mut lines: Vec<usize> = self
            .code
            .lines()
            .enumerate()
            .filter(|(_, line)| names_path(line, path))
            .map(|(index, _)| index + 1)
            .collect();
        for (offset, imported) in imports(&self.code) {
            if names_path(&imported, path) {
                lines.push(line_of(&self.code, offset));
            }
        }
        lines.sort_unstable();
        lines.dedup();
        lines
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn names_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + path.len()..].chars().next();
        let opens = !path.starts_with(is_word) || !before.is_some_and(is_word);
        let closes = !path.ends_with(is_word) || !after.is_some_and(is_word);
        opens && closes
    })
}

/// Every path of every `use` declaration, groups taken apart: (offset, `std::fs`).
fn imports(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("use ") {
        let preceded = code[..at].chars().next_back();
        if preceded.is_some_and(is_word) {
            continue;
        }
        let Some(length) = code[at..].find(';') else { continue };
        let tree = code[at + 4..at + length].trim();
        spread("", tree, at, &mut found);
    }
    found
}

fn spread(prefix: &str, tree: &str, at: usize, found: &mut Vec<(usize, String)>) {
    let tree = tree.trim().trim_start_matches("::");
    if let Some(open) = tree.find('{') {
        let head = format!("{prefix}{}", tree[..open].trim());
        let inside = tree[open + 1..].rsplit_once('}').map_or(&tree[open + 1..], |(inside, _)| inside);
        let (mut depth, mut begin) = (0_usize, 0);
        for (index, c) in inside.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                ',' if depth == 0 => {
                    spread(&head, &inside[begin..index], at, found);
                    begin = index + 1;
                }
                _ => {}
            }
        }
        spread(&head, &inside[begin..], at, found);
    } else if !tree.is_empty() {
        let path = tree.split_whitespace().next().unwrap_or(tree);
        let path = path.trim_end_matches("::self").trim_end_matches("self");
        found.push((at, format!("{prefix}{path}").trim_end_matches("::").to_owned()));
    }
}

/// Where the first `#[cfg(test)]` item begins and ends; code without literals has balanced braces.
fn test_item(code: &str) -> Option<(usize, usize)> {
    let begin = code.find("#[cfg(test)]")?;
    let mut depth = 0_usize;
    for (index, c) in code[begin + "#[cfg(test)]".len()..].char_indices() {
        let end = begin + "#[cfg(test)]".len() + index + c.len_utf8();
        match c {
            '{' => depth += 1,
            '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some((begin, end));
                }
            }
            ';' if depth == 0 => return Some((begin, end)),
            _ => {}
        }
    }
    Some((begin, code.len()))
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
    code: String,
    literals: Vec<Literal>,
}

impl Reader<'_> {
    fn read(&mut self) {
        while let Some(c) = self.rest.chars().next() {
            if self.rest.starts_with("//") {
                let length = self.rest.find('\n').unwrap_or(self.rest.len());
                self.blank(length);
            } else if self.rest.starts_with("/*") {
                let length = block_comment(self.rest);
                self.blank(length);
            } else if let Some((open, close)) = self.string_opening() {
                self.string(open, &close);
            } else if c == '\'' {
                let length = character(self.rest);
                self.keep(1);
                if length > 1 {
                    self.blank(length - 2);
                    self.keep(1);
                }
            } else {
                self.keep(c.len_utf8());
            }
        }
    }

    fn keep(&mut self, length: usize) {
        let (kept, rest) = self.rest.split_at(length);
        self.line += kept.matches('\n').count();
        self.code.push_str(kept);
        self.rest = rest;
    }

    fn blank(&mut self, length: usize) {
        let (blanked, rest) = self.rest.split_at(length);
        self.line += blanked.matches('\n').count();
        self.code.extend(blanked.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        self.rest = rest;
    }

    /// The opening of a string that begins here, and what closes it.
    fn string_opening(&self) -> Option<(usize, String)> {
        let rest = self.rest;
        if rest.starts_with('"') {
            return Some((1, "\"".to_owned()));
        }
        if self.code.ends_with(is_word) {
            return None;
        }
        let prefix = ["br", "cr", "b", "c", "r"].into_iter().find(|prefix| {
            rest.strip_prefix(*prefix).is_some_and(|after| {
                after.starts_with('"') || prefix.ends_with('r') && after.trim_start_matches('#').starts_with('"')
            })
        })?;
        let hashes = rest[prefix.len()..].chars().take_while(|c| *c == '#').count();
        let raw = prefix.ends_with('r');
        let close = if raw { format!("\"{}", "#".repeat(hashes)) } else { "\"".to_owned() };
        Some((prefix.len() + hashes + 1, close))
    }

    fn string(&mut self, open: usize, close: &str) {
        let raw = self.rest[..open].contains('r');
        self.keep(open);
        let line = self.line;
        let mut length = self.rest.len();
        let mut escaped = false;
        for (index, c) in self.rest.char_indices() {
            if escaped {
                escaped = false;
            } else if c == '\\' && !raw {
                escaped = true;
            } else if self.rest[index..].starts_with(close) {
                length = index;
                break;
            }
        }
        self.literals.push(Literal { line, text: self.rest[..length].to_owned() });
        self.blank(length);
        self.keep(close.len().min(self.rest.len()));
    }
}

fn block_comment(text: &str) -> usize {
    let (mut depth, mut index) = (0_usize, 0);
    while index < text.len() {
        if text[index..].starts_with("/*") {
            depth += 1;
            index += 2;
        } else if text[index..].starts_with("*/") {
            depth -= 1;
            index += 2;
            if depth == 0 {
                return index;
            }
        } else {
            index += text[index..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The length of the character literal at a quote, or 1 when the quote opens a lifetime.
fn character(text: &str) -> usize {
    let mut characters = text.char_indices().skip(1);
    match characters.next() {
        Some((_, '\\')) => {
            // The escaped character may itself be a quote.
            characters.next();
            characters.find(|(_, c)| *c == '\'').map_or(1, |(index, _)| index + 1)
        }
        Some(_) => match characters.next() {
            Some((index, '\'')) => index + 1,
            _ => 1,
        },
        None => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_not_code() {
        let source = Source::read(
            "let a = \"tokio // no\"; // tokio\n/* tokio /* nested */ tokio */ let b = r#\"a \"tokio\" b\"#;\nlet c = '\"'; let d = b\"x\\\"tokio\";\n",
        );
        assert!(!source.code.contains("tokio"), "{}", source.code);
        let texts: Vec<&str> = source.literals.iter().map(|literal| literal.text.as_str()).collect();
        assert_eq!(texts, ["tokio // no", "a \"tokio\" b", "x\\\"tokio"]);
        assert_eq!(source.literals[1].line, 2);
        assert_eq!(source.code.lines().count(), 3);
    }

    #[test]
    fn a_lifetime_is_not_a_character() {
        let source =
            Source::read("fn f<'a>(x: &'a str) -> &'a str { x } const Q: char = '\\''; const S: &str = \"s\";");
        assert!(source.code.contains("fn f<'a>(x: &'a str) -> &'a str"), "{}", source.code);
        assert_eq!(source.literals.len(), 1);
    }

    #[test]
    fn tests_are_taken_out_with_their_literals() {
        let source = Source::read(
            "fn kept() {}\n#[cfg(test)]\nmod tests {\n    fn gone() { let x = \"SELECT 1\"; }\n}\nfn also_kept() {}\n",
        )
        .without_tests();
        assert!(source.code.contains("kept") && source.code.contains("also_kept"));
        assert!(!source.code.contains("gone"));
        assert!(source.literals.is_empty());
    }

    #[test]
    fn a_path_is_found_whole_and_in_groups() {
        let cases = [
            ("let f = std::fs::File::open(p);", "std::fs", true),
            ("use std::{collections::BTreeMap, fs};", "std::fs", true),
            ("use std::{io::{self, Read}, fs::File};", "std::fs", true),
            ("use ::std::fs;", "std::fs", true),
            ("use std::fsx;", "std::fs", false),
            ("let tokio_like = 1;", "tokio", false),
            ("use my_tokio::x;", "tokio", false),
            ("tokio::spawn(f);", "tokio", true),
            ("std::fs::rename(a, b)?;", "fs::rename", true),
            ("use rustix::fs::{openat, linkat};", "fs::linkat", true),
            ("LeaseInstant::now()", "Instant::now", false),
            ("x.sync_all()?;", ".sync_all(", true),
        ];
        for (code, path, expected) in cases {
            assert_eq!(!Source::read(code).lines_naming(path).is_empty(), expected, "{path} in {code}");
        }
    }
}
