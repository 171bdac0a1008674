//! The CRDs of the operators. Users delete them and install them again, and the loss of the cluster takes them away.

use std::time::Duration;

use manager::normalize;
use model_apiserver::Model;
use parking_lot::Mutex;

use crate::{
    subjects::{Cast, Role},
    trace::Trace,
};

/// The CRDs of the operators of one world.
pub(crate) struct Definitions {
    model: Model,
    cast: Cast,
    trace: Trace,
    /// The state of the CRD of each operator, by its number.
    states: Mutex<Vec<State>>,
}

/// The state of one CRD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Served,
    /// A user has deleted it. It goes with its last object, and is back at this time at the earliest.
    Ending(Duration),
    /// It is gone until this time.
    Gone(Duration),
}

impl State {
    /// The state in which the CRD comes back as soon as it can.
    fn healed(self) -> Self {
        match self {
            Self::Served => Self::Served,
            Self::Ending(_) => Self::Ending(Duration::ZERO),
            Self::Gone(_) => Self::Gone(Duration::ZERO),
        }
    }
}

impl Definitions {
    /// Installs the CRDs of all operators.
    pub(crate) fn install(model: &Model, cast: &Cast, trace: &Trace) -> Self {
        let states = Mutex::new(vec![State::Served; cast.all().len()]);
        let definitions = Self { model: model.clone(), cast: cast.clone(), trace: trace.clone(), states };
        cast.all().iter().for_each(|role| definitions.install_one(role));
        definitions
    }

    fn install_one(&self, role: &Role) {
        for definition in role.subject.operator().crds() {
            self.model.install(&normalize(&definition));
        }
    }

    /// Whether the API server serves the CRD of the operator with this number, and creates its objects.
    pub(crate) fn is_served(&self, operator: usize) -> bool {
        self.states.lock()[operator] == State::Served
    }

    /// Whether the API server serves all CRDs.
    pub(crate) fn are_served(&self) -> bool {
        self.states.lock().iter().all(|state| *state == State::Served)
    }

    /// Deletes the CRD of the operator with this number, as soon as the caller has deleted all its objects. It is back at this time
    /// at the earliest.
    pub(crate) fn end(&self, operator: usize, until: Duration) {
        self.states.lock()[operator] = State::Ending(until);
    }

    /// Takes in that the cluster has lost everything. All CRDs are gone until this time.
    pub(crate) fn lose(&self, until: Duration) {
        self.cast.primaries().into_iter().for_each(|resource| self.model.uninstall(resource));
        self.states.lock().fill(State::Gone(until));
    }

    /// Takes in that the cluster was restored from a backup, which contains all CRDs.
    pub(crate) fn restored(&self) {
        let mut states = self.states.lock();
        for (role, state) in self.cast.all().iter().zip(states.iter_mut()) {
            if matches!(std::mem::replace(state, State::Served), State::Gone(_)) {
                self.install_one(role);
            }
        }
    }

    /// Lets all CRDs come back.
    pub(crate) fn heal(&self) {
        self.states.lock().iter_mut().for_each(|state| *state = state.healed());
    }

    /// Deletes and installs what is due at this time.
    pub(crate) fn tick(&self, now: Duration) {
        let mut states = self.states.lock();
        for (role, state) in self.cast.all().iter().zip(states.iter_mut()) {
            let resource = role.subject.resource();
            match *state {
                State::Ending(until) if self.model.objects(resource).is_empty() => {
                    self.trace.note("the CRD is gone");
                    self.model.uninstall(resource);
                    *state = State::Gone(until);
                }
                State::Gone(until) if now >= until => {
                    self.trace.note("the CRD is back");
                    self.install_one(role);
                    *state = State::Served;
                }
                _ => {}
            }
        }
    }
}
