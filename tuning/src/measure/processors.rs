//! The processors that a process may use: their physical cores, and the control group's quota of
//! their time. Chooses those that an engine takes if its program names none.

use std::collections::BTreeSet;
use std::fmt;

use crate::measure::cgroup::cores_limit;
use crate::measure::cpu_list::CpuList;
use crate::measure::root::Root;

const CPU: &str = "/sys/devices/system/cpu";

/// The processors that a process may use.
#[derive(Clone, PartialEq, Debug)]
pub struct Processors {
    /// Those that it may run on.
    pub allowed: CpuList,
    /// The first of them on each physical core.
    pub cores: CpuList,
    /// The processor time that it may use, in processors; `None` if unlimited.
    pub quota: Option<f64>,
}

impl Processors {
    /// Reads what is known of these processors. Cost: a small file for each.
    #[must_use]
    pub fn read(root: &Root, allowed: impl IntoIterator<Item = usize>) -> Self {
        let numbers = allowed.into_iter();
        let allowed: BTreeSet<u32> = numbers.filter_map(|cpu| u32::try_from(cpu).ok()).collect();
        let is_first = |&cpu: &u32| {
            let path = format!("{CPU}/cpu{cpu}/topology/thread_siblings_list");
            let siblings: Option<CpuList> = root.read(&path).and_then(|text| text.parse().ok());
            let siblings = siblings.unwrap_or_default();
            let first = siblings.0.intersection(&allowed).next();
            first.is_none_or(|&first| first == cpu)
        };
        let cores = allowed.iter().copied().filter(is_first).collect();
        Self {
            cores: CpuList(cores),
            allowed: CpuList(allowed),
            quota: cores_limit(root),
        }
    }

    /// Those that an engine takes by default: one of each physical core, as two busy shards on one
    /// core serve little more than one; and no more than the quota pays for, as all of them would
    /// stop when it is used up.
    #[must_use]
    pub fn for_engine(&self) -> Vec<usize> {
        let cores = self.cores.0.iter().map(|&cpu| cpu as usize);
        cores.take(self.whole_quota()).collect()
    }

    /// The whole processors of the quota, at least one.
    fn whole_quota(&self) -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a number of processors"
        )]
        self.quota
            .map_or(usize::MAX, |quota| (quota as usize).max(1))
    }

    /// What would be better about an engine on these processors; `None` if nothing.
    #[must_use]
    pub fn advice(&self, chosen: &[usize]) -> Option<String> {
        let chosen: BTreeSet<u32> = chosen
            .iter()
            .filter_map(|&cpu| u32::try_from(cpu).ok())
            .collect();
        let whole = self.whole_quota();
        if chosen.len() > whole {
            return Some(format!(
                "{} cores and a quota of {} cores' time: name {whole} of them",
                chosen.len(),
                self.quota.unwrap_or_default()
            ));
        }
        let seconds: BTreeSet<u32> = chosen.difference(&self.cores.0).copied().collect();
        let firsts = chosen.intersection(&self.cores.0).count();
        // A second thread of a core is as good as the first, if it is alone.
        if !seconds.is_empty() && firsts + seconds.len() > self.cores.0.len() {
            let seconds = CpuList(seconds);
            return Some(format!(
                "processors {seconds} are second threads of physical cores: name one of each core, {}",
                self.cores
            ));
        }
        None
    }
}

impl fmt::Display for Processors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (allowed, cores) = (self.allowed.0.len(), self.cores.0.len());
        write!(f, "{allowed} processors on {cores} physical cores")?;
        match self.quota {
            Some(quota) => write!(f, ", {quota:.1} cores' time by quota"),
            None => Ok(()),
        }
    }
}

/// The NUMA node of a processor; `None` if it is unknown, or the machine has only one.
#[must_use]
pub fn numa_node(root: &Root, processor: usize) -> Option<u32> {
    let number = |name: &String| name.strip_prefix("node")?.parse().ok();
    let nodes = root.names("/sys/devices/system/node");
    if nodes.iter().filter_map(number).count() < 2 {
        return None;
    }
    let names = root.names(&format!("{CPU}/cpu{processor}"));
    names.iter().find_map(number)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// A machine whose processor n is a thread of the core that `core_of` names.
    struct Machine(PathBuf);

    impl Machine {
        fn new(name: &str, processors: usize, threads: usize, quota: Option<&str>) -> Self {
            let name = format!("farcore-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            let cores = processors / threads;
            for cpu in 0..processors {
                let path = folder.join(format!("sys/devices/system/cpu/cpu{cpu}/topology"));
                std::fs::create_dir_all(&path).unwrap();
                let siblings: Vec<_> = (0..threads)
                    .map(|thread| (cpu % cores + thread * cores).to_string())
                    .collect();
                std::fs::write(path.join("thread_siblings_list"), siblings.join(",")).unwrap();
            }
            if let Some(quota) = quota {
                std::fs::create_dir_all(folder.join("proc/self")).unwrap();
                std::fs::create_dir_all(folder.join("sys/fs/cgroup/box")).unwrap();
                std::fs::write(folder.join("proc/self/cgroup"), "0::/box\n").unwrap();
                std::fs::write(folder.join("sys/fs/cgroup/box/cpu.max"), quota).unwrap();
            }
            Self(folder)
        }

        fn processors(&self, allowed: impl IntoIterator<Item = usize>) -> Processors {
            Processors::read(&Root::new(&self.0), allowed)
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn an_engine_takes_one_thread_of_each_core() {
        for (processors, threads, taken) in
            [(2, 1, 2), (4, 2, 2), (8, 1, 8), (16, 2, 8), (64, 2, 32)]
        {
            let machine = Machine::new(
                &format!("{processors}-{threads}"),
                processors,
                threads,
                None,
            );
            let known = machine.processors(0..processors);
            let chosen = known.for_engine();
            assert_eq!(chosen, (0..taken).collect::<Vec<_>>());
            assert_eq!(known.advice(&chosen), None);
        }
        let machine = Machine::new("pinned", 8, 2, None);
        // The first threads are not all allowed: the second one of that core is as good.
        let known = machine.processors([1, 2, 4, 5]);
        assert_eq!(known.for_engine(), [1, 2, 4]);
        assert_eq!(known.advice(&[1, 2, 4]), None);
        let advice = known.advice(&[1, 2, 4, 5]).unwrap();
        assert!(
            advice.contains("5 are second threads") && advice.contains("1-2,4"),
            "{advice}"
        );
        assert_eq!(known.to_string(), "4 processors on 3 physical cores");
    }

    #[test]
    fn an_engine_takes_no_more_than_the_quota_pays_for() {
        for (quota, taken) in [("250000 100000", 2), ("50000 100000", 1), ("max 100000", 4)] {
            let machine = Machine::new(&format!("quota-{taken}"), 4, 1, Some(quota));
            let known = machine.processors(0..4);
            assert_eq!(known.for_engine().len(), taken);
            assert_eq!(known.advice(&[0, 1, 2, 3]).is_some(), taken < 4);
        }
    }

    #[test]
    fn the_numa_node_of_a_processor_is_known_where_there_are_several() {
        let machine = Machine::new("numa", 4, 1, None);
        let root = Root::new(&machine.0);
        let make = |path: &str| std::fs::create_dir_all(machine.0.join(path)).unwrap();
        for cpu in 0..4 {
            make(&format!("sys/devices/system/cpu/cpu{cpu}/node{}", cpu % 2));
        }
        make("sys/devices/system/node/node0");
        assert_eq!(numa_node(&root, 1), None, "there is only one");
        make("sys/devices/system/node/node1");
        assert_eq!(
            [0, 1, 2, 9].map(|cpu| numa_node(&root, cpu)),
            [Some(0), Some(1), Some(0), None]
        );
    }

    #[test]
    fn a_machine_that_reports_nothing_is_taken_as_it_is() {
        let known = Processors::read(&Root::new("/nonexistent"), [3, 1]);
        assert_eq!(known.for_engine(), [1, 3]);
        assert_eq!(known.advice(&[1, 3]), None);
    }
}
