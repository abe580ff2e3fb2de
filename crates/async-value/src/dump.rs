//! Who waits for whom, as data and as text.

use crate::Failure;
use crate::entries::{Key, State};
use crate::epochs::Kind;
use crate::queue::Queue;
use crate::sync::Arc;
use crate::task::TaskInfo;
use std::collections::HashMap;
use std::fmt;
use std::panic::Location;

/// Who waits for whom, at one moment: tasks, the values that they wait for, and the tasks that these come after.
///
/// Other threads may go on while it is made; what it says of each value is of one moment.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Dump {
    /// The values, with the accesses that are queued.
    pub values: Vec<ValueState>,
    /// The tasks that hold tickets of them.
    pub tasks: Vec<TaskState>,
    /// Tasks each of which waits for the next, and the last for the first.
    pub circle: Vec<TaskState>,
}

/// A value, and who accesses it in which order.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ValueState {
    /// The value's name.
    pub name: &'static str,
    /// What readers at their turn get in place of the value.
    pub failure: Option<Failure>,
    /// The epochs. The first one is at its turn.
    pub epochs: Vec<EpochState>,
}

/// A write, or several reads at once.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EpochState {
    /// Whether it is a write.
    pub write: bool,
    /// The failure of a write that was given up before its turn.
    pub abandoned: Option<Failure>,
    /// The tickets that have not ended.
    pub tickets: Vec<TicketState>,
    /// How many more there are.
    pub more: usize,
}

/// A ticket.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TicketState {
    /// Operation and number of the task that it belongs to, as far as it is known.
    pub task: Option<(&'static str, u64)>,
    /// Where it was taken.
    pub site: &'static Location<'static>,
    /// Whether it has been awaited.
    pub awaited: bool,
    /// Whether its turn has come and it has been told.
    pub held: bool,
}

/// A task.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskState {
    /// Its number, unique in the process.
    pub number: u64,
    /// Its operation.
    pub operation: &'static str,
    /// Where it was asked for.
    pub site: &'static Location<'static>,
    /// How often it has been polled.
    pub polls: u64,
    /// What it waits for; `None` for something that is no ticket.
    pub waits: Option<WaitState>,
}

/// What a task waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitState {
    /// The name of the value.
    pub value: &'static str,
    /// Whether to write it.
    pub write: bool,
    /// Where the ticket was taken.
    pub site: &'static Location<'static>,
}

/// Lines of a kind that are shown, or listed for an epoch.
const SHOWN: usize = 8;

impl Dump {
    pub(crate) fn of(
        queues: impl IntoIterator<Item = Arc<Queue>>,
        tasks: impl IntoIterator<Item = Arc<TaskInfo>>,
    ) -> Self {
        let mut walk = Walk::default();
        for queue in queues {
            if let Some(last) = walk.last_of(&queue) {
                walk.from(Node::Before(queue, last));
            }
        }
        for task in tasks {
            walk.from(Node::Task(task));
        }
        walk.dump
    }

    /// Of what an access waits for that is in no task.
    pub(crate) fn of_wait(queue: &Arc<Queue>, key: Key) -> Self {
        let mut walk = Walk::default();
        walk.last_of(queue);
        let number = queue.lock().number_of(key);
        if let Some(before) = number.and_then(|number| number.checked_sub(1)) {
            walk.from(Node::Before(queue.clone(), before));
        }
        walk.dump
    }

    pub(crate) fn circle(&self) -> &[TaskState] {
        &self.circle
    }
}

/// What may keep something waiting.
#[derive(Clone)]
enum Node {
    Task(Arc<TaskInfo>),
    /// The accesses of a value up to an epoch.
    Before(Arc<Queue>, u64),
}

type Id = (usize, u64);

impl Node {
    fn id(&self) -> Id {
        match self {
            Self::Task(task) => (0, task.number),
            Self::Before(queue, epoch) => (Arc::as_ptr(queue) as usize, *epoch),
        }
    }
}

/// A queue as it was when it was first seen.
struct Seen {
    /// The epochs by number, with the owners of their tickets.
    epochs: Vec<(u64, Vec<Arc<TaskInfo>>)>,
}

#[derive(Default)]
struct Walk {
    dump: Dump,
    seen: HashMap<usize, Seen>,
    /// Whether a node is left already.
    left: HashMap<Id, bool>,
}

impl Walk {
    /// Looks at a queue; its last epoch.
    fn last_of(&mut self, queue: &Arc<Queue>) -> Option<u64> {
        let address = Arc::as_ptr(queue) as usize;
        if !self.seen.contains_key(&address) {
            let epochs = queue.lock();
            let mut seen = Seen { epochs: Vec::new() };
            let mut value = ValueState {
                name: queue.name(),
                failure: epochs.failure().cloned(),
                epochs: Vec::new(),
            };
            for (number, kind, entries) in epochs.iter() {
                let mut owners = Vec::new();
                let mut epoch = EpochState {
                    write: !matches!(kind, Kind::Read),
                    abandoned: match kind {
                        Kind::Abandoned(failure) => Some(failure.clone()),
                        Kind::Read | Kind::Write => None,
                    },
                    tickets: Vec::new(),
                    more: 0,
                };
                for entry in entries {
                    owners.extend(entry.owner.clone());
                    if epoch.tickets.len() == SHOWN {
                        epoch.more += 1;
                        continue;
                    }
                    epoch.tickets.push(TicketState {
                        task: entry
                            .owner
                            .as_ref()
                            .map(|task| (task.operation, task.number)),
                        site: entry.site,
                        awaited: entry.state != State::Taken,
                        held: entry.state == State::Held,
                    });
                }
                seen.epochs.push((number, owners));
                value.epochs.push(epoch);
            }
            drop(epochs);
            self.dump.values.push(value);
            self.seen.insert(address, seen);
        }
        self.seen[&address].epochs.last().map(|&(number, _)| number)
    }

    /// What keeps a node waiting.
    fn ahead(&mut self, node: &Node) -> Vec<Node> {
        match node {
            Node::Task(task) => {
                let (state, ahead) = self.state_of(task);
                self.dump.tasks.push(state);
                ahead.into_iter().collect()
            }
            Node::Before(queue, epoch) => {
                self.last_of(queue);
                let seen = &self.seen[&(Arc::as_ptr(queue) as usize)];
                let upto = match seen.epochs.last() {
                    Some((last, _)) if last >= epoch => {
                        seen.epochs.partition_point(|(number, _)| number <= epoch)
                    }
                    // It came later.
                    _ => 0,
                };
                let Some(((_, owners), before)) = seen.epochs[..upto].split_last() else {
                    return Vec::new();
                };
                let mut ahead: Vec<_> = owners.iter().cloned().map(Node::Task).collect();
                if let Some((number, _)) = before.last() {
                    ahead.push(Node::Before(queue.clone(), *number));
                }
                ahead
            }
        }
    }

    fn state_of(&mut self, task: &Arc<TaskInfo>) -> (TaskState, Option<Node>) {
        let (ticket, polls) = task.waiting();
        let mut state = TaskState {
            number: task.number,
            operation: task.operation,
            site: task.site,
            polls,
            waits: None,
        };
        let Some((queue, key)) = ticket else {
            return (state, None);
        };
        self.last_of(&queue);
        let epochs = queue.lock();
        let number = epochs.number_of(key);
        // The ticket may be gone, and the entry another's.
        let own = |key| {
            let owner = epochs.entry(key).owner.as_ref();
            owner.is_some_and(|owner| Arc::ptr_eq(owner, task))
        };
        let Some(number) = number.filter(|_| own(key)) else {
            return (state, None);
        };
        let kinds = epochs.iter().find(|(at, ..)| *at == number);
        state.waits = Some(WaitState {
            value: queue.name(),
            write: kinds.is_some_and(|(_, kind, _)| matches!(kind, Kind::Write)),
            site: epochs.entry(key).site,
        });
        drop(epochs);
        let before = number.checked_sub(1);
        (state, before.map(|before| Node::Before(queue, before)))
    }

    /// Visits all that keeps `start` waiting, depth first.
    fn from(&mut self, start: Node) {
        let mut path: Vec<(Node, Vec<Node>)> = Vec::new();
        let mut next = Some(start);
        loop {
            if let Some(node) = next.take() {
                match self.left.insert(node.id(), false) {
                    None => {
                        let ahead = self.ahead(&node);
                        path.push((node, ahead));
                    }
                    Some(true) => {
                        self.left.insert(node.id(), true);
                    }
                    // It is on the path: a circle.
                    Some(false) => self.close(&path, &node),
                }
            }
            let Some((node, ahead)) = path.last_mut() else {
                return;
            };
            next = ahead.pop();
            if next.is_none() {
                self.left.insert(node.id(), true);
                path.pop();
            }
        }
    }

    fn close(&mut self, path: &[(Node, Vec<Node>)], node: &Node) {
        if !self.dump.circle.is_empty() {
            return;
        }
        let start = path.iter().position(|(on, _)| on.id() == node.id());
        for (on, _) in &path[start.unwrap_or(0)..] {
            if let Node::Task(task) = on {
                let (state, _) = self.state_of(task);
                self.dump.circle.push(state);
            }
        }
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            number,
            operation,
            site,
            waits,
            ..
        } = self;
        write!(f, "task {number} `{operation}` ({site}) waits ")?;
        match waits {
            None => f.write_str("for something that is no ticket"),
            Some(WaitState { value, write, site }) => {
                let access = if *write { "write" } else { "read" };
                write!(f, "to {access} {value} (asked for at {site})")
            }
        }
    }
}

impl fmt::Display for TicketState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.task {
            Some((operation, number)) => write!(f, "task {number} `{operation}`")?,
            None => f.write_str("somebody outside of tasks")?,
        }
        let state = match (self.held, self.awaited) {
            (true, _) => "holds it",
            (false, true) => "waits",
            (false, false) => "has not awaited it yet",
        };
        write!(f, " (asked for at {}) {state}", self.site)
    }
}

fn list<T: fmt::Display>(f: &mut fmt::Formatter<'_>, items: &[T]) -> fmt::Result {
    for item in items.iter().take(SHOWN) {
        write!(f, "\n  {item}")?;
    }
    match items.len().saturating_sub(SHOWN) {
        0 => Ok(()),
        more => write!(f, "\n  and {more} more"),
    }
}

impl fmt::Display for ValueState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "value {}", self.name)?;
        if let Some(failure) = &self.failure {
            write!(f, ", failed: {failure}")?;
        }
        if self.epochs.is_empty() {
            return f.write_str(", which nobody accesses");
        }
        for epoch in self.epochs.iter().take(SHOWN) {
            if let Some(failure) = &epoch.abandoned {
                write!(f, "\n    write, given up: {failure}")?;
                continue;
            }
            let access = if epoch.write { "write" } else { "read" };
            for ticket in &epoch.tickets {
                write!(f, "\n    {access}: {ticket}")?;
            }
            if epoch.more > 0 {
                write!(f, "\n    {access}: {} more", epoch.more)?;
            }
        }
        match self.epochs.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "\n    and {more} more epochs"),
        }
    }
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.circle.is_empty() {
            f.write_str("each waits for the next, and the last for the first:")?;
            list(f, &self.circle)?;
            f.write_str("\n")?;
        }
        f.write_str("tasks:")?;
        list(f, &self.tasks)?;
        f.write_str("\nvalues, each with its accesses in order:")?;
        list(f, &self.values)
    }
}
