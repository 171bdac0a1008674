//! Any spec: the operator gets specs that the schema of its CRD allows, whether or not they make sense.
//!
//! Each case creates the object of a [`Story`] and replaces some properties of its spec by drawn values, several times. The API
//! server refuses some of them. The operator must report on each accepted spec, without a panic and without an endless loop. In
//! the end the object gets its usual spec again, and must be as if nothing had happened.
//!
//! The specs of [`survive_older_schema`] come from a wider schema and are put into the store, as if the API server had accepted
//! them before the CRD became stricter.

pub(crate) mod draw;
mod older;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use fastrand::Rng;
use kube::api::PostParams;
use serde_json::{Map, Value};

use crate::{
    interference::{Run, Story},
    seed::seed,
};

/// How many specs an object gets in a case, one after the other.
const SPECS: usize = 3;
/// How often properties are drawn anew that the API server refuses. After that they get their usual values.
const REDRAWS: usize = 3;
/// The time that the operator gets for a spec. Other controllers act once in the middle.
const TIME: Duration = Duration::from_mins(4);
/// With more writes than this in [`TIME`], the operator is in a loop. Runs that are due every ten seconds need about 170.
const MOST_WRITES: usize = 300;
/// A case may only begin within this real time.
const LONGEST: Duration = Duration::from_secs(20);

/// The variable with the seed of a single case, whose specs are then printed.
const SINGLE: &str = "ANY_SPEC";

/// How many drawn values of each property the API server has accepted.
type Accepted = BTreeMap<String, usize>;

/// The way in which an object gets a drawn spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// A client writes it, and the API server validates it.
    Client,
    /// It was stored before the schema became stricter.
    OlderSchema,
}

/// Plays up to `cases` cases, drawn with [`seed`]. The variable `ANY_SPEC` sets the seed of a single case.
///
/// # Panics
///
/// The operator does not survive a spec. The message has the seed that repeats the case.
pub async fn survive_any_spec(story: impl Story + Send + Sync + 'static, cases: u64) {
    survive(Arc::new(story), cases, Source::Client).await;
}

/// Like [`survive_any_spec`], but the specs were stored under an older, wider schema: some values are beyond the limits of the
/// present one. Each of them still decodes.
///
/// # Panics
///
/// The operator does not survive a spec. The message has the seed that repeats the case.
pub async fn survive_older_schema(story: impl Story + Send + Sync + 'static, cases: u64) {
    survive(Arc::new(story), cases, Source::OlderSchema).await;
}

async fn survive(story: Arc<dyn Story + Send + Sync>, cases: u64, source: Source) {
    let properties = properties(&*story);
    let (begun, mut accepted) = (Instant::now(), Accepted::new());
    let single = std::env::var(SINGLE).ok().map(|text| text.parse::<u64>().expect("ANY_SPEC is a number"));
    // The nightly run plays more cases.
    let (cases, longest) = if std::env::var("INTERFERENCES").as_deref() == Ok("all") {
        (cases * 20, LONGEST * 20)
    } else {
        (cases, LONGEST)
    };
    let seeds = if let Some(seed) = single {
        seed..seed + 1
    } else {
        let first = seed().wrapping_mul(1_000_000);
        first..first + cases
    };
    let mut played = 0;
    for seed in seeds {
        if begun.elapsed() > longest {
            break;
        }
        played += 1;
        if let Err(why) = play(&story, &properties, seed, source, &mut accepted).await {
            panic!("ANY_SPEC={seed} repeats it: {why}");
        }
    }
    let never: Vec<&String> = properties.keys().filter(|name| !accepted.contains_key(*name)).collect();
    eprintln!(
        "{}: {played} cases in {:.1} s, {} accepted values of {} properties; none of {never:?}",
        story.operator().name(),
        begun.elapsed().as_secs_f64(),
        accepted.values().sum::<usize>(),
        accepted.len(),
    );
    assert!(single.is_some() || accepted.len() * 2 >= properties.len(), "most drawn values are refused");
}

/// Returns the schema of each property of the spec.
fn properties(story: &dyn Story) -> Map<String, Value> {
    let object = story.object();
    let definitions = story.operator().crds().into_iter();
    let mut definitions =
        definitions.map(|definition| serde_json::to_value(manager::normalize(&definition)).expect("JSON"));
    let definition = definitions.find(|it| it["spec"]["names"]["kind"] == object["kind"]).expect("its CRD");
    let version = object["apiVersion"].as_str().and_then(|text| text.split_once('/')).expect("a group").1;
    let versions = definition["spec"]["versions"].as_array().expect("versions");
    let version = versions.iter().find(|it| it["name"] == version).expect("its version");
    let spec = &version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    spec.as_object().expect("properties").clone()
}

async fn play(
    story: &Arc<dyn Story + Send + Sync>,
    properties: &Map<String, Value>,
    seed: u64,
    source: Source,
    accepted: &mut Accepted,
) -> Result<(), String> {
    let (mut run, mut rng) = (Run::begin(story), Rng::with_seed(seed));
    run.act(0).await;
    run.settle().await;
    for _ in 0..SPECS {
        let spec = match source {
            Source::Client => replace(&run, properties, &mut rng).await?,
            Source::OlderSchema => older::replace(&run, properties, &mut rng).await,
        };
        let Some(spec) = spec else { continue };
        for (name, value) in &spec {
            if story.object()["spec"].get(name) != Some(value) {
                *accepted.entry(name.clone()).or_default() += 1;
            }
        }
        let shown = || Value::from(spec.clone());
        if std::env::var_os(SINGLE).is_some() {
            eprintln!("{}", shown());
        }
        let before = run.memory.writes().len();
        for _ in 0..2 {
            run.memory.pass(TIME / 2).await;
            story.play(&run.memory.model);
        }
        let writes = run.memory.writes().len() - before;
        if writes > MOST_WRITES {
            return Err(format!("{writes} writes in {TIME:?} for {}", shown()));
        }
        reported(&run).map_err(|why| format!("{why}: {}", shown()))?;
    }
    let usual = story.object()["spec"].as_object().expect("a spec").clone();
    put(&run, &usual).await.map_err(|error| format!("the usual spec is refused: {error}"))?;
    run.settle().await;
    run.settle().await;
    run.check_reaction().await.map_err(|why| format!("after the usual spec: {why}"))?;
    // The API server does not always record empty fields as ours. The first apply of a new process claims them, once.
    run.memory.restart().await;
    run.memory.until_quiet().await;
    run.check_restart().await.map_err(|why| format!("after the usual spec and a restart: {why}"))
}

/// Checks that the status reports on the last spec, and that no reconcile has panicked.
fn reported(run: &Run) -> Result<(), String> {
    let panics = run.memory.metric("controller_runtime_reconcile_panics_total");
    if panics > 0 {
        return Err(format!("{panics} reconciles panicked"));
    }
    let Some(object) = run.user.object() else { return Err("the object is gone".to_owned()) };
    let (status, generation) = (&object["status"], &object["metadata"]["generation"]);
    if status["observedGeneration"] != *generation {
        let observed = &status["observedGeneration"];
        let events = run.memory.model.objects("events.events.k8s.io").into_iter();
        let repeated: Vec<Value> =
            events.filter(|event| !event["series"].is_null()).map(|event| event["note"].clone()).collect();
        return Err(format!("observedGeneration is {observed} instead of {generation}; repeated events: {repeated:?}"));
    }
    let conditions = status["conditions"].as_array().into_iter().flatten();
    match conditions.filter(|it| it["type"] == "Ready").count() {
        1 => Ok(()),
        count => Err(format!("{count} conditions Ready")),
    }
}

/// Replaces some properties by drawn values. Returns the spec that the API server accepted; `None` if it differs in no property
/// from the usual one.
async fn replace(
    run: &Run,
    properties: &Map<String, Value>,
    rng: &mut Rng,
) -> Result<Option<Map<String, Value>>, String> {
    let usual = run.story.object()["spec"].as_object().expect("a spec").clone();
    let names: Vec<&String> = properties.keys().collect();
    let mut spec = usual.clone();
    for _ in 0..rng.usize(1..=4) {
        let name = names[rng.usize(..names.len())];
        spec.insert(name.clone(), draw::value(&properties[name], rng));
    }
    for attempt in 0..20 {
        let refused = match put(run, &spec).await {
            Ok(()) => return Ok(Some(spec).filter(|spec| *spec != usual)),
            Err(kube::Error::Api(status)) if (400..500).contains(&status.code) => status,
            Err(error) => return Err(error.to_string()),
        };
        let causes = refused.details.iter().flat_map(|details| &details.causes);
        let mut names: Vec<String> = causes.filter_map(|cause| property(&cause.field)).collect();
        names.dedup();
        if names.is_empty() {
            spec.clone_from(&usual); // refused as a whole
        }
        for name in names {
            let known = properties.get(&name).filter(|_| attempt < REDRAWS);
            let value = known.map(|schema| draw::value(schema, rng)).or_else(|| usual.get(&name).cloned());
            match value {
                Some(value) => spec.insert(name, value),
                None => spec.remove(&name),
            };
        }
        if attempt > 10 {
            spec.clone_from(&usual);
        }
    }
    Ok(None)
}

/// Returns the property of the spec to which the path of a field belongs, such as `tls` for `spec.tls.secretName`.
fn property(path: &str) -> Option<String> {
    let name = path.strip_prefix("spec.")?.split(['.', '[']).next()?;
    Some(name.to_owned())
}

/// Replaces the spec of the object.
async fn put(run: &Run, spec: &Map<String, Value>) -> Result<(), kube::Error> {
    let api = run.user.api();
    let mut object = api.get(run.user.name()).await?;
    object.data["spec"] = Value::from(spec.clone());
    api.replace(run.user.name(), &PostParams::default(), &object).await.map(drop)
}
