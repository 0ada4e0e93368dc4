use super::*;

fn place(doing: Doing, frames: &str) -> Place {
    Place {
        doing,
        frames: frames.split_whitespace().map(str::to_owned).collect(),
        ns: 1,
        times: 1,
    }
}

/// Asserts the reasons of blocked or spinning tasks with these stacks, innermost function first.
fn wait_for(doing: Doing, stacks: &[(Reason, &str)]) {
    for (reason, frames) in stacks {
        let class = classify(&place(doing, frames));
        assert_eq!(class, Class::Wait(*reason), "{frames}");
    }
}

#[test]
fn the_innermost_function_with_a_meaning_decides() {
    let stacks = [
        (
            Reason::BalanceDirtyPages,
            "schedule_timeout io_schedule_timeout balance_dirty_pages ext4_buffered_write_iter vfs_write",
        ),
        // A wait for a transaction on the way to the orphan list belongs to the journal.
        (
            Reason::Journal,
            "schedule wait_transaction_locked jbd2__journal_start ext4_orphan_add",
        ),
        (
            Reason::OrphanMutex,
            "schedule __mutex_lock ext4_orphan_add ext4_unlink do_unlinkat",
        ),
    ];
    wait_for(Doing::Blocked, &stacks);
}

#[test]
fn a_function_that_waits_for_several_things_is_asked_for_which() {
    let stacks = [
        (
            Reason::InodeRwsem,
            "schedule rwsem_down_write_slowpath down_write ext4_buffered_write_iter vfs_write",
        ),
        (
            Reason::Else,
            "schedule somewhere_new ext4_buffered_write_iter vfs_write",
        ),
    ];
    wait_for(Doing::Blocked, &stacks);
}

#[test]
fn reads_for_partial_writes_are_apart_from_reads_and_from_writeback() {
    let stacks = [
        (
            Reason::WriteBeginRead,
            "bit_wait_io __wait_on_bit __wait_on_buffer ext4_block_write_begin ext4_da_write_begin",
        ),
        (
            Reason::MetadataRead,
            "bit_wait_io __wait_on_bit __wait_on_buffer ext4_read_inode_bitmap __ext4_new_inode",
        ),
        (
            Reason::FolioRead,
            "io_schedule folio_wait_bit_common filemap_get_pages filemap_read",
        ),
        (
            Reason::Writeback,
            "io_schedule folio_wait_bit_common folio_wait_writeback ext4_evict_inode",
        ),
    ];
    wait_for(Doing::Blocked, &stacks);
}

#[test]
fn a_wait_for_a_block_request_is_not_one_for_the_folio_to_be_read() {
    let read =
        "io_schedule blk_mq_get_tag submit_bio ext4_mpage_readpages filemap_get_pages filemap_read";
    wait_for(Doing::Blocked, &[(Reason::BlockRequest, read)]);
}

#[test]
fn a_sleep_by_the_programs_own_choice_is_no_wait() {
    for sleep in [
        "schedule futex_do_wait __futex_wait",
        "schedule do_nanosleep hrtimer_nanosleep",
    ] {
        assert_eq!(classify(&place(Doing::Blocked, sleep)), Class::Rest);
    }
}

#[test]
fn a_spinlock_is_known_by_the_function_that_takes_it() {
    for (caller, reason) in [
        ("folio_lruvec_lock_irqsave", Reason::LruLock),
        ("rmqueue_bulk", Reason::ZoneLock),
        ("__filemap_add_folio", Reason::PagesLock),
        ("raw_spin_rq_lock_nested", Reason::OtherSpinlock),
    ] {
        let slow = "native_queued_spin_lock_slowpath _raw_spin_lock_irqsave";
        let stack = format!("{slow} {caller} ext4_da_write_begin");
        wait_for(Doing::Spinning, &[(reason, &stack)]);
    }
}

#[test]
fn a_lock_that_an_interrupt_takes_is_not_that_of_the_function_it_interrupts() {
    for inside in [
        "sched_tick asm_sysvec_apic_timer_interrupt",
        // The same holds for a lock taken on the way to waking a task.
        "try_to_wake_up wakeup_kswapd",
    ] {
        let slow = "bpf_prog_0_spin_ends native_queued_spin_lock_slowpath _raw_spin_lock";
        let stack = format!("{slow} {inside} get_page_from_freelist");
        wait_for(Doing::Spinning, &[(Reason::OtherSpinlock, &stack)]);
    }
}

#[test]
fn a_task_that_waits_for_a_cpu_or_has_one_needs_no_stack() {
    wait_for(Doing::Runnable, &[(Reason::RunQueue, "")]);
    assert_eq!(classify(&place(Doing::Running, "")), Class::Work);
    wait_for(Doing::Blocked, &[(Reason::Else, "")]);
}

#[test]
fn an_unnamed_wait_is_known_by_the_innermost_function_that_does_more_than_wait() {
    let frames = "__schedule schedule io_schedule somewhere_new submit_bio";
    assert_eq!(known_by(&place(Doing::Blocked, frames)), "somewhere_new");
    assert_eq!(known_by(&place(Doing::Blocked, "")), "no stack");
}

#[test]
fn every_reason_has_a_row_of_its_own() {
    let names: std::collections::BTreeSet<&str> = Reason::all().map(Reason::name).collect();
    assert_eq!(names.len(), Reason::NAMES.len());
    assert!(Reason::all()
        .enumerate()
        .all(|(row, reason)| reason as usize == row));
}
