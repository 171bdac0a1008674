//! Operators of other projects, each as short as it can be on this runtime. The book compares them with the originals. They show
//! what an operator has to say, and are no replacements: they leave out what the original does beyond its first example.

pub mod certificates;
pub mod cron_jobs;
