//! The store of a data directory, moved to PostgreSQL: what the verb decides before and after [`leasehold_sql::migrate_store`].
//!
//! The master key that opens the installation there is the one that is given, or that of the data directory; where those two
//! differ, the installation's keys are sealed anew on their way. The data directory remembers which history of the database it
//! went to, as every replica's does. (`docs/operating-postgresql.md`.)

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use leasehold_control::install;
use leasehold_core::actor::Actor;
use leasehold_core::database::{History, Trust, trust};
use leasehold_core::id::MoveId;
use leasehold_core::time::Clock as _;
use leasehold_sql::migrate_store::{self, Destination, Move, MoveError, PATIENCE, Settled};
use leasehold_sql::postgres::{PostgresOptions, Witness};
use leasehold_sql::sqlite::{Moved, OpenError, Source, Stage};
use leasehold_store::call::Installation;

use super::StoreArgs;
use super::sqlite::in_use;
use crate::data_directory::DataDirectory;
use crate::database::DatabaseUrl;
use crate::exit::Exit;
use crate::failure::{self, Told, UsageError};
use crate::master_key::{FoundKey, MasterKeyArgs};
use crate::system::{SystemClock, SystemEntropy};

pub(crate) use leasehold_sql::migrate_store::Progress;

/// A table, with its rows and their size where that is known.
pub(crate) type Rows = (String, u64, Option<u64>);

/// What became of a store.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It was moved.
    Moved { to: String, tables: Vec<Rows> },
    /// It had been moved.
    AlreadyMoved { to: String },
    /// It can be moved; nothing was changed.
    Movable { to: String, tables: Vec<Rows>, has_schema: bool },
    /// It is given back, after a move to there that did not happen.
    TakenBack { from: String },
    /// There was nothing to give back.
    NotMoved,
}

/// Opens the store of a data directory, which no control plane has.
fn source(data: &DataDirectory) -> anyhow::Result<Source> {
    let path = data.database();
    if !std::fs::metadata(&path).is_ok_and(|found| found.len() > 0) {
        let text = format!(
            "{} holds no store on SQLite (leasehold.db): name its directory with --data",
            data.path().display()
        );
        return Err(Told { exit: Exit::NotFound, text }.into());
    }
    match Source::open(&path) {
        Ok(source) => Ok(source),
        Err(OpenError::Held { pid, .. }) => Err(in_use(data, pid)),
        Err(error) => Err(anyhow::Error::new(error).context(format!("cannot open {}", path.display()))),
    }
}

/// Moves the store of `data`, or only looks whether it could be moved.
pub(crate) async fn migrate_store(
    data: &Path,
    args: &StoreArgs,
    dry_run: bool,
    progress: &mut (dyn FnMut(Progress) + Send),
    stop: impl Future<Output = ()>,
) -> anyhow::Result<Answer> {
    let url = args.database.url()?.ok_or_else(|| UsageError("--database: name the database to move to".to_owned()))?;
    let data = DataDirectory::existing(data)?;
    let source = source(&data)?;
    let moved = source.moved().with_context(|| format!("cannot read {}", data.database().display()))?;
    let (to, memory) = destination(&url, moved.as_ref());
    if let Some(moved) = moved.filter(|moved| moved.stage == Stage::Finished || dry_run) {
        return already(&moved, &to);
    }
    let ended = move_it(&data, &source, &args.master_key, &to, dry_run, progress, stop).await;
    let answer = ended.map_err(|error| told(&error, &data, &source))?;
    if let (false, Some(seen)) = (dry_run, memory.seen()) {
        data.remember(seen)?;
    }
    Ok(answer)
}

fn already(moved: &Moved, to: &Destination) -> anyhow::Result<Answer> {
    let text = match moved.stage {
        Stage::Finished if moved.to.url == to.told => return Ok(Answer::AlreadyMoved { to: to.told.clone() }),
        Stage::Finished => format!("the store was moved to {} already: what is here is older", moved.to.url),
        Stage::Copying | Stage::Committing => format!(
            "a move to {} was begun and did not end: the same command without --dry-run ends it, and with --take-back gives \
             the store back",
            moved.to.url
        ),
    };
    Err(Told { exit: Exit::Conflict, text }.into())
}

async fn move_it(
    data: &DataDirectory,
    source: &Source,
    keys: &MasterKeyArgs,
    to: &Destination,
    dry_run: bool,
    progress: &mut (dyn FnMut(Progress) + Send),
    stop: impl Future<Output = ()>,
) -> anyhow::Result<Answer> {
    let clock = SystemClock;
    if !dry_run {
        if let Settled::Finished(_) = migrate_store::settle(source, to, &clock).await? {
            return Ok(Answer::AlreadyMoved { to: to.told.clone() });
        }
        source.migrate(clock.utc())?;
    }
    // As long as reading the file takes; nothing else of this process waits for it.
    tokio::task::block_in_place(|| source.check())?;
    let ours = source.installation()?.ok_or(MoveError::NotInstalled)?;
    let installation = sealed_for_the_target(&ours, data, keys)?;
    if dry_run {
        let has_schema = migrate_store::look(source, to).await?;
        let tables = source.counts()?.into_iter().map(|(table, rows)| (table, rows, None)).collect();
        return Ok(Answer::Movable { to: to.told.clone(), tables, has_schema });
    }
    let id = MoveId::new(clock.utc(), &SystemEntropy);
    let actor = person();
    let call = Move { source, to, id, installation: &installation, actor: &actor, clock: &clock };
    let report = call.run(progress, stop).await?;
    let tables = report.tables.into_iter().map(|(table, rows, bytes)| (table.to_owned(), rows, Some(bytes)));
    Ok(Answer::Moved { to: to.told.clone(), tables: tables.collect() })
}

/// The installation as whoever has the given master key opens it.
fn sealed_for_the_target(
    ours: &Installation,
    data: &DataDirectory,
    keys: &MasterKeyArgs,
) -> anyhow::Result<Installation> {
    let FoundKey { key: given, origin, .. } = keys.find(data, true, &SystemEntropy)?;
    if install::check(ours, &given).is_ok() {
        return Ok(ours.clone());
    }
    let own = DataDirectory::master_key_at(&data.master_key_file())?;
    install::reseal(ours, &own, &given, &SystemEntropy).with_context(|| {
        format!("neither the master key of {origin} nor {} opens the installation", data.master_key_file().display())
    })
}

/// Gives the store back to SQLite, after a move that did not happen.
pub(crate) async fn take_back_store(data: &Path, args: &StoreArgs, destroyed: bool) -> anyhow::Result<Answer> {
    let url = args.database.url()?;
    let data = DataDirectory::existing(data)?;
    let source = source(&data)?;
    let moved = source.moved().with_context(|| format!("cannot read {}", data.database().display()))?;
    let to = url.map(|url| destination(&url, moved.as_ref()).0);
    let taken = migrate_store::take_back(&source, to.as_ref(), destroyed, &person(), &SystemClock).await;
    let place = taken.map_err(|error| told(&error.into(), &data, &source))?;
    Ok(place.map_or(Answer::NotMoved, |place| Answer::TakenBack { from: place.url }))
}

fn person() -> Actor {
    Actor::Local { uid: rustix::process::getuid().as_raw() }
}

fn destination(url: &DatabaseUrl, moved: Option<&Moved>) -> (Destination, Arc<Memory>) {
    let committing = moved.filter(|moved| moved.stage == Stage::Committing);
    let memory = Arc::new(Memory(Mutex::new(committing.map(|moved| moved.to.history))));
    let options = PostgresOptions::new().witnessed(memory.clone());
    let (url, told) = (url.reveal().to_owned(), url.without_password());
    (Destination { url, told, options, patience: PATIENCE }, memory)
}

/// Which history of the database was seen: remembered on disk only once the store is there.
struct Memory(Mutex<Option<History>>);

impl Memory {
    fn seen(&self) -> Option<History> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Witness for Memory {
    fn admits(&self, found: History) -> Result<(), String> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match trust(*seen, found) {
            Ok(Trust::Known) => Ok(()),
            Ok(Trust::Remember) => {
                *seen = Some(found);
                Ok(())
            }
            Err(distrust) => Err(format!("{distrust}. Name the database that the move was begun to")),
        }
    }
}

/// The error with what is true of the store now, and with its exit code.
fn told(error: &anyhow::Error, data: &DataDirectory, source: &Source) -> anyhow::Error {
    let exit = error.downcast_ref::<MoveError>().map_or(Exit::Error, exit);
    let place = data.path().display();
    let now = match source.moved() {
        Ok(None) => format!("Nothing was moved: the store in {place} is as it was"),
        Ok(Some(moved)) if moved.stage == Stage::Finished => {
            format!("The store is in {}; the one in {place} stays closed", moved.to.url)
        }
        Ok(Some(moved)) => format!(
            "The store in {place} stays closed, so that two never live. Run `leasehold migrate-store` again with {}, when it \
             answers: that ends the move, or gives the store back where it is certain that nothing was moved. Only if that \
             database is gone for good: --take-back --destroyed",
            moved.to.url
        ),
        Err(error) => format!("Whether the store in {place} is as it was cannot be read: {error}"),
    };
    Told { exit, text: format!("{}. {now}", failure::text(error)) }.into()
}

fn exit(error: &MoveError) -> Exit {
    match error {
        MoveError::Stopped => Exit::Interrupted,
        MoveError::Unknown { .. } | MoveError::AskFirst(_) | MoveError::Elsewhere(_) => Exit::Lost,
        MoveError::Occupied { .. } | MoveError::OlderCopy { .. } | MoveError::Rows { .. } | MoveError::Lives(_) => {
            Exit::Conflict
        }
        _ => Exit::Error,
    }
}
