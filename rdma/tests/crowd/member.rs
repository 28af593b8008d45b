//! A process's sessions with all nodes, and its view of their tables.
//!
//! Clients use it to claim; the parent uses it to check that everything is free in the end.

use std::rc::Rc;
use std::time::Instant;

use farcore_rdma::control::NodeStatistics;
use farcore_rdma::{
    Claims, ConnectOptions, FabricAddress, FabricEndpoint, FabricOptions, Heartbeats, Initiator,
    InitiatorOptions, Lock, NodeConnections, NodeMap, PoolNode, VerbsOptions,
};
use glommio::timer::Timer;

use crate::role::random;
use crate::{EXTENTS, LIMIT, NODE_COUNT, TICK};

/// A process's sessions and its claims on all nodes.
pub(crate) struct Member {
    pub(crate) connections: Vec<NodeConnections>,
    pub(crate) claims: Claims<FabricEndpoint>,
    pub(crate) maps: Vec<NodeMap>,
    pub(crate) owners: Vec<u64>,
    /// Keeps the leases.
    pub(crate) heartbeats: Heartbeats,
}

impl Member {
    pub(crate) async fn open(addresses: &[FabricAddress]) -> Result<Self, String> {
        let silence_ns = 20_000_000_000;
        let fabric = FabricOptions {
            queues: addresses.len(),
            depth: 256,
            limit_ns: silence_ns,
            verbs: VerbsOptions::default(),
        };
        let endpoint = FabricEndpoint::open(addresses, &fabric).await;
        let endpoint = endpoint.map_err(|error| error.to_string())?;
        let heartbeats = Heartbeats::start().map_err(|error| error.to_string())?;
        let (mut connections, mut nodes) = (Vec::new(), Vec::new());
        for (queue, address) in addresses.iter().enumerate() {
            let options = ConnectOptions::default();
            let opened = NodeConnections::open(address.clone(), options, &heartbeats).await;
            let mut node = opened.map_err(|error| error.to_string())?;
            node.keep(
                endpoint
                    .connection_slot(queue)
                    .ok_or("a fabric without connections")?,
            );
            node.connect().await.map_err(|error| error.to_string())?;
            let session = node.session().ok_or("a session")?;
            nodes.push(PoolNode {
                queue,
                owner: session.owner(),
                map: session.map().clone(),
            });
            connections.push(node);
        }
        let options = InitiatorOptions {
            lock: Lock::Off,
            ..InitiatorOptions::default()
        };
        let initiator = Initiator::new(endpoint, options).map_err(|error| error.to_string())?;
        for queue in 0..addresses.len() {
            initiator.renew(queue);
        }
        let maps = nodes.iter().map(|node| node.map.clone()).collect();
        let owners: Vec<u64> = nodes.iter().map(|node| node.owner.get()).collect();
        let claims = Claims::new(Rc::new(initiator), nodes, random(u64::MAX));
        Ok(Self {
            connections,
            claims: claims.map_err(|error| error.to_string())?,
            maps,
            owners,
            heartbeats,
        })
    }
}

/// The parts of a node's table that are not free, read over the fabric; `None` if all are free.
pub(crate) async fn left_over(
    member: &mut Member,
    node: usize,
) -> (NodeStatistics, Option<String>) {
    let metrics = member.connections[node].statistics().await;
    let metrics = metrics.expect("figures");
    let map = &member.maps[node];
    let read = async |slice| {
        let mut bytes = [0; 8];
        let initiator = member.claims.initiator();
        initiator
            .read(node, slice, &mut bytes)
            .await
            .expect("a word of the table");
        u64::from_le_bytes(bytes)
    };
    let mut left = Vec::new();
    for word in 0..map.bitmap_words() {
        let past = map.extents().saturating_sub(word * 64);
        let valid = if past >= 64 {
            u64::MAX
        } else {
            (1 << past) - 1
        };
        let bits = read(map.bitmap_slice(word)).await & valid;
        if bits != 0 {
            left.push(format!("bits {bits:#x} of word {word}"));
        }
    }
    for extent in 0..map.extents() {
        let owner = read(map.owner_slice(extent)).await;
        if owner != 0 {
            left.push(format!("extent {extent} of {owner}"));
        }
    }
    if metrics.extents_free != metrics.extents {
        left.push(format!(
            "{} of {} extents free",
            metrics.extents_free, metrics.extents
        ));
    }
    (metrics, (!left.is_empty()).then(|| left.join(", ")))
}

/// Waits until all nodes are free and claims them whole. Returns the number of extents reclaimed
/// from dead clients.
pub(crate) async fn look_after_all(nodes: &str) -> Result<u64, String> {
    let addresses: Vec<FabricAddress> = nodes
        .split(',')
        .map(|one| one.parse().expect("an address"))
        .collect();
    let mut member = Member::open(&addresses).await?;
    let (since, mut reclaimed) = (Instant::now(), 0);
    for node in 0..NODE_COUNT {
        loop {
            let (metrics, left) = left_over(&mut member, node).await;
            match left {
                None => {
                    reclaimed += metrics.extents_reclaimed;
                    break;
                }
                Some(left) if since.elapsed() > LIMIT => {
                    return Err(format!("node {node}: {left}"));
                }
                Some(_) => {
                    for connection in &mut member.connections {
                        connection.tend().await;
                    }
                    Timer::new(TICK).await;
                }
            }
        }
    }
    member
        .claims
        .refresh()
        .await
        .map_err(|error| error.to_string())?;
    let mut got = 0;
    while let Some(claim) = member
        .claims
        .claim(1)
        .await
        .map_err(|error| error.to_string())?
    {
        got += u64::from(claim.run().count());
    }
    for connection in member.connections {
        connection.close().await;
    }
    let wanted = EXTENTS * NODE_COUNT as u64;
    if got != wanted {
        return Err(format!("only {got} of {wanted} extents could be claimed"));
    }
    Ok(reclaimed)
}
