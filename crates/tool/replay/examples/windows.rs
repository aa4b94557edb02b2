//! Records and replays a program: `windows INTERVAL_MS INSTRUCTIONS FROM_S TO_S PROGRAM...`.
use std::time::{Duration, Instant};
use superpage_replay::*;
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments[at].parse::<f64>().unwrap();
    let plan = Plan {
        interval: Duration::from_secs_f64(number(0) / 1e3),
        instructions: number(1) as usize,
        windows: 400,
        time: None,
    };
    let mut command = std::process::Command::new(&arguments[4]);
    command.args(&arguments[5..]);
    let begun = Instant::now();
    let superpage = units::PageSize::new(2 << 20).unwrap();
    let (recorded, _) = record(&mut command, plan, superpage, |_| true).unwrap();
    let steps: usize = recorded.windows.iter().map(|w| w.steps.len()).sum();
    eprintln!(
        "{} windows {} steps, wall {:?} native {:?} took {:?}",
        recorded.windows.len(),
        steps,
        recorded.resident,
        recorded.native,
        begun.elapsed()
    );
    let windows: Vec<Window> = recorded
        .windows
        .iter()
        .filter(|w| (number(2)..number(3)).contains(&w.at.as_secs_f64()))
        .cloned()
        .collect();
    let begun = Instant::now();
    let image = Image::new(&recorded, &windows, superpage).unwrap();
    eprintln!(
        "{} windows, neighbours {:?} code {} stream {} words, cold {} (pages {}) regions {} eligible {} instructions {:?} targets {} in {:?}",
        windows.len(),
        recorded.neighbours,
        image.code.len(),
        image.words.len(),
        image.cold.len(),
        image.cold.iter().filter(|c| c.has_cold_page).count(),
        image.regions.len(),
        image.regions.iter().filter(|r| r.is_eligible).count(),
        image.instructions,
        image.targets.len(),
        begun.elapsed()
    );
    let begun = Instant::now();
    let times = replay(&image, superpage, Passes::default(), units::ByteSize(6 << 30)).unwrap();
    eprintln!("replayed in {:?}", begun.elapsed());
    let of = |side: usize| {
        let mut all: Vec<f64> = times
            .cycles
            .iter()
            .zip(&windows)
            .map(|(w, window)| {
                let mut p: Vec<u64> = w.iter().map(|p| p[side]).collect();
                p.sort();
                p[p.len() / 2] as f64 / (window.steps.len() as f64 / 2.0)
            })
            .collect();
        all.sort_by(f64::total_cmp);
        format!(
            "cycles/instruction {:.2} {:.2} {:.2} sum {:.2}",
            all[all.len() / 10],
            all[all.len() / 2],
            all[all.len() * 9 / 10],
            all.iter().sum::<f64>() / all.len() as f64
        )
    };
    eprintln!("base {}\nhuge {}", of(0), of(1));
    if std::env::var("V").is_ok() {
        for (w, window) in times.cycles.iter().zip(&windows) {
            let m = |side: usize, q: usize| {
                let mut p: Vec<u64> = w.iter().map(|p| p[side]).collect();
                p.sort();
                p[p.len() * q / 8]
            };
            eprintln!(
                "{:.2}: base {} {} {} huge {} {} {} = {:.3}",
                window.at.as_secs_f64(),
                m(0, 1),
                m(0, 4),
                m(0, 7),
                m(1, 1),
                m(1, 4),
                m(1, 7),
                1.0 - m(1, 4) as f64 / m(0, 4) as f64
            );
        }
    }
    println!("{:?}", saving(&times, 1));
}
