//! Whatever arrives, reading answers and never panics; whatever was written is read as it was.

use leasehold_core::attempt::ExitStatus;
use leasehold_core::canonical::Value;
use leasehold_core::counter::{LeaseGeneration, LeaseVersion, SessionGeneration, SessionVersion};
use leasehold_core::crypto::LeaseToken;
use leasehold_core::id::{AttemptId, OfferId};
use leasehold_core::time::{Millis, UtcMillis};
use leasehold_wire::document::Document;
use leasehold_wire::v1::end::{CancelIncomplete, EndRequest, Ending};
use leasehold_wire::v1::fence::LeaseProof;
use leasehold_wire::v1::heartbeat::{HeartbeatRequest, Renewal};
use leasehold_wire::v1::offer::Offer;
use leasehold_wire::v1::pull::{AskAnswer, AskVerdict, PullAnswer};
use leasehold_wire::{encode, parse};
use proptest::prelude::*;

use crate::golden::examples;
use crate::messages as m;

fn uuid_v7() -> impl Strategy<Value = [u8; 16]> {
    any::<[u8; 16]>().prop_map(|mut bytes| {
        bytes[6] = 0x70 | (bytes[6] & 0x0f);
        bytes[8] = 0x80 | (bytes[8] & 0x3f);
        bytes
    })
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..100_u64, 0..=i64::MAX.unsigned_abs()]
}

fn proof() -> impl Strategy<Value = LeaseProof> {
    (uuid_v7(), number(), any::<[u8; 32]>()).prop_map(|(offer, generation, token)| LeaseProof {
        offer_id: OfferId::from_bytes(offer).unwrap(),
        generation: LeaseGeneration::new(generation).unwrap(),
        token: LeaseToken::from_bytes(token),
    })
}

fn renewal() -> impl Strategy<Value = Renewal> {
    let left = proptest::option::of((1..9_u64, any::<u32>()));
    (uuid_v7(), proof(), number(), left).prop_map(|(attempt, lease, version, left)| Renewal {
        attempt_id: AttemptId::from_bytes(attempt).unwrap(),
        lease,
        version: LeaseVersion::new(version).unwrap(),
        cancel_incomplete: left.map(|(count, pid)| CancelIncomplete { count, pids: vec![pid] }),
    })
}

fn canonical() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        any::<String>().prop_map(Value::Text),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::List),
            proptest::collection::btree_map(any::<String>(), inner, 0..4).prop_map(Value::Map),
        ]
    })
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
        for example in examples() {
            let _ = (example.read)(&bytes);
        }
    }

    #[test]
    fn a_damaged_body_never_panics_and_what_is_still_read_is_written_the_same(
        which in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>(),
    ) {
        let examples = examples();
        let example = &examples[which.index(examples.len())];
        let mut body = example.body.clone();
        let at = at.index(body.len());
        if cut { body.truncate(at) } else { body[at] = byte }
        if let Ok(written) = (example.read)(&body) {
            prop_assert_eq!((example.read)(&written), Ok(written.clone()));
        }
    }

    #[test]
    fn a_heartbeat_is_read_as_it_was_written(
        generation in number(), version in number(), slots in 0..=256_u16,
        draining in any::<bool>(),
        renewals in proptest::collection::vec(renewal(), 0..8),
    ) {
        let beat = HeartbeatRequest {
            session_generation: SessionGeneration::new(generation).unwrap(),
            session_version: SessionVersion::new(version).unwrap(),
            slots,
            draining,
            faults: None,
            renewals,
        };
        prop_assert_eq!(parse(&encode(&beat)), Ok(beat));
    }

    #[test]
    fn an_end_is_read_as_it_was_written(
        code in any::<u8>(), signal in 1..=64_i32, by_signal in any::<bool>(), at in any::<i64>(), lease in proof(),
        detail in "\\PC{0,512}", rejected in any::<bool>(),
    ) {
        let status = if by_signal { ExitStatus::Signal(signal) } else { ExitStatus::Code(code) };
        let ending = if rejected {
            Ending::Rejected { reason: leasehold_core::attempt::RejectReason::Exec, detail }
        } else {
            Ending::Exited { status: status.into(), at_ms: UtcMillis::new(at) }
        };
        let end = EndRequest { lease, ending, ..m::end_exited() };
        prop_assert_eq!(parse(&encode(&end)), Ok(end));
    }

    #[test]
    fn a_nested_document_crosses_unchanged(revision in canonical(), held in number()) {
        let offer = Offer { revision: Document(revision), ..Offer::from(&m::core_offer()) };
        let answer = PullAnswer {
            asks: vec![AskAnswer { offer_id: offer.offer_id, verdict: AskVerdict::Granted(Box::new(offer)) }],
            held_ms: Millis::new(held),
            ..m::pull_answer()
        };
        prop_assert_eq!(parse(&encode(&answer)), Ok(answer));
    }
}
