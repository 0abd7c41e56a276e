//! What an operator does beside running: doctor, images, clean.
