//! Task files from where a person keeps them: files, directories, standard input; every mistake in all of them at once.
//!
//! A file is one task. A directory is read with those in it: every `*.toml`, in the order of names; what begins with a dot
//! is somebody else's. (Product, *A task file*.)

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use leasehold_core::id::TaskName;
use leasehold_core::limits::APPLY_TASKS;
use leasehold_core::revision::Revision;
use leasehold_core::shape::{ShapeError, ShapeErrorKind};

use crate::failure::UsageError;
use crate::spec::{Spec, SpecError};

/// Directories in directories.
const DEPTH: usize = 16;

/// The tasks that these paths hold.
pub(crate) fn read(paths: &[PathBuf]) -> anyhow::Result<BTreeMap<TaskName, Revision>> {
    let mut files = Vec::new();
    for path in paths {
        if path.as_os_str() != "-" && path.is_dir() {
            let before = files.len();
            collect(path, DEPTH, &mut files)?;
            if files.len() == before {
                return Err(UsageError(format!("{}: no `*.toml` is in it", path.display())).into());
            }
        } else {
            files.push(path.clone());
        }
    }
    let mut tasks: BTreeMap<TaskName, (PathBuf, Revision)> = BTreeMap::new();
    let mut mistakes = Vec::new();
    for file in files {
        let (spec, revision) = match task(&file) {
            Ok(read) => read,
            Err(SpecError::Mistakes(found)) => {
                mistakes.extend(found);
                continue;
            }
            Err(other) => return Err(other.into()),
        };
        let missing =
            |got: String, allowed: &str| spec.locate(&[ShapeError::new("name", ShapeErrorKind::Value, got, allowed)]);
        let refused = match revision.name().cloned() {
            None => missing("no name".to_owned(), "`name`: what the task is called"),
            Some(name) => {
                let Some((other, _)) = tasks.get(&name) else {
                    tasks.insert(name, (file, revision));
                    continue;
                };
                missing(
                    format!("the task `{name}`, which {} is already", other.display()),
                    "a name of its own for every task",
                )
            }
        };
        if let SpecError::Mistakes(found) = refused {
            mistakes.extend(found);
        }
    }
    if !mistakes.is_empty() {
        return Err(SpecError::Mistakes(mistakes).into());
    }
    if tasks.len() > APPLY_TASKS {
        return Err(UsageError(format!("{} tasks: at most {APPLY_TASKS} are applied at once", tasks.len())).into());
    }
    Ok(tasks.into_iter().map(|(name, (_, revision))| (name, revision)).collect())
}

fn task(file: &Path) -> Result<(Spec, Revision), SpecError> {
    let spec = Spec::read(file)?;
    let revision = Revision::from_value(spec.value()).map_err(|errors| spec.locate(&errors))?;
    Ok((spec, revision))
}

fn collect(directory: &Path, depth: usize, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let listed = || format!("cannot list {}", directory.display());
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(directory).with_context(listed)? {
        entries.push(entry.with_context(listed)?.path());
    }
    entries.sort_unstable();
    for path in entries {
        let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        if hidden {
            continue;
        }
        if path.is_dir() {
            let deeper = depth.checked_sub(1).with_context(|| {
                format!("{}: more than {DEPTH} directories inside each other (a link in a circle?)", path.display())
            })?;
            collect(&path, deeper, files)?;
        } else if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(paths: &[PathBuf]) -> String {
        crate::failure::text(&read(paths).unwrap_err())
    }

    #[test]
    fn a_directory_is_read_with_what_is_in_it_and_every_mistake_is_told() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let write = |name: &str, text: &str| std::fs::write(at(name), text).unwrap();
        let all = [root.path().to_owned()];
        assert!(told(&all).contains("no `*.toml`"));
        std::fs::create_dir_all(at("team/.git")).unwrap();
        write("one.toml", "name = 'one'\n[command]\nargv = ['true']\n");
        write("team/two.toml", "name = 'two'\n[command]\nargv = ['true']\n");
        write("notes.txt", "no task");
        write(".hidden.toml", "no task");
        write("team/.git/x.toml", "no task");
        let names: Vec<_> = read(&all).unwrap().into_keys().map(|name| name.to_string()).collect();
        assert_eq!(names, ["one", "two"]);

        write("team/nameless.toml", "[command]\nargv = ['true']\n");
        write("team/three.toml", "name = 'one'\n[command]\nargv = ['true']\n");
        write("team/wrong.toml", "name = 'wrong'\n[comand]\nargv = ['true']\n");
        let told = told(&all);
        for part in ["nameless.toml:1:1: ", "three.toml:1:1: ", "one.toml is already", "wrong.toml:2:2: ", "`command`"]
        {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert_eq!(read(&[at("one.toml"), at("team/two.toml")]).unwrap().len(), 2);
    }

    #[test]
    fn a_circle_of_links_ends() {
        let root = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(root.path(), root.path().join("again")).unwrap();
        assert!(told(&[root.path().to_owned()]).contains("a link in a circle?"));
    }
}
