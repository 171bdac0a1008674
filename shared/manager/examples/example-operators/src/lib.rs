//! Small operators, each with a shape that the five operators of this repository do not have. Each file is one whole operator.
//!
//! - [`tenants`]: a cluster-scoped kind that makes namespaces with quotas, also in namespaces that users label.
//! - [`ledgers`]: a `StatefulSet` with a claim and a Secret, which are kinds without a view.
//! - [`banners`]: a kind that is fed by a `ConfigMap` and by another kind, and a webhook that reads the cache.
//! - [`tracks`]: a kind that messages from outside of the cluster wake, and that patches objects of other owners.
//!
//! Which operator to read for a part of the runtime:
//!
//! | part | used by |
//! |---|---|
//! | children of any kind: `Whole`, `As` | tenants, ledgers, banners |
//! | children with a view and a table of defaults: `Viewed`, `Child` | Memcached, HelloApp, CronTab, Foo |
//! | kinds that not every cluster has: `owns_if_installed` | Memcached |
//! | pods of children: `watches_labelled` | Memcached, HelloApp, CronTab |
//! | objects that a spec names: `watches_referenced` | banners, tracks |
//! | objects that name a primary: `watches`, `watched` | tenants |
//! | Secrets by name, without a watch: `reads` | Memcached |
//! | wake-ups from outside: `wakes_from` | tracks |
//! | filter of wake-ups: `wakes_on` | FlightTicket |
//! | writes of what is not a child: `client`, `permits` | tracks |
//! | typed configuration: `config` | ledgers, tracks, Memcached, HelloApp, CronTab, FlightTicket |
//! | indices: `index`, `Lookup` | banners, tracks |
//! | webhooks with the whole request: `reviewing`, `only_if` | banners |
//! | reads past the cache: `sync_cache`, `get_uncached` | ledgers, CronTab |
//! | workers, and metrics of all objects: `workers`, `on_scrape`, `on_gone` | CronTab, FlightTicket |
//! | finalizers: `on_delete`, `ensure_finalizer` | FlightTicket |

pub mod banners;
pub mod ledgers;
pub mod tenants;
pub mod tracks;
