use super::*;

fn blocked(frames: &[&str]) -> Class {
    classify(&place(Doing::Blocked, frames))
}

fn spinning(frames: &[&str]) -> Class {
    classify(&place(Doing::Spinning, frames))
}

fn place(doing: Doing, frames: &[&str]) -> Place {
    Place {
        doing,
        frames: frames.iter().map(|frame| (*frame).to_owned()).collect(),
        ns: 1,
        times: 1,
    }
}

const WRITE: [&str; 4] = [
    "ext4_buffered_write_iter",
    "vfs_write",
    "ksys_write",
    "do_syscall_64",
];

#[test]
fn the_innermost_function_with_a_meaning_decides() {
    let throttled = [
        "schedule_timeout",
        "io_schedule_timeout",
        "balance_dirty_pages",
    ];
    assert_eq!(
        blocked(&[&throttled[..], &WRITE].concat()),
        Class::Wait(Reason::BalanceDirtyPages)
    );
    // A wait for a transaction on the way to the orphan list belongs to the journal.
    let journal = [
        "schedule",
        "wait_transaction_locked",
        "jbd2__journal_start",
        "ext4_orphan_add",
    ];
    assert_eq!(blocked(&journal), Class::Wait(Reason::Journal));
    let mutex = [
        "schedule",
        "__mutex_lock",
        "ext4_orphan_add",
        "ext4_unlink",
        "do_unlinkat",
    ];
    assert_eq!(blocked(&mutex), Class::Wait(Reason::OrphanMutex));
}

#[test]
fn a_function_that_waits_for_several_things_is_asked_for_which() {
    let rwsem = ["schedule", "rwsem_down_write_slowpath", "down_write"];
    assert_eq!(
        blocked(&[&rwsem[..], &WRITE].concat()),
        Class::Wait(Reason::InodeRwsem)
    );
    let nothing_known = ["schedule", "somewhere_new"];
    assert_eq!(
        blocked(&[&nothing_known[..], &WRITE].concat()),
        Class::Wait(Reason::Else)
    );
}

#[test]
fn reads_for_partial_writes_are_apart_from_reads_and_from_writeback() {
    let buffer = [
        "bit_wait_io",
        "__wait_on_bit",
        "out_of_line_wait_on_bit",
        "__wait_on_buffer",
    ];
    let partial = [
        &buffer[..],
        &["ext4_block_write_begin", "ext4_da_write_begin"],
    ]
    .concat();
    assert_eq!(blocked(&partial), Class::Wait(Reason::WriteBeginRead));
    let inode = [&buffer[..], &["ext4_read_inode_bitmap", "__ext4_new_inode"]].concat();
    assert_eq!(blocked(&inode), Class::Wait(Reason::MetadataRead));
    let miss = [
        "io_schedule",
        "folio_wait_bit_common",
        "filemap_get_pages",
        "filemap_read",
    ];
    assert_eq!(blocked(&miss), Class::Wait(Reason::FolioRead));
    let written = [
        "io_schedule",
        "folio_wait_bit_common",
        "folio_wait_writeback",
        "ext4_evict_inode",
    ];
    assert_eq!(blocked(&written), Class::Wait(Reason::Writeback));
}

#[test]
fn a_wait_for_a_block_request_is_not_one_for_the_folio_to_be_read() {
    let tag = [
        "io_schedule",
        "blk_mq_get_tag",
        "submit_bio",
        "ext4_mpage_readpages",
    ];
    let read = [&tag[..], &["filemap_get_pages", "filemap_read"]].concat();
    assert_eq!(blocked(&read), Class::Wait(Reason::BlockRequest));
}

#[test]
fn a_sleep_by_the_programs_own_choice_is_no_wait() {
    assert_eq!(
        blocked(&["schedule", "futex_do_wait", "__futex_wait"]),
        Class::Rest
    );
    let sleep = ["schedule", "do_nanosleep", "hrtimer_nanosleep"];
    assert_eq!(blocked(&sleep), Class::Rest);
}

#[test]
fn a_spinlock_is_known_by_the_function_that_takes_it() {
    let slow = ["native_queued_spin_lock_slowpath", "_raw_spin_lock_irqsave"];
    for (caller, reason) in [
        ("folio_lruvec_lock_irqsave", Reason::LruLock),
        ("rmqueue_bulk", Reason::ZoneLock),
        ("__filemap_add_folio", Reason::PagesLock),
        ("raw_spin_rq_lock_nested", Reason::OtherSpinlock),
    ] {
        let stack = [&slow[..], &[caller, "ext4_da_write_begin"]].concat();
        assert_eq!(spinning(&stack), Class::Wait(reason), "{caller}");
    }
}

#[test]
fn a_lock_that_an_interrupt_takes_is_not_that_of_the_function_it_interrupts() {
    let slow = [
        "bpf_prog_0_spin_ends",
        "native_queued_spin_lock_slowpath",
        "_raw_spin_lock",
    ];
    let tick = [
        "sched_tick",
        "asm_sysvec_apic_timer_interrupt",
        "get_page_from_freelist",
    ];
    let stack = [&slow[..], &tick].concat();
    assert_eq!(spinning(&stack), Class::Wait(Reason::OtherSpinlock));
    // The same holds for a lock taken on the way to waking a task.
    let wakes = ["try_to_wake_up", "wakeup_kswapd", "get_page_from_freelist"];
    let stack = [&slow[..], &wakes].concat();
    assert_eq!(spinning(&stack), Class::Wait(Reason::OtherSpinlock));
}

#[test]
fn a_task_that_waits_for_a_cpu_or_has_one_needs_no_stack() {
    let runnable = place(Doing::Runnable, &[]);
    assert_eq!(classify(&runnable), Class::Wait(Reason::RunQueue));
    assert_eq!(classify(&place(Doing::Running, &[])), Class::Work);
    assert_eq!(blocked(&[]), Class::Wait(Reason::Else));
}

#[test]
fn an_unnamed_wait_is_known_by_the_innermost_function_that_does_more_than_wait() {
    let frames = place(
        Doing::Blocked,
        &[
            "__schedule",
            "schedule",
            "io_schedule",
            "somewhere_new",
            "submit_bio",
        ],
    );
    assert_eq!(known_by(&frames), "somewhere_new");
    assert_eq!(known_by(&place(Doing::Blocked, &[])), "no stack");
}

#[test]
fn every_reason_has_a_row_of_its_own() {
    let names: std::collections::BTreeSet<&str> = Reason::all().map(Reason::name).collect();
    assert_eq!(names.len(), Reason::NAMES.len());
    assert!(Reason::all()
        .enumerate()
        .all(|(row, reason)| reason as usize == row));
}
