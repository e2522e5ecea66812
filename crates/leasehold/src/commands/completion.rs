//! `leasehold completion`: a script that teaches a shell our commands and flags.

use clap::{Args, CommandFactory as _, ValueEnum};
use clap_complete::{Shell, generate};

use crate::exit::Exit;

const AFTER_HELP: &str = "\
Examples:
  leasehold completion bash \\
    > ~/.local/share/bash-completion/completions/leasehold
  leasehold completion zsh > \"${fpath[1]}/_leasehold\"
  leasehold completion fish > ~/.config/fish/completions/leasehold.fish";

/// The shells.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum For {
    Bash,
    Zsh,
    Fish,
}

/// Prints a completion script.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Completion {
    /// Which shell
    #[arg(value_enum)]
    shell: For,
}

impl Completion {
    pub(crate) fn execute(self) -> anyhow::Result<Exit> {
        std::io::Write::write_all(&mut std::io::stdout().lock(), &script(self.shell))?;
        Ok(Exit::Done)
    }
}

fn script(shell: For) -> Vec<u8> {
    let shell = match shell {
        For::Bash => Shell::Bash,
        For::Zsh => Shell::Zsh,
        For::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    generate(shell, &mut super::CommandLine::command(), "leasehold", &mut script);
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_learns_every_verb_and_flag() {
        fn words(command: &clap::Command, found: &mut Vec<String>) {
            found.extend(command.get_opts().filter_map(|flag| Some(flag.get_long()?.to_owned())));
            for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
                found.push(inner.get_name().to_owned());
                words(inner, found);
            }
        }
        let mut wanted = Vec::new();
        words(&crate::commands::CommandLine::command(), &mut wanted);
        assert!(wanted.len() > 100, "{}", wanted.len());
        for shell in For::value_variants() {
            let script = String::from_utf8(script(*shell)).unwrap();
            let missing: Vec<_> = wanted.iter().filter(|word| !script.contains(word.as_str())).collect();
            assert!(missing.is_empty(), "{shell:?}: {missing:?}");
        }
    }
}
