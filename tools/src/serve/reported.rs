//! The statistics of an engine, of the clients that its server serves, and of replication.

use farcore::statistics::{ClientsReport, Reporter};
use farcore::{EngineReporter, Report};
use farcore_server::{CoreFigures, ServerReporter};

/// Reports the figures of an engine and of its server, by core.
#[derive(Debug)]
pub(super) struct ReportedServer {
    pub(super) engine: EngineReporter,
    pub(super) server: ServerReporter,
}

fn native_clients_of(core: &CoreFigures) -> ClientsReport {
    ClientsReport {
        connections: core.native.connections,
        connection_bytes: core.native.slot_bytes,
        commands: core.native.requests,
        failed_commands: core.native.failed,
    }
}

fn clients_of(core: &CoreFigures) -> ClientsReport {
    ClientsReport {
        connections: core.connections,
        connection_bytes: core.connection_bytes,
        commands: core.commands,
        failed_commands: core.failed_commands,
    }
}

impl Reporter for ReportedServer {
    fn report(&self) -> Report {
        let mut report = self.engine.report();
        let served = self.server.figures();
        for (core, figures) in report.cores.iter_mut().zip(&served.cores) {
            core.clients = clients_of(figures);
            core.native_clients = native_clients_of(figures);
        }
        report.replication = Some(self.server.replication());
        report.cluster = self.server.cluster();
        report
    }

    fn is_serving(&self) -> bool {
        // While the directory is loaded most commands are refused.
        self.engine.is_serving() && !self.server.is_loading()
    }
}
