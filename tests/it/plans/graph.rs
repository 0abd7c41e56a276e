//! The DAG: its order, what may start, and what is told of a bad one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use proptest::prelude::*;
use wharf::id::{RoleName, SubtaskId};
use wharf::plan::{self, Dag, GraphError, Plan, Subtask};

use super::subtask;

/// The built-in roles, read once.
static ROLES: LazyLock<BTreeMap<RoleName, plan::Role>> =
    LazyLock::new(|| Plan::built_in().map(|plan| plan.roles).unwrap_or_default());

fn names(ids: &[SubtaskId]) -> Vec<&str> {
    ids.iter().map(SubtaskId::as_str).collect()
}

#[test]
fn a_diamond_is_ordered_and_released_by_its_needs() {
    let nodes = vec![
        subtask("d", &["b", "c"]),
        subtask("c", &["a"]),
        subtask("b", &["a"]),
        subtask("a", &[]),
        subtask("z", &[]),
    ];
    let dag = Dag::new(nodes, 20, &ROLES).unwrap();
    assert_eq!(names(dag.order()), ["a", "z", "b", "c", "d"]);
    assert_eq!(dag.layers().len(), 3);
    let set = |ids: &[&str]| {
        ids.iter()
            .map(|id| SubtaskId::new(*id))
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(names(&dag.ready(&set(&[]), &set(&[]))), ["a", "z"]);
    assert_eq!(
        names(&dag.ready(&set(&["a"]), &set(&["a", "z"]))),
        ["b", "c"]
    );
    assert_eq!(
        names(&dag.ready(&set(&["a", "b"]), &set(&["a", "b", "z"]))),
        ["c"]
    );
    assert_eq!(
        names(&dag.dependents(&SubtaskId::new("a"))),
        ["b", "c", "d"]
    );
    assert_eq!(
        names(&dag.dependents(&SubtaskId::new("d"))),
        [] as [&str; 0]
    );
}

#[test]
fn a_later_round_adds_to_what_is_done() {
    let first = Dag::new(vec![subtask("a", &[])], 1, &ROLES).unwrap();
    let second = first.extend(vec![subtask("c", &["a"])], 1, &ROLES).unwrap();
    let done = BTreeSet::from([SubtaskId::new("a")]);
    assert_eq!(names(&second.ready(&done, &done)), ["c"]);
    assert_eq!(first.len(), 1);
    let again = first
        .extend(vec![subtask("a", &[])], 1, &ROLES)
        .unwrap_err();
    assert_eq!(
        again.to_string(),
        "the id `a` stands twice; every subtask needs an id of its own"
    );
    let circle = first.extend(
        vec![subtask("x", &["y"]), subtask("y", &["x", "a"])],
        2,
        &ROLES,
    );
    assert!(matches!(circle, Err(GraphError::Cycle { .. })));
}

#[test]
fn a_coordinator_is_told_exactly_what_is_wrong() {
    let told = |nodes: Vec<Subtask>| Dag::new(nodes, 3, &ROLES).unwrap_err().to_string();
    let mut shown = String::new();
    let mut role = subtask("a", &[]);
    role.role = RoleName::new("writer");
    for nodes in [
        vec![],
        vec![subtask("a", &[]); 2],
        (0..4).map(|i| subtask(&format!("s{i}"), &[])).collect(),
        vec![
            subtask("a", &["b"]),
            subtask("b", &["c"]),
            subtask("c", &["a"]),
        ],
        vec![subtask("a", &["zzz"]), subtask("b", &[])],
        vec![subtask("b", &["A"]), subtask("a", &[])],
        vec![subtask("Fix It", &[])],
        vec![subtask("emoji-😀", &[])],
        vec![subtask("", &[])],
        vec![subtask(&"x".repeat(41), &[])],
        vec![subtask("merge-0a1b2c3d", &[])],
        vec![role],
    ] {
        shown += &told(nodes);
        shown.push('\n');
    }
    insta::assert_snapshot!(shown);
}

#[test]
fn an_id_that_only_sounds_like_a_conflict_is_free() {
    assert!(Dag::new(vec![subtask("merge-results", &[])], 1, &ROLES).is_ok());
}

#[test]
fn a_long_circle_is_named_without_a_deep_stack() {
    let id = |i: usize| format!("n{i}");
    let nodes = (0..20_000)
        .map(|i| subtask(&id(i), &[&id((i + 1) % 20_000)]))
        .collect();
    let Err(GraphError::Cycle { path, .. }) = Dag::new(nodes, 20_000, &ROLES) else {
        panic!("no circle found");
    };
    assert_eq!(path.len(), 20_001);
}

/// Some subtasks, each needing some of those before it in a hidden order.
fn dags() -> impl Strategy<Value = Vec<Subtask>> {
    (1..12usize).prop_flat_map(|count| {
        let needs = proptest::collection::vec(any::<u16>(), count);
        let order = Just((0..count).collect::<Vec<_>>()).prop_shuffle();
        (needs, order).prop_map(|(needs, order)| {
            let node = |(i, bits): (usize, &u16)| {
                let ids = (0..i)
                    .filter(|j| bits >> j & 1 == 1)
                    .map(|j| format!("n{}", order[j]));
                let ids: Vec<String> = ids.collect();
                let needs: Vec<&str> = ids.iter().map(String::as_str).collect();
                subtask(&format!("n{}", order[i]), &needs)
            };
            needs.iter().enumerate().map(node).collect()
        })
    })
}

proptest! {
    #[test]
    fn order_follows_needs_and_not_the_way_they_were_written(nodes in dags(), seed in any::<u64>()) {
            let dag = Dag::new(nodes.clone(), 20, &ROLES).unwrap();
        let place = |id: &SubtaskId| dag.order().iter().position(|other| other == id).unwrap();
        prop_assert_eq!(dag.order().len(), nodes.len());
        for node in &nodes {
            for need in &node.needs {
                prop_assert!(place(need) < place(&node.id));
            }
        }
        let mut other = nodes.clone();
        other.rotate_left(usize::try_from(seed % nodes.len() as u64).unwrap());
        other.reverse();
        let again = Dag::new(other, 20, &ROLES).unwrap();
        prop_assert_eq!(again.order(), dag.order());
    }

    #[test]
    fn any_order_of_finishes_starts_each_once_after_its_needs(nodes in dags(), mut seed in any::<u64>()) {
        let dag = Dag::new(nodes, 20, &ROLES).unwrap();
        let (mut done, mut started) = (BTreeSet::new(), BTreeSet::new());
        while done.len() < dag.len() {
            for id in dag.ready(&done, &started) {
                prop_assert!(dag.get(&id).unwrap().needs.iter().all(|need| done.contains(need)));
                prop_assert!(started.insert(id));
            }
            let open: Vec<SubtaskId> = started.difference(&done).cloned().collect();
            prop_assert!(!open.is_empty());
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let pick = usize::try_from(seed >> 33).unwrap() % open.len();
            done.insert(open[pick].clone());
        }
    }

    #[test]
    fn a_circle_is_always_found_and_named(nodes in dags(), from in any::<usize>(), to in any::<usize>()) {
        let mut nodes = nodes;
        let (from, to) = (from % nodes.len(), to % nodes.len());
        let dag = Dag::new(nodes.clone(), 20, &ROLES).unwrap();
        let (first, last) = (nodes[from].id.clone(), nodes[to].id.clone());
        let closes = first == last || dag.dependents(&first).contains(&last);
        if nodes[from].needs.contains(&last) {
            return Ok(());
        }
        nodes[from].needs.push(last);
        match Dag::new(nodes.clone(), 20, &ROLES) {
            Ok(_) => prop_assert!(!closes),
            Err(GraphError::Cycle { path, index, place }) => {
                prop_assert!(closes && path.len() >= 2);
                prop_assert_eq!(path.first(), path.last());
                for pair in path.windows(2) {
                    let node = nodes.iter().find(|node| node.id == pair[0]).unwrap();
                    prop_assert!(node.needs.contains(&pair[1]));
                }
                prop_assert_eq!(&nodes[index].needs[place], &path[1]);
            }
            Err(other) => prop_assert!(false, "{}", other),
        }
    }
}
