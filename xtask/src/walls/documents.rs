//! Walls of the documents: a link leads somewhere, a comment cites what is there, both languages show the same.

use std::collections::BTreeMap;

use super::Violation;
use crate::checkout::TextFile;

/// What comments call a page, and which page that is.
const CITED: [(&str, &str); 9] = [
    ("design", "ARCHITECTURE.md"),
    ("protocol", "docs/protocol.md"),
    ("worker design", "docs/design/worker.md"),
    ("control design", "docs/design/control.md"),
    ("product", "docs/design/product.md"),
    ("proof", "docs/design/proof.md"),
    ("decisions", "docs/decisions/0004-small-decisions.md"),
    ("launcher facts", "docs/design/launcher-facts.md"),
    ("model findings", "docs/design/model-findings.md"),
];

/// The second language of a page.
const TRANSLATED: &str = ".zh-CN.md";

type Pages<'a> = BTreeMap<&'a str, &'a str>;

/// Every place where the documents contradict the repository, or each other.
pub(super) fn violations(files: &[TextFile]) -> Vec<Violation> {
    let pages: Pages<'_> = files.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
    let of = |file: &TextFile| match file.path.rsplit_once('.') {
        Some((_, "md")) => [links(file, &pages), translation(file, &pages)].concat(),
        Some((_, "rs")) => citations(file, &pages),
        _ => Vec::new(),
    };
    files.iter().flat_map(of).collect()
}

/// The lines of a page that are no block of code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let fence = line.starts_with("```");
        fenced ^= fence;
        !fence && !fenced
    })
}

/// Links to a file, or a section of one, that is not there.
fn links(file: &TextFile, pages: &Pages<'_>) -> Vec<Violation> {
    let mut broken = Vec::new();
    for (index, line) in prose(&file.text) {
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
        for target in targets.filter(|target| !target.contains("://")) {
            let (path, section) = target.split_once('#').unwrap_or((target, ""));
            let path = if path.is_empty() { file.path.clone() } else { beside(&file.path, path) };
            let is_there = match pages.get(path.as_str()) {
                Some(page) => {
                    section.is_empty() || prose(page).any(|(_, line)| anchor(line).is_some_and(|a| a == section))
                }
                None => section.is_empty() && pages.keys().any(|other| other.starts_with(&format!("{path}/"))),
            };
            if !is_there {
                broken
                    .push(Violation::new(format!("{}:{}", file.path, index + 1), format!("`{target}` leads nowhere")));
            }
        }
    }
    broken
}

/// The path of `target`, which stands in the page `from`.
fn beside(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The name that a heading has in links.
fn anchor(line: &str) -> Option<String> {
    let heading = line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#'))?;
    let named = |c: char| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c => c.is_alphanumeric().then_some(c),
    };
    Some(heading.to_lowercase().chars().filter_map(named).collect())
}

/// Comments that cite a section which its page does not have.
fn citations(file: &TextFile, pages: &Pages<'_>) -> Vec<Violation> {
    let mut broken = Vec::new();
    for (line, comment) in comments(&file.text) {
        for (at, _) in comment.match_indices(", *") {
            let Some(begin) = comment[..at].rfind(['(', ';']) else { continue };
            let name = comment[begin + 1..at].trim().to_lowercase();
            let Some((_, path)) = CITED.into_iter().find(|(cited, _)| *cited == name) else { continue };
            let known = pages.get(path).map(|page| sections(page)).unwrap_or_default();
            for cited in emphasised(&comment[at + 2..]) {
                let cited = plain(cited);
                if !known.iter().any(|section| section.starts_with(&cited)) {
                    let sentence = format!("cites *{cited}*, which {path} does not have");
                    broken.push(Violation::new(format!("{}:{line}", file.path), sentence));
                }
            }
        }
    }
    broken
}

/// Each comment on one line, with the number of its first.
fn comments(text: &str) -> Vec<(usize, String)> {
    let mut comments: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (index, line) in text.lines().enumerate() {
        let comment = line.trim_start().strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!']).trim());
        match (comment, comments.last_mut()) {
            (Some(words), Some((_, comment))) if goes_on => comment.extend([" ", words]),
            (Some(words), _) => comments.push((index + 1, words.to_owned())),
            (None, _) => {}
        }
        goes_on = comment.is_some();
    }
    comments
}

/// The first of `*A*, *B* and *C*`, and those that follow it at once.
fn emphasised(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((section, after)) = rest.strip_prefix('*').and_then(|inside| inside.split_once('*')) {
        found.push(section);
        rest = [", and ", " and ", ", "].iter().find_map(|joint| after.strip_prefix(joint)).unwrap_or("");
    }
    found
}

/// What a page can be cited by: headings, what begins in bold, and the first cells of its tables.
fn sections(page: &str) -> Vec<String> {
    let of = |line: &str| {
        let heading = line.starts_with('#').then(|| line.trim_start_matches('#'));
        let cell = line.strip_prefix("| ").and_then(|row| row.split(" |").next());
        let bold = line.split("**").skip(1).step_by(2);
        heading.into_iter().chain(cell).chain(bold).map(plain).collect::<Vec<_>>()
    };
    prose(page).flat_map(|(_, line)| of(line)).collect()
}

fn plain(text: &str) -> String {
    text.replace('`', "").trim().to_lowercase()
}

/// Where a page in the second language shows other commands or names than the first.
fn translation(file: &TextFile, pages: &Pages<'_>) -> Vec<Violation> {
    let Some(name) = file.path.strip_suffix(TRANSLATED) else { return Vec::new() };
    let first = format!("{name}.md");
    let (Some(page), here) = (pages.get(first.as_str()), shown(&file.text)) else {
        return vec![Violation::new(&file.path, format!("is a translation of {first}, which is not there"))];
    };
    let there = shown(page);
    let pairs = there.iter().zip(&here).filter(|((_, first), (_, second))| first != second);
    let told = pairs.map(|((_, first_shows), (heading, shows))| {
        let lacks = first_shows.iter().find(|shown| !shows.contains(shown));
        let more = shows.iter().find(|shown| !first_shows.contains(shown));
        Violation::new(
            &file.path,
            format!("`{heading}` shows other things than {first}: lacks {lacks:?}, has {more:?}"),
        )
    });
    let mut differing: Vec<Violation> = told.collect();
    if there.len() != here.len() {
        differing.push(Violation::new(&file.path, format!("has {} sections, {first} has {}", here.len(), there.len())));
    }
    differing
}

/// Each section's heading, and what it shows that has no language: code without its comments, and names.
fn shown(text: &str) -> Vec<(&str, Vec<&str>)> {
    let mut sections = vec![("", Vec::new())];
    let mut fenced = false;
    for line in text.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
            continue;
        }
        if !fenced && line.starts_with('#') {
            sections.push((line, Vec::new()));
        }
        let Some((_, shown)) = sections.last_mut() else { continue };
        if fenced {
            let code = line.split(" #").next().unwrap_or(line).trim_end();
            shown.extend((!code.is_empty()).then_some(code));
        } else {
            shown.extend(line.split('`').skip(1).step_by(2));
        }
    }
    for (_, shown) in &mut sections {
        shown.sort_unstable();
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| TextFile { path: (*path).to_owned(), text: (*text).to_owned() };
        violations(&files.iter().map(file).collect::<Vec<_>>()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_link_that_leads_nowhere_is_refused() {
        let page = "# A page\n\n## What it says, and why\n";
        for (link, broken) in [
            ("other.md", false),
            ("other.md#what-it-says-and-why", false),
            ("other.md#what-it-said", true),
            ("gone.md", true),
            ("../docs", false),
            ("../nowhere", true),
            ("#here", false),
            ("https://elsewhere.example/gone", false),
        ] {
            let text = format!("# Here\n\nSee [it]({link}).\n\n```\nnot [one](gone.md)\n```\n");
            assert_eq!(!found(&[("docs/page.md", &text), ("docs/other.md", page)]).is_empty(), broken, "{link}");
        }
    }

    #[test]
    fn a_comment_that_cites_a_section_which_is_not_there_is_refused() {
        let page =
            ("docs/protocol.md", "# Protocol\n\n## Sessions\n\n### `end`\n\n- **Tickets** are spent.\n\n| Limits |\n");
        for (comment, broken) in [
            ("//! Decided. (Protocol, *Sessions* and *`end`*.)", false),
            ("//! Decided. (Something; protocol, *tickets*, *limits*.)", false),
            ("    /// Decided. (Protocol,\n    /// *Leases*.)", true),
            ("//! Decided. (Protocol, *Sessions*, *Leases*.)", true),
            ("//! Not a citation, *really*.", false),
            ("let code = \"(Protocol, *Leases*)\";", false),
        ] {
            assert_eq!(!found(&[("crates/x.rs", comment), page]).is_empty(), broken, "{comment}");
        }
    }

    #[test]
    fn a_translation_that_shows_something_else_is_refused() {
        let page = ("docs/guide.md", "# Guide\n\nSay `-q`.\n\n```\nleasehold up    # begin\n```\n\n## More\n");
        for (text, broken) in [
            ("# 指南\n\n用 `-q`。\n\n```\nleasehold up    # 开始\n```\n\n## 更多\n", false),
            ("# 指南\n\n用 `-v`。\n\n```\nleasehold up\n```\n\n## 更多\n", true),
            ("# 指南\n\n用 `-q`。\n\n```\nleasehold down\n```\n\n## 更多\n", true),
            ("# 指南\n\n用 `-q`。\n\n```\nleasehold up\n```\n", true),
        ] {
            assert_eq!(!found(&[page, ("docs/guide.zh-CN.md", text)]).is_empty(), broken, "{text}");
        }
        assert!(!found(&[("docs/other.zh-CN.md", "# 指南\n")]).is_empty());
    }
}
