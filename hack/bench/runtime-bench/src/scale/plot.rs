//! Draws the history as SVG: memory, and CPU for an object, over the number of objects.
//!
//! The colours are in a style sheet, with a second set for readers who prefer a dark page.

use maud::{Markup, PreEscaped, html};

use crate::history::{Record, latest};

const WIDTH: f64 = 760.0;
/// The height of one panel with its title and the labels of its axis.
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = 60.0;

const STYLE: &str = "svg { background: #ffffff; font: 13px sans-serif; color-scheme: light dark; } \
text { fill: #24292f; } .axis { stroke: #57606a; } .grid { stroke: #d8dee4; } .title { font-weight: bold; } \
polyline { fill: none; stroke-width: 2; } \
.s0 { stroke: #0969da; } circle.s0 { fill: #0969da; } .s1 { stroke: #bc4c00; } circle.s1 { fill: #bc4c00; } \
.s2 { stroke: #1a7f37; } circle.s2 { fill: #1a7f37; } \
@media (prefers-color-scheme: dark) { svg { background: #0d1117; } text { fill: #e6edf3; } .axis { stroke: #9198a1; } \
.grid { stroke: #30363d; } .s0 { stroke: #58a6ff; } circle.s0 { fill: #58a6ff; } .s1 { stroke: #f0883e; } \
circle.s1 { fill: #f0883e; } .s2 { stroke: #3fb950; } circle.s2 { fill: #3fb950; } }";
/// The number of colours in [`STYLE`].
const COLOURS: usize = 3;

/// The points of one program: numbers of objects and values.
struct Series {
    label: String,
    points: Vec<(f64, f64)>,
}

struct Panel {
    title: &'static str,
    unit: &'static str,
    series: Vec<Series>,
}

/// The plot of the last measurement of each program.
#[expect(clippy::cast_precision_loss, reason = "numbers of objects are small")]
pub(super) fn draw(records: &[Record]) -> String {
    let records = latest(records);
    let series = |points: fn(&Record) -> Vec<(usize, f64)>| {
        let of = |record: &&Record| Series {
            label: label(record),
            points: points(record).into_iter().map(|(objects, value)| (objects as f64, value)).collect(),
        };
        records.iter().map(of).collect::<Vec<_>>()
    };
    let panels = [
        Panel { title: "Memory", unit: "MiB of RSS", series: series(memory) },
        Panel { title: "CPU time to converge one object", unit: "ms for an object", series: series(cpu) },
    ];
    let height = HEIGHT * panels.len() as f64;
    let drawing = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {WIDTH} {height}")) role="img" {
            title { "Memory, and CPU time for an object, over the number of objects" }
            style { (PreEscaped(STYLE)) }
            @for (index, panel) in panels.iter().enumerate() {
                g transform=(format!("translate(0 {})", HEIGHT * index as f64)) { (draw_panel(panel)) }
            }
        }
    };
    drawing.into_string() + "\n"
}

fn memory(record: &Record) -> Vec<(usize, f64)> {
    record.steps.iter().map(|step| (step.objects, step.rss_mib)).collect()
}

fn cpu(record: &Record) -> Vec<(usize, f64)> {
    record.steps.iter().filter_map(|step| Some((step.objects, step.each.as_ref()?.cpu_ms))).collect()
}

fn label(record: &Record) -> String {
    let day = record.date.split('T').next().unwrap_or_default();
    let end = if record.complete { "" } else { ", incomplete" };
    format!("{}, {day}, {}, {} cores{end}", record.subject, record.commit, record.cores)
}

fn draw_panel(panel: &Panel) -> Markup {
    let points = || panel.series.iter().flat_map(|series| &series.points);
    let (across, up) = (Axis::to(points().map(|point| point.0)), Axis::to(points().map(|point| point.1)));
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    let x = |objects: f64| LEFT + objects / across.end * (right - LEFT);
    let y = |value: f64| bottom - value / up.end * (bottom - TOP);
    html! {
        text class="title" x=(LEFT) y="22" { (panel.title) }
        @for value in up.ticks() {
            line class="grid" x1=(LEFT) x2=(right) y1=(at(y(value))) y2=(at(y(value))) {}
            text x=(LEFT - 8.0) y=(at(y(value) + 4.0)) text-anchor="end" { (up.text(value)) }
        }
        @for objects in across.ticks() {
            line class="axis" x1=(at(x(objects))) x2=(at(x(objects))) y1=(bottom) y2=(bottom + 5.0) {}
            text x=(at(x(objects))) y=(bottom + 20.0) text-anchor="middle" { (across.text(objects)) }
        }
        line class="axis" x1=(LEFT) x2=(right) y1=(bottom) y2=(bottom) {}
        line class="axis" x1=(LEFT) x2=(LEFT) y1=(TOP) y2=(bottom) {}
        text x=(f64::midpoint(LEFT, right)) y=(bottom + 42.0) text-anchor="middle" { "objects, each with three children" }
        text x="20" y=(f64::midpoint(TOP, bottom)) text-anchor="middle"
            transform=(format!("rotate(-90 20 {})", f64::midpoint(TOP, bottom))) { (panel.unit) }
        @for (index, series) in panel.series.iter().enumerate() {
            @let class = format!("s{}", index % COLOURS);
            @let line = series.points.iter().map(|(objects, value)| format!("{},{}", at(x(*objects)), at(y(*value))));
            polyline class=(class) points=(line.collect::<Vec<_>>().join(" ")) {}
            @for (objects, value) in &series.points {
                circle class=(class) cx=(at(x(*objects))) cy=(at(y(*value))) r="3.5" {
                    title { (format!("{}: {} objects, {value} {}", series.label, across.text(*objects), panel.unit)) }
                }
            }
            (legend(index, &class, &series.label))
        }
    }
}

/// The line of a series in the legend, below the title.
#[expect(clippy::cast_precision_loss, reason = "there are few programs")]
fn legend(index: usize, class: &str, label: &str) -> Markup {
    let y = 38.0 + 15.0 * index as f64;
    html! {
        circle class=(class) cx=(LEFT + 12.0) cy=(y - 4.0) r="3.5" {}
        text x=(LEFT + 22.0) y=(y) { (label) }
    }
}

/// A coordinate with one decimal.
fn at(coordinate: f64) -> String {
    format!("{coordinate:.1}")
}

/// An axis from zero, with round numbers as ticks.
struct Axis {
    tick: f64,
    end: f64,
}

impl Axis {
    /// The axis with room for these values.
    fn to(values: impl Iterator<Item = f64>) -> Self {
        let most = values.fold(0.0, f64::max);
        let most = if most > 0.0 { most } else { 1.0 };
        let power = 10_f64.powf((most / 5.0).log10().floor());
        let tick =
            [1.0_f64, 2.0, 5.0].map(|n| n * power).into_iter().find(|tick| tick * 5.0 >= most).unwrap_or(10.0 * power);
        Self { tick, end: (most / tick).ceil() * tick }
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let (tick, end) = (self.tick, self.end + self.tick / 2.0);
        std::iter::successors(Some(0.0), move |value| Some(value + tick)).take_while(move |value| *value < end)
    }

    /// A value with as many decimals as the ticks need, and with a comma after the thousands.
    fn text(&self, value: f64) -> String {
        if self.tick < 1.0 {
            return format!("{value:.*}", if self.tick < 0.1 { 2 } else { 1 });
        }
        let digits = format!("{value:.0}");
        let mut text = String::new();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::sample;

    /// The numbers in this attribute of the circles of points, which have a title; those of the legend have none.
    fn coordinates(svg: &str, attribute: &str) -> Vec<f64> {
        let points = svg.split("<circle ").skip(1).filter(|circle| circle.contains("><title>"));
        let value = |circle: &str| circle.split(&format!("{attribute}=\"")).nth(1)?.split('"').next()?.parse().ok();
        points.filter_map(value).collect()
    }

    #[test]
    fn plot_contains_each_point_of_the_last_measurement_of_each_program() {
        let records = [
            sample("operators", &[(0, 9.0, 0.0), (1_000, 99.0, 9.5)]),
            sample("operators", &[(0, 13.5, 0.0), (1_000, 19.1, 3.9), (10_000, 61.0, 5.0)]),
            sample("controller-runtime", &[(0, 32.8, 0.0), (1_000, 64.0, 8.5)]),
        ];
        let svg = draw(&records);
        // Three points of memory and two of CPU for the one, two and one for the other.
        let (x, y) = (coordinates(&svg, "cx"), coordinates(&svg, "cy"));
        assert_eq!((x.len(), y.len()), (8, 8), "{svg}");
        for text in ["0 objects, 13.5 MiB of RSS", "1,000 objects, 19.1 MiB of RSS", "10,000 objects, 61 MiB of RSS"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        for text in
            ["1,000 objects, 3.9 ms for an object", "10,000 objects, 5 ms for an object", "1,000 objects, 8.5 ms"]
        {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(!svg.contains("99 MiB"), "an older measurement is drawn");
        assert!(x.iter().all(|x| (LEFT..=WIDTH - RIGHT).contains(x)), "{x:?}");
        assert!(y.iter().all(|y| (TOP..=HEIGHT - BOTTOM).contains(y)), "{y:?}");
        assert!(x[0] < x[1] && x[1] < x[2] && y[0] > y[1] && y[1] > y[2], "{x:?} {y:?}");
    }

    #[test]
    fn axes_have_labels_units_and_round_numbers() {
        let svg = draw(&[sample("a", &[(0, 1.0, 0.0), (100_000, 613.0, 5.0)])]);
        for text in ["objects, each with three children", "MiB of RSS", "ms for an object", ">100,000<", ">600<", ">0<"]
        {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(svg.contains("prefers-color-scheme: dark") && !svg.contains("NaN"), "{svg}");
        let ticks = |most: f64| Axis::to([most].into_iter()).ticks().count();
        assert_eq!([0.3, 1.0, 7.0, 99.0, 100_000.0].map(ticks), [4, 6, 5, 6, 6]);
    }

    #[test]
    fn empty_history_gives_an_empty_plot() {
        let svg = draw(&[]);
        assert!(coordinates(&svg, "cx").is_empty() && !svg.contains("NaN"), "{svg}");
        assert!(Axis::to(std::iter::empty()).ticks().count() > 2, "its axes have numbers all the same");
    }

    #[test]
    fn small_ticks_have_decimals() {
        let axis = Axis::to([0.3].into_iter());
        assert_eq!((axis.text(0.1), axis.text(0.3)), ("0.1".to_owned(), "0.3".to_owned()));
    }
}
