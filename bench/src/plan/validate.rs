//! Checks a plan against the machine before anything runs.
//!
//! Each check names the flag, its value and what it must be. The first that fails is reported.

use std::time::Duration;

use farcore_command::machine::Machine;
use farcore_command::range::RangeError;
use farcore_command::words::size;

use super::{
    EngineName, FAR_LATENCY_NS_MAX, FAR_NODES_MAX, Forecast, LOCAL_BYTES_MIN, MIXED_OPS_MAX,
    NODES_WAIT_NS_MAX, Plan, PlanError, REPLICAS_MAX, Scenario, TIME_LIMIT_NS_MAX, WINDOW_MAX,
};
use crate::record::{KEYS_MAX, VALUE_BYTES_MAX, VALUE_GRAIN_BYTES};
use crate::skew::ZIPF_MAX;

/// Shortest time limit, in nanoseconds.
const TIME_LIMIT_NS_MIN: u64 = 1_000_000;

impl Plan {
    /// Checks every setting.
    ///
    /// # Errors
    /// The first setting that this machine or the benchmark does not allow.
    pub fn validate(&self, machine: &Machine) -> Result<(), PlanError> {
        self.validate_needs()?;
        self.validate_cores(machine)?;
        self.validate_keys_and_window()?;
        // Numbers of the scenario first: amounts are derived from them.
        self.validate_scenario()?;
        self.validate_amounts()?;
        self.validate_memory_sizes()?;
        self.validate_nodes()?;
        self.validate_time_limit()?;
        self.validate_room()?;
        self.validate_memory(machine)
    }

    fn validate_time_limit(&self) -> Result<(), RangeError> {
        match self.time_limit_ns {
            Some(limit_ns) if !(TIME_LIMIT_NS_MIN..=TIME_LIMIT_NS_MAX).contains(&limit_ns) => {
                let value = humantime::format_duration(Duration::from_nanos(limit_ns));
                let limit = "it must be 1ms to 1day";
                Err(RangeError::new("--time-limit", value, limit))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the contest by its rules fits in local and far memory. There is no forecast for
    /// engines that do not divide their data between these.
    fn validate_room(&self) -> Result<(), PlanError> {
        let far = self.far_bytes / self.replicas.max(1) as u64;
        let memory = self.local_bytes.saturating_add(far);
        let forecast = Forecast::new(self.keys(), self.encrypt, memory);
        let is_forecast = self.by_rules && self.engine.is_ours();
        if is_forecast && forecast.missing_bytes() > 0 {
            let keys = self.keys();
            return Err(PlanError::Room { keys, forecast });
        }
        Ok(())
    }

    fn validate_needs(&self) -> Result<(), PlanError> {
        let needs = self.needs();
        match needs.first() {
            Some(&(flag, needed)) if !self.engine.is_ours() => Err(PlanError::Unsupported {
                flag,
                needed,
                engine: self.engine.name(),
            }),
            _ => Ok(()),
        }
    }

    fn validate_cores(&self, machine: &Machine) -> Result<(), PlanError> {
        for (place, &core) in self.cores.iter().enumerate() {
            if !machine.cores.contains(&core) {
                return Err(PlanError::Core {
                    core,
                    available: machine.cores.clone(),
                });
            }
            if self.cores[..place].contains(&core) {
                return Err(PlanError::CoreTwice { core });
            }
        }
        if self.cores.is_empty() {
            return Err(RangeError::new("--cores", "empty", "name at least one core").into());
        }
        Ok(())
    }

    fn validate_keys_and_window(&self) -> Result<(), RangeError> {
        if self.keys_per_core == 0 {
            let limit = "it must be at least 1";
            return Err(RangeError::new(self.keys_flag(), 0, limit));
        }
        if !(1..=WINDOW_MAX).contains(&self.window) {
            let limit = format!("it must be 1 to {WINDOW_MAX} requests in flight a core");
            return Err(RangeError::new("--window", self.window, limit));
        }
        Ok(())
    }

    fn validate_amounts(&self) -> Result<(), RangeError> {
        if self.keys_max() > KEYS_MAX {
            let limit = format!(
                "it must be at most {KEYS_MAX} in all: lower {}",
                self.keys_flag()
            );
            let flag = "the number of keys";
            return Err(RangeError::new(flag, self.keys_max(), limit));
        }
        let counted = match self.scenario {
            Scenario::Contest { .. } => Some("--hot-ops"),
            Scenario::Ycsb { .. } => Some("--operations"),
            Scenario::Trace(_) => Some("the number of requests in the trace"),
            Scenario::Fairness(_)
            | Scenario::Expiry(_)
            | Scenario::Operations(_)
            | Scenario::Embed(_)
            | Scenario::Cache(_) => None,
        };
        match (counted, self.mixed_ops()) {
            (Some(flag), ops) if !(1..=MIXED_OPS_MAX).contains(&ops) => {
                let limit = match ops {
                    0 => "it must be at least 1".to_owned(),
                    _ => format!("it must be at most {MIXED_OPS_MAX}"),
                };
                Err(RangeError::new(flag, ops, limit))
            }
            _ => Ok(()),
        }
    }

    fn validate_scenario(&self) -> Result<(), RangeError> {
        if let Scenario::Contest { skew, .. } | Scenario::Ycsb { skew, .. } = self.scenario
            && !(0.0..=ZIPF_MAX).contains(&skew.zipf)
        {
            let limit = format!("it must be 0 (all keys alike) to {ZIPF_MAX}");
            return Err(RangeError::new("--zipf", skew.zipf, limit));
        }
        if let Scenario::Fairness(settings) = &self.scenario {
            settings.validate(self.keys(), self.local_bytes)?;
        }
        match &self.scenario {
            Scenario::Expiry(settings) => settings.validate()?,
            Scenario::Operations(settings) => settings.validate()?,
            Scenario::Embed(settings) => settings.validate()?,
            Scenario::Cache(settings) => settings.validate()?,
            _ => {}
        }
        if let Scenario::Ycsb { value_bytes, .. } = self.scenario
            && (!(VALUE_GRAIN_BYTES..=VALUE_BYTES_MAX).contains(&value_bytes)
                || value_bytes % VALUE_GRAIN_BYTES != 0)
        {
            let limit = format!(
                "it must be a multiple of {VALUE_GRAIN_BYTES} from {VALUE_GRAIN_BYTES} to {VALUE_BYTES_MAX}"
            );
            return Err(RangeError::new("--value-bytes", value_bytes, limit));
        }
        if let Scenario::Ycsb {
            ttl_ms: Some(ttl_ms),
            ..
        } = self.scenario
            && ttl_ms == 0
        {
            let limit = "it must be at least 1ms";
            return Err(RangeError::new("--ttl", "less than 1ms", limit));
        }
        Ok(())
    }

    fn validate_memory_sizes(&self) -> Result<(), RangeError> {
        let local_min = LOCAL_BYTES_MIN * self.threads();
        if self.local_bytes < local_min {
            let cores = match self.cores.len() {
                1 => "1 core needs".to_owned(),
                count => format!("{count} cores need"),
            };
            let limit = format!("{cores} at least {}", size(local_min));
            return Err(RangeError::new("--local", size(self.local_bytes), limit));
        }
        if self.engine.has_far_tier() && self.far_bytes == 0 {
            let limit = "far memory must have a size, e.g. 64MiB";
            return Err(RangeError::new("--far", 0, limit));
        }
        Ok(())
    }

    fn validate_nodes(&self) -> Result<(), RangeError> {
        if !(1..=FAR_NODES_MAX).contains(&self.far_nodes) {
            let limit = format!("it must be 1 to {FAR_NODES_MAX} memory nodes");
            return Err(RangeError::new("--far-nodes", self.far_nodes, limit));
        }
        self.validate_replicas()?;
        if let Some(nodes_min) = self.nodes_min
            && !(1..=self.fabric.len()).contains(&nodes_min)
        {
            let limit = match self.fabric.len() {
                0 => "it is for memory nodes: name them with --fabric".into(),
                1 => "it must be 1: --fabric names one memory node".into(),
                nodes => format!("it must be 1 to {nodes}, the memory nodes of --fabric"),
            };
            return Err(RangeError::new("--nodes-min", nodes_min, limit));
        }
        if let Some(wait_ns) = self
            .nodes_wait_ns
            .filter(|&wait_ns| wait_ns > NODES_WAIT_NS_MAX)
        {
            let value = humantime::format_duration(Duration::from_nanos(wait_ns));
            return Err(RangeError::new(
                "--wait-for-nodes",
                value,
                "it must be at most 1day",
            ));
        }
        if self.fabric.len() > 1 && self.fabric.iter().any(|node| node == "embedded") {
            let limit = "name `embedded` alone, or memory nodes";
            return Err(RangeError::new("--fabric", self.fabric.join(","), limit));
        }
        if self.far_latency_ns > FAR_LATENCY_NS_MAX {
            let value = humantime::format_duration(Duration::from_nanos(self.far_latency_ns));
            let limit = "it must be at most 1s";
            return Err(RangeError::new("--far-latency", value, limit));
        }
        Ok(())
    }

    /// No node has two copies of a page.
    fn validate_replicas(&self) -> Result<(), RangeError> {
        let nodes = match self.fabric.len() {
            0 => self.far_nodes,
            nodes => nodes,
        };
        let most = nodes.min(REPLICAS_MAX);
        if (1..=most).contains(&self.replicas) {
            return Ok(());
        }
        let limit = match most {
            1 => "it must be 1, as there is one memory node".to_owned(),
            most => format!("it must be 1 to {most}, a memory node for each copy"),
        };
        Err(RangeError::new("--replicas", self.replicas, limit))
    }

    fn validate_memory(&self, machine: &Machine) -> Result<(), PlanError> {
        let (needed, available) = (self.memory_bytes(), machine.memory_available_bytes);
        if needed <= available {
            return Ok(());
        }
        let keys = format!("the number of keys ({})", self.keys_flag());
        let is_sized = self.engine.is_ours() && self.engine != EngineName::FarcoreAllLocal;
        let (what, remedy) = if is_sized {
            let (local, far) = (size(self.local_bytes), size(self.far_bytes));
            let larger = if self.local_bytes > self.far_bytes {
                "--local"
            } else {
                "--far"
            };
            let what = format!("--local {local}, --far {far}");
            (what, format!("lower {larger}, or {keys}"))
        } else {
            let what = format!("for {} keys", self.keys_max());
            (what, format!("lower {keys}, or leave it out of --engines"))
        };
        Err(PlanError::Memory {
            engine: self.engine.name(),
            what,
            needed_bytes: needed,
            available_bytes: available,
            remedy,
        })
    }
}
