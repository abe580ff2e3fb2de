//! The simulated device from outside: the rules it keeps, the wrong programs it catches, the right ones it accepts.

mod capture_facts;
mod event_facts;
mod kit;
mod memory_facts;
mod oracle;
mod order;
mod wrong_programs;
