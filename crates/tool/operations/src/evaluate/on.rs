//! `evaluate --on slurm|ray`: each entry is a part and gets a whole node. Its job runs `evaluate SUITE:ENTRY --into
//! FILE.d/results/N.json`, where N is the entry's position in the list of entries.
//!
//! FILE, given by `--resume`, keeps the results. It exists before the first job, and each new result is moved into it
//! at once.
//! See docs/decisions/evaluate.md#3.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use experiment::evaluation::{Application, Evaluation, NotRun};
use xxhash_rust::xxh3::xxh3_64;

use super::{End, Plan, PlannedEntry, Request, SubmittedPlan, find, here, read};
use crate::Failure;
use crate::cluster::{
    Kind, Launch, Share, Task, Watched, Word, Work, make_directories, quoted, text_of,
};
use crate::compare::suite::Entry;
use crate::files::WriteLock;
use crate::reporter::say;

const KIND: Kind = Kind {
    name: "evaluation",
    piece: "result",
    pieces: "applications",
    program: "superpage",
    shared: &[],
    folder: "results",
    results: r"[0-9]+\.json",
    // On SIGTERM `evaluate` restores settings and ends its child processes.
    ends_by: libc::SIGTERM,
};

/// Compares the entries that FILE does not have yet.
pub fn evaluate(request: &Request) -> Result<(Evaluation, End), Failure> {
    let _lock = request.resume.as_deref().map(WriteLock::new).transpose()?;
    let cluster = Cluster::new(request)?;
    make_directories(&cluster.directory, &["results", "logs"])?;
    cluster.collect()?;
    let cluster = Cluster { seconds: cluster.share(), ..cluster };
    let watched = match cluster.pending().next() {
        None => Watched::default(),
        Some(_) => {
            cluster.begin()?;
            cluster.launch()?.run(request.quiet)?
        }
    };
    cluster.end(&watched)
}

/// Returns the submission for the pending entries.
pub fn plan(request: &Request) -> Result<Plan, Failure> {
    let cluster = Cluster::new(request)?;
    cluster.look();
    let cluster = Cluster { seconds: cluster.share(), ..cluster };
    let parts: Vec<u32> = cluster.pending().map(|(part, _)| part).collect();
    let submission = cluster.launch()?.submission(&parts);
    let entries = cluster.pending().map(|(_, entry)| PlannedEntry::new(entry, cluster.seconds));
    Ok(Plan {
        on: request.cluster.on.name(),
        entries: entries.collect(),
        not_run: Vec::new(),
        submission: Some(SubmittedPlan { directory: cluster.directory.clone(), submission }),
    })
}

struct Cluster<'a> {
    request: &'a Request,
    entries: Vec<Entry>,
    /// The entries' names for the command on the nodes, in the same order.
    named: Vec<String>,
    programs: Vec<String>,
    /// Full path of FILE.d.
    directory: String,
    /// Seconds per entry.
    seconds: f64,
    made: RefCell<Made>,
}

struct Made {
    evaluation: Evaluation,
    /// Parts that ended without a comparison, with the reasons.
    not_run: BTreeMap<u32, NotRun>,
}

impl<'a> Cluster<'a> {
    fn new(request: &'a Request) -> Result<Self, Failure> {
        let file = request.resume.as_deref().unwrap_or(Path::new("-"));
        let entries = find::entries(&request.suites)?;
        let evaluation = here::kept(file)?;
        let mut directory = std::path::absolute(file)
            .map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?;
        directory.as_mut_os_string().push(".d");
        let cluster = Self {
            named: entries.iter().map(find::name_on_node).collect::<Result<_, _>>()?,
            programs: request.cluster.programs(KIND.program)?,
            directory: text_of(&directory)?,
            made: RefCell::new(Made { evaluation, not_run: BTreeMap::new() }),
            seconds: 0.0,
            request,
            entries,
        };
        cluster.check_results(file)?;
        Ok(cluster)
    }

    /// Fails if there are results but no FILE. FILE existed before the first job, so somebody removed it.
    fn check_results(&self, file: &Path) -> Result<(), Failure> {
        if file.exists() || self.request.force || self.results().unwrap_or_default().is_empty() {
            return Ok(());
        }
        let (file, directory) = (file.display(), &self.directory);
        Err(Failure::usage(format!(
            "{file} is missing, and {directory} has results of it; to go on restore {file} or take them with --force, to \
             begin anew remove {directory} or give it another name"
        )))
    }

    fn begin(&self) -> Result<(), Failure> {
        match self.request.resume.as_deref() {
            Some(file) if !file.exists() => {
                here::save(self.request, &self.made.borrow().evaluation)
            }
            _ => Ok(()),
        }
    }

    fn launch(&self) -> Result<Launch<'_>, Failure> {
        let parts = u32::try_from(self.entries.len()).map_err(Failure::usage)?;
        let list = xxh3_64(self.named.join("\n").as_bytes());
        Ok(Launch {
            work: self,
            args: &self.request.cluster,
            directory: self.directory.clone(),
            id: format!("{:012x}", xxh3_64(self.directory.as_bytes()) >> 16),
            parts,
            // The hash distinguishes jobs of other entry lists.
            deal: format!("{parts}-{:08x}", list >> 32),
            share: Share::Node,
            programs: self.programs.clone(),
        })
    }

    /// Returns the entries without a comparison, with their numbers.
    fn pending(&self) -> impl Iterator<Item = (u32, &Entry)> {
        let has = |entry: &Entry| self.made.borrow().evaluation.has(&entry.name);
        (0..).zip(&self.entries).filter(move |(_, entry)| !has(entry))
    }

    fn share(&self) -> f64 {
        self.request.max_time / self.pending().count().max(1) as f64
    }

    fn result(&self, part: u32) -> PathBuf {
        Path::new(&self.directory).join(KIND.folder).join(format!("{part}.json"))
    }

    fn results(&self) -> Result<Vec<PathBuf>, Failure> {
        let folder = Path::new(&self.directory).join(KIND.folder);
        let read = fs::read_dir(&folder);
        let read =
            read.map_err(|error| Failure::usage(format!("{}: {error}", folder.display())))?;
        let paths = read.flatten().map(|file| file.path());
        Ok(paths.filter(|path| path.extension().is_some_and(|it| it == "json")).collect())
    }

    /// Takes results of jobs that finished while nobody watched, of any entry. Entries that did not run are tried
    /// again.
    fn collect(&self) -> Result<(), Failure> {
        self.results()?.iter().try_for_each(|path| self.take(path).map(drop))
    }

    /// Adds the results that `collect` would take, but leaves their files in place.
    fn look(&self) {
        let results = self.results().unwrap_or_default();
        let found = results.iter().filter_map(|path| read(path).ok());
        let applications = found.flat_map(|found| found.applications);
        self.made.borrow_mut().evaluation.applications.extend(applications);
    }

    /// Saves a result and removes its file. Returns the entries that were not run. An unreadable file is renamed.
    fn take(&self, path: &Path) -> Result<Vec<NotRun>, Failure> {
        let not_run = match read(path) {
            Ok(Evaluation { applications, not_run, .. }) => {
                self.keep(applications)?;
                not_run
            }
            Err(failure) => {
                let failed = |error| Failure::usage(format!("{}: {error}", path.display()));
                fs::read(path).map_err(failed)?;
                let aside = path.with_extension("json.unreadable");
                fs::rename(path, &aside).map_err(failed)?;
                say(&format!("{failure}; run again, and kept as {}", aside.display()));
                return Ok(Vec::new());
            }
        };
        let removed = fs::remove_file(path);
        removed.map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
        Ok(not_run)
    }

    /// Adds applications in the order of the entries; other applications already in FILE stay first.
    fn keep(&self, applications: Vec<Application>) -> Result<(), Failure> {
        let evaluation = &mut self.made.borrow_mut().evaluation;
        let new = applications.into_iter().filter(|one| !evaluation.has(&one.name));
        let new: Vec<Application> = new.collect();
        if new.is_empty() {
            return Ok(());
        }
        evaluation.applications.extend(new);
        let place = |one: &Application| self.entries.iter().position(|it| it.name == one.name);
        evaluation.applications.sort_by_key(place);
        here::save(self.request, evaluation)
    }

    /// Returns the evaluation, with a reason for each entry without a comparison.
    fn end(&self, watched: &Watched) -> Result<(Evaluation, End), Failure> {
        let Made { mut evaluation, mut not_run } =
            self.made.replace(Made { evaluation: Evaluation::new(), not_run: BTreeMap::new() });
        for (part, why) in &watched.given_up {
            let name = self.entries[*part as usize].name.clone();
            say(&format!("{name}: {why}"));
            not_run.insert(*part, NotRun { name, why: why.clone(), host: None, failed: true });
        }
        if let Some(why) = &watched.stopped {
            say(why);
        }
        let left = (0..).zip(&self.entries).filter(|(_, entry)| !evaluation.has(&entry.name));
        evaluation.not_run = left
            .map(|(part, entry)| {
                let why = "not compared yet; the same command goes on".to_string();
                let name = entry.name.clone();
                not_run.remove(&part).unwrap_or(NotRun { name, why, host: None, failed: false })
            })
            .collect();
        let nothing = evaluation.applications.is_empty() && watched.stopped.is_none();
        if nothing && evaluation.not_run.iter().all(|one| !one.failed) {
            return Err(here::nothing_here(&evaluation));
        }
        here::save(self.request, &evaluation)?;
        let end = here::end(watched.signal, &evaluation);
        Ok((evaluation, end))
    }
}

impl Work for Cluster<'_> {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn left(&self, part: u32) -> Result<usize, Failure> {
        let Some(entry) = self.entries.get(part as usize) else { return Ok(0) };
        let path = self.result(part);
        if path.exists() {
            let not_run = self.take(&path)?.into_iter().find(|one| one.name == entry.name);
            if let Some(not_run) = not_run {
                self.made.borrow_mut().not_run.insert(part, not_run);
            }
        }
        let made = self.made.borrow();
        Ok(usize::from(!made.evaluation.has(&entry.name) && !made.not_run.contains_key(&part)))
    }

    fn seen(&self) -> Result<(usize, usize), Failure> {
        let made = self.made.borrow();
        let has = |entry: &&Entry| made.evaluation.has(&entry.name);
        let done = self.entries.iter().filter(has).count() + made.not_run.len();
        Ok(((done + self.results()?.len()).min(self.entries.len()), self.entries.len()))
    }

    fn script(&self) -> String {
        let (program, directory) = (quoted(&self.programs[0]), quoted(&self.directory));
        let entries = self.named.iter().map(|name| format!("  {}\n", quoted(name)));
        let entries: String = entries.collect();
        format!(
            "#!/bin/bash\nentries=(\n{entries})\n\
             exec {program} evaluate \"${{entries[SLURM_ARRAY_TASK_ID]}}\" --max-time {:.3}s --quiet \\\n  \
             --into {directory}/results/\"$SLURM_ARRAY_TASK_ID.json\"\n",
            self.seconds
        )
    }

    fn task(&self, part: u32) -> Result<Task, Failure> {
        let (name, time) = (&self.named[part as usize], format!("{:.3}s", self.seconds));
        let words = ["evaluate", name, "--max-time", &time, "--quiet", "--into"];
        let words = words.map(|word| Word::Text(word.to_string())).into_iter();
        let result = Word::Place(format!("results/{part}.json"));
        Ok(Task { files: Vec::new(), words: words.chain([result]).collect() })
    }

    fn other_deal(&self, _: &str) -> String {
        "of other entries; name the same suites".to_string()
    }
}
