//! dump
use advise_::*;
use host::Root;
use std::collections::*;
use superpage_advise as advise_;
use units::Pid;
fn main() {
    let pid = Pid(std::env::args().nth(1).unwrap().parse().unwrap());
    let secs: u64 = std::env::args().nth(2).unwrap().parse().unwrap();
    let root = Root::real();
    let p = services::Process::read(&root, pid).unwrap().unwrap();
    let s =
        Sampler::open(&root, &p).unwrap().run(std::time::Duration::from_secs(secs), |_, _| true);
    println!("{} samples lost {} threads {}", s.samples.len(), s.lost, s.threads);
    let mem = sys::peek::Memory::open(pid).unwrap();
    let mut code = Code::new(Box::new(move |a, b| mem.read(a, b).unwrap_or(0)));
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    let mut ips: BTreeMap<(u64, String), usize> = BTreeMap::new();
    for x in &s.samples {
        let a = code.attribute(x.instruction, &x.registers.unwrap());
        let k = match a {
            Attribution::Access(a) => format!(
                "{:?} next={} dep={} back={}",
                a.kind,
                a.is_next,
                a.is_dependent,
                x.instruction > a.site
            ),
            o => format!("{o:?}"),
        };
        *count.entry(k.clone()).or_default() += 1;
        let site = match a {
            Attribution::Access(a) => format!("{:x} {k}", a.site),
            _ => k,
        };
        *ips.entry((x.instruction, site)).or_default() += 1;
    }
    let mut replay = Replay::default();
    let mut peek = Peek::new(Running::open(pid).unwrap(), 4096);
    let mut wn = (0, 0, 0);
    let t = std::time::Instant::now();
    for (i, x) in s.samples.iter().step_by(s.samples.len() / 300 + 1).enumerate() {
        let w = replay.window(x.instruction, &x.registers.unwrap(), x.flags, &mut peek);
        wn.0 += w.instructions;
        wn.1 += w.steps.len();
        wn.2 += w.unknown;
        peek.forget();
        if i == 5 {
            for s in w.steps.iter().take(40) {
                println!(
                    "{:x} {:x} {:?} {} {:?} {:?}",
                    s.site, s.address, s.kind, s.after, s.from, s.branch
                );
            }
        }
    }
    println!("windows: {wn:?} {:?}", t.elapsed());
    for (k, n) in count {
        println!("{n:6} {k}");
    }
    let mut v: Vec<_> = ips.into_iter().collect();
    v.sort_by_key(|x| std::cmp::Reverse(x.1));
    for (k, n) in v.into_iter().take(12) {
        println!("   {n:6} {:x} {}", k.0, k.1);
    }
}
