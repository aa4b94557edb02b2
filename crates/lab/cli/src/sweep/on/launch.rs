//! A sweep that is to run on a cluster: its parts, and how each is run.

use std::path::Path;
use std::time::Duration;

use lab::sweep::{Group, Hash, Plan, Shard, State, Store};

use super::args::ClusterArgs;
use cli::exit::Failure;

/// A sweep that is to run on a cluster.
pub(in crate::sweep) struct Launch<'a> {
    pub store: &'a Store,
    pub args: &'a ClusterArgs,
    /// Full path of the sweep's directory: jobs start in another.
    pub directory: String,
    pub groups: Vec<Group<'a>>,
    /// How many parts.
    pub parts: u32,
    /// CPUs of each.
    pub jobs: u32,
    pub max_time: Option<f64>,
    pub program: String,
}

impl<'a> Launch<'a> {
    pub fn new(
        store: &'a Store,
        plan: &'a Plan,
        args: &'a ClusterArgs,
        jobs: u32,
        max_time: Option<f64>,
    ) -> Result<Self, Failure> {
        /// Enough to keep a few dozen CPUs busy to the end, few enough for one look at the queue.
        const PARTS: u32 = 64;
        if jobs == 0 {
            return Err(Failure::usage("--jobs 0: say how many CPUs a part gets, e.g. 1"));
        }
        let text = |path: &Path| {
            let shown = path.display();
            path.to_str().map(str::to_string).ok_or_else(|| {
                Failure::usage(format!("{shown}: not UTF-8, as scripts are; choose another name"))
            })
        };
        let full = |path: &Path| {
            let shown = path.display();
            let full = path.canonicalize();
            full.map_err(|error| {
                Failure::usage(format!("{shown}: {error}; give a sweep's directory"))
            })
        };
        let groups = plan.groups();
        let most = u32::try_from(groups.len()).unwrap_or(u32::MAX).max(1);
        let program = match &args.program {
            Some(program) => text(program)?,
            None => text(&std::env::current_exe().map_err(|error| {
                Failure::usage(format!("our own program file: {error}; name it by --program"))
            })?)?,
        };
        Ok(Self {
            directory: text(&full(store.directory())?)?,
            parts: args.parts.unwrap_or(PARTS).min(most),
            store,
            args,
            groups,
            jobs,
            max_time,
            program,
        })
    }

    /// What tells its jobs, and their directories, from those of other sweeps.
    pub fn id(&self) -> String {
        Hash::new([self.directory.as_str()]).to_string()[..12].to_string()
    }

    fn part(&self, part: u32) -> (Shard, Vec<Group<'a>>) {
        let shard = Shard::new(part, self.parts).expect("parts are numbered from 0");
        (shard, shard.select(&self.groups))
    }

    /// How many passes of a part are left.
    pub fn passes_left(&self, part: u32) -> Result<usize, Failure> {
        let (shard, groups) = self.part(part);
        let contents = self.store.read_groups(&groups).map_err(Failure::usage)?;
        Ok(State::new(shard, &groups, &contents).passes_left)
    }

    /// The names of the files of a part.
    pub fn files(&self, part: u32) -> Result<Vec<String>, Failure> {
        let files = self.store.files_of(&self.part(part).1).map_err(Failure::usage)?;
        let names = files.iter().filter_map(|path| path.file_name()?.to_str());
        Ok(names.map(str::to_string).collect())
    }

    pub fn poll(&self) -> Duration {
        Duration::from_secs_f64(self.args.poll)
    }
}
