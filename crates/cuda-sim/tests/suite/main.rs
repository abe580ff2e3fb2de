//! The simulated device from outside: the rules it keeps, the wrong programs it catches, the right ones it accepts.

mod capture_facts;
mod capture_refusals;
mod copy_facts;
mod corpus;
mod event_facts;
mod explore;
mod faults;
mod graph_facts;
mod graph_updates;
mod hostile;
mod kernels;
mod kit;
mod memory_facts;
mod modelled_time;
mod operands;
mod oracle;
mod order;
mod priorities;
mod right_programs;
mod rows;
mod threads;
mod wrong_captures;
mod wrong_modules;
mod wrong_programs;
