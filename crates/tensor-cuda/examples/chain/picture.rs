//! What the streams did when, as text.

use cuda_sim::Timeline;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

/// Columns of the picture.
const COLUMNS: usize = 72;

/// Of a stretch in the middle of the run, a line for each stream.
pub(crate) fn print(out: &mut dyn Write, timeline: &Timeline) -> io::Result<()> {
    let stretch = timeline.makespan() / 100;
    let from = timeline.makespan() / 2;
    let mut lines: BTreeMap<_, [u8; COLUMNS]> = BTreeMap::new();
    for span in timeline.spans() {
        let Some(stream) = span.operation.stream else {
            continue;
        };
        let line = lines.entry(stream.raw()).or_insert([b'.'; COLUMNS]);
        let column = |time: Duration| {
            let part = time.saturating_sub(from).as_secs_f64() / stretch.as_secs_f64();
            ((part * COLUMNS as f64) as usize).min(COLUMNS)
        };
        if span.end > from {
            line[column(span.start)..column(span.end)].fill(b'#');
        }
    }
    writeln!(out, "streams during {stretch:.1?} of device time:")?;
    // Streams that did nothing then, such as those that give memory back, are left out.
    for line in lines.values().filter(|line| line.contains(&b'#')) {
        writeln!(out, "  {}", String::from_utf8_lossy(line))?;
    }
    Ok(())
}

/// How many streams were busy at a time, on average.
pub(crate) fn overlap(timeline: &Timeline) -> f64 {
    let busy: Duration = timeline.busy().iter().map(|stream| stream.busy).sum();
    busy.as_secs_f64() / timeline.makespan().as_secs_f64().max(f64::MIN_POSITIVE)
}

/// How many streams were busy at once, at most.
pub(crate) fn most(timeline: &Timeline) -> usize {
    let on_streams = timeline
        .spans()
        .filter(|span| span.operation.stream.is_some());
    let mut changes: Vec<(Duration, i32)> = on_streams
        .filter(|span| span.start < span.end)
        .flat_map(|span| [(span.start, 1), (span.end, -1)])
        .collect();
    // At one time, ends come before starts.
    changes.sort_unstable();
    let mut busy = 0;
    let counts = changes.iter().map(|(_, change)| {
        busy += change;
        busy
    });
    usize::try_from(counts.max().unwrap_or(0)).unwrap_or(0)
}
