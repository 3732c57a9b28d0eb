//! The bounds that hold everywhere. A bound that an operator may want to move is a setting with one of these as its
//! default; the rest are facts of the design.

/// Tasks in one job.
pub const JOB_TASKS_MAX: u64 = 10_000_000;
/// Bytes of one command line, its arguments together.
pub const COMMAND_BYTES_MAX: usize = 1 << 20;
/// Commands of one task.
pub const COMMANDS_MAX: usize = 64;
/// Environment variables of a task.
pub const ENV_VARS_MAX: usize = 1_000;
/// Bytes of a task's environment, names and values together.
pub const ENV_BYTES_MAX: usize = 1 << 20;
/// Bytes of a task's definition as it travels, escapes included.
pub const SPEC_BYTES_MAX: usize = 4 << 20;
/// Bytes a task may be given on its standard input.
pub const STDIN_BYTES_MAX: usize = 1 << 20;
/// Bytes of one entry (`--each-line`) of a job.
pub const ENTRY_BYTES_MAX: usize = 64 << 10;
/// Characters of a name or a label.
pub const NAME_CHARS_MAX: usize = 200;
/// The highest priority of a job; the lowest is as far below zero.
pub const PRIORITY_MAX: i32 = 1_000;
/// Jobs that one job may wait for.
pub const WAITS_MAX: usize = 64;
/// Retries of a task.
pub const RETRIES_MAX: u32 = 1_000;
/// Bytes of each output stream that travel inside an outcome; the rest goes through blobs.
pub const TAIL_BYTES_MAX: usize = 64 << 10;
/// Bytes of each output stream that are kept at all; past this the stream is cut and marked.
pub const OUTPUT_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a request body (a job of a million lines is about 60 MB).
pub const BODY_BYTES_MAX: usize = 128 << 20;
/// Tasks in one parcel.
pub const PARCEL_TASKS_MAX: usize = 512;
/// Bytes of one parcel; one that would be longer is split.
pub const PARCEL_BYTES_MAX: usize = 12 << 20;
/// Bytes of one broker message.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Rows in one page of a list.
pub const PAGE_ROWS_MAX: u32 = 1_000;
/// Losses (its worker died under it) a task may suffer before it is given up as dead.
pub const CRASHES_MAX: u32 = 5;
