//! A core meets every cell of both tables. A cell that is not met fails the test.
//!
//! The effect of a cell is compared with the table. `columns`, a second statement of the tables, and the other tests
//! show that the table is right.

mod columns;
mod events;
mod ids;
mod request_of;
mod requests;
