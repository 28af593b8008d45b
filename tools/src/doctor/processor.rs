//! Checks the processors: which may be used, what else runs on them, and their features. Only the
//! processors that this process may run on are considered.

use super::finding::Finding;
use farcore_tuning::{CpuList, Processors, Root};

const CPU: &str = "/sys/devices/system/cpu";
/// Least cores for advising to isolate some of them.
const CORES_TO_ISOLATE: usize = 4;
/// Largest share of stolen time without a warning, in percent.
const STOLEN_PERCENT_MAX: f64 = 1.0;

pub(super) fn check(root: &Root) -> Vec<Finding> {
    let features = features(root);
    vec![
        cores(root),
        engine_cores(root),
        quota(root),
        isolation(root),
        siblings(root),
        governor(root),
        features,
        stolen(root),
    ]
}

/// The processors that this process may run on.
pub(super) fn allowed(root: &Root) -> Option<CpuList> {
    let list = root.field("/proc/self/status", "Cpus_allowed_list")?;
    list.parse().ok()
}

fn list(root: &Root, name: &str) -> Option<CpuList> {
    root.read(&format!("{CPU}/{name}"))?.parse().ok()
}

fn cores(root: &Root) -> Finding {
    let what = "cores";
    let Some(allowed) = allowed(root) else {
        return Finding::unknown(what, "/proc/self/status");
    };
    match list(root, "online") {
        Some(online) if online.0.len() > allowed.0.len() => Finding::weak(
            what,
            format!("{allowed} of {online}"),
        )
        .because("this process is restricted to a part of the machine (by a cpuset, taskset or isolcpus)")
        .mend(format!(
            "if that is not intended: taskset -c {online} farcore ..., or AllowedCPUs= in the unit"
        )),
        _ => Finding::fine(what, format!("{allowed} ({})", allowed.0.len())),
    }
}

/// The cores that an engine takes if its program names none.
fn engine_cores(root: &Root) -> Finding {
    let what = "an engine's cores";
    let Some(allowed) = allowed(root) else {
        return Finding::unknown(what, "/proc/self/status");
    };
    let processors = Processors::read(root, allowed.0.iter().map(|&cpu| cpu as usize));
    let chosen = processors.for_engine();
    let numbers = chosen.iter().filter_map(|&cpu| u32::try_from(cpu).ok());
    let chosen = CpuList(numbers.collect());
    Finding::fine(what, format!("{chosen} by default: {processors}"))
}

fn quota(root: &Root) -> Finding {
    let what = "control group quota";
    let Some(cores) = farcore_tuning::cores_limit(root) else {
        return Finding::fine(what, "none");
    };
    let allowed = allowed(root).map_or(0, |allowed| allowed.0.len());
    let seen = format!("{cores:.1} cores' time");
    if allowed > 0 && cores >= allowed as f64 {
        return Finding::fine(what, seen);
    }
    Finding::weak(what, seen)
        .because("when the quota is used up, all pinned cores stop together for the rest of the period")
        .mend(format!(
            "run the engine on {:.0} cores (Config::cores), or give whole cores: cpuset instead of a quota (`docker run \
             --cpuset-cpus`, Kubernetes' static CPU manager)",
            cores.floor().max(1.0)
        ))
}

fn isolation(root: &Root) -> Finding {
    let what = "isolated cores";
    let isolated = list(root, "isolated").unwrap_or_default();
    let tickless = list(root, "nohz_full").unwrap_or_default();
    if !isolated.0.is_empty() {
        let seen = format!("isolcpus {isolated}");
        let ticking = CpuList(&isolated.0 - &tickless.0);
        if ticking.0.is_empty() {
            return Finding::fine(what, format!("{seen}, nohz_full {tickless}"));
        }
        return Finding::weak(what, seen)
            .because(format!(
                "the timer still interrupts {ticking} many times a second"
            ))
            .mend(format!(
                "boot with nohz_full={isolated} rcu_nocbs={isolated}"
            ));
    }
    let cores = allowed(root).unwrap_or_default();
    if cores.0.len() < CORES_TO_ISOLATE {
        return Finding::fine(what, "none; too few cores to isolate some");
    }
    let spared = CpuList(cores.0.iter().copied().skip(1).collect());
    Finding::weak(what, "none")
        .because("other threads and the timer interrupt the engine's cores, which raises tail latencies")
        .mend(format!(
            "boot with isolcpus={spared} nohz_full={spared} rcu_nocbs={spared}, and name these cores in Config::cores"
        ))
}

fn siblings(root: &Root) -> Finding {
    let what = "core siblings";
    let Some(allowed) = allowed(root) else {
        return Finding::unknown(what, "/proc/self/status");
    };
    let mut alone = CpuList::default();
    for &cpu in &allowed.0 {
        let path = format!("cpu{cpu}/topology/thread_siblings_list");
        let siblings = list(root, &path).unwrap_or_default();
        let first = siblings.0.intersection(&allowed.0).next();
        if first.is_none_or(|&first| first == cpu) {
            alone.0.insert(cpu);
        }
    }
    if alone.0.len() == allowed.0.len() {
        return Finding::fine(what, "none: each processor is a core");
    }
    Finding::weak(what, format!("{} processors on {} cores", allowed.0.len(), alone.0.len()))
        .because("two busy shards on one core share its caches and units: together they serve little more than one")
        .mend(format!("name one processor of each core in Config::cores: {alone}"))
}

fn governor(root: &Root) -> Finding {
    let what = "frequency governor";
    let mut modes: Vec<String> = allowed(root)
        .unwrap_or_default()
        .0
        .iter()
        .filter_map(|cpu| root.read(&format!("{CPU}/cpu{cpu}/cpufreq/scaling_governor")))
        .collect();
    modes.sort_unstable();
    modes.dedup();
    match &modes[..] {
        [] => Finding::fine(what, "none"),
        [only] if only == "performance" => Finding::fine(what, only),
        _ => Finding::weak(what, modes.join(", "))
            .because("cores are slow for the first milliseconds after idling")
            .mend("cpupower frequency-set -g performance"),
    }
}

/// The flags of the first processor.
pub(super) fn flags(root: &Root) -> Option<Vec<String>> {
    let names = ["flags", "Features"];
    let line = names
        .iter()
        .find_map(|name| root.field("/proc/cpuinfo", name))?;
    Some(line.split_whitespace().map(str::to_owned).collect())
}

fn features(root: &Root) -> Finding {
    let what = "processor features";
    let Some(flags) = flags(root) else {
        return Finding::unknown(what, "/proc/cpuinfo");
    };
    let has = |name: &str| flags.iter().any(|flag| flag == name);
    let place = if has("hypervisor") {
        ", in a virtual machine"
    } else {
        ""
    };
    // ARM processors have vector units throughout (asimd).
    let vectors = has("avx2") || has("asimd");
    let found: Vec<&str> = ["aes", "avx2", "vaes", "asimd"]
        .into_iter()
        .filter(|name| has(name))
        .collect();
    let seen = format!("{}{place}", found.join(" "));
    let slow = match (has("aes"), vectors) {
        (true, true) => return Finding::fine(what, seen),
        (false, _) => "encryption runs without AES instructions, tens of times slower",
        (true, false) => "hashing runs without AVX2",
    };
    Finding::weak(what, seen)
        .because(slow)
        .mend("in a virtual machine, pass the processor through (QEMU `-cpu host`); else take a newer one")
}

fn stolen(root: &Root) -> Finding {
    let what = "stolen time";
    let text = root.read("/proc/stat").unwrap_or_default();
    // user nice system idle iowait irq softirq steal; guests are within user.
    let numbers: Vec<f64> = text
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("cpu "))
        .unwrap_or("")
        .split_whitespace()
        .take(8)
        .map_while(|word| word.parse().ok())
        .collect();
    let total: f64 = numbers.iter().sum();
    let Some(steal) = numbers.get(7).filter(|_| total > 0.0) else {
        return Finding::unknown(what, "/proc/stat");
    };
    let percent = steal / total * 100.0;
    let seen = format!("{percent:.2} % since boot");
    if percent <= STOLEN_PERCENT_MAX {
        return Finding::fine(what, seen);
    }
    Finding::weak(what, seen)
        .because("the host runs other guests on these processors, which stops shards without notice")
        .mend("use dedicated processors (a larger or dedicated instance), or pin the machine's processors on the host")
}
