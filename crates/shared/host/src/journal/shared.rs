//! Knobs that several processes raise at a time: a pool's size, its overcommit limit, and the THP setting of a
//! smaller size.
//!
//! The knob's value is its original value plus the claims of all holders; the last holder restores the original.
//! `shared/KNOB` in the journal's directory holds (KNOB: the knob's path with `,` for `/`):
//!
//! | file | contents |
//! |---|---|
//! | `lock` | locked while a process changes the knob or these files; not locked for a whole run |
//! | `state` | the original value and the last value written; replaced atomically before each write of the knob |
//! | `share-PID-N` | the claim of one holder, which keeps the file locked until it ends |
//!
//! A share file that another process can lock belongs to a dead holder. The next process, or `superpage restore`,
//! removes that file and sets the knob to the claims of the living holders. A [`super::Journal`] changes a knob
//! exclusively: it holds a share with [`Claim::Alone`], and no other share exists meanwhile. See
//! docs/decisions/pool.md#7.

use std::collections::BTreeMap;
use std::fs;
use std::fs::{DirBuilder, DirEntry, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::PageSize;

use super::knob::{JournalError, Knob};
use super::restore::{Left, Outcome, Restoration};
use super::writer::{Holder, KnobWriter, WriterLock, Written};
use super::{knob, restore, writer};
use crate::{Root, process, root, snapshot};

/// Subdirectory of the journal's directory.
const DIR: &str = "shared";
/// Maximum time to wait for the lock: longer than the longest change, growing a pool by all of
/// memory.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(60);

/// A holder's claim on a knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Claim {
    /// A minimum value, for limits. The largest of several claims applies.
    AtLeast(u64),
    /// A number of pages to add to what other holders claim. Several claims add up.
    Plus(u64),
    /// Exclusive use: the holder sets any value, and no other holder exists.
    Alone,
}

/// A function that changes a knob from one value to another.
pub type Change<'a, E> = dyn FnMut(&mut dyn KnobWriter, u64, u64) -> Result<(), E> + 'a;

/// Changes the knob in one write.
fn at_once(
    knob: &Knob,
) -> impl FnMut(&mut dyn KnobWriter, u64, u64) -> Result<(), JournalError> + '_ {
    |writer, _, to| writer.set(knob, &knob.value(to)).map(|_| ())
}

/// A share in a knob, released when dropped.
#[derive(Debug)]
pub struct SharedKnob {
    root: Root,
    place: Place,
    share: Option<Share>,
    /// Changes of dead holders that were undone when the knob was raised.
    inherited: Vec<Restoration>,
    written: Written,
}

impl SharedKnob {
    /// Sets THP of these sizes to `madvise` where it is `never`.
    ///
    /// # Errors
    /// As for [`SharedKnob::raise`]; if one size fails, none stays enabled.
    pub fn allow_thp_sizes(
        journal_dir: &Path,
        root: &Root,
        sizes: &[PageSize],
    ) -> Result<Vec<Self>, JournalError> {
        restore::restore_dead(journal_dir, root, &|| true)?;
        let allow = |size: &PageSize| {
            let knob = Knob::thp_size_enabled(*size);
            let madvise = Claim::AtLeast(knob.number("madvise").unwrap_or(0));
            Self::take(journal_dir, root, &knob, madvise, &mut at_once(&knob), &|| true)
        };
        sizes.iter().map(allow).collect()
    }

    /// Raises `knob` by the claim `want`, together with other holders. Undoes changes of dead holders first. If a
    /// process is changing the knob, waits for it while `goes_on` is true.
    ///
    /// # Errors
    /// [`JournalError::Busy`] if a journal holds the knob exclusively, and errors of the knob's
    /// file.
    pub fn raise(
        journal_dir: &Path,
        root: &Root,
        knob: &Knob,
        want: Claim,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Self, JournalError> {
        Self::raise_by(journal_dir, root, knob, want, &mut at_once(knob), goes_on)
    }

    /// [`SharedKnob::raise`] with a custom `change`, which takes the knob from one value to another, possibly in steps.
    ///
    /// # Errors
    /// As for [`SharedKnob::raise`], and those of `change`. After an error the knob has the value that the other
    /// holders claim.
    pub fn raise_by<E: From<JournalError>>(
        journal_dir: &Path,
        root: &Root,
        knob: &Knob,
        want: Claim,
        change: &mut Change<'_, E>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Self, E> {
        // A dead journal may have left this knob changed.
        let inherited = restore::restore_dead(journal_dir, root, goes_on)?;
        let mut shared = Self::take(journal_dir, root, knob, want, change, goes_on)?;
        shared.inherited = inherited;
        Ok(shared)
    }

    fn take<E: From<JournalError>>(
        journal_dir: &Path,
        root: &Root,
        knob: &Knob,
        want: Claim,
        change: &mut Change<'_, E>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Self, E> {
        let place = Place::make(journal_dir, knob)?;
        let lock = place.lock(goes_on)?;
        let living = place.remove_dead()?;
        if let Some(holder) = living.iter().find(|one| one.want == Claim::Alone) {
            return Err(place.busy(holder).into());
        }
        let share = Share::create(&place.dir, &lock.holder, want)?;
        let written = Written { asked: String::new(), got: String::new() };
        let mut shared =
            Self { root: root.clone(), place, share: Some(share), inherited: Vec::new(), written };
        // On failure, drop the share, which sets the knob to the other claims. Release the lock before that.
        match shared.apply_claims_by(change) {
            Ok(()) => {
                drop(lock);
                Ok(shared)
            }
            Err(error) => {
                drop(lock);
                Err(error)
            }
        }
    }

    fn apply_claims_by<E: From<JournalError>>(
        &mut self,
        change: &mut Change<'_, E>,
    ) -> Result<(), E> {
        let own = self.share.as_ref().map(|share| share.path.as_path());
        let applied = self.place.apply_claims(&self.root, own, change)?;
        if let Some(share) = &mut self.share
            && let Claim::Plus(pages) = share.want
        {
            // If the pool got fewer pages than requested, reduce the claim to the pages it got.
            let missing = applied.asked.saturating_sub(applied.got);
            share.rewrite(Claim::Plus(pages.saturating_sub(missing)))?;
        }
        let knob = &self.place.knob;
        self.written = Written { asked: knob.value(applied.asked), got: knob.value(applied.got) };
        Ok(())
    }

    /// Returns the value written to the knob, and the value read back.
    pub fn written(&self) -> &Written {
        &self.written
    }

    /// Changes of dead holders that were undone when the knob was raised.
    pub fn inherited(&self) -> &[Restoration] {
        &self.inherited
    }

    /// Releases the share. The knob gets the value that the other holders claim, or its original value if there are
    /// none. Returns a result if the original value was restored, or if another writer had changed the knob.
    pub fn restore(mut self) -> Option<Restoration> {
        self.close()
    }

    fn close(&mut self) -> Option<Restoration> {
        let share = self.share.take()?;
        let knob = Some(self.place.knob.clone());
        let applied = self.place.lock(&|| true).and_then(|_lock| {
            share.remove()?;
            self.place.apply_claims_at_once(&self.root)
        });
        match applied {
            Ok(outcome) => outcome.map(|outcome| Restoration { knob, outcome }),
            Err(error) => {
                Some(Restoration { knob, outcome: Outcome::Failed { why: error.to_string() } })
            }
        }
    }
}

impl Drop for SharedKnob {
    fn drop(&mut self) {
        // Errors cannot be reported here; after a failure the `state` file stays for `superpage
        // restore`.
        let _ = self.close();
    }
}

/// Takes a knob exclusively for a journal; `None` for knobs that are never shared.
pub(super) fn take_exclusively(
    journal_dir: &Path,
    root: &Root,
    knob: &Knob,
) -> Result<Option<Exclusive>, JournalError> {
    if !knob.may_be_shared() {
        return Ok(None);
    }
    let place = Place::make(journal_dir, knob)?;
    let lock = place.lock(&|| true)?;
    if let Some(holder) = place.remove_dead()?.first() {
        return Err(place.busy(holder));
    }
    // Undo changes of dead holders first, so that the journal finds the original value.
    place.apply_claims_at_once(root)?;
    let share = Share::create(&place.dir, &lock.holder, Claim::Alone)?;
    Ok(Some(Exclusive { knob: knob.clone(), share: Some(share) }))
}

/// Exclusive use of a knob by a journal, until this is dropped.
#[derive(Debug)]
pub(super) struct Exclusive {
    pub knob: Knob,
    share: Option<Share>,
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        if let Some(share) = self.share.take() {
            let _ = share.remove();
        }
    }
}

/// Sets every shared knob to the claims of the living holders, and reports the results and the holders.
pub(super) fn recover(
    journal_dir: &Path,
    root: &Root,
    patience: Duration,
    goes_on: &dyn Fn() -> bool,
) -> Result<Vec<Restoration>, JournalError> {
    let mut done = Vec::new();
    for place in Place::all(journal_dir)? {
        let knob = Some(place.knob.clone());
        let _lock = match WriterLock::wait(&place.dir, patience, goes_on) {
            Ok(lock) => lock,
            Err(JournalError::Busy { holder, .. }) => {
                done.push(Restoration { knob, outcome: Outcome::OwnerAlive { holder } });
                continue;
            }
            Err(error) => return Err(error),
        };
        let living = place.remove_dead()?;
        if living.iter().any(|one| one.want == Claim::Alone) {
            // An exclusive holder is a journal's writer: its lock reports it.
            continue;
        }
        let outcome = place.apply_claims_at_once(root).unwrap_or_else(|error| {
            let why = error.to_string();
            Some(if error.is_gone() { Outcome::Gone { why } } else { Outcome::Failed { why } })
        });
        done.extend(outcome.map(|outcome| Restoration { knob: knob.clone(), outcome }));
        done.extend(living.into_iter().map(|one| Restoration {
            knob: knob.clone(),
            outcome: Outcome::OwnerAlive { holder: one.holder },
        }));
    }
    Ok(done)
}

/// [`recover`], returning only the undone changes of dead holders.
pub(super) fn recover_dead(
    journal_dir: &Path,
    root: &Root,
) -> Result<Vec<Restoration>, JournalError> {
    let is_undone = |one: &Restoration| {
        one.is_orphaned() && !matches!(one.outcome, Outcome::ChangedElsewhere { .. })
    };
    // If another process is changing a knob right now, that process has already removed dead
    // shares.
    let done = recover(journal_dir, root, Duration::ZERO, &|| true)?;
    Ok(done.into_iter().filter(is_undone).collect())
}

/// Lists knobs with a saved original value and no living holder. Changes and locks nothing.
pub(super) fn left_changed(journal_dir: &Path, root: &Root) -> Result<Vec<Left>, JournalError> {
    let mut left = Vec::new();
    for place in Place::all(journal_dir)? {
        let Some(state) = State::read(&place.dir, root)? else { continue };
        let shares = place.shares()?;
        let wanted = shares.iter().filter_map(|path| Wanted::read(File::open(path).ok()?));
        let mut pids = wanted.filter_map(|wanted| wanted.holder.pid);
        let is_changed = state.found != state.got.unwrap_or(state.asked);
        if is_changed && !pids.any(|pid| process::is_running(root, pid)) {
            left.push(Left { knob: place.knob, file: place.dir.join(STATE) });
        }
    }
    Ok(left)
}

/// Whether any knob was ever shared in this journal directory.
pub(super) fn is_used(journal_dir: &Path) -> Result<bool, JournalError> {
    let path = journal_dir.join(DIR);
    path.try_exists().map_err(|source| JournalError::io("look for", path, source))
}

/// The directory of one knob.
#[derive(Debug)]
struct Place {
    dir: PathBuf,
    knob: Knob,
}

/// The result of applying the claims on a knob.
struct Applied {
    asked: u64,
    got: u64,
}

impl Place {
    fn make(journal_dir: &Path, knob: &Knob) -> Result<Self, JournalError> {
        writer::prepare(journal_dir)?;
        let dir = journal_dir.join(DIR).join(knob.path().replace('/', ","));
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&dir);
        made.map_err(|source| JournalError::io("create", &dir, source))?;
        Ok(Self { dir, knob: knob.clone() })
    }

    fn all(journal_dir: &Path) -> Result<Vec<Self>, JournalError> {
        let dir = journal_dir.join(DIR);
        let entries = match fs::read_dir(&dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|source| JournalError::io("read", &dir, source))?,
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let places = names.filter_map(|name| {
            // A name that is not a knob was not created by us.
            let knob = Knob::new(&name.replace(',', "/")).ok()?;
            Some(Self { dir: dir.join(name), knob })
        });
        Ok(places.collect())
    }

    /// Locks the knob and its files against changes; waits for the current holder of the lock.
    fn lock(&self, goes_on: &dyn Fn() -> bool) -> Result<WriterLock, JournalError> {
        WriterLock::wait(&self.dir, MAX_WAIT, goes_on)
    }

    fn busy(&self, holder: &Wanted) -> JournalError {
        JournalError::Busy { holder: holder.holder.clone(), path: self.dir.clone() }
    }

    /// The share files of all holders.
    fn shares(&self) -> Result<Vec<PathBuf>, JournalError> {
        let entries = fs::read_dir(&self.dir);
        let entries = entries.map_err(|source| JournalError::io("read", &self.dir, source))?;
        let is_share =
            |entry: &DirEntry| entry.file_name().as_encoded_bytes().starts_with(SHARE.as_bytes());
        Ok(entries.flatten().filter(is_share).map(|entry| entry.path()).collect())
    }

    /// Removes the shares of dead holders, and returns the living holders.
    fn remove_dead(&self) -> Result<Vec<Wanted>, JournalError> {
        let mut living = Vec::new();
        for path in self.shares()? {
            let file = match OpenOptions::new().read(true).write(true).open(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                file => file.map_err(|source| JournalError::io("open", &path, source))?,
            };
            match file.try_lock() {
                Ok(()) => fs::remove_file(&path)
                    .map_err(|source| JournalError::io("remove", &path, source))?,
                Err(TryLockError::WouldBlock) => living.extend(Wanted::read(file)),
                Err(TryLockError::Error(source)) => {
                    return Err(JournalError::io("lock", path, source));
                }
            }
        }
        Ok(living)
    }

    /// Sets the knob to the claims of the living holders, in one write. Returns the result if the knob was restored, or
    /// if another writer had changed it.
    fn apply_claims_at_once(&self, root: &Root) -> Result<Option<Outcome>, JournalError> {
        let state = State::read(&self.dir, root)?;
        let now = self.now_after(root, state.as_ref())?;
        if let Some(state) = state.as_ref().filter(|state| !state.is_last_written(now)) {
            // Another writer changed the knob, so the claims of the living holders are void. The last of these holders
            // removes the state.
            if self.remove_dead()?.is_empty() {
                State::remove(&self.dir)?;
            }
            let value = |number| self.knob.value(number);
            let (ours, original) = (value(state.got.unwrap_or(state.asked)), value(state.found));
            let now = value(now);
            return Ok(Some(Outcome::ChangedElsewhere { ours, now, original }));
        }
        self.apply_claims(root, None, &mut at_once(&self.knob))?;
        let Some(state) = state else { return Ok(None) };
        if State::read(&self.dir, root)?.is_some() {
            return Ok(None);
        }
        if now == state.found {
            return Ok(Some(Outcome::AlreadyRestored { value: self.knob.value(now) }));
        }
        let (from, to) = (self.knob.value(now), self.knob.value(state.found));
        Ok(Some(Outcome::Restored { from, to, got: self.knob.value(self.now(root)?) }))
    }

    /// Sets the knob to the original value plus the claims of the living holders; `own` is the caller's share. The
    /// caller must hold the lock.
    fn apply_claims<E: From<JournalError>>(
        &self,
        root: &Root,
        own: Option<&Path>,
        change: &mut Change<'_, E>,
    ) -> Result<Applied, E> {
        let before = State::read(&self.dir, root)?;
        let old = self.now_after(root, before.as_ref())?;
        let is_changed = before.as_ref().is_some_and(|state| !state.is_last_written(old));
        if is_changed {
            // Another writer changed the knob, which voids the other holders' claims.
            self.annul_all_but(own)?;
        }
        let wants: Vec<Claim> = self.remove_dead()?.into_iter().map(|one| one.want).collect();
        let before = before.filter(|_| !is_changed);
        let nodes = before
            .as_ref()
            .map_or_else(|| knob::read(root, &self.knob), |state| state.nodes.clone());
        let found = before.map_or(old, |state| state.found);
        let limit = |want: &Claim| if let Claim::AtLeast(value) = want { *value } else { 0 };
        let plus = |want: &Claim| if let Claim::Plus(value) = want { *value } else { 0 };
        let highest = wants.iter().map(limit).fold(found, u64::max);
        let asked = wants.iter().map(plus).fold(highest, u64::saturating_add);
        let boot_id = root::word(root, snapshot::BOOT_ID).map_err(JournalError::from)?;
        let mut state = State { superpage_share: 1, boot_id, found, old, asked, got: None, nodes };
        if asked != old {
            let saved = state.put(&self.dir);
            if !wants.is_empty() {
                saved?; // restoring the original value must not fail on a full disk
            }
            if asked < old {
                knob::lower(root, &self.knob, &state.nodes, old - asked)?;
            }
            change(&mut Writer(root), old, asked)?;
        }
        let got = self.now(root)?;
        if wants.is_empty() {
            State::remove(&self.dir)?;
        } else {
            state.got = Some(got);
            state.put(&self.dir)?;
        }
        Ok(Applied { asked, got })
    }

    /// Voids the other holders' claims: another writer has changed the knob since they were made.
    fn annul_all_but(&self, own: Option<&Path>) -> Result<(), JournalError> {
        let others = self.shares()?.into_iter().filter(|path| own != Some(path.as_path()));
        others.into_iter().try_for_each(|path| Wanted::annul(&path))
    }

    fn now(&self, root: &Root) -> Result<u64, JournalError> {
        self.number(&self.knob.read(root)?)
    }

    /// The current value, read again if it differs from the value recorded in `state`.
    fn now_after(&self, root: &Root, state: Option<&State>) -> Result<u64, JournalError> {
        let is_left = |value: &str| {
            let left = state.zip(self.knob.number(value));
            left.is_none_or(|(state, now)| state.is_last_written(now))
        };
        self.number(&self.knob.read_twice(root, is_left)?)
    }

    fn number(&self, value: &str) -> Result<u64, JournalError> {
        let why = "is neither a number nor a word that is known";
        let (knob, number) = (&self.knob, self.knob.number(value));
        let bad = || JournalError::BadValue { knob: knob.clone(), value: value.to_string(), why };
        number.ok_or_else(bad)
    }
}

/// Writes a knob whose change the `state` file already records.
struct Writer<'a>(&'a Root);

impl KnobWriter for Writer<'_> {
    fn set(&mut self, knob: &Knob, value: &str) -> Result<Written, JournalError> {
        knob.check(value)?;
        knob.write(self.0, value)?;
        Ok(Written { asked: value.to_string(), got: knob.read(self.0)? })
    }
}

// The files of a shared knob: one `state` file, which is replaced atomically, and one `share-PID-N` per holder.

const STATE: &str = "state";
/// Prefix of a holder's file name.
pub const SHARE: &str = "share-";

/// The original value of the knob, and the last value written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    pub superpage_share: u32,
    pub boot_id: String,
    pub found: u64,
    pub old: u64,
    pub asked: u64,
    /// Value read back; `None`: not yet written, or the writer died before it read the value back.
    pub got: Option<u64>,
    /// For a pool on several nodes, the original number of pages of each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<u32, u64>,
}

impl State {
    /// Whether `now` is the result of the last change. If the writer was killed before it read the knob back, a pool
    /// may have any size between the old and the new one.
    pub fn is_last_written(&self, now: u64) -> bool {
        let (low, high) = (self.old.min(self.asked), self.old.max(self.asked));
        self.got.map_or((low..=high).contains(&now), |got| got == now)
    }

    /// Reads the state. `None` if the state is of another boot, which reset the knob, or if it is unreadable: a state
    /// is replaced atomically, so an unreadable file is not ours.
    pub fn read(dir: &Path, root: &Root) -> Result<Option<Self>, JournalError> {
        let path = dir.join(STATE);
        let file = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file.map_err(|source| JournalError::io("open", &path, source))?,
        };
        let mut bytes = Vec::new();
        let read = file.take(4096).read_to_end(&mut bytes);
        read.map_err(|source| JournalError::io("read", &path, source))?;
        let state = serde_json::from_slice::<Self>(&bytes).ok();
        let boot_id = root::word(root, snapshot::BOOT_ID)?;
        Ok(state.filter(|state| state.superpage_share == 1 && state.boot_id == boot_id))
    }

    /// Replaces the state atomically, without syncing it to disk: the state must survive its writer, but not a reboot,
    /// which also resets the knobs.
    pub fn put(&self, dir: &Path) -> Result<(), JournalError> {
        let (path, new) = (dir.join(STATE), dir.join("state.new"));
        let written = || {
            let mut options = OpenOptions::new();
            let mut file =
                options.create(true).truncate(true).write(true).mode(0o600).open(&new)?;
            file.write_all(&serde_json::to_vec(self)?)?;
            fs::rename(&new, &path)
        };
        written().map_err(|source| JournalError::io("write", &path, source))
    }

    pub fn remove(dir: &Path) -> Result<(), JournalError> {
        let path = dir.join(STATE);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(JournalError::io("remove", path, error))
            }
            _ => Ok(()),
        }
    }
}

/// Contents of a share's file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Wanted {
    pub holder: Holder,
    pub want: Claim,
}

impl Wanted {
    pub fn read(file: File) -> Option<Self> {
        let mut bytes = Vec::new();
        file.take(4096).read_to_end(&mut bytes).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Voids the claim in a share file. The file may vanish, because its holder may end at any time.
    pub fn annul(path: &Path) -> Result<(), JournalError> {
        let io = |source| JournalError::io("write", path, source);
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            file => file.map_err(io)?,
        };
        let Some(wanted) = Self::read(file.try_clone().map_err(io)?) else { return Ok(()) };
        let wanted = Self { want: Claim::Plus(0), ..wanted };
        write_over(&file, &wanted).map_err(io)
    }
}

/// Writes in place, because the lock belongs to the file.
fn write_over(file: &File, wanted: &Wanted) -> std::io::Result<()> {
    let bytes = serde_json::to_vec(wanted)?;
    file.set_len(0)?;
    file.write_all_at(&bytes, 0)
}

/// One holder's locked file.
#[derive(Debug)]
pub struct Share {
    pub path: PathBuf,
    pub file: File,
    pub holder: Holder,
    pub want: Claim,
}

impl Share {
    /// Creates and locks a share. The caller must hold the knob's lock; otherwise another process could find the new
    /// file unlocked and remove it.
    pub fn create(dir: &Path, holder: &Holder, want: Claim) -> Result<Self, JournalError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let pid = holder.pid.map_or(0, |pid| pid.0);
        let path = dir.join(format!("{SHARE}{pid}-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        let mut options = OpenOptions::new();
        let file = options.create_new(true).read(true).write(true).mode(0o600).open(&path);
        let file = file.map_err(|source| JournalError::io("create", &path, source))?;
        file.lock().map_err(|source| JournalError::io("lock", &path, source))?;
        let mut share = Self { path, file, holder: holder.clone(), want };
        share.rewrite(want)?;
        Ok(share)
    }

    /// Replaces the claim. Only the holder, and processes that hold the knob's lock, access the
    /// file.
    pub fn rewrite(&mut self, want: Claim) -> Result<(), JournalError> {
        self.want = want;
        let wanted = Wanted { holder: self.holder.clone(), want };
        let written = write_over(&self.file, &wanted);
        written.map_err(|source| JournalError::io("write", &self.path, source))
    }

    pub fn remove(self) -> Result<(), JournalError> {
        fs::remove_file(&self.path).map_err(|source| JournalError::io("remove", self.path, source))
    }
}
