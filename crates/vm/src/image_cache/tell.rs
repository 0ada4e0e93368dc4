//! Builds the report from an image cache's state.

use justitia_policy::units::Bytes;
use justitia_report::own::cpu;
use justitia_report::text::word;

use super::kept::Kept;
use super::ImageCache;
use crate::discover::{Held, Machine};
use crate::report::{ImageReport, MachineReport, Report};
use crate::track::types;

pub(super) fn report(image_cache: &ImageCache) -> Report {
    let (shares, tracker) = (&image_cache.shares, image_cache.tracker.as_ref());
    let machines = image_cache.machines.iter().enumerate();
    Report {
        policy: tracker.map(|_| image_cache.settings.replacement),
        tracking: tracker.map(|tracker| tracker.tier().to_string()),
        free_bytes: shares.memory.map(|memory| memory.free.0),
        cache_bytes: shares.memory.map(|memory| memory.cache.0),
        reserve_bytes: shares.reserve.map(|reserve| reserve.0),
        machines: machines
            .map(|(at, machine)| tell(image_cache, at, machine))
            .collect(),
        image_cache_cpu_s: Some(cpu().as_secs_f64()),
    }
}

fn tell(image_cache: &ImageCache, at: usize, machine: &Machine) -> MachineReport {
    let counts = image_cache.counts_of(machine);
    let its: Vec<&Kept> = image_cache.images_of(machine).collect();
    let all = its.iter().filter_map(|kept| image_cache.counts(kept));
    let (requested, fetched) = all.fold((0, 0), |(requested, fetched), counts| {
        (
            requested + counts.requested_pages,
            fetched + counts.fetched_pages(),
        )
    });
    let images = machine.images.iter();
    let tracked = image_cache.tracker.is_some();
    let sum = |of: fn(&Kept) -> u64| tracked.then(|| bytes(its.iter().map(|kept| of(kept)).sum()));
    MachineReport {
        name: machine.name.clone(),
        pid: machine.pid,
        manager: word(&machine.manager),
        group: machine.group.clone(),
        weight: image_cache.weight(&machine.name).get(),
        cached_bytes: image_cache.shares.held.get(at).map(|held: &Bytes| held.0),
        low_watermark_bytes: image_cache.shares.watermarks.get(at).map(|mark| mark.0),
        requested_bytes: counts.map(|counts| bytes(counts.requested_pages)),
        second_bytes: counts.map(|counts| bytes(counts.again_pages)),
        hit_ratio: hit_ratio(requested, fetched),
        dropped_bytes: sum(|kept| kept.dropped_pages),
        evicted_bytes: sum(|kept| kept.evicted_pages),
        images: images.map(|held| image(image_cache, held)).collect(),
    }
}

fn image(image_cache: &ImageCache, held: &Held) -> ImageReport {
    let mut told = ImageReport {
        path: held.path.clone(),
        direct: held.direct,
        writable: held.writable,
        machines: machines_with(image_cache, held),
        ..ImageReport::default()
    };
    let Some(kept) = image_cache.images.get(&held.identity) else {
        return told;
    };
    let image = &kept.image;
    let counts = kept.book.as_ref().and_then(|_| image_cache.counts(kept));
    let counted = |of: fn(&types::image) -> u64| counts.as_ref().map(|counts| bytes(of(counts)));
    let format = match (&image.qcow2, &image.damage) {
        (Some(_), _) => "qcow2",
        (None, Some(_)) => "damaged qcow2",
        (None, None) => "raw",
    };
    told.format = Some(format.to_owned());
    told.bytes = image.bytes().ok();
    let header = image.qcow2.as_ref();
    told.backing = header.and_then(|header| header.backing.clone());
    told.cached_bytes = kept.resident.map(|resident| bytes(resident.cached));
    told.dirty_bytes = kept.resident.and_then(|resident| resident.dirty.map(bytes));
    told.requested_bytes = counted(|counts| counts.requested_pages);
    told.second_bytes = counted(|counts| counts.again_pages);
    told.fetched_bytes = counted(types::image::fetched_pages);
    told.foreign_bytes = counted(|counts| counts.foreign_pages);
    told.lost_bytes = counted(|counts| counts.lost_pages);
    told.dropped_bytes = counts.map(|_| bytes(kept.dropped_pages));
    told.evicted_bytes = counts.map(|_| bytes(kept.evicted_pages));
    told.counter_bytes = kept.book.as_ref().map(crate::track::Book::bytes);
    told
}

fn machines_with(image_cache: &ImageCache, held: &Held) -> usize {
    let with = |machine: &&Machine| {
        let mut images = machine.images.iter();
        images.any(|other| other.identity == held.identity)
    };
    image_cache.machines.iter().filter(with).count()
}

/// Share of requested pages that were not fetched; `None`: none was requested.
fn hit_ratio(requested: u64, fetched: u64) -> Option<f64> {
    (requested > 0).then(|| 1.0 - fetched.min(requested) as f64 / requested as f64)
}

fn bytes(pages: u64) -> u64 {
    pages * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::hit_ratio;

    #[test]
    fn readahead_that_was_never_requested_does_not_make_the_ratio_negative() {
        assert_eq!(hit_ratio(0, 5), None);
        assert_eq!(hit_ratio(10, 0), Some(1.0));
        assert_eq!(hit_ratio(10, 15), Some(0.0));
    }
}
