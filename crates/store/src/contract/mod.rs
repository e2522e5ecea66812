//! One suite of tests for every implementation of the port.
//!
//! A case gets a fresh, empty store and a clock that stands still, and knows nothing of what lies behind the port. An
//! adapter runs the whole suite with one line, `leasehold_store::contract_suite!(SqliteHarness::new().await);`, which
//! makes one named test per case. (Control design, *Store*; proof, *Contract suite*.)
#![expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a case fails by panicking in the test that runs it"
)]

use std::sync::Arc;

use async_trait::async_trait;

use crate::port::Store;

pub mod audit;
pub mod cancel;
pub mod chains;
pub mod claim;
pub mod clock;
pub mod deletion;
pub mod devices;
pub mod end;
pub mod enrollment;
pub mod evidence;
pub mod expiry;
pub mod fences;
mod fixture;
pub mod heartbeat;
pub mod idempotency;
pub mod installation;
pub mod lanes;
pub mod late_evidence;
pub mod ledger;
pub mod limits;
pub mod logs;
pub mod pauses;
pub mod projects;
pub mod queries;
mod race;
pub mod registration;
pub mod release;
pub mod replay;
pub mod resolve;
pub mod retry;
pub mod running;
pub mod schedules;
pub mod sessions;
pub mod starting;
pub mod tasks;
pub mod walk;
pub mod webhooks;
pub mod workers;

pub use clock::TestClock;

/// What an implementation shows the suite: one fresh, empty store per harness.
#[async_trait]
pub trait Harness: Send + Sync {
    /// The store: the same at every call.
    fn store(&self) -> Arc<dyn Store>;

    /// The clock that the store reads.
    fn clock(&self) -> &TestClock;

    /// Every stored row as text, in a fixed order; the clocks left out. Cases compare it to see that nothing changed.
    async fn dump(&self) -> String;

    /// The same data, closed and opened again; the earlier store is used no more. None where the data lives in memory only.
    async fn reopened(&self) -> Option<Arc<dyn Store>> {
        None
    }
}

/// Makes one test per case of the suite. `$harness` is an expression of a fresh [`Harness`]; it may await.
///
/// The crate that calls it needs `tokio` with `macros` and `rt-multi-thread` among its dev-dependencies.
#[macro_export]
macro_rules! contract_suite {
    ($harness:expr) => {
        $crate::contract_suite!(@cases $harness, installation {
            an_installation_is_made_once
            a_token_is_found_until_it_expires
            what_was_stored_is_there_when_it_is_opened_again
        });
        $crate::contract_suite!(@cases $harness, devices {
            no_device_is_given_to_two
            who_has_no_devices_gets_no_run_that_wants_them
            an_offer_keeps_its_devices
            a_lost_attempt_keeps_its_devices_while_something_may_use_them
            the_last_device_is_taken_once
        });
        $crate::contract_suite!(@cases $harness, enrollment {
            a_machine_enrolls_once_and_may_ask_again
            an_enrollment_token_expires
            a_permission_is_stored_once
            a_worker_that_enrolls_again_is_fenced_and_keeps_its_runs
            enrolling_is_audited
        });
        $crate::contract_suite!(@cases $harness, registration {
            an_exact_repeat_gets_the_same_answer_also_after_expiry
            the_same_session_with_other_content_is_refused
            an_unknown_session_with_a_spent_ticket_is_a_copy
            a_late_duplicate_of_an_accepted_registration_is_fenced_without_an_audit
            another_boot_waits_until_the_session_falls_silent
            a_newcomer_that_hears_the_session_twice_is_audited_once
            a_newcomer_that_asks_seldom_is_audited_too
            a_session_of_the_same_boot_is_replaced_at_once
            a_session_that_ended_keeps_nobody_waiting
            an_unknown_worker_is_unauthenticated
            one_ticket_is_one_registration
        });
        $crate::contract_suite!(@cases $harness, sessions {
            a_first_session_is_generation_1_version_0
            another_version_conflicts_and_shows_the_session
            a_draining_session_takes_nothing_new
            offline_needs_every_lease_gone
            an_offline_session_is_fenced
            a_successor_rebinds_what_it_proves
        });
        $crate::contract_suite!(@cases $harness, fences {
            every_part_of_the_session_fence_counts
            every_part_of_the_lease_fence_counts
            every_part_of_the_lease_fence_counts_in_a_renewal
            a_lease_is_useless_to_another_worker
            a_replaced_session_changes_nothing
            an_expired_session_changes_nothing
            an_earlier_claim_cannot_touch_the_next_one
        });
        $crate::contract_suite!(@cases $harness, heartbeat {
            a_beat_extends_the_session_and_counts_itself
            a_lost_answer_shows_as_a_version_one_higher
            there_is_a_verdict_per_lease_in_order
            renewing_grows_the_version_and_writes_no_story
            a_claim_is_not_extended_by_beating
            the_end_of_the_start_window_ends_renewing
            a_lease_that_ran_out_is_not_renewed
            a_started_lease_never_crosses_a_boot
        });
        $crate::contract_suite!(@cases $harness, claim {
            a_claim_moves_run_and_attempt_together
            the_same_ask_is_the_same_offer
            a_later_session_gets_the_same_offer
            a_used_ask_is_gone
            what_does_not_wait_is_taken
            the_slots_are_counted_by_the_store
            one_of_two_callers_claims_an_attempt
            the_last_slot_is_taken_once
            one_ask_is_one_lease
        });
        $crate::contract_suite!(@cases $harness, release {
            a_claim_that_was_given_back_waits_again
            the_wait_doubles_up_to_ten_minutes
            what_started_is_not_given_back
            a_claim_that_ran_out_is_not_given_back
            giving_back_under_a_cancel_ends_the_run
        });
        $crate::contract_suite!(@cases $harness, starting {
            the_first_acknowledgement_fixes_boot_and_deadline
            a_repeat_is_told_where_the_attempt_stands
            a_claim_that_ran_out_does_not_start
            under_a_cancel_nothing_starts
        });
        $crate::contract_suite!(@cases $harness, running {
            attempt_and_run_move_together
            a_replay_must_match_in_every_field
            only_what_is_starting_comes_to_run
            a_lease_that_ran_out_authorises_nothing
        });
        $crate::contract_suite!(@cases $harness, end {
            each_ending_means_one_thing
            an_end_from_starting_carries_running
            what_never_ran_is_tried_again
            a_lease_that_nobody_declared_expired_still_ends_its_attempt
            the_repeat_of_an_end_settles_and_changes_nothing
            another_launch_is_refused_and_its_word_kept_once
            never_spawned_says_nothing_about_a_running_attempt
            another_boot_brings_receipts_and_infers_nothing
            a_claim_that_did_not_start_has_no_end
            what_may_still_live_is_remembered
        });
        $crate::contract_suite!(@cases $harness, late_evidence {
            an_open_question_is_closed_by_what_the_evidence_says
            a_loss_that_never_ran_is_counted_once
            a_closed_run_stays_closed
            a_variant_of_an_accepted_end_changes_nothing
            a_replaced_session_closes_nothing
            a_late_end_needs_the_leases_proof
            evidence_closes_a_run_that_waits
            evidence_supersedes_an_attempt_that_nobody_holds
            evidence_does_not_touch_an_attempt_that_somebody_holds
            evidence_of_an_earlier_attempt_closes_a_later_question
            another_boot_settles_and_judges_nothing
        });
        $crate::contract_suite!(@cases $harness, cancel {
            what_nobody_holds_ends_at_once
            what_somebody_holds_is_told_until_its_end
            what_never_ran_under_a_cancel_is_cancelled
            a_process_that_ended_by_itself_keeps_its_outcome
            a_lost_attempt_under_a_cancel_is_cancelled_unobserved
            a_claim_that_runs_out_under_a_cancel_ends_the_run
            what_cannot_be_cancelled_is_refused
            a_cancel_and_a_start_at_the_same_instant_agree
            every_race_of_a_stop_and_an_end_tells_the_truth
            a_cancel_takes_the_place_of_a_timeout
            where_nothing_ran_the_timeout_comes_first
        });
        $crate::contract_suite!(@cases $harness, resolve {
            a_word_closes_the_question_once
            waiting_changes_no_record
            what_is_not_lost_has_no_question
            a_word_about_an_earlier_attempt_is_not_about_the_latest
            a_persons_retry_begins_at_once_whatever_the_bounds
            evidence_after_a_word_is_news_of_the_past
            evidence_closes_what_a_person_wanted_tried_again
            a_word_and_evidence_at_the_same_instant_agree
        });
        $crate::contract_suite!(@cases $harness, evidence {
            what_is_known_of_a_lost_attempt_grows
            a_doubt_that_comes_late_keeps_its_places_until_refuted
            a_machine_that_started_anew_leaves_nothing
            what_the_kernel_would_not_let_go_is_remembered
            what_the_kernel_does_not_let_go_of_is_said_by_beats
            a_late_word_without_its_token_closes_nothing
        });
        $crate::contract_suite!(@cases $harness, expiry {
            lost_is_declared_two_seconds_after_the_leases_end
            a_claim_that_never_started_waits_again
            the_policy_says_what_becomes_of_a_lost_run
            a_renewal_in_time_keeps_the_lease
            a_scan_is_paged_by_what_is_longest_overdue
            an_end_and_an_expiry_at_the_same_instant_agree
            a_renewal_and_an_expiry_at_the_same_instant_agree
            two_scans_declare_a_lease_once
            a_scan_names_the_workers_it_has_news_for
        });
        $crate::contract_suite!(@cases $harness, retry {
            a_new_attempt_inherits_nothing
            only_what_the_policy_names_is_retried
            what_never_ran_is_tried_again_three_times
            losses_are_bounded
            a_wait_is_kept_and_ends_once
            two_scans_begin_an_attempt_once
            the_backstop_stops_what_is_overdue
            the_backstop_leaves_the_retry_policy_in_force
            a_wait_goes_on_after_a_restart
        });
        $crate::contract_suite!(@cases $harness, logs {
            a_log_grows_in_order_and_a_resend_changes_nothing
            a_gap_and_other_bytes_are_refused
            after_the_end_a_log_grows_to_its_pin
            a_lost_attempts_log_waits_for_its_end
            a_dead_launchers_log_grows_to_what_it_left
            a_log_needs_a_started_lease
            a_log_is_read_in_pages
        });
        $crate::contract_suite!(@cases $harness, queries {
            runs_are_paged_newest_first
            runs_are_filtered
            a_summary_names_run_and_worker
            a_prefix_tells_unique_from_ambiguous
            events_are_paged_in_order
            workers_are_paged_by_name
            the_facts_of_a_run_come_with_a_page_of_workers
            what_there_is_is_counted
        });
        $crate::contract_suite!(@cases $harness, audit {
            every_mutation_is_one_row_with_its_author
            work_writes_no_audit
            the_audit_is_paged_from_either_end
        });
        $crate::contract_suite!(@cases $harness, idempotency {
            a_submitted_run_waits_with_attempt_1
            the_same_key_is_the_same_run
            a_key_finds_its_run_by_what_was_asked
            a_key_means_one_request_per_project
            the_same_id_is_the_same_run
            one_key_is_one_run_at_the_same_instant
        });
        $crate::contract_suite!(@cases $harness, lanes {
            heads_go_by_priority_then_age
            project_placement_and_limited_task_make_a_lane
            lanes_are_paged_by_key
            a_lane_lives_as_long_as_a_run_of_it_waits
            a_lane_is_read_on_behind_any_of_its_runs
            a_head_says_since_when_it_is_due_until_it_is_claimed
            a_lane_says_what_is_held_of_its_limits
        });
        $crate::contract_suite!(@cases $harness, limits {
            a_task_never_has_more_runs_than_its_limit
            a_limit_is_of_one_task_of_one_project
            a_project_never_has_more_runs_than_its_limit
            what_waits_holds_no_place
            a_lost_run_keeps_its_place_only_with_mutex
            what_may_still_live_keeps_its_runs_place
            the_last_place_is_taken_once
            a_freed_place_is_taken_once
            the_longest_holders_are_named_first
        });
        $crate::contract_suite!(@cases $harness, projects {
            a_project_is_made_once
            a_run_brings_its_project
            a_limit_is_set_and_lifted
            settings_that_nobody_saw_are_not_overwritten
            a_key_makes_one_project
            a_project_that_nobody_saw_is_not_deleted
            a_project_is_deleted_once_nothing_is_open
            projects_are_paged_by_name
            a_deletion_and_a_submission_at_the_same_instant_agree
        });
        $crate::contract_suite!(@cases $harness, tasks {
            tasks_are_what_was_applied_last
            what_is_not_named_stays_unless_it_is_pruned
            a_plan_that_moved_is_not_carried_out
            nothing_is_applied_unless_all_of_it_is
            an_edit_changes_what_runs_next_and_nothing_that_was_submitted
            a_run_is_made_from_the_revision_that_the_task_has
            a_task_with_runs_goes_with_them_or_not_at_all
            a_lost_run_keeps_its_task
            a_task_that_nobody_saw_is_not_deleted
            a_deleted_task_comes_back_with_its_history
            a_project_with_tasks_is_not_deleted
            tasks_and_their_history_are_paged
            a_deletion_and_a_submission_of_one_task_at_the_same_instant_agree
            two_who_apply_at_the_same_instant_agree
        });
        $crate::contract_suite!(@cases $harness, schedules {
            what_is_due_gets_one_run_with_its_nominal_time
            two_who_fire_at_the_same_instant_admit_one_run
            skip_names_what_stood_in_the_way
            buffer_one_waits_for_its_turn
            cancel_other_takes_the_place_of_what_runs
            allow_all_fires_beside_what_runs
            a_lost_run_stands_in_the_way_while_it_may_live
            what_was_missed_is_caught_up_as_far_as_its_policy_says
            a_day_without_its_hour_fires_once
            an_edit_settles_first_and_keeps_the_next_fire_of_unchanged_times
            a_trigger_that_is_not_named_any_more_fires_no_more
            a_deleted_task_fires_no_more
            an_instant_that_has_a_run_gets_no_second
            many_that_are_due_are_settled_page_by_page
            triggers_and_their_ledger_are_paged
        });
        $crate::contract_suite!(@cases $harness, ledger {
            a_ledger_keeps_its_newest_lines_what_is_young_and_what_waits
            an_instant_whose_line_is_gone_gets_no_second_run
            ledgers_are_looked_through_in_pages
        });
        $crate::contract_suite!(@cases $harness, pauses {
            a_pause_starts_nothing_and_its_end_is_one_line
            a_pause_of_the_task_and_one_of_its_trigger_are_two_words
            a_backfill_runs_what_passed_and_nothing_twice
        });
        $crate::contract_suite!(@cases $harness, webhooks {
            a_call_starts_a_run_that_says_who_called
            only_its_own_token_opens_a_webhook
            another_token_stops_the_one_before
            a_token_goes_with_its_webhook
            a_paused_webhook_starts_nothing
            a_call_that_something_stands_in_the_way_of_is_skipped
            a_key_of_a_call_belongs_to_its_webhook
            a_call_starts_what_its_task_is_now
            two_calls_at_the_same_instant_start_one_run
            one_key_of_two_calls_is_one_run
            a_call_and_a_fire_time_at_the_same_instant_are_one_run
        });
        $crate::contract_suite!(@cases $harness, chains {
            every_success_makes_one_run_of_its_follower
            a_follower_of_several_waits_for_all_of_them
            whatever_makes_a_run_succeed_its_followers_have_it
            only_tasks_of_the_same_project_follow
            what_cannot_follow_is_refused_with_the_names
            an_edit_settles_what_waits
            a_paused_follower_waits_and_then_runs_once
            successes_are_settled_in_pages
            two_who_settle_make_one_run
            an_end_and_a_pass_at_the_same_instant_lose_nothing
            a_deletion_an_end_and_a_pass_at_the_same_instant_agree
        });
        $crate::contract_suite!(@cases $harness, workers {
            a_drained_worker_keeps_what_it_holds_and_is_given_nothing
            a_drain_is_told_until_it_is_obeyed
            a_drain_outlives_sessions_and_enrollments
            a_drain_is_idempotent_and_audited_once
            a_drain_and_a_claim_at_the_same_instant_agree
            faults_are_kept_as_they_were_said_last
            a_granted_takeover_lets_one_registration_in
            a_grant_is_for_its_time_and_for_who_needs_it
        });
        $crate::contract_suite!(@cases $harness, deletion {
            a_worker_is_deleted_once_it_holds_nothing
            a_destroyed_worker_leaves_evidence
            a_destroyed_worker_is_settled_in_pages
            a_deletion_and_a_claim_at_the_same_instant_agree
            a_deletion_and_a_registration_at_the_same_instant_agree
        });
        $crate::contract_suite!(@cases $harness, walk {
            a_random_history_keeps_every_promise
        });
        $crate::contract_suite!(@twins $harness, replay {
            every_lost_answer_is_found_again
            every_answer_may_be_lost_twice
            answers_lost_by_chance_are_found_again
        });
    };
    (@cases $harness:expr, $file:ident { $($case:ident)* }) => {
        mod $file {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let harness = $harness;
                    $crate::contract::$file::$case(&harness).await;
                }
            )*
        }
    };
    (@twins $harness:expr, $file:ident { $($case:ident)* }) => {
        mod $file {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let (harness, twin) = ($harness, $harness);
                    $crate::contract::$file::$case(&harness, &twin).await;
                }
            )*
        }
    };
}
