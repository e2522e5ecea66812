//! `leasehold completion`: a script that teaches a shell our commands and flags.

use clap::{Args, CommandFactory as _, ValueEnum};
use clap_complete::{Shell, generate};

use crate::exit::Exit;

const AFTER_HELP: &str = "\
Examples:
  leasehold completion bash > ~/.local/share/bash-completion/completions/leasehold
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
        let shell = match self.shell {
            For::Bash => Shell::Bash,
            For::Zsh => Shell::Zsh,
            For::Fish => Shell::Fish,
        };
        let mut script = Vec::new();
        generate(shell, &mut super::CommandLine::command(), "leasehold", &mut script);
        std::io::Write::write_all(&mut std::io::stdout().lock(), &script)?;
        Ok(Exit::Done)
    }
}
