//! The log file of one attempt: frames are appended up to the quota, what comes later is kept as a bounded tail, and
//! the end is one cut frame and the tail.
//!
//! Output never holds up an end: what cannot be written counts as dropped. A frame that was written in part is taken
//! back, so the file always ends with a whole one. (Worker design, *Launcher*, *Output*.)

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};

use leasehold_core::crypto::{Domain, Hasher};
use leasehold_core::frame::{Cut, CutReason, HEADER, MAX_PAYLOAD, Stream, encode_cut, encode_output, encoded_len};
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

pub(super) struct Log {
    file: File,
    quota: u64,
    length: u64,
    hasher: Hasher,
    /// From the first byte that did not fit.
    tail: Option<Tail>,
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
            sealed: false,
            frames: Vec::new(),
        })
    }

    /// Appends what a stream gave.
    pub(super) fn append(&mut self, at: UtcMillis, stream: Stream, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if let Some(tail) = &mut self.tail {
            return tail.push(at, stream, bytes);
        }
        let (head, rest) = bytes.split_at(self.fitting(bytes.len()));
        let mut frames = std::mem::take(&mut self.frames);
        frames.clear();
        encode_output(&mut frames, at, stream, head);
        let written = self.write(&frames);
        self.frames = frames;
        if written && rest.is_empty() {
            return;
        }
        let reason = if written { CutReason::Quota } else { CutReason::WriteFailed };
        let mut tail = Tail::new(reason);
        if !written {
            tail.push(at, stream, head);
        }
        tail.push(at, stream, rest);
        self.tail = Some(tail);
    }

    /// The cut frame and the tail, where there are any; then the log is final.
    pub(super) fn finish(mut self, at: UtcMillis) -> LogSummary {
        let (mut dropped_stdout, mut dropped_stderr) = (0, 0);
        if let Some(tail) = self.tail.take() {
            (dropped_stdout, dropped_stderr) = (tail.dropped_stdout, tail.dropped_stderr);
            let mut frames = Vec::new();
            if dropped_stdout + dropped_stderr > 0 {
                encode_cut(&mut frames, at, tail.cut());
            }
            for piece in &tail.pieces {
                encode_output(&mut frames, piece.at, piece.stream, &piece.bytes);
            }
            if !self.write(&frames) {
                // Not even the tail: say at least how much is missing. The summary says it in any case.
                let all = tail.dropping_everything();
                (dropped_stdout, dropped_stderr) = (all.dropped_stdout, all.dropped_stderr);
                frames.clear();
                encode_cut(&mut frames, at, Cut { reason: CutReason::WriteFailed, ..all.cut() });
                self.write(&frames);
            }
        }
        LogSummary { length: self.length, digest: self.hasher.finish(), dropped_stdout, dropped_stderr }
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

    fn write(&mut self, frames: &[u8]) -> bool {
        if self.sealed {
            return false;
        }
        if around(LOG_APPEND, || self.file.write_all(frames)).is_ok() {
            self.hasher.update(frames);
            self.length += u64::try_from(frames.len()).unwrap_or(0);
            return true;
        }
        self.sealed = around(LOG_CUT, || self.file.set_len(self.length)).is_err();
        false
    }
}

/// The newest output beyond the quota.
struct Tail {
    reason: CutReason,
    pieces: VecDeque<Piece>,
    bytes: usize,
    dropped_stdout: u64,
    dropped_stderr: u64,
}

struct Piece {
    at: UtcMillis,
    stream: Stream,
    bytes: Vec<u8>,
}

impl Tail {
    fn new(reason: CutReason) -> Self {
        Self { reason, pieces: VecDeque::new(), bytes: 0, dropped_stdout: 0, dropped_stderr: 0 }
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
                self.count(oldest.stream, oldest.bytes.len());
            }
        }
    }

    fn count(&mut self, stream: Stream, bytes: usize) {
        let counter = match stream {
            Stream::Stdout => &mut self.dropped_stdout,
            Stream::Stderr => &mut self.dropped_stderr,
        };
        *counter = counter.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    fn cut(&self) -> Cut {
        Cut { reason: self.reason, stdout: self.dropped_stdout, stderr: self.dropped_stderr }
    }

    fn dropping_everything(mut self) -> Self {
        while let Some(piece) = self.pieces.pop_front() {
            self.count(piece.stream, piece.bytes.len());
        }
        self
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
        assert_eq!((cut.stdout, cut.stderr), (summary.dropped_stdout, 0));
        assert!(tail.len() <= TAIL_BYTES && tail.len() > TAIL_BYTES - 2 * MAX_PAYLOAD);
    }

    #[test]
    fn a_little_too_much_is_kept_without_a_cut() {
        let (_parent, dir, mut log) = log(20);
        log.append(AT, Stream::Stdout, b"0123456789");
        let summary = log.finish(AT);
        let frames = finished(&dir, &summary);
        assert_eq!(output(&frames), b"0123456789");
        assert_eq!((summary.dropped_stdout, frames.len()), (0, 2));
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
        assert_eq!(kept as u64 + summary.dropped_stdout + summary.dropped_stderr, 40_000);
    }

    #[test]
    fn what_cannot_be_written_is_dropped_and_counted() {
        let (_parent, dir, mut log) = log(1024);
        log.append(AT, Stream::Stdout, b"before");
        // A descriptor that refuses every write stands for the full disk.
        log.file = File::open(dir.path(LOG)).unwrap();
        log.append(AT, Stream::Stdout, b"lost");
        log.append(AT, Stream::Stderr, b"too");
        let summary = log.finish(AT);
        assert_eq!((summary.dropped_stdout, summary.dropped_stderr), (4, 3));
        assert_eq!(output(&finished(&dir, &summary)), b"before");
    }
}
