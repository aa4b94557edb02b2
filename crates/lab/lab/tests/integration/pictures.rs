//! Pictures of unusual reports are well formed, within bounds, and the same each time.

use crate::common::{report, timeline};
use mm_sim::Cause;
use superpage_lab::{End, Report, plot};

/// Returns tags that are not closed in order, if any. This parser suffices for what the markup writes.
fn unbalanced(text: &str) -> Option<String> {
    let mut open: Vec<&str> = Vec::new();
    for tag in text.split('<').skip(1) {
        let (tag, _) = tag.split_once('>')?;
        let name = tag.split([' ', '\n']).next().unwrap_or("");
        match name.strip_prefix('/') {
            Some(name) if open.pop() == Some(name) => {}
            Some(name) => return Some(name.to_string()),
            None if name.starts_with(['?', '!']) || name == "meta" => {}
            None => open.push(name),
        }
    }
    open.pop().map(String::from)
}

fn check(reports: &[Report]) {
    let (svg, page) = (plot::svg(reports), plot::page(reports));
    assert_eq!((unbalanced(&svg), unbalanced(&page)), (None, None));
    assert!(!svg.contains("NaN") && !svg.contains("inf\""), "{svg}");
    assert_eq!(plot::svg(reports), svg);
}

#[test]
fn odd_reports_are_drawn_all_the_same() {
    check(&[]);
    check(&[report("nothing", &[])]);
    let mut single = report("one-moment", &[(Cause::Work, 1)]);
    single.timeline = timeline(&[(0, 0)]);
    check(&[single.clone()]);
    let mut huge = report("<script>&\"'\u{202e}", &[(Cause::Zero, u64::MAX / 2), (Cause::Work, 1)]);
    huge.timeline = timeline(&[(0, 1), (u64::MAX / 4_000_000, 5000)]);
    huge.end = End::OutOfMemory { resident_pages: 7, reserved_pages: None };
    check(&[huge.clone(), single, report("nothing", &[])]);
    let svg = plot::svg(&[huge]);
    assert!(!svg.contains("<script>") && svg.contains("memory ran out"));
}

#[test]
fn forty_designs_and_long_names_stay_within_the_picture() {
    let reports: Vec<Report> = (0..40)
        .map(|index| {
            let name = format!("{}-{index}", "a-very-long-name-of-a-design".repeat(4));
            let mut report = report(&name, &[(Cause::Work, 1 << 30), (Cause::Scan, 1 + index)]);
            report.timeline = (0..5000).flat_map(|at| timeline(&[(at * 1000, at % 900)])).collect();
            report
        })
        .collect();
    check(&reports);
    let svg = plot::svg(&reports);
    // No line has more points than the picture can show, however long the run.
    assert!(svg.len() < 40 * 3 * 30_000, "{}", svg.len());
    for name in svg.split("class=\"label\">").skip(1) {
        let name = name.split('<').next().unwrap();
        assert!(name.chars().count() < 60, "{name}");
    }
}

#[test]
fn a_long_title_is_whole_and_lines_have_their_names_beside_them() {
    let named = |name: &str| {
        let mut report = report(name, &[(Cause::Work, 1 << 30)]);
        report.cell.workload =
            "gups:size=8G,operations=1000000,weight=16,lines=3 and what else it takes".to_string();
        report.timeline = timeline(&[(0, 0), (100_000, 60), (300_000, 60)]);
        report
    };
    let reports = ["base", "linux-4.3", "freebsd"].map(named);
    let svg = plot::svg(&reports);
    let titles = svg.split("class=\"title\">").skip(1);
    let titles: Vec<&str> = titles.map(|one| one.split('<').next().unwrap()).collect();
    assert!(titles.len() > 1 && titles.join(" ").contains(&reports[0].cell.workload), "{titles:?}");
    assert!(!titles.join(" ").contains('…'));
    // Lines that coincide are all visible: they have different dashes, and each is named at each of three panels.
    for (index, report) in reports.iter().enumerate() {
        assert!(svg.contains(&format!("line c{index} o{index}")));
        let label = format!("class=\"label\">{}<", report.cell.design);
        assert_eq!(svg.matches(&label).count(), 4, "three panels and the bar: {svg}");
        assert_eq!(svg.matches(&format!("leader c{index}\"")).count(), 3);
    }
}

#[test]
fn a_page_has_a_picture_for_narrow_windows_with_letters_as_large() {
    let page = plot::page(&[report("a", &[(Cause::Work, 1 << 30)])]);
    let widths = page.split("<figure class=\"").skip(1).map(|figure| {
        let (class, rest) = figure.split_once('"').unwrap();
        let (_, width) = rest.split_once(" width=\"").unwrap();
        (class, width.split('"').next().unwrap().parse::<f64>().unwrap())
    });
    let widths: Vec<_> = widths.collect();
    assert_eq!(widths, [("wide", 960.0), ("narrow", 400.0)]);
    assert!(page.contains("@media (max-width: 640px)"));
}
