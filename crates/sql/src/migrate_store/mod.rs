//! Moving a store from SQLite to PostgreSQL, so that one of them lives, whatever fails and whenever.
//!
//! The file is marked before anything can live elsewhere, and every program refuses a marked file. What a move that did not
//! end means is told by how far its mark got, and past that only by the database that it went to:
//!
//! | the mark says | the database may hold | a move that is begun again |
//! | --- | --- | --- |
//! | nothing | nothing | begins |
//! | `copying` | nothing: it was never asked to commit | takes the mark back and begins |
//! | `committing` | everything or nothing | asks it: everything, and the mark is finished; nothing, and as above |
//! | `finished` | everything | says so |
//!
//! A mark is taken back only once it is certain that nothing was committed. Rows are copied in one transaction, read back and
//! compared before it is committed. (`docs/operating-postgresql.md`.)

use std::time::Duration;

use leasehold_core::actor::Actor;
use leasehold_core::id::MoveId;
use leasehold_core::time::Clock;
use leasehold_store::call::Installation;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::postgres::moving::{Committed, Standing, Target};
use crate::postgres::{OpenError as TargetOpenError, PostgresOptions, TargetError};
use crate::sqlite::moving::Contents;
use crate::sqlite::{Moved, OpenError as SourceOpenError, Place, Source, SourceError, Stage};

pub(crate) mod tables;
pub(crate) mod tuple;

#[cfg(test)]
mod tests;

use tables::Table;
use tuple::Change;

/// Pieces of rows that wait for the database.
const PIECES: usize = 4;

/// How long it is asked again whether a commit that was not answered took effect.
pub const PATIENCE: Duration = Duration::from_mins(2);

/// The database that a store is moved to.
#[derive(Clone)]
pub struct Destination {
    /// Its URL, which may hold a password.
    pub url: String,
    /// What may be said of it.
    pub told: String,
    /// How it is opened.
    pub options: PostgresOptions,
    /// How long an unanswered commit is asked for: [`PATIENCE`].
    pub patience: Duration,
}

impl std::fmt::Debug for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Destination").field("told", &self.told).finish_non_exhaustive()
    }
}

impl Destination {
    async fn open(&self, make: bool) -> Result<Target, MoveError> {
        Ok(Target::open(&self.url, &self.told, &self.options, make).await?)
    }
}

/// Something that was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// SQLite's file is marked: nobody opens it any more.
    Marked,
    /// Rows were sent.
    Copied {
        /// Of which table.
        table: &'static str,
        /// How many.
        rows: u64,
        /// Their size.
        bytes: u64,
    },
    /// Everything was read back and is what was sent.
    Compared,
    /// The mark says that the database may have it.
    Committing,
    /// The database has it.
    Committed,
}

/// What was moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Each table, with its rows and their size.
    pub tables: Vec<(&'static str, u64, u64)>,
}

/// What an earlier move left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// Nothing: a move may begin.
    Fresh,
    /// It had been committed, and is finished now. The mark as it was found.
    Finished(Moved),
}

/// Why a store was not moved.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// SQLite's file cannot be opened.
    #[error(transparent)]
    Open(#[from] SourceOpenError),
    /// SQLite's file cannot be read or marked.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The database cannot be opened.
    #[error("cannot use the database")]
    OpenTarget(#[from] TargetOpenError),
    /// The database did not take it.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// There is nothing to move.
    #[error("nothing was installed here yet: start the control plane with --database at once")]
    NotInstalled,
    /// Another installation lives in the database.
    #[error("the database holds another installation ({trust_domain}): name an empty one")]
    Occupied {
        /// Its trust domain.
        trust_domain: String,
    },
    /// This very installation lives in the database, but this file did not bring it.
    #[error(
        "the database already holds this installation ({trust_domain}), and not from this file: what is here is another \
         copy, such as a backup. Never start a control plane on it"
    )]
    OlderCopy {
        /// Its trust domain.
        trust_domain: String,
    },
    /// The database holds rows and no installation.
    #[error("the database's table {table} holds rows, but no installation: name an empty database")]
    Rows {
        /// In which table.
        table: String,
    },
    /// The schemas do not agree: a defect.
    #[error("the schemas of both databases do not agree ({0}): nothing can be moved by this build")]
    Schemas(String),
    /// A move to another database was asked to commit, and whether it did is not known.
    #[error(
        "a move to {} may have been committed there, and this is another database: name that one, which ends the move",
        .0.to.url
    )]
    Elsewhere(Box<Moved>),
    /// The database did not commit.
    #[error("the database did not commit: {0}")]
    NotCommitted(String),
    /// Whether it was committed is not known.
    #[error("{url} was asked to commit and did not answer ({why}): whether it has the store is not known")]
    Unknown {
        /// Which database.
        url: String,
        /// What happened.
        why: String,
    },
    /// A person stopped it.
    #[error("stopped")]
    Stopped,
    /// It was not moved, and the mark could not be taken back.
    #[error("{because}; and the mark of the file cannot be taken back: run `leasehold migrate-store` again")]
    StillMarked {
        /// Why it was not moved.
        because: Box<MoveError>,
        /// Why the mark stays.
        source: SourceError,
    },
    /// It was moved, and the mark could not be finished.
    #[error("the store was moved, and the file could not be marked so: run `leasehold migrate-store` again")]
    Unfinished(#[source] SourceError),
    /// A mark cannot be taken back: the database has the store.
    #[error("{} has this store since the move: what is here is older", .0.to.url)]
    Lives(Box<Moved>),
    /// A mark cannot be taken back before the database was asked.
    #[error("whether the move to {} was committed, only that database knows: name it with --database", .0.to.url)]
    AskFirst(Box<Moved>),
}

/// Ends what an earlier move of the store began, as far as that can be known.
pub async fn settle(source: &Source, to: &Destination, clock: &dyn Clock) -> Result<Settled, MoveError> {
    let Some(moved) = source.moved()? else { return Ok(Settled::Fresh) };
    match moved.stage {
        Stage::Finished => Ok(Settled::Finished(moved)),
        Stage::Committing if arrived(to, &moved).await? => {
            finish(source, &moved, clock)?;
            Ok(Settled::Finished(moved))
        }
        Stage::Copying | Stage::Committing => {
            source.unmark(None)?;
            Ok(Settled::Fresh)
        }
    }
}

/// Whether the database has what a move brought; certain either way.
async fn arrived(to: &Destination, moved: &Moved) -> Result<bool, MoveError> {
    let unknown = |error: MoveError| MoveError::Unknown { url: moved.to.url.clone(), why: said(&error) };
    let target = to.open(false).await.map_err(unknown)?;
    if !target.place().is(&moved.to) {
        return Err(MoveError::Elsewhere(Box::new(moved.clone())));
    }
    Ok(target.standing(Some(moved.id)).await.map_err(|error| unknown(error.into()))? == Standing::Arrived)
}

fn finish(source: &Source, moved: &Moved, clock: &dyn Clock) -> Result<(), MoveError> {
    let finished = Moved { stage: Stage::Finished, at: clock.utc(), ..moved.clone() };
    source.mark(&finished).map_err(MoveError::Unfinished)?;
    source.give_up_reserve();
    Ok(())
}

/// Looks whether a move may begin, and changes nothing. Answers whether the database has the schema already.
pub async fn look(source: &Source, to: &Destination) -> Result<bool, MoveError> {
    let installed = source.installation()?.ok_or(MoveError::NotInstalled)?;
    let target = to.open(false).await?;
    refuse_unless_empty(target.standing(None).await?, &installed)?;
    if target.is_made() && source.is_up_to_date()? {
        tables::plan(&source.tables()?, &target.catalog().await?).map_err(MoveError::Schemas)?;
    }
    Ok(target.is_made())
}

fn refuse_unless_empty(standing: Standing, ours: &Installation) -> Result<(), MoveError> {
    match standing {
        Standing::Empty => Ok(()),
        Standing::Installed { trust_domain, ca_certificate } if ca_certificate == ours.ca_certificate => {
            Err(MoveError::OlderCopy { trust_domain })
        }
        Standing::Installed { trust_domain, .. } => Err(MoveError::Occupied { trust_domain }),
        Standing::Rows(table) => Err(MoveError::Rows { table }),
        // Only who asks for a move is answered with it.
        Standing::Arrived => Err(MoveError::OlderCopy { trust_domain: ours.trust_domain.to_string() }),
    }
}

/// A move, as it is asked for.
pub struct Move<'a> {
    /// From where: migrated, whole, and without a mark.
    pub source: &'a Source,
    /// To where.
    pub to: &'a Destination,
    /// Which move.
    pub id: MoveId,
    /// The installation as the database is to hold it: its keys sealed under the master key of those who open it there.
    pub installation: &'a Installation,
    /// Who moves it.
    pub actor: &'a Actor,
    /// This machine's clocks.
    pub clock: &'a dyn Clock,
}

impl Move<'_> {
    /// Moves the store. Until `stop` is ready; what is being committed then is committed.
    pub async fn run(
        &self,
        progress: &mut (dyn FnMut(Progress) + Send),
        stop: impl Future<Output = ()>,
    ) -> Result<Report, MoveError> {
        let ours = self.source.installation()?.ok_or(MoveError::NotInstalled)?;
        let target = self.to.open(true).await?;
        refuse_unless_empty(target.standing(None).await?, &ours)?;
        let tables = tables::plan(&self.source.tables()?, &target.catalog().await?).map_err(MoveError::Schemas)?;
        let copying = Moved { id: self.id, to: target.place().clone(), stage: Stage::Copying, at: self.clock.utc() };
        if let Err(error) = self.source.mark(&copying) {
            return Err(self.take_back(error.into()));
        }
        progress(Progress::Marked);
        let copied = tokio::select! {
            copied = self.copy(&target, &tables, &ours, progress) => copied,
            () = stop => Err(MoveError::Stopped),
        };
        let copied = match copied {
            Ok(copied) => copied,
            Err(error) => {
                // Its connection ends, and with it what it did: it was never asked to commit.
                drop(target);
                return Err(self.take_back(error));
            }
        };
        let committing = Moved { stage: Stage::Committing, at: self.clock.utc(), ..copying };
        if let Err(error) = self.source.mark(&committing) {
            drop(target);
            return Err(self.take_back(error.into()));
        }
        progress(Progress::Committing);
        match target.commit().await {
            Committed::Yes => {}
            Committed::No(why) => return Err(self.take_back(MoveError::NotCommitted(why))),
            Committed::Unknown(why) => {
                drop(target);
                self.ask(&committing, why).await?;
            }
        }
        progress(Progress::Committed);
        finish(self.source, &committing, self.clock)?;
        let of = |(table, contents): (&Table, &Contents)| (table.name, contents.rows, contents.bytes);
        Ok(Report { tables: tables.iter().zip(&copied).map(of).collect() })
    }

    async fn copy(
        &self,
        target: &Target,
        tables: &[Table],
        ours: &Installation,
        progress: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Vec<Contents>, MoveError> {
        refuse_unless_empty(target.begin_copy(tables).await?, ours)?;
        let begun = target.lease_clock().await?;
        let Installation { ca_key, ticket_key, .. } = self.installation;
        let change = Change {
            shift: begun - self.source.lease_clock()?.get(),
            replaced: vec![
                ("installation", "ca_key", ca_key.clone()),
                ("installation", "ticket_key", ticket_key.clone()),
            ],
        };
        let (hand, coming) = mpsc::channel(PIECES);
        let (reader, to_read) = (self.source.reader(), tables.to_vec());
        let reading = tokio::task::spawn_blocking(move || {
            reader.read(&to_read, &change, |sent| hand.blocking_send(sent).is_ok())
        });
        let (sent, read) = tokio::join!(target.fill(tables, coming, progress), reading);
        match read {
            Ok(Ok(()) | Err(SourceError::Abandoned)) => {}
            Ok(Err(error)) => return Err(error.into()),
            Err(error) => return Err(SourceError::Damaged(format!("reading it failed: {error}")).into()),
        }
        let sent = sent?;
        target.verify(tables, &sent).await?;
        progress(Progress::Compared);
        // Nobody could renew a lease meanwhile, as nobody can while SQLite's clock stands.
        let waited = target.lease_clock().await?.saturating_sub(begun).max(0);
        target.wake(tables, waited, self.id, self.actor).await?;
        Ok(sent)
    }

    /// Asks whether a commit that was not answered took effect.
    async fn ask(&self, committing: &Moved, why: String) -> Result<(), MoveError> {
        let asked = timeout(self.to.patience, async {
            loop {
                match arrived(self.to, committing).await {
                    Ok(arrived) => return arrived,
                    Err(error) => tracing::info!("asking whether the commit took effect: {}", said(&error)),
                }
                sleep(Duration::from_secs(1)).await;
            }
        });
        match asked.await {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.take_back(MoveError::NotCommitted(why))),
            Err(_) => Err(MoveError::Unknown { url: committing.to.url.clone(), why }),
        }
    }

    /// Takes the mark back: it is certain that nothing was committed.
    fn take_back(&self, because: MoveError) -> MoveError {
        match self.source.unmark(None) {
            Ok(()) => because,
            Err(source) => MoveError::StillMarked { because: Box::new(because), source },
        }
    }
}

/// Gives a store back to SQLite after a move that did not happen. Where only the database knows whether it did, it is asked,
/// or a person's word stands for its answer: that it is `destroyed`. Answers where the move had gone to, if there was one.
pub async fn take_back(
    source: &Source,
    to: Option<&Destination>,
    destroyed: bool,
    actor: &Actor,
    clock: &dyn Clock,
) -> Result<Option<Place>, MoveError> {
    let Some(moved) = source.moved()? else { return Ok(None) };
    match (moved.stage, to) {
        (Stage::Finished, _) => return Err(MoveError::Lives(Box::new(moved))),
        (Stage::Copying, _) => {}
        (Stage::Committing, None) if destroyed => {}
        (Stage::Committing, None) => return Err(MoveError::AskFirst(Box::new(moved))),
        (Stage::Committing, Some(to)) => match arrived(to, &moved).await {
            Ok(true) => return Err(MoveError::Lives(Box::new(moved))),
            Ok(false) => {}
            // A database that answers is believed; a person's word stands for one that does not.
            Err(MoveError::Unknown { .. }) if destroyed => {}
            Err(error) => return Err(error),
        },
    }
    source.unmark(Some((actor, clock.utc(), &moved)))?;
    Ok(Some(moved.to))
}

/// An error with its causes.
fn said(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
