//! `farcore`: this project's engine. Each worker is a job on one of its cores and serves that core
//! by polling.
//!
//! Owns the engine, its metrics endpoints and the recorder, and closes them in this order:
//! recorder, endpoints, engine.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use farcore::{
    Answer, Config, Core, Cursor, EncryptionKey, EncryptionMode, Engine, FabricAddress,
    HardwareSnapshot, LinkModel, Operation, Recorder, Recording, Refused, Report, Reporter,
    ScanOptions, ScanPage, Token, VerbsOptions,
};
use farcore_command::watch::Watched;
use farcore_command::words;
use serde_json::{Map, Value};

use crate::plan::{Encryption, EngineName, Plan, Scenario};
use crate::store::{Running, Session, Store, Usage};
use crate::worker::Worker;

/// The store.
#[derive(Debug)]
pub struct Farcore {
    engine: Arc<Engine>,
    cores: usize,
    window: usize,
    /// Resident far memory after pre-faulting, which does not change; without pre-faulting it is
    /// counted each time.
    far_resident_bytes: Option<u64>,
    /// Closed before the engine.
    watched: Watched,
    recorder: Option<Arc<Recorder>>,
    /// What is said if the recorder cannot write.
    record: String,
}

/// Empty polls after which the thread yields, because another thread of this core may have to run
/// first.
const EMPTY_POLLS_MAX: u32 = 512;

/// A core's client.
#[derive(Debug)]
pub(super) struct FarcoreSession {
    core: Core,
    window: usize,
    empty_polls: u32,
}

impl FarcoreSession {
    #[inline]
    fn poll_once(&mut self, sink: &mut impl FnMut(u64, Answer<'_>)) {
        if self.core.poll(sink) > 0 {
            self.empty_polls = 0;
            return;
        }
        self.empty_polls += 1;
        if self.empty_polls > EMPTY_POLLS_MAX {
            self.empty_polls = 0;
            std::thread::yield_now();
        }
    }
}

impl Farcore {
    /// The engine's configuration for a plan.
    ///
    /// # Errors
    /// An address or the token's file is invalid, or no random key is available.
    pub fn config(plan: &Plan) -> anyhow::Result<Config> {
        let mut nodes = Vec::new();
        if plan.engine == EngineName::Farcore {
            for node in &plan.fabric {
                let address = node.parse::<FabricAddress>();
                nodes.push(address.with_context(|| format!("--fabric {}", plan.fabric.join(",")))?);
            }
        }
        let token = match &plan.token_file {
            Some(file) => Some(Token::read(file).context("--token-file")?),
            None => None,
        };
        let encryption = if plan.encrypt.is_on() {
            Some(EncryptionKey::random()?)
        } else {
            None
        };
        let default = Config::from_profile(&plan.profile);
        let nodes_named = nodes.len();
        Ok(Config {
            cores: plan.cores.clone(),
            local_bytes: plan.local_bytes,
            far_bytes: plan.far_bytes,
            nodes_min: plan.nodes_min.filter(|_| !nodes.is_empty()),
            nodes,
            nodes_wait_ns: plan.nodes_wait_ns.unwrap_or(default.nodes_wait_ns),
            token,
            verbs: VerbsOptions {
                device: plan.device.clone(),
                port: plan.port,
                gid_index: plan.gid_index,
                ..VerbsOptions::default()
            },
            // Engines that run beside one with memory nodes have fewer of their own.
            replicas: match nodes_named {
                0 => plan.replicas.min(plan.far_nodes),
                _ => plan.replicas,
            },
            embedded_nodes: plan.far_nodes,
            keys_expected: plan.keys_max(),
            link: LinkModel {
                latency_ns: plan.far_latency_ns,
                ..LinkModel::default()
            },
            encryption,
            encryption_mode: match plan.encrypt {
                Encryption::SecrecyOnly => EncryptionMode::SecrecyOnly,
                Encryption::Off | Encryption::Authenticated => EncryptionMode::Authenticated,
            },
            prefault: plan.prefault,
            handles_max: plan.handles(),
            ..default
        })
    }
}

impl Farcore {
    /// Checks that the engine can run a plan.
    ///
    /// # Errors
    /// As [`Farcore::config`]; a setting is out of range, or values are longer than the limit.
    pub fn check(plan: &Plan) -> anyhow::Result<()> {
        let limit = Self::config(plan)?
            .value_bytes_max()
            .map_err(|error| anyhow!(words::refusal(&error)))?;
        if let Scenario::Fairness(settings) = &plan.scenario {
            let longest = settings.value_bytes_longest();
            if longest > limit as u64 {
                bail!(
                    "--value or --sleeper-value names {longest} bytes, but farcore takes {limit} with these settings: \
                     lower it, or raise --local or page_bytes of --profile"
                );
            }
        }
        let longest = plan.trace().map_or(0, |trace| trace.value_bytes_longest);
        if longest as usize > limit {
            bail!(
                "the trace's longest value has {longest} bytes, but farcore takes {limit} with these settings: \
                 lower --value-bytes-max, or raise --local or page_bytes of --profile"
            );
        }
        Ok(())
    }
}

impl Store for Farcore {
    fn open(plan: &Plan) -> anyhow::Result<Self> {
        Self::check(plan)?;
        let engine = Engine::open(Self::config(plan)?)?;
        let record = plan.record.as_deref().unwrap_or(Path::new(""));
        let record = format!("--record {} cannot be written", record.display());
        let recorder = match &plan.record {
            Some(file) => Some(Arc::new(
                File::create(file)
                    .and_then(Recorder::start)
                    .with_context(|| record.clone())?,
            )),
            None => None,
        };
        let far_resident_bytes = plan.prefault.then(|| engine.stats().far_resident_bytes);
        let watched = plan.watch.open(engine.reporter())?;
        Ok(Self {
            watched,
            engine: Arc::new(engine),
            cores: plan.cores.len(),
            window: plan.window,
            far_resident_bytes,
            recorder,
            record,
        })
    }

    fn start(&self, thread: usize, core: usize, worker: Worker) -> anyhow::Result<Running> {
        // Workers beyond the cores are further jobs of these.
        let position = thread.checked_rem(self.cores).unwrap_or(0);
        let window = self.window;
        let recorder = self.recorder.clone();
        let task = self
            .engine
            .run_on_core(position, move |mut core: Core| async move {
                if let Some(recorder) = recorder {
                    core.record(&recorder);
                }
                worker
                    .run(FarcoreSession {
                        core,
                        window,
                        empty_polls: 0,
                    })
                    .await;
            })?;
        Ok(Running::new(move || {
            task.join()
                .with_context(|| format!("the job on core {core} was lost"))
        }))
    }

    fn shard_of(&self, key: &[u8]) -> Option<usize> {
        Some(self.engine.shard_of(key))
    }

    fn usage(&self) -> Usage {
        let stats = self.engine.stats();
        let total = stats.total;
        let compaction = total
            .named()
            .filter_map(|(name, count)| Some((name.strip_prefix("compaction_")?, count)))
            .map(|(name, count)| (name.to_owned(), Value::from(count)));
        let mut compaction = Map::from_iter(compaction);
        compaction.insert("far_used_bytes".to_owned(), stats.far_used_bytes.into());
        compaction.insert("far_live_bytes".to_owned(), total.far_live_bytes.into());
        Usage {
            far_reads: total.far_reads,
            far_read_bytes: total.far_read_bytes,
            far_wanted_bytes: total.far_wanted_bytes,
            far_writes: total.far_writes,
            far_write_bytes: total.far_write_bytes,
            far_latency: stats.far_latency,
            far_used_bytes: stats.far_used_bytes,
            far_live_bytes: total.far_live_bytes,
            keys_expired: total.expired,
            keys: total.keys,
            index_bytes: total.index_bytes,
            local_cap_bytes: stats.local_cap_bytes,
            compaction,
        }
    }

    fn report(&self) -> Option<Report> {
        Some(self.engine.reporter().report())
    }

    fn far_resident_bytes(&self) -> u64 {
        self.far_resident_bytes
            .unwrap_or_else(|| self.engine.stats().far_resident_bytes)
    }

    fn close(self) -> anyhow::Result<()> {
        if let Some(recorder) = self.recorder.and_then(Arc::into_inner) {
            let Recording { recorded, dropped } = recorder.finish().context(self.record)?;
            if dropped == 0 {
                tracing::info!(recorded, "trace recorded");
            } else {
                tracing::warn!(
                    recorded,
                    dropped,
                    "the recorded trace has gaps: its writer could not keep up"
                );
            }
        }
        tracing::debug!(total = ?self.engine.stats().total, "counters");
        drop(self.watched);
        self.engine.close();
        Ok(())
    }
}

impl Session for FarcoreSession {
    #[inline]
    fn submit(
        &mut self,
        operation: Operation<'_>,
        token: u64,
        sink: &mut impl FnMut(u64, Answer<'_>),
    ) {
        while let Err(refused) = self.core.submit(operation, token) {
            match refused {
                Refused::Full => self.poll_once(sink),
                Refused::Error(error) => return sink(token, Answer::Failed(&error)),
            }
        }
        while self.core.in_flight() >= self.window {
            self.poll_once(sink);
        }
    }

    #[inline]
    fn poll(&mut self, sink: &mut impl FnMut(u64, Answer<'_>)) {
        self.poll_once(sink);
    }

    async fn scan(&mut self, cursor: Cursor, options: ScanOptions) -> farcore::Result<ScanPage> {
        self.core.scan(cursor, options).await
    }

    fn hardware(&self) -> Option<HardwareSnapshot> {
        Some(self.core.hardware())
    }

    fn in_flight(&self) -> usize {
        self.core.in_flight()
    }

    async fn rest(&mut self) {
        self.core.yield_now().await;
    }
}
