//! What an operator does beside running: doctor, models, images, clean.
//!
//! Owns: the checks of `doctor`, what `models` asks, what `clean` removes, recordings made from journals, suggestions for a first plan.
//! Takes: the state directory, an engine, models, in the words of the rooms below.
//! Gives: lists of plain facts for `cli` to print.
//! Never: runs an agent, prints.

mod clean;
mod detect;
mod doctor;
mod engine;
mod error;
mod lock;
mod models;
mod record;
mod veil;

pub use clean::{Old, old_runs, remove_run};
pub use detect::{Project, detect};
pub use doctor::{
    Check, State, base_images, disk, engine_api, engine_place, limits, state_directory,
};
pub use engine::{About, Bootstrap, Engine, ImageLine, Mode, Swept};
pub use error::{Error, open_models};
pub use lock::{Held, held};
pub use models::{Asked, OpenModel, call, models};
pub use record::{Cassette, cassette};
pub use veil::{Places, Veil};
