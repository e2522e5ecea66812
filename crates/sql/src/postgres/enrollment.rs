//! Enrollment: a permission for one machine, and the machine that becomes a worker by it.

use leasehold_core::actor::Actor;
use leasehold_core::crypto::Digest;
use leasehold_core::enrollment::{self, Enrolling, Enrollment, Used};
use leasehold_core::refusal::Refusal;
use leasehold_store::call::{Enroll, NewEnrollment};
use leasehold_store::outcome::Outcome;
use leasehold_store::port::Unmet;
use leasehold_store::view::{Enrolled, EnrollmentView};

use super::column::values;
use super::lock::Locks;
use super::rows::Columns;
use super::transaction::{Connection, Decided, Fault, Tx, Unlocked};
use super::{audit, faults, load, workers};

macro_rules! enrollment_columns {
    () => {
        "id, worker, labels, token, expires_at, public_key, certificate, used_at"
    };
}

fn row(columns: &mut Columns<'_>) -> Result<Enrollment, Fault> {
    Ok(Enrollment {
        id: columns.next()?,
        worker: columns.next()?,
        labels: columns.next()?,
        token: columns.next()?,
        expires_at: columns.next()?,
        used: match (columns.next()?, columns.next()?, columns.next()?) {
            (Some(public_key), Some(certificate), Some(at)) => Some(Used { public_key, certificate, at }),
            _ => None,
        },
    })
}

async fn of_token(tx: &Connection, token: Digest) -> Result<Option<Enrollment>, Fault> {
    tx.first(concat!("SELECT ", enrollment_columns!(), " FROM enrollment WHERE token = $1"), values![token], row).await
}

/// Allows one machine to become a worker; the same again is a replay.
pub(super) async fn create(db: Unlocked, actor: &Actor, new: &NewEnrollment) -> Decided<(), Unmet> {
    let tx = &db.lock(Locks::none()).await?;
    let NewEnrollment { id, worker, labels, token, expires_at } = new.clone();
    let new = Enrollment { id, worker, labels, token, expires_at, used: None };
    let sql = concat!("SELECT ", enrollment_columns!(), " FROM enrollment WHERE id = $1");
    if let Some(stored) = tx.first(sql, values![new.id], row).await? {
        let same = Enrollment { used: None, ..stored } == new;
        return Ok(if same { Outcome::Replayed(()) } else { Outcome::Refused(Unmet::KeyReused) });
    }
    if of_token(tx, new.token).await?.is_some() {
        return Ok(Outcome::Refused(Unmet::KeyReused));
    }
    tx.execute_one(
        "enrollment",
        "INSERT INTO enrollment (id, worker, labels, token, expires_at) VALUES ($1, $2, $3, $4, $5)",
        values![new.id, new.worker, new.labels, new.token, new.expires_at],
    )
    .await?;
    audit::write(
        tx,
        actor,
        "create_enrollment",
        format!("enrollment/{}", new.id),
        &[("worker", &new.worker), ("expires_at", &new.expires_at.get())],
    )
    .await?;
    Ok(Outcome::Applied(()))
}

/// The enrollment of a living token, used or not.
pub(super) async fn find(tx: &Tx, token: Digest) -> Result<Option<EnrollmentView>, Fault> {
    let found = of_token(tx, token).await?.filter(|found| tx.now.utc < found.expires_at);
    Ok(found.map(|found| EnrollmentView { id: found.id, worker: found.worker, expires_at: found.expires_at }))
}

/// A machine becomes a worker.
pub(super) async fn enroll(db: Unlocked, call: &Enroll) -> Decided<Enrolled, Refusal> {
    let name = of_token(&db, call.token).await?.map(|found| found.worker);
    let tx = &db.lock(name.as_ref().map_or_else(Locks::none, Locks::worker)).await?;
    let found = of_token(tx, call.token).await?;
    let existing = match &found {
        Some(found) => load::worker(tx, &found.worker).await?,
        None => None,
    };
    let decided = enrollment::enroll(
        found.as_ref(),
        existing.as_ref(),
        call.public_key,
        call.certificate.clone(),
        call.certificate_expires_at,
        tx.now,
    );
    match (decided, found) {
        (Ok(Enrolling::Applied { worker, enrollment }), _) => {
            // The worker first: of two machines with one name, the second is told by its row, and decides again.
            workers::write(tx, &worker).await?;
            use_enrollment(tx, &enrollment).await?;
            faults::write(tx, &worker.id, &[]).await?;
            audit::write(
                tx,
                &Actor::Worker { worker: worker.id.clone(), session: None, origin: call.origin },
                "enroll",
                format!("worker/{}", worker.id),
                &[("enrollment", &enrollment.id), ("public_key", &call.public_key)],
            )
            .await?;
            let certificate = call.certificate.clone();
            Ok(Outcome::Applied(Enrolled { worker: worker.id, enrollment: enrollment.id, certificate }))
        }
        (Ok(Enrolling::Repeated(certificate)), Some(found)) => {
            Ok(Outcome::Replayed(Enrolled { worker: found.worker, enrollment: found.id, certificate }))
        }
        (Ok(Enrolling::Repeated(_)), None) => {
            Err(Fault::Damaged("an enrollment that is not there cannot repeat".to_owned()))
        }
        (Err(refusal), _) => Ok(Outcome::Refused(refusal)),
    }
}

async fn use_enrollment(tx: &Tx, enrollment: &Enrollment) -> Result<(), Fault> {
    let used = enrollment.used.as_ref();
    tx.execute_one(
        "enrollment",
        "UPDATE enrollment SET public_key = $2, certificate = $3, used_at = $4 WHERE id = $1 AND used_at IS NULL",
        values![
            enrollment.id,
            used.map(|used| used.public_key),
            used.map(|used| used.certificate.clone()),
            used.map(|used| used.at),
        ],
    )
    .await
}
