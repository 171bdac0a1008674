//! What a process keeps of objects that are gone: no metric series, and little memory.

use std::time::Duration;

use fastrand::Rng;
use manager::harness::Harness;

use super::{SETTLING, World};
use crate::{disturbance::Act, memory};

/// For this time, the process may remember something of a deleted object, such as the number of its Events.
const FORGETTING: Duration = Duration::from_hours(3);
/// How many bytes more an old process may use than a young one for each operator in it: maps do not shrink.
const KEPT: i64 = 48 << 10;

impl World {
    /// Checks that a process whose objects are all gone has no metric series of them, and uses no more memory than a process that
    /// has reconciled each object only once.
    pub(super) async fn nothing_is_kept(&mut self) -> Result<(), String> {
        self.forget_all().await?;
        let old = self.size_of_processes().await;
        self.start_all();
        for number in 0..self.plan.objects {
            self.stage.users.act(Act::Create, number, &mut Rng::with_seed(self.plan.seed)).await;
        }
        self.pass(SETTLING).await?;
        self.forget_all().await?;
        let young = self.size_of_processes().await;
        keeps_little(old, young, self.stage.cast.all().len())
    }

    async fn forget_all(&mut self) -> Result<(), String> {
        self.trace.note("all objects are deleted");
        for number in 0..self.plan.objects {
            for act in [Act::Resume, Act::Delete] {
                self.stage.users.act(act, number, &mut Rng::with_seed(0)).await;
            }
        }
        self.pass(FORGETTING).await?;
        if let Some((_, object)) = self.stage.cast.objects(&self.model).pop() {
            return Err(format!("{} is still being deleted", object["metadata"]["name"]));
        }
        let scrape = self.processes.iter().flatten().map(Harness::scrape).collect::<String>();
        let users = &self.stage.users;
        let objects: Vec<_> =
            (0..self.plan.objects).map(|number| (users.namespace(number), users.name(number))).collect();
        match series_of(&scrape, &objects) {
            Some(line) => Err(format!("all objects are gone, but not the series {line}")),
            None => Ok(()),
        }
    }

    /// Kills all processes. Returns how many bytes they used.
    async fn size_of_processes(&mut self) -> i64 {
        let before = memory::in_use();
        self.crash_all().await;
        before - memory::in_use()
    }
}

/// The first series of one of these objects, which are given by namespace and name.
fn series_of<'a>(scrape: &'a str, objects: &[(&str, String)]) -> Option<&'a str> {
    let is_of_an_object = |line: &&str| {
        let has = |label: &str, value: &str| line.contains(&format!("{label}=\"{value}\""));
        objects.iter().any(|(namespace, name)| has("namespace", namespace) && has("name", name))
    };
    scrape.lines().find(is_of_an_object)
}

/// Checks that processes with this number of operators, whose objects are gone, use few bytes more than young ones.
fn keeps_little(old: i64, young: i64, operators: usize) -> Result<(), String> {
    let kept = KEPT * i64::try_from(operators).unwrap_or(1);
    if old > young + kept {
        return Err(format!("all objects are gone, and {old} bytes are in use; by a young process {young}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_keeps_of_objects_that_are_gone_is_found() {
        let objects = [("shop", "a".to_owned()), ("depot", "b".to_owned())];
        let series = |namespace: &str, name: &str| {
            series_of(&format!("# HELP x y\nx{{namespace=\"{namespace}\",name=\"{name}\"}} 1\n"), &objects).is_some()
        };
        assert!(series("shop", "a") && series("depot", "b"));
        assert!(!series("shop", "b") && !series("depot", "a") && !series("default", "a"));
        assert_eq!(keeps_little(1_000 + 2 * KEPT, 1_000, 2), Ok(()));
        assert!(keeps_little(1_001 + 2 * KEPT, 1_000, 2).is_err());
    }
}
