//! Slurm: an array of jobs, one per part. The queue is the only record of the jobs. Job names hold a hash of the
//! directory and how the work was divided, so jobs are found even if the submitting process is gone. Without
//! accounting, Slurm does not report how a job ended; its results and its log do.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{ErrorKind, Write};
use std::process::{Command, Output, Stdio};

use super::{Launch, Outcome, Share, Watch, last_line};
use crate::Failure;

/// Number of polls for the results of a part whose job is gone, before the job counts as failed. A shared file system
/// may show new files half a minute late.
const RESULT_POLLS: u32 = 6;

/// Number of consecutive failed Slurm commands (five minutes) before giving up, because the controller may be
/// restarting.
const UNANSWERED: u32 = 60;

/// Back-off before a resubmission: seconds per attempt without progress, the first not counted.
const BACKOFF: u32 = 30;

#[derive(Debug, PartialEq, Eq)]
struct Job {
    array: u64,
    /// The job's cluster, if several clusters were queried.
    cluster: Option<String>,
    state: String,
    reason: String,
}

type Queue = BTreeMap<u32, Job>;

pub(super) fn run(launch: &Launch, watch: &mut Watch) -> Result<Outcome, Failure> {
    let mut queue = look(launch)?;
    // For each part with a job, the number of consecutive polls in which the queue lacked the job.
    let mut watched: BTreeMap<u32, u32> = BTreeMap::new();
    let (mut unanswered, mut refused) = (0, 0);
    loop {
        watched.extend(queue.keys().map(|part| (*part, 0)));
        cancel_refused(launch, &queue, watch)?;
        for (part, missed) in watched.iter_mut().filter(|(part, _)| !queue.contains_key(part)) {
            let left = launch.work.left(*part)?;
            *missed = if left == 0 { RESULT_POLLS } else { *missed + 1 };
            if *missed >= RESULT_POLLS {
                watch.tries.ended(*part, left, || why(launch, *part));
            }
        }
        watched.retain(|_, missed| *missed < RESULT_POLLS);
        let wanted: BTreeSet<u32> =
            watch.tries.left().filter(|part| !watched.contains_key(part)).collect();
        // Submit only while the queue is known: a submission that reported failure may still be queued.
        if unanswered == 0 {
            match submit_all(launch, watch, &wanted, &mut watched) {
                Ok(()) => refused = 0,
                // If no submission has ever succeeded, an option is most likely wrong.
                Err(failure) if watch.tries.submitted() == 0 || launch.args.detach => {
                    return Err(failure);
                }
                Err(failure) => {
                    tolerate_failure(launch, watch, &failure, &mut refused, "trying again")?
                }
            }
        }
        if launch.args.detach {
            let stopped = format!("the jobs go on; {}", hint(launch));
            return Ok(Outcome { detached: true, stopped: Some(stopped), ..Outcome::default() });
        }
        if watched.is_empty() && refused == 0 {
            return Ok(Outcome::default());
        }
        watch.tell(launch, &words(&queue))?;
        watch.wait(launch.poll());
        if let Some(signal) = watch.signal() {
            let stopped = Some(format!("interrupted, and the jobs go on; {}", hint(launch)));
            return Ok(Outcome { signal: Some(signal), stopped, ..Outcome::default() });
        }
        match look(launch) {
            Ok(answer) => (queue, unanswered) = (answer, 0),
            Err(failure) => {
                tolerate_failure(launch, watch, &failure, &mut unanswered, "asking again")?;
                // The queue is unknown: count no job as missing.
                watched.values_mut().for_each(|missed| *missed = 0);
                queue = watched.keys().map(|part| (*part, Job::unknown())).collect();
            }
        }
    }
}

impl Job {
    fn unknown() -> Self {
        let (state, reason) = ("?".to_string(), "None".to_string());
        Self { array: 0, cluster: None, state, reason }
    }

    /// Returns whether Slurm holds the job because it could not be started. Nobody would release such a job.
    fn is_refused(&self) -> bool {
        let reason = self.reason.to_lowercase().replace('_', " ");
        self.state == "PD" && (reason.contains("launch failed") || reason.contains("max requeue"))
    }
}

/// Handles a failed Slurm command that may succeed later: prints the first of consecutive failures, and gives up after
/// [`UNANSWERED`].
fn tolerate_failure(
    launch: &Launch,
    watch: &Watch,
    failure: &Failure,
    in_a_row: &mut u32,
    what: &str,
) -> Result<(), Failure> {
    match *in_a_row {
        UNANSWERED => return Err(Failure::usage(format!("{failure}; {}", hint(launch)))),
        0 => watch.say(&format!("{failure}; {what}")),
        _ => {}
    }
    *in_a_row += 1;
    Ok(())
}

/// Says how to continue watching the jobs, and how to cancel them.
fn hint(launch: &Launch) -> String {
    let ending = ending(launch, &name(launch));
    format!("the same command (without --detach) watches them, {ending} ends them")
}

fn ending(launch: &Launch, name: &str) -> String {
    let clusters = clusters(&launch.args.slurm_options);
    let clusters = clusters.map_or(String::new(), |list| format!("--clusters={list} "));
    format!("`scancel {clusters}--name={name}`")
}

/// Returns the clusters that jobs are submitted to, if the options name any.
fn clusters(options: &[String]) -> Option<String> {
    let mut named = None;
    let mut words = options.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let value = match (word.strip_prefix("-M"), word.split_once('=')) {
            (Some(value), _) => value.strip_prefix('=').unwrap_or(value),
            (_, Some(("--clusters" | "--cluster", value))) => value,
            _ if matches!(word, "--clusters" | "--cluster") => "",
            _ => continue,
        };
        named = if value.is_empty() { words.next() } else { Some(value.trim()) };
    }
    // sbatch alone reads SBATCH_CLUSTERS; all commands read SLURM_CLUSTERS.
    let named = named.map(str::to_string);
    named.or_else(|| std::env::var("SBATCH_CLUSTERS").ok()).filter(|list| !list.is_empty())
}

/// Returns a Slurm command about existing jobs. Removes the user's environment variables for output format and filters,
/// which would hide some jobs; keeps the choice of clusters.
fn about_jobs(program: &str, clusters: Option<&str>) -> Command {
    let mut command = Command::new(program);
    let prefix = format!("{}_", program.to_uppercase());
    for (name, _) in std::env::vars_os() {
        let is_output = name.to_str().and_then(|name| name.strip_prefix(&prefix));
        if is_output.is_some_and(|what| !matches!(what, "FEDERATION" | "SIBLING")) {
            command.env_remove(name);
        }
    }
    command.args(clusters.map(|list| format!("--clusters={list}")));
    command
}

fn name(launch: &Launch) -> String {
    format!("{}{}", prefix(launch), launch.deal)
}

fn prefix(launch: &Launch) -> String {
    format!("superpage-{}-{}-of-", launch.work.kind().name, launch.id)
}

/// Returns the command that submits `parts`, which begin `later` seconds from now.
pub(super) fn submission(launch: &Launch, parts: &[u32], later: u32) -> Command {
    let logs = launch.directory.replace('%', "%%");
    let mut command = Command::new("sbatch");
    command.args(["--parsable", "--requeue", "--nodes=1", "--ntasks=1", "--open-mode=append"]);
    command.arg(format!("--job-name={}", name(launch)));
    command.arg(format!("--array={}", list(parts)));
    match launch.share {
        Share::Cpus(cpus) => command.arg(format!("--cpus-per-task={cpus}")),
        Share::Node => command.args(["--exclusive", "--mem=0"]),
    };
    command.arg(format!("--output={logs}/logs/part-%a.log"));
    if later > 0 {
        command.arg(format!("--begin=now+{later}"));
    }
    command.args(&launch.args.slurm_options);
    command
}

/// Formats parts as a list with ranges: 0-3,7.
fn list(parts: &[u32]) -> String {
    let runs = parts.chunk_by(|one, next| one + 1 == *next);
    let word = |run: &[u32]| match run {
        [one] => one.to_string(),
        run => format!("{}-{}", run[0], run[run.len() - 1]),
    };
    runs.map(word).collect::<Vec<_>>().join(",")
}

fn submit_all(
    launch: &Launch,
    watch: &mut Watch,
    wanted: &BTreeSet<u32>,
    watched: &mut BTreeMap<u32, u32>,
) -> Result<(), Failure> {
    let mut by_delay: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for part in wanted {
        let later = watch.tries.without_progress(*part).saturating_sub(1) * BACKOFF;
        by_delay.entry(later).or_default().push(*part);
    }
    for (later, parts) in by_delay {
        let job = submit(launch, &parts, later)?;
        watch.tries.count_submitted(parts.len());
        watched.extend(parts.iter().map(|part| (*part, 0)));
        let (count, of) = (parts.len(), launch.parts);
        watch.say(&format!("Slurm job {job}: {count} of {of} parts"));
    }
    Ok(())
}

fn submit(launch: &Launch, parts: &[u32], later: u32) -> Result<u64, Failure> {
    let mut command = submission(launch, parts, later);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| unstartable("sbatch", &error))?;
    // Ignore write errors: sbatch may fail before it has read its script.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(launch.work.script().as_bytes()));
    let output = child.wait_with_output().map_err(|error| unstartable("sbatch", &error))?;
    let answer = said(&output, "sbatch")?;
    // sbatch prints "4711" or "4711;cluster".
    let job = answer.trim().split(';').next().and_then(|job| job.parse().ok());
    job.ok_or_else(|| {
        Failure::usage(format!(
            "sbatch answered `{}`, which is no job; {}",
            last_line(&answer).unwrap_or_default(),
            hint(launch)
        ))
    })
}

fn look(launch: &Launch) -> Result<Queue, Failure> {
    let mut command = about_jobs("squeue", clusters(&launch.args.slurm_options).as_deref());
    // --all includes hidden partitions. Keep the headings: only they name the clusters.
    command.args(["--me", "--all", "--array", "--format=%F|%K|%t|%r|%j"]);
    let output = command.output().map_err(|error| unstartable("squeue", &error))?;
    parse(launch, &said(&output, "squeue")?)
}

/// Parses squeue's output. Jobs with other names are ignored.
fn parse(launch: &Launch, answer: &str) -> Result<Queue, Failure> {
    let (prefix, parts) = (prefix(launch), launch.parts);
    let (mut queue, mut cluster) = (Queue::new(), None);
    for line in answer.lines().filter(|line| !line.trim().is_empty()) {
        if let Some(name) = line.strip_prefix("CLUSTER:") {
            // This heading begins the jobs of one cluster.
            cluster = Some(name.trim().to_string());
            continue;
        }
        let unreadable = || Failure::usage(format!("squeue answered `{line}`: not a job"));
        let mut words = line.trim().splitn(5, '|');
        let mut next = || words.next().map(str::trim).ok_or_else(unreadable);
        let (array, task, state, reason, name) = (next()?, next()?, next()?, next()?, next()?);
        let Some(of) = name.strip_prefix(&prefix) else { continue };
        if of != launch.deal {
            let other = launch.work.other_deal(of);
            return Err(Failure::usage(format!(
                "its jobs in Slurm's queue are {other}, or end them by {}",
                ending(launch, name)
            )));
        }
        let number = |word: &str| word.parse::<u64>().map_err(|_| unreadable());
        let part = u32::try_from(number(task)?).ok().filter(|part| *part < parts);
        let (state, reason) = (state.to_string(), reason.to_string());
        let job = Job { array: number(array)?, cluster: cluster.clone(), state, reason };
        queue.insert(part.ok_or_else(unreadable)?, job);
    }
    Ok(queue)
}

fn cancel_refused(launch: &Launch, queue: &Queue, watch: &Watch) -> Result<(), Failure> {
    let clusters = clusters(&launch.args.slurm_options);
    for (part, job) in queue.iter().filter(|(_, job)| job.is_refused()) {
        let id = format!("{}_{part}", job.array);
        watch.say(&format!("Slurm job {id} cannot be started ({}): cancelled", job.reason));
        // Job numbers are unique only within a cluster.
        let cluster = job.cluster.as_deref().or(clusters.as_deref());
        let output = about_jobs("scancel", cluster).arg(&id).output();
        said(&output.map_err(|error| unstartable("scancel", &error))?, "scancel")?;
    }
    Ok(())
}

/// Formats the queue: 2 running, 62 waiting (Resources).
fn words(queue: &Queue) -> String {
    let running = queue.values().filter(|job| job.state != "PD" && job.state != "?").count();
    let waiting: Vec<&Job> = queue.values().filter(|job| job.state == "PD").collect();
    let reasons: BTreeSet<&str> = waiting.iter().map(|job| job.reason.as_str()).collect();
    let reasons: Vec<&str> = reasons.into_iter().filter(|reason| *reason != "None").collect();
    let why = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) };
    format!("{running} running, {} waiting{why}", waiting.len())
}

/// Returns why a part ended incomplete, from the last line of its log.
fn why(launch: &Launch, part: u32) -> String {
    let log = format!("{}/logs/part-{part}.log", launch.directory);
    match fs::read(&log) {
        Ok(bytes) => match last_line(&String::from_utf8_lossy(&bytes)) {
            Some(line) => format!("{log} ends with: {line}"),
            None => format!("{log} is empty; it was killed, or never began"),
        },
        Err(_) => format!(
            "{log} is not there; put the {} on a file system that all nodes share at that path",
            launch.work.kind().name
        ),
    }
}

fn unstartable(program: &str, error: &std::io::Error) -> Failure {
    let remedy = match error.kind() {
        ErrorKind::NotFound => "run it where Slurm's commands are, on a login node",
        _ => "see to it that it can be run",
    };
    Failure::cannot(format!("{program}: {error}; {remedy}"))
}

/// Returns the output of a Slurm command, or an error if the command failed.
fn said(output: &Output, program: &str) -> Result<String, Failure> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let status = output.status.to_string();
    let why = last_line(&errors).unwrap_or(&status);
    let remedy = match program {
        "sbatch" => "; see --slurm-option, and --dry-run for the command",
        _ => "",
    };
    Err(Failure::usage(format!("{program} refused: {why}{remedy}")))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::{ClusterArgs, Kind, Task, Work};
    use super::*;

    #[derive(clap::Parser)]
    struct TestArgs {
        #[command(flatten)]
        cluster: ClusterArgs,
    }

    struct Nothing;

    impl Work for Nothing {
        fn kind(&self) -> &'static Kind {
            &Kind {
                name: "sweep",
                piece: "pass",
                pieces: "passes",
                program: "true",
                shared: &[],
                folder: ".",
                results: "",
                ends_by: 9,
            }
        }
        fn left(&self, _: u32) -> Result<usize, Failure> {
            Ok(0)
        }
        fn seen(&self) -> Result<(usize, usize), Failure> {
            Ok((0, 0))
        }
        fn script(&self) -> String {
            String::new()
        }
        fn task(&self, _: u32) -> Result<Task, Failure> {
            Err(Failure::usage("none"))
        }
        fn other_deal(&self, deal: &str) -> String {
            format!("of {deal}")
        }
    }

    #[test]
    fn parts_are_listed_as_ranges() {
        assert_eq!(list(&[0, 1, 2, 3, 7, 9, 10]), "0-3,7,9-10");
        assert_eq!(list(&[5]), "5");
    }

    #[test]
    fn the_queue_is_read_and_other_jobs_in_it_are_left_alone() {
        let args = TestArgs::parse_from(["x"]).cluster;
        let launch = Launch {
            work: &Nothing,
            args: &args,
            directory: "/d".to_string(),
            id: "ab".to_string(),
            parts: 4,
            deal: "4".to_string(),
            share: Share::Cpus(1),
            programs: Vec::new(),
        };
        let two = parse(
            &launch,
            "CLUSTER: c1\nARRAY_JOB_ID|ARRAY_TASK_ID|ST|REASON|NAME\n12|0|R|None|superpage-sweep-ab-of-4\n\n\
             CLUSTER: c2\nARRAY_JOB_ID|ARRAY_TASK_ID|ST|REASON|NAME\n12|1|R|None|superpage-sweep-ab-of-4\n",
        )
        .unwrap();
        let clusters = two.values().map(|job| job.cluster.as_deref());
        assert_eq!(clusters.collect::<Vec<_>>(), [Some("c1"), Some("c2")]);
        let queue = parse(
            &launch,
            "12|0|R|None|superpage-sweep-ab-of-4\n12|3|PD|Resources|superpage-sweep-ab-of-4\n\
             13|N/A|R|None|other|with a bar\n14|9|R|None|superpage-sweep-cd-of-64\n",
        )
        .unwrap();
        assert_eq!(queue.keys().copied().collect::<Vec<_>>(), [0, 3]);
        assert_eq!(words(&queue), "1 running, 1 waiting (Resources)");
        for (answer, why) in [
            ("12|0|R|None|superpage-sweep-ab-of-8", "are of 8, or end them by `scancel"),
            ("12|4|R|None|superpage-sweep-ab-of-4", "not a job"),
            ("12|N/A|R|None|superpage-sweep-ab-of-4", "not a job"),
            ("slurm_load_jobs error", "not a job"),
        ] {
            let refused = parse(&launch, answer).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn clusters_are_found_in_the_options() {
        for (options, expected) in [
            (&["--clusters=c2"][..], "c2"),
            (&["--partition=x", "-Mc1,c2"], "c1,c2"),
            (&["-M", "c3"], "c3"),
            (&["--clusters", "c4", "--mem=0"], "c4"),
            (&["-M c5"], "c5"),
            (&["--cluster=c8", "--cluster-constraint=x"], "c8"),
            (&["-M=c6", "--clusters=c7"], "c7"),
        ] {
            let options: Vec<String> = options.iter().map(ToString::to_string).collect();
            assert_eq!(clusters(&options).as_deref(), Some(expected), "{options:?}");
        }
    }

    #[test]
    fn a_job_that_slurm_holds_is_told_from_one_that_waits() {
        let refused = |state: &str, reason: &str| {
            let (state, reason) = (state.to_string(), reason.to_string());
            Job { array: 1, cluster: None, state, reason }.is_refused()
        };
        assert!(refused("PD", "launch failed requeued held"));
        assert!(refused("PD", "launch_failed_requeued_held"));
        assert!(refused("PD", "max_requeue_exceeded"));
        assert!(!refused("PD", "JobHeldUser") && !refused("R", "launch failed requeued held"));
    }
}
