"""The faults that Routebook must survive: the registry of `make chaos`, one row for each, in the order of the table.

`injected` says how the fault is made. `nodes` are the pytest nodes that inject it, compare what they see with what is
asked (`tests/support/figures.py`), and fail if it is not met. `alone`: measures times or takes much memory, so that no
other row may run beside it. `limit_s`: a row that takes longer is ended and has failed.
"""

from dataclasses import dataclass
from typing import Final

PROCESSES: Final = "Processes that die, stop or disagree"
STORE: Final = "The store fails"
LOAD: Final = "Load and hostile input"
OPERATION: Final = "Operation and recovery"


@dataclass(frozen=True)
class Row:
    number: int
    part: str
    fault: str
    asked: str
    injected: str
    nodes: tuple[str, ...]
    alone: bool = False
    limit_s: int = 65


ROWS: Final = (
    Row(
        1,
        PROCESSES,
        "`kill -9` of one of 3 workers behind a load balancer, under steady lookups",
        "At most the lookups in flight are lost. A client that retries sees no loss. I1 holds.",
        "SIGKILL to a worker behind HAProxy, with four kinds of clients; and to one of three workers that clients use "
        "in turn",
        (
            "tests/balancing/test_haproxy.py::test_a_killed_worker_fails_only_lookups_in_flight",
            "tests/faults/test_processes.py::test_a_killed_worker_loses_only_lookups_in_flight",
        ),
        alone=True,
        limit_s=90,
    ),
    Row(
        2,
        PROCESSES,
        "`kill -9` of the leader",
        "A new leader within the lease + 2 s. No expiry is late by more than that. 0 false expiries.",
        "SIGKILL to the worker that holds the lease, just after a broker fell silent",
        (
            "tests/faults/test_processes.py::test_a_killed_leader_is_replaced_and_delays_an_expiry_by_its_lease",
            "tests/background/test_expiry.py::test_a_new_leader_expires_brokers_of_the_former_one",
        ),
    ),
    Row(
        3,
        PROCESSES,
        "The leader is suspended for 30 s, then continues",
        "0 of its late writes are accepted.",
        "SIGSTOP to the worker that holds the lease for 30 s, SIGCONT with a due broker in its hands; and all scripts "
        "of a former leader",
        (
            "tests/faults/test_processes.py::test_a_leader_that_was_suspended_writes_nothing",
            "tests/properties/test_stale_decisions.py::test_no_script_of_a_former_leader_is_accepted",
        ),
        limit_s=120,
    ),
    Row(
        4,
        PROCESSES,
        "Two workers believe that they are the leader",
        "0 double expiries. The fencing token only rises.",
        "The lease is deleted from the store again and again while three workers scan; and the counter with it",
        (
            "tests/faults/test_processes.py::test_leaders_whose_lease_is_deleted_remove_each_broker_once",
            "tests/properties/test_stale_decisions.py::test_a_fencing_token_rises_even_if_the_counter_is_lost",
        ),
    ),
    Row(
        5,
        PROCESSES,
        "`kill -9` of a broker",
        "Removed on every worker within the grace + 1 s.",
        "SIGKILL to a broker process; and the end of simulated brokers' sockets",
        (
            "tests/faults/test_lost_connections.py"
            "::test_a_killed_broker_is_removed_everywhere_within_the_grace_time_and_a_second",
            "tests/faults/test_processes.py::test_killed_brokers_are_removed_within_the_grace_and_a_second",
        ),
    ),
    Row(
        6,
        PROCESSES,
        "A broker falls silent while its connection stays open",
        "Removed within its timeout + one scan.",
        "Simulated brokers stop sending and keep their sockets",
        (
            "tests/faults/test_processes.py::test_silent_brokers_are_removed_within_their_timeout_and_one_scan",
            "tests/background/test_expiry.py::test_a_silent_broker_expires_and_one_with_heartbeats_does_not",
        ),
    ),
    Row(
        7,
        PROCESSES,
        "A worker and its broker die together",
        "Removed within the timeout + one scan, and counted.",
        "SIGKILL to a worker and to the broker process that is connected to it",
        (
            "tests/faults/test_lost_connections.py::test_a_broker_that_dies_with_its_worker_is_removed_after_the_lease",
            "tests/faults/test_processes.py::test_brokers_that_die_with_their_worker_are_removed_and_counted",
        ),
    ),
    Row(
        8,
        PROCESSES,
        "A broker reconnects to worker B while worker A handles the close of its old connection; an expiry races a "
        "re-registration",
        "0 registrations wiped in 10,000 interleavings.",
        "10,000 removals race with registrations on the real scripts, in random order",
        (
            "tests/properties/test_stale_decisions.py"
            "::test_a_lost_connection_removes_no_broker_that_registers_at_the_same_time",
            "tests/properties/test_stale_decisions.py"
            "::test_an_expiry_removes_no_broker_that_sends_a_heartbeat_at_the_same_time",
        ),
    ),
    Row(
        9,
        STORE,
        "Redis is restarted, data kept",
        "100 % of lookups are answered from memory. Writes work again within 5 s of Redis being back. 0 expiries.",
        "The store is stopped, and started again with its append-only file",
        (
            "tests/faults/test_store_failures.py::test_a_restart_that_keeps_the_data_loses_nothing",
            "tests/replica/test_restarts.py::test_a_restarted_store_with_its_data_is_followed_without_a_load",
        ),
    ),
    Row(
        10,
        STORE,
        "Redis is restarted empty",
        "Known topics are never answered with 17. The table is full again within 35 s. The empty data never replace "
        "the table immediately.",
        "The store is killed and started without data, under traffic",
        (
            "tests/faults/test_store_failures.py::test_a_restart_without_data_makes_no_known_topic_unknown",
            "tests/faults/test_store_under_lookups.py::test_an_empty_store_never_yields_404_for_a_known_topic",
        ),
    ),
    Row(
        11,
        STORE,
        "Sentinel failover that loses the last writes",
        "Writes work again within 15 s. Lost registrations are repaired within 35 s. Digests are equal.",
        "The replicas are cut off, the primary accepts registrations, then it is killed",
        (
            "tests/faults/test_failover_losses.py",
            "tests/faults/test_failover.py::test_changes_lost_by_a_failover_begin_a_new_history",
        ),
        limit_s=420,
    ),
    Row(
        12,
        STORE,
        "The old primary is cut off but still writable",
        "Its writes are refused within 10 s where min-replicas is set. After the partition heals, digests are equal "
        "within 35 s. No token is reused.",
        "The sentinels promote a replica while the old primary keeps its connections",
        (
            "tests/faults/test_cut_off_primary.py",
            "tests/store/test_sentinel.py::test_a_promoted_primary_is_used_while_the_old_one_refuses_writes",
        ),
        limit_s=150,
    ),
    Row(
        13,
        STORE,
        "Redis is unreachable for 10 minutes (shortened in tests)",
        "100 % of lookups are answered. Each registration is refused within 1 s; none hangs.",
        "A proxy drops everything between the workers and the store for 20 s; then it refuses connections for 20 s",
        (
            "tests/faults/test_store_failures.py::test_an_unreachable_store_fails_no_lookup_and_hangs_no_registration",
            "tests/faults/test_store_under_lookups.py::test_a_stalled_store_stalls_neither_lookups_nor_refusals",
        ),
        limit_s=110,
    ),
    Row(
        14,
        STORE,
        "Redis is slow: +500 ms",
        "Lookup p99 is unchanged within ±10 %. Requests do not pile up.",
        "A proxy delays the store's answers",
        (
            "tests/faults/test_slow_store.py::test_a_slow_store_delays_no_lookup",
            "tests/store/test_client_faults.py::test_a_slow_store_delays_calls_without_queueing_them",
        ),
        alone=True,
        limit_s=150,
    ),
    Row(
        15,
        STORE,
        "`SCRIPT FLUSH`; `NOSCRIPT` after a failover",
        "0 errors are visible to users.",
        "SCRIPT FLUSH every 50 ms under traffic; a failover to a replica that never saw the scripts; and before each "
        "script of a random history",
        (
            "tests/faults/test_store_failures.py::test_lost_scripts_are_invisible_to_users",
            "tests/properties/test_forgotten_scripts.py",
        ),
        limit_s=120,
    ),
    Row(
        16,
        STORE,
        "The store is out of memory; its eviction policy is not `noeviction`",
        "With another policy, the start is refused with a message that names what to set. When memory is exhausted, "
        "writes answer code 1 and reads are not affected.",
        "maxmemory is set below what the store uses, under traffic; a start on a store with each other policy",
        (
            "tests/faults/test_store_failures.py::test_a_store_without_memory_refuses_writes_and_no_lookup",
            "tests/store/test_checks.py::test_an_evicting_store_is_refused",
            "tests/background/test_store_alarms.py",
        ),
    ),
    Row(
        17,
        STORE,
        "A worker's clock is off by ±1 h; the store's clock jumps",
        "No effect. 0 mass expiries.",
        "One worker runs with a clock that is an hour ahead, one with a clock that is an hour behind; the history's "
        "clock is set forward and back",
        (
            "tests/faults/test_store_failures.py::test_workers_with_wrong_clocks_change_nothing",
            "tests/store/test_removal_scripts.py::test_a_jump_of_the_stores_clock_moves_no_deadline",
            "tests/store/test_history_entries.py::test_a_clock_that_is_set_back_is_no_outage",
        ),
    ),
    Row(
        18,
        STORE,
        "Half of the brokers, or all, fall silent at once",
        "Beyond the setting, expiry is held and an alarm is raised. One operator command releases it.",
        "Brokers stop sending at once",
        (
            "tests/faults/test_mass_silence.py::test_brokers_that_fall_silent_at_once_are_held_until_an_operator_releases_them",
            "tests/faults/test_mass_silence.py::test_a_broker_that_died_in_a_hold_is_removed_when_the_others_are_back",
            "tests/background/test_expiry.py",
        ),
        limit_s=120,
    ),
    Row(
        19,
        LOAD,
        "100 brokers with 10,000 topics each register at once",
        "All are registered within 30 s. Lookup p99 is at most 3 times its calm value. The store is blocked for at "
        "most 20 ms at a time.",
        "Registrations of large brokers",
        (
            "tests/faults/test_large_brokers.py::test_a_hundred_large_brokers_register_at_once",
            "tests/store/test_staging.py",
        ),
        alone=True,
        limit_s=110,
    ),
    Row(
        20,
        LOAD,
        "One broker with 70,000 topics, in one body and in parts",
        "Accepted (the frame limit can be set above 16 MiB). I3 holds.",
        "One registration of 70,000 topics, and the same in parts",
        (
            "tests/faults/test_large_brokers.py::test_a_broker_with_70000_topics_is_accepted_and_never_half_visible",
            "tests/store/test_staging.py",
        ),
        alone=True,
        limit_s=90,
    ),
    Row(
        21,
        LOAD,
        "A broker reconnects every second",
        "CPU use is bounded. The history is coalesced.",
        "Twenty brokers close their connection and register over a new one every second",
        (
            "tests/faults/test_hostile_input.py::test_brokers_that_reconnect_every_second_cost_little",
            "tests/attacks/test_seat_theft.py::test_a_broker_that_reconnects_stays_alive_by_heartbeats",
        ),
        alone=True,
        limit_s=80,
    ),
    Row(
        22,
        LOAD,
        "At least 10 million fuzzed frames: header longer than the frame, negative lengths, unknown serialisation, "
        "deep JSON, duplicate keys, zero length",
        "0 crashes. 0 stalls above 50 ms. The connection is closed, and the refusal is counted.",
        "Random and almost valid frames through sockets to real workers; and the same frames into the protocol's code",
        (
            "tests/faults/test_hostile_input.py::test_fuzzed_frames_through_sockets_neither_stop_nor_stall_a_worker",
            "tests/faults/test_hostile_input.py"
            "::test_fuzzed_frames_into_the_protocol_are_read_to_the_one_that_is_refused",
            "tests/faults/test_hostile_input.py::test_fuzzed_inputs_into_the_protocol_find_nothing",
            "tests/faults/test_hostile_input.py::test_each_malformed_frame_closes_its_connection_and_is_counted",
            "tests/protocol/test_fuzzing.py",
        ),
        alone=True,
        limit_s=350,
    ),
    Row(
        23,
        LOAD,
        "A frame announces 1 GiB",
        "Refused on its first four bytes.",
        "Four bytes on a socket",
        ("tests/remoting/test_bounds.py::test_a_frame_that_is_too_long_is_refused_by_its_first_four_bytes",),
    ),
    Row(
        24,
        LOAD,
        "An inflate bomb in a compressed registration",
        "Decompression stops at its limit. Memory grows by at most 80 MB.",
        "Registrations that inflate to many times their size, from many connections; and one beyond the limit",
        (
            "tests/attacks/test_inflated_registrations.py",
            "tests/protocol/bodies/test_registration_compressed.py::test_a_decompression_bomb_is_refused_at_the_limit",
        ),
        alone=True,
        limit_s=90,
    ),
    Row(
        25,
        LOAD,
        "1,000 connections that send one byte a second, on each port",
        "Each is closed at most 10 s into an unfinished frame or request. Lookup p99 is unchanged.",
        "1,000 sockets that send single bytes",
        ("tests/faults/test_floods.py::test_a_thousand_dripping_connections_are_closed_and_delay_no_lookup",),
        alone=True,
        limit_s=130,
    ),
    Row(
        26,
        LOAD,
        "10,000 idle connections, 1,000 new ones a second",
        "Connections are capped. The brokers' slots are kept.",
        "Idle connections beyond the limit of a worker",
        ("tests/faults/test_floods.py::test_idle_connections_above_the_limit_displace_no_broker",),
        alone=True,
        limit_s=90,
    ),
    Row(
        27,
        LOAD,
        "A client that never reads its answers",
        "Its output buffer is capped at 1 MiB, then the connection is closed.",
        "Requests over a socket with a small receive buffer that is never read",
        (
            "tests/faults/test_hostile_input.py::test_a_client_that_never_reads_is_disconnected_at_the_buffer_limit",
            "tests/remoting/test_bounds.py::test_a_peer_that_never_reads_is_disconnected",
            "tests/remoting/test_bounds.py::test_an_idle_peer_that_does_not_read_is_disconnected_in_the_end",
        ),
    ),
    Row(
        28,
        LOAD,
        "No file descriptors left; disk full",
        "The service stays up, sheds load, and reports it.",
        "A low limit of open files; a small disk (tmpfs) under the append-only file is filled, or, without root, its "
        "size is limited",
        (
            "tests/faults/test_used_up.py",
            "tests/listeners/test_bounds.py::test_without_file_descriptors_it_closes_new_connections_and_logs_it_once",
        ),
    ),
    Row(
        29,
        OPERATION,
        "Rolling upgrade under load, old and new versions mixed",
        "0 failed lookups for clients that follow GO_AWAY. Other clients retry once.",
        "All workers behind HAProxy are replaced one after another",
        (
            "tests/faults/test_mixed_releases.py",
            "tests/balancing/test_haproxy.py::test_replacing_all_workers_fails_no_lookup",
        ),
        alone=True,
        limit_s=170,
    ),
    Row(
        30,
        OPERATION,
        "Clients close the connection in the middle of a request",
        "0 answers are delivered to another request.",
        "Clients reset their connections at random bytes of requests for their own topics while others look up theirs",
        (
            "tests/faults/test_recovery.py::test_clients_that_close_in_the_middle_of_a_request_affect_no_other_answer",
            "tests/store/test_client_faults.py::test_a_cancelled_call_leaves_no_reply_for_another_call",
        ),
    ),
    Row(
        31,
        OPERATION,
        "An entry of the change stream is lost or trimmed",
        "The gap is detected, and the table is loaded again within 5 s.",
        "XDEL of an entry, and XTRIM of all, while a worker is cut off from the store",
        (
            "tests/faults/test_recovery.py::test_a_lost_entry_makes_the_worker_load_the_table_again",
            "tests/replica/test_feed.py",
        ),
    ),
    Row(
        32,
        OPERATION,
        "The TLS certificate is rotated 100 times; a wrong certificate is put in place",
        "0 good connections are dropped. The last good certificate is kept.",
        "Certificate files are replaced while connections are open",
        (
            "tests/listeners/test_tls.py::test_a_hundred_rotations_close_no_connection",
            "tests/listeners/test_tls.py::test_files_that_do_not_fit_leave_the_last_good_certificate",
        ),
    ),
    Row(
        33,
        OPERATION,
        "Administrative codes without permission",
        "Refused (code 16) and audited. The test checks the *effect*: nothing changed.",
        "Every administrative code from another address, alone and in a flood; the digest and the store's keys are "
        "compared",
        (
            "tests/faults/test_recovery.py::test_refused_administration_changes_nothing_and_is_audited",
            "tests/attacks/test_remoting_admin.py::test_administrative_requests_of_another_host_are_refused",
        ),
    ),
    Row(
        34,
        OPERATION,
        "A reader of the history (the pipeline) is away, then far behind",
        "The name service is not affected. A loss, if any, is reported as a range of versions.",
        "A reader that reported a position once, while brokers write more than the history may keep",
        (
            "tests/faults/test_recovery.py::test_a_reader_that_is_far_behind_affects_nothing_and_learns_the_lost_range",
            "tests/pipeline/source/test_losses.py",
        ),
        limit_s=110,
    ),
    Row(
        35,
        OPERATION,
        "Return to Apache's name server",
        "Full routes within 30 s. Documented, and tried.",
        "A real broker moves to Routebook and back",
        ("tests/conformance/test_migration.py::test_a_fleet_moves_to_routebook_and_back",),
        limit_s=240,
    ),
    Row(
        36,
        OPERATION,
        "The load balancer restarts: all connections of all brokers and clients drop at once, and brokers send again "
        "only at their next period",
        "0 healthy brokers are removed. An alarm is raised.",
        "A balancer resets all connections",
        (
            "tests/faults/test_mass_silence.py::test_a_balancer_that_restarts_costs_no_broker",
            "tests/faults/test_lost_connections.py::test_a_balancer_that_resets_all_connections_causes_no_removal",
            "tests/registry/test_lost_connections.py::test_a_network_mass_disconnect_removes_no_broker_and_raises_an_alarm",
        ),
        limit_s=110,
    ),
    Row(
        37,
        OPERATION,
        "One of 3 workers is cut off from the store; its brokers and clients still reach it",
        "0 expiries. Its brokers are on other workers within 15 s after it noticed, or are renewed in time. Its "
        "lookups continue, marked stale.",
        "A proxy drops everything between one of three workers and the store",
        (
            "tests/faults/test_recovery.py::test_a_worker_without_the_store_loses_its_brokers_to_the_others",
            "tests/faults/test_lost_connections.py::test_brokers_of_a_worker_that_lost_the_store_move_to_other_workers",
        ),
    ),
)
