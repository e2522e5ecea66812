//! The log file of one attempt: frames are appended up to the quota, what comes later is kept as a bounded tail, and
//! the end is one cut frame and the tail.
//!
//! Output never holds up an end: what cannot be written is kept in the same bounded tail, what falls out of it counts as
//! dropped, and the log goes on, behind a cut, when the disk takes writes again. A frame that was written in part is
//! taken back, so the file always ends with a whole one. The summary says in any case how much is missing and why,
//! for the receipt has room of its own. (Worker design, *Launcher*.)

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};

use leasehold_core::crypto::{Domain, Hasher};
use leasehold_core::frame::{Cut, CutReason, HEADER, MAX_PAYLOAD, Stream, encode_cut, encode_output, encoded_len};
use leasehold_core::time::Millis;
use leasehold_core::time::UtcMillis;
use rustix::fs::{Mode, OFlags, openat};

use super::receipt::LogSummary;
use crate::attempt_dir::{AttemptDir, LOG};
use crate::fault::around;
use crate::fault::steps::{LOG_APPEND, LOG_CREATE, LOG_CUT};

/// Bytes of output kept beyond the quota.
const TAIL_BYTES: usize = 256 * 1024;
/// Pieces of output kept beyond the quota: bounds what single bytes of alternating streams take.
const TAIL_PIECES: usize = 4096;
/// How soon a disk that refused a write is tried again.
const AGAIN: Millis = Millis::from_secs(1);

pub(super) struct Log {
    file: File,
    quota: u64,
    length: u64,
    hasher: Hasher,
    /// From the first byte that did not fit or could not be written.
    tail: Option<Tail>,
    /// What the cuts in the file say.
    lost: Lost,
    /// A partial frame could not be taken back: nothing may follow it.
    sealed: bool,
    frames: Vec<u8>,
}

impl Log {
    /// Creates the log. The caller holds the lock and no process ran yet: a file that is there holds nothing.
    pub(super) fn create(dir: &AttemptDir, quota: u64) -> io::Result<Self> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || openat(dir.dir(), LOG, flags, Mode::RUSR | Mode::WUSR).map_err(io::Error::from);
        let file = File::from(around(LOG_CREATE, open)?);
        Ok(Self {
            file,
            quota,
            length: 0,
            hasher: Hasher::new(Domain::Log),
            tail: None,
            lost: Lost::default(),
            sealed: false,
            frames: Vec::new(),
        })
    }

    /// Appends what a stream gave.
    pub(super) fn append(&mut self, at: UtcMillis, stream: Stream, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.resume(at);
        if let Some(tail) = &mut self.tail {
            return tail.push(at, stream, bytes);
        }
        let (head, rest) = bytes.split_at(self.fitting(bytes.len()));
        let mut frames = std::mem::take(&mut self.frames);
        frames.clear();
        encode_output(&mut frames, at, stream, head);
        let written = self.write(&frames);
        self.frames = frames;
        let mut tail = match written {
            Ok(()) if rest.is_empty() => return,
            Ok(()) => Tail::new(CutReason::Quota, at),
            Err(reason) => {
                let mut tail = Tail::new(reason, at);
                tail.push(at, stream, head);
                tail
            }
        };
        tail.push(at, stream, rest);
        self.tail = Some(tail);
    }

    /// Goes on after a disk that refused a write, where it takes writes again: what was dropped meanwhile is marked, and
    /// what was kept follows. A tail beyond the quota stays until the end.
    fn resume(&mut self, at: UtcMillis) {
        let Some(tail) = self.tail.take_if(|tail| tail.is_due(at)) else { return };
        let kept: usize = tail.pieces.iter().map(|piece| encoded_len(piece.bytes.len())).sum();
        if self.fitting(kept) < kept {
            // The quota will not have it: from here on it is the tail of a log that is cut by its quota as well.
            self.tail = Some(Tail { beyond_quota: true, ..tail });
            return;
        }
        self.write_tail(at, tail);
    }

    /// The cut frame and the tail, where there are any; then the log is final.
    pub(super) fn finish(mut self, at: UtcMillis) -> LogSummary {
        if let Some(tail) = self.tail.take() {
            self.write_tail(at, tail);
        }
        if let Some(tail) = self.tail.take() {
            // Not even the tail: say at least how much is missing. The summary says it in any case.
            let (reason, all) = (tail.reason, tail.dropping_everything());
            self.lost.add(reason, all);
            let mut frames = Vec::new();
            encode_cut(&mut frames, at, all.cut(reason));
            let _ = self.write(&frames);
        }
        LogSummary { length: self.length, digest: self.hasher.finish(), cut: self.lost.cut() }
    }

    /// Writes a cut frame for what the tail dropped, and the tail; puts it back where the disk refuses.
    fn write_tail(&mut self, at: UtcMillis, tail: Tail) {
        let mut frames = Vec::new();
        if tail.dropped.any() {
            encode_cut(&mut frames, at, tail.dropped.cut(tail.reason));
        }
        for piece in &tail.pieces {
            encode_output(&mut frames, piece.at, piece.stream, &piece.bytes);
        }
        match self.write(&frames) {
            Ok(()) => self.lost.add(tail.reason, tail.dropped),
            Err(reason) => self.tail = Some(Tail { reason: tail.reason.max(reason), tried: at, ..tail }),
        }
    }

    /// How many of `wanted` bytes fit under the quota as frames.
    fn fitting(&self, wanted: usize) -> usize {
        let room = usize::try_from(self.quota.saturating_sub(self.length)).unwrap_or(usize::MAX);
        if encoded_len(wanted) <= room {
            return wanted;
        }
        let whole = room / (HEADER + MAX_PAYLOAD);
        let rest = (room % (HEADER + MAX_PAYLOAD)).saturating_sub(HEADER);
        (whole * MAX_PAYLOAD + rest).min(wanted)
    }

    /// Appends whole frames or nothing; the error says why they are not there.
    fn write(&mut self, frames: &[u8]) -> Result<(), CutReason> {
        if self.sealed {
            return Err(CutReason::WriteFailed);
        }
        let Err(error) = around(LOG_APPEND, || self.file.write_all(frames)) else {
            self.hasher.update(frames);
            self.length += u64::try_from(frames.len()).unwrap_or(0);
            return Ok(());
        };
        self.sealed = around(LOG_CUT, || self.file.set_len(self.length)).is_err();
        let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        Err(if full { CutReason::DiskFull } else { CutReason::WriteFailed })
    }
}

/// The newest output that is not in the file.
struct Tail {
    reason: CutReason,
    beyond_quota: bool,
    /// When the disk was last asked to take it.
    tried: UtcMillis,
    pieces: VecDeque<Piece>,
    bytes: usize,
    dropped: Dropped,
}

struct Piece {
    at: UtcMillis,
    stream: Stream,
    bytes: Vec<u8>,
}

/// Bytes of output that nothing holds any more.
#[derive(Debug, Clone, Copy, Default)]
struct Dropped {
    stdout: u64,
    stderr: u64,
}

impl Dropped {
    fn any(self) -> bool {
        self.stdout + self.stderr > 0
    }

    fn count(&mut self, stream: Stream, bytes: usize) {
        let counter = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        *counter = counter.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    fn cut(self, reason: CutReason) -> Cut {
        Cut { reason, stdout: self.stdout, stderr: self.stderr }
    }
}

/// What all cuts of a log say together; the worst reason stands for them.
#[derive(Debug, Default)]
struct Lost {
    reason: Option<CutReason>,
    dropped: Dropped,
}

impl Lost {
    fn add(&mut self, reason: CutReason, more: Dropped) {
        if more.any() {
            self.reason = self.reason.max(Some(reason));
            self.dropped.stdout = self.dropped.stdout.saturating_add(more.stdout);
            self.dropped.stderr = self.dropped.stderr.saturating_add(more.stderr);
        }
    }

    fn cut(&self) -> Option<Cut> {
        self.reason.map(|reason| self.dropped.cut(reason))
    }
}

impl Tail {
    fn new(reason: CutReason, at: UtcMillis) -> Self {
        Self {
            reason,
            beyond_quota: reason == CutReason::Quota,
            tried: at,
            pieces: VecDeque::new(),
            bytes: 0,
            dropped: Dropped::default(),
        }
    }

    /// Whether the disk is to be asked again. A wall clock that was put back only makes that sooner or later.
    fn is_due(&self, at: UtcMillis) -> bool {
        !self.beyond_quota && (at < self.tried || at >= self.tried.plus(AGAIN))
    }

    fn push(&mut self, at: UtcMillis, stream: Stream, bytes: &[u8]) {
        for part in bytes.chunks(MAX_PAYLOAD) {
            match self.pieces.back_mut() {
                Some(last) if last.stream == stream && last.bytes.len() + part.len() <= MAX_PAYLOAD => {
                    last.bytes.extend_from_slice(part);
                }
                _ => self.pieces.push_back(Piece { at, stream, bytes: part.to_vec() }),
            }
            self.bytes += part.len();
            while self.bytes > TAIL_BYTES || self.pieces.len() > TAIL_PIECES {
                let Some(oldest) = self.pieces.pop_front() else { break };
                self.bytes -= oldest.bytes.len();
                self.dropped.count(oldest.stream, oldest.bytes.len());
            }
        }
    }

    fn dropping_everything(mut self) -> Dropped {
        while let Some(piece) = self.pieces.pop_front() {
            self.dropped.count(piece.stream, piece.bytes.len());
        }
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::frame::{Body, Decoder, Frame};

    use super::*;

    const AT: UtcMillis = UtcMillis::new(1);

    fn log(quota: u64) -> (tempfile::TempDir, AttemptDir, Log) {
        let parent = tempfile::tempdir().unwrap();
        let dir = AttemptDir::create(parent.path(), "01900000-0000-7000-8000-000000000000".parse().unwrap()).unwrap();
        let log = Log::create(&dir, quota).unwrap();
        (parent, dir, log)
    }

    fn finished(dir: &AttemptDir, summary: &LogSummary) -> Vec<Frame> {
        let bytes = std::fs::read(dir.path(LOG)).unwrap();
        assert_eq!(bytes.len() as u64, summary.length);
        assert_eq!(leasehold_core::crypto::Digest::of(Domain::Log, &bytes), summary.digest);
        frames_of(dir)
    }

    fn frames_of(dir: &AttemptDir) -> Vec<Frame> {
        let bytes = std::fs::read(dir.path(LOG)).unwrap();
        let mut decoder = Decoder::new();
        decoder.push(&bytes);
        let mut frames = Vec::new();
        while let Some(frame) = decoder.next_frame().unwrap() {
            frames.push(frame);
        }
        decoder.finish().unwrap();
        frames
    }

    fn output(frames: &[Frame]) -> Vec<u8> {
        frames
            .iter()
            .flat_map(|frame| match &frame.body {
                Body::Output { bytes, .. } => bytes.clone(),
                Body::Cut(_) => Vec::new(),
            })
            .collect()
    }

    #[test]
    fn a_log_within_its_quota_is_exact() {
        let (_parent, dir, mut log) = log(1024);
        log.append(AT, Stream::Stdout, b"one\n");
        log.append(AT, Stream::Stderr, b"two\0\xff");
        let frames = finished(&dir, &log.finish(AT));
        assert_eq!(output(&frames), b"one\ntwo\0\xff");
    }

    #[test]
    fn beyond_the_quota_head_and_tail_stay_and_the_cut_counts_the_rest() {
        let (_parent, dir, mut log) = log(100_000);
        let line = |n: usize| format!("{n:09}\n").into_bytes();
        let mut written = Vec::new();
        for n in 0..100_000 {
            log.append(AT, Stream::Stdout, &line(n));
            written.extend(line(n));
        }
        let summary = log.finish(AT);
        let frames = finished(&dir, &summary);
        let place = frames.iter().position(|frame| matches!(frame.body, Body::Cut(_))).unwrap();
        let (head, tail) = (output(&frames[..place]), output(&frames[place..]));
        assert!(written.starts_with(&head) && written.ends_with(&tail));
        let Body::Cut(cut) = &frames[place].body else { unreachable!() };
        assert_eq!(cut.stdout, (written.len() - head.len() - tail.len()) as u64);
        assert_eq!(summary.cut, Some(*cut));
        assert_eq!((cut.reason, cut.stderr), (CutReason::Quota, 0));
        assert!(tail.len() <= TAIL_BYTES && tail.len() > TAIL_BYTES - 2 * MAX_PAYLOAD);
    }

    #[test]
    fn a_little_too_much_is_kept_without_a_cut() {
        let (_parent, dir, mut log) = log(20);
        log.append(AT, Stream::Stdout, b"0123456789");
        let summary = log.finish(AT);
        let frames = finished(&dir, &summary);
        assert_eq!(output(&frames), b"0123456789");
        assert_eq!((summary.cut, frames.len()), (None, 2));
    }

    #[test]
    fn alternating_single_bytes_stay_bounded_and_counted() {
        let (_parent, dir, mut log) = log(0);
        for _ in 0..20_000 {
            log.append(AT, Stream::Stdout, b"o");
            log.append(AT, Stream::Stderr, b"e");
        }
        let summary = log.finish(AT);
        let kept = output(&finished(&dir, &summary)).len();
        assert!(kept <= TAIL_PIECES);
        let cut = summary.cut.unwrap();
        assert_eq!(kept as u64 + cut.stdout + cut.stderr, 40_000);
    }

    /// A descriptor that refuses every write stands for the disk that does.
    fn refusing(dir: &AttemptDir, log: &mut Log) -> File {
        std::mem::replace(&mut log.file, File::open(dir.path(LOG)).unwrap())
    }

    #[test]
    fn what_cannot_be_written_is_dropped_and_counted() {
        let (_parent, dir, mut log) = log(1024);
        log.append(AT, Stream::Stdout, b"before");
        refusing(&dir, &mut log);
        log.append(AT, Stream::Stdout, b"lost");
        log.append(AT, Stream::Stderr, b"too");
        let summary = log.finish(AT);
        assert_eq!(summary.cut, Some(Cut { reason: CutReason::WriteFailed, stdout: 4, stderr: 3 }));
        assert_eq!(output(&finished(&dir, &summary)), b"before");
    }

    #[test]
    fn a_disk_that_takes_writes_again_loses_nothing_that_was_kept_meanwhile() {
        let (_parent, dir, mut log) = log(1024);
        log.append(AT, Stream::Stdout, b"before ");
        let good = refusing(&dir, &mut log);
        log.append(AT, Stream::Stdout, b"during ");
        // It came back by truncating nothing: the refusing descriptor could not even take a frame back.
        log.file = good;
        log.sealed = false;
        log.append(AT, Stream::Stdout, b"too early ");
        assert_eq!(output(&frames_of(&dir)), b"before ", "not asked again at once");
        log.append(AT.plus(AGAIN), Stream::Stdout, b"after");
        assert_eq!(output(&frames_of(&dir)), b"before during too early after", "live, not only at the end");
        let summary = log.finish(AT);
        assert_eq!(summary.cut, None);
        finished(&dir, &summary);
    }

    #[test]
    fn a_long_refusal_is_marked_in_its_place_and_the_log_goes_on() {
        let (_parent, dir, mut log) = log(8 * 1024 * 1024);
        log.append(AT, Stream::Stdout, b"before ");
        let good = refusing(&dir, &mut log);
        for _ in 0..100 {
            log.append(AT, Stream::Stdout, &vec![b'x'; 16 * 1024]);
        }
        log.file = good;
        log.sealed = false;
        log.append(AT.plus(AGAIN), Stream::Stdout, b"after");
        let summary = log.finish(AT);
        let frames = finished(&dir, &summary);
        let cut = summary.cut.unwrap();
        assert_eq!(frames[1].body, Body::Cut(cut));
        let kept = u64::try_from(output(&frames).len()).unwrap() - 12;
        assert_eq!(cut.stdout + kept, 100 * 16 * 1024);
        assert!(output(&frames).ends_with(b"xafter"));
    }

    #[test]
    fn a_refusal_that_meets_the_quota_ends_in_one_tail() {
        let (_parent, dir, mut log) = log(20_000);
        log.append(AT, Stream::Stdout, b"before");
        let good = refusing(&dir, &mut log);
        log.append(AT, Stream::Stdout, &vec![b'x'; 30_000]);
        log.file = good;
        log.sealed = false;
        log.append(AT.plus(AGAIN), Stream::Stdout, b"after");
        assert_eq!(output(&frames_of(&dir)), b"before", "the quota keeps the tail for the end");
        let summary = log.finish(AT);
        let frames = finished(&dir, &summary);
        assert_eq!(summary.cut, None, "all of it fitted into the tail");
        assert_eq!(output(&frames).len(), 6 + 30_000 + 5);
    }
}
