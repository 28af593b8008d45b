//! Refuses flags that would change nothing: a flag beside another that replaces it, or for engines
//! that do not take part. Clap cannot know, because it depends on the values of other flags.

use farcore_command::machine::Machine;
use farcore_command::range::RangeError;

use super::{
    CommonArgs, ContestArgs, EmbedArgs, ExpiryArgs, FairnessArgs, OperationsArgs, SetupArgs,
};
use crate::experiments::embed::settings::{Caller, Part as EmbedPart, Subject};
use crate::experiments::expiry::settings::Place;
use crate::experiments::operations::settings::Part;
use crate::plan::{EngineName, Plan, PlanError};

/// Flags of RDMA devices need a memory node behind one of these.
const RDMA_SCHEMES: [&str; 2] = ["rdma://", "rdma+tcp://"];

/// The first flag that is present is refused.
fn refuse(flags: &[(&'static str, bool)], why: &str) -> Result<(), PlanError> {
    let present = flags.iter().find(|(_, present)| *present);
    present.map_or(Ok(()), |&(flag, _)| {
        Err(PlanError::NoEffect {
            flag,
            why: why.to_owned(),
        })
    })
}

impl SetupArgs {
    /// Checks that every flag given has an effect on one of the engines.
    ///
    /// # Errors
    /// The first flag that has none, and the flag that it depends on.
    pub fn check_effects(&self, engines: &[EngineName]) -> Result<(), PlanError> {
        self.check_nodes()?;
        let names: Vec<&str> = engines.iter().map(|engine| engine.name()).collect();
        let names = names.join(",");
        if !engines.iter().any(|engine| engine.is_ours()) {
            let flags = [
                ("--fabric", !self.nodes().is_empty()),
                ("--far-nodes", self.far_nodes.is_some()),
                ("--replicas", self.replicas.is_some()),
                ("--no-prefault", self.no_prefault),
                ("--window", self.window.is_some()),
            ];
            let why = format!(
                "with --engines {names}: it is for farcore; add that to --engines, or leave the flag out"
            );
            refuse(&flags, &why)?;
        }
        if !engines.contains(&EngineName::Farcore) {
            let why = format!(
                "with --engines {names}: only farcore uses memory nodes; add it to --engines, or leave the flag out"
            );
            refuse(&[("--fabric", !self.nodes().is_empty())], &why)?;
        }
        if !engines.iter().any(|engine| engine.has_far_tier()) {
            let flags = [
                ("--far", self.far.is_some()),
                ("--far-latency", self.far_latency.is_some()),
                ("--encrypt", self.encrypt.is_on()),
            ];
            let why = format!("with --engines {names}: none of them has far memory");
            refuse(&flags, &why)?;
        }
        if !engines.iter().any(|engine| engine.has_local_cap()) {
            let why = format!("with --engines {names}: none of them has a cap on local memory");
            refuse(&[("--local", self.local.is_some())], &why)?;
        }
        Ok(())
    }

    /// Flags of memory nodes without these, and of embedded far memory beside them.
    fn check_nodes(&self) -> Result<(), PlanError> {
        let device = [
            ("--device", self.device.is_some()),
            ("--port", self.port.is_some()),
            ("--gid-index", self.gid_index.is_some()),
        ];
        let nodes = self.nodes();
        if nodes.is_empty() {
            let why = "without memory nodes: name them with --fabric, or leave the flag out";
            let flags = [
                ("--token-file", self.token_file.is_some()),
                ("--nodes-min", self.nodes_min.is_some()),
            ];
            refuse(&flags, why)?;
            return refuse(&device, why);
        }
        let names = nodes.join(",");
        let flags = [
            ("--far-latency", self.far_latency.is_some()),
            ("--far-nodes", self.far_nodes.is_some()),
        ];
        let why = format!(
            "beside --fabric {names}: it is for embedded far memory; leave one of them out"
        );
        refuse(&flags, &why)?;
        let is_rdma = |node: &String| RDMA_SCHEMES.iter().any(|scheme| node.starts_with(scheme));
        if nodes.iter().any(is_rdma) {
            return Ok(());
        }
        let why = format!(
            "beside --fabric {names}: it is for rdma:// and rdma+tcp://; leave one of them out"
        );
        refuse(&device, &why)
    }
}

impl CommonArgs {
    /// Checks that every flag given has an effect on one of the engines.
    pub(super) fn check_effects(&self, engines: &[EngineName]) -> Result<(), PlanError> {
        self.setup.check_effects(engines)?;
        self.wait.check_effects(&self.setup)?;
        if engines.iter().any(|engine| engine.is_ours()) {
            return Ok(());
        }
        let flags = [
            ("--record", self.record.is_some()),
            ("--profile", self.profile.is_some()),
            ("--stats-socket", self.watch.stats_socket.is_some()),
            ("--http", self.watch.http.is_some()),
        ];
        let names: Vec<&str> = engines.iter().map(|engine| engine.name()).collect();
        let why = format!(
            "with --engines {}: it is for farcore; add that to --engines, or leave the flag out",
            names.join(",")
        );
        refuse(&flags, &why)
    }
}

impl ContestArgs {
    /// Checks that `--one-shard` meets an engine with shards.
    pub(super) fn check_one_shard(&self, plans: &[Plan]) -> Result<(), PlanError> {
        let names: Vec<&str> = plans.iter().map(|plan| plan.engine.name()).collect();
        let why = format!(
            "with --engines {}: only farcore has shards; add it to --engines, or leave the flag out",
            names.join(",")
        );
        let beside = self.scale.is_some() && self.size.one_shard;
        let by_rules = "beside --scale, whose hot writes request all keys: leave one of them out";
        refuse(&[("--one-shard", beside)], by_rules)?;
        let is_idle = self.size.one_shard && !plans.iter().any(|plan| plan.engine.is_ours());
        refuse(&[("--one-shard", is_idle)], &why)
    }
}

impl FairnessArgs {
    /// Checks that every flag given has an effect.
    pub(super) fn check_effects(&self) -> Result<(), PlanError> {
        self.setup.check_effects(&[EngineName::Farcore])?;
        self.wait.check_effects(&self.setup)?;
        if self.flooders == 0 {
            let why = "beside --flooders 0: it is for flooders; leave one of them out";
            refuse(&[("--puts", self.puts > 0)], why)?;
        }
        if self.sleepers == 0 {
            let flags = [
                ("--sleeper-window", self.sleeper_window.is_some()),
                ("--sleeper-value", self.sleeper_value.is_some()),
            ];
            let why = "beside --sleepers 0: it is for sleepers; leave one of them out";
            refuse(&flags, why)?;
        }
        // The sleepers' window is that of --window unless it has a flag of its own.
        let is_idle = self.flooders == 0 && (self.sleepers == 0 || self.sleeper_window.is_some());
        let why =
            "without flooders or sleepers that have it: raise --flooders, or leave the flag out";
        refuse(&[("--window", is_idle && self.setup.window.is_some())], why)
    }
}

impl ExpiryArgs {
    /// Checks that every flag given has an effect.
    pub(super) fn check_effects(&self) -> Result<(), PlanError> {
        self.setup.check_effects(&[EngineName::Farcore])?;
        self.wait.check_effects(&self.setup)?;
        if self.places.contains(&Place::Far) {
            return Ok(());
        }
        let flags = [
            ("--local", self.setup.local.is_some()),
            ("--fabric", !self.setup.nodes().is_empty()),
            ("--far-latency", self.setup.far_latency.is_some()),
        ];
        refuse(
            &flags,
            "without the place far: add it to --places, or leave the flag out",
        )
    }
}

impl OperationsArgs {
    /// Checks that every flag given has an effect. The link of the export is embedded.
    pub(super) fn check_effects(&self) -> Result<(), PlanError> {
        self.setup.check_effects(&[EngineName::Farcore])?;
        let is_away = !self.setup.nodes().is_empty();
        refuse(
            &[("--fabric", is_away)],
            "here: far memory is embedded; leave the flag out",
        )?;
        let has = |part| self.parts.contains(&part);
        let without = |part: &str| {
            format!("without the part {part}: add it to --parts, or leave the flag out")
        };
        let requests = [
            ("--keys", self.keys.is_some()),
            ("--window", self.setup.window.is_some()),
        ];
        let scan = [("--scan-keys", self.scan_keys.is_some())];
        let export = [
            ("--export-keys", self.export_keys.is_some()),
            ("--link", self.link.is_some()),
        ];
        let long = [("--long-value", self.long_value.is_some())];
        for (part, name, flags) in [
            (Part::Requests, "requests", &requests[..]),
            (Part::Scan, "scan", &scan),
            (Part::Export, "export", &export),
            (Part::Long, "long", &long),
        ] {
            if !has(part) {
                refuse(flags, &without(name))?;
            }
        }
        if !has(Part::Export) && !has(Part::Collections) {
            let far_latency = ("--far-latency", self.setup.far_latency.is_some());
            refuse(&[far_latency], &without("export or collections"))?;
        }
        let is_idle = !has(Part::Requests) && !has(Part::Scan);
        let value = [("--value-bytes", is_idle && self.value_bytes.is_some())];
        refuse(&value, &without("requests or scan"))
    }
}

impl EmbedArgs {
    /// Checks that every flag given has an effect, and that every engine named can run.
    pub(super) fn check_effects(
        &self,
        machine: &Machine,
        engines: &[Subject],
    ) -> Result<(), PlanError> {
        self.check_parts(engines)?;
        self.check_callers()?;
        let is_far = engines.contains(&Subject::FarcoreFar);
        if is_far && self.local_percent.is_none() {
            let limit = "give it local memory with --local-percent";
            return Err(RangeError::new("--engines", "farcore-far", limit).into());
        }
        if engines.contains(&Subject::FarcoreDedicated) && machine.cores.len() < 2 {
            let limit = "this process may use one core only: leave it out";
            return Err(RangeError::new("--engines", "farcore-dedicated", limit).into());
        }
        let is_far = is_far && self.parts.contains(&EmbedPart::Callers);
        let flags = [
            ("--local-percent", !is_far && self.local_percent.is_some()),
            ("--far-latency", !is_far && self.far_latency.is_some()),
        ];
        let why = match (self.parts.contains(&EmbedPart::Callers), &self.engines) {
            (false, _) => "without the part callers: add it to --parts, or leave the flag out",
            (true, Some(_)) => "without farcore-far: add it to --engines, or leave the flag out",
            (true, None) => "without --local-percent: give that too, or leave the flag out",
        };
        refuse(&flags, why)?;
        let is_ours = engines.iter().any(|engine| engine.is_ours());
        let why = "without farcore: add it to --engines, or leave the flag out";
        refuse(&[("--no-prefault", self.no_prefault && !is_ours)], why)
    }

    /// Flags of parts that are left out, and parts that no engine has.
    fn check_parts(&self, engines: &[Subject]) -> Result<(), PlanError> {
        let has = |part| self.parts.contains(&part);
        if !has(EmbedPart::Callers) {
            let flags = [
                ("--callers", self.callers.is_some()),
                ("--threads", self.threads.is_some()),
                ("--tasks", self.tasks.is_some()),
                ("--workers", self.workers.is_some()),
                ("--reads", self.reads.is_some()),
                ("--repeats", self.repeats.is_some()),
                ("--plot", self.plot.is_some()),
            ];
            let why = "without the part callers: add it to --parts, or leave the flag out";
            refuse(&flags, why)?;
            if !engines.iter().any(|engine| engine.can_rest()) {
                let part = if has(EmbedPart::Idle) {
                    "idle"
                } else {
                    "beside"
                };
                let limit = "it is for farcore and farcore-dedicated: add one to --engines";
                return Err(RangeError::new("--parts", part, limit).into());
            }
        }
        refuse(
            &[(
                "--idle-seconds",
                self.idle_seconds.is_some() && !has(EmbedPart::Idle),
            )],
            "without the part idle: add it to --parts, or leave the flag out",
        )?;
        let is_timed = has(EmbedPart::Callers) || has(EmbedPart::Beside);
        refuse(
            &[("--seconds", self.seconds.is_some() && !is_timed)],
            "without the parts callers and beside: add one to --parts, or leave the flag out",
        )?;
        refuse(
            &[("--pairs", self.pairs.is_some() && !has(EmbedPart::Beside))],
            "without the part beside: add it to --parts, or leave the flag out",
        )
    }

    /// Flags of callers that are left out.
    fn check_callers(&self) -> Result<(), PlanError> {
        let callers = self.callers();
        if !callers.contains(&Caller::Tasks) {
            let flags = [
                ("--tasks", self.tasks.is_some()),
                ("--workers", self.workers.is_some()),
            ];
            let why = "without the caller tasks: add it to --callers, or leave the flag out";
            refuse(&flags, why)?;
        }
        let is_any_thread = callers.iter().any(|&caller| caller != Caller::Tasks);
        let why = "without a caller with threads: add one to --callers, or leave the flag out";
        refuse(
            &[("--threads", self.threads.is_some() && !is_any_thread)],
            why,
        )
    }
}

impl super::WaitArgs {
    fn check_effects(&self, setup: &SetupArgs) -> Result<(), PlanError> {
        let is_embedded = setup.nodes().is_empty();
        let given = is_embedded && self.wait_for_nodes.is_some();
        let why = "without memory nodes: name them with --fabric, or leave the flag out";
        refuse(&[("--wait-for-nodes", given)], why)
    }
}
