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
use super::rows::Columns;
use super::transaction::{Decided, Fault, Tx};
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

fn of_token(tx: &Tx<'_>, token: Digest) -> Result<Option<Enrollment>, Fault> {
    tx.first(concat!("SELECT ", enrollment_columns!(), " FROM enrollment WHERE token = ?1"), values![token], row)
}

/// Allows one machine to become a worker; the same again is a replay.
pub(super) fn create(tx: &Tx<'_>, actor: &Actor, new: &NewEnrollment) -> Decided<(), Unmet> {
    let NewEnrollment { id, worker, labels, token, expires_at } = new.clone();
    let new = Enrollment { id, worker, labels, token, expires_at, used: None };
    let sql = concat!("SELECT ", enrollment_columns!(), " FROM enrollment WHERE id = ?1");
    if let Some(stored) = tx.first(sql, values![new.id], row)? {
        let same = Enrollment { used: None, ..stored } == new;
        return Ok(if same { Outcome::Replayed(()) } else { Outcome::Refused(Unmet::KeyReused) });
    }
    if of_token(tx, new.token)?.is_some() {
        return Ok(Outcome::Refused(Unmet::KeyReused));
    }
    tx.execute_one(
        "enrollment",
        "INSERT INTO enrollment (id, worker, labels, token, expires_at) VALUES (?1, ?2, ?3, ?4, ?5)",
        values![new.id, new.worker, new.labels, new.token, new.expires_at],
    )?;
    audit::write(
        tx,
        actor,
        "create_enrollment",
        format_args!("enrollment/{}", new.id),
        &[("worker", &new.worker), ("expires_at", &new.expires_at.get())],
    )?;
    Ok(Outcome::Applied(()))
}

/// The enrollment of a living token, used or not.
pub(super) fn find(tx: &Tx<'_>, token: Digest) -> Result<Option<EnrollmentView>, Fault> {
    let found = of_token(tx, token)?.filter(|found| tx.now.utc < found.expires_at);
    Ok(found.map(|found| EnrollmentView { id: found.id, worker: found.worker, expires_at: found.expires_at }))
}

/// A machine becomes a worker.
pub(super) fn enroll(tx: &Tx<'_>, call: &Enroll) -> Decided<Enrolled, Refusal> {
    let found = of_token(tx, call.token)?;
    let existing = found.as_ref().map(|found| load::worker(tx, &found.worker)).transpose()?.flatten();
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
            use_enrollment(tx, &enrollment)?;
            workers::write(tx, &worker)?;
            faults::write(tx, &worker.id, &[])?;
            audit::write(
                tx,
                &Actor::Worker { worker: worker.id.clone(), session: None, origin: call.origin },
                "enroll",
                format_args!("worker/{}", worker.id),
                &[("enrollment", &enrollment.id), ("public_key", &call.public_key)],
            )?;
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

fn use_enrollment(tx: &Tx<'_>, enrollment: &Enrollment) -> Result<(), Fault> {
    let used = enrollment.used.as_ref();
    tx.execute_one(
        "enrollment",
        "UPDATE enrollment SET public_key = ?2, certificate = ?3, used_at = ?4 WHERE id = ?1 AND used_at IS NULL",
        values![
            enrollment.id,
            used.map(|used| used.public_key),
            used.map(|used| used.certificate.clone()),
            used.map(|used| used.at),
        ],
    )
}
