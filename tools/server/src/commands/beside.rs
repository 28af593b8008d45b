//! Work that a disk may take long for, in a thread beside the core.

use farcore::Core;

/// Does work on the file in a thread of its own, since the system may take long, and waits for it.
pub(super) async fn beside<T: Send + 'static>(
    core: &Core,
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, done) = std::sync::mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread
        .spawn(move || {
            let _ = sender.send(work());
        })
        .ok()?;
    loop {
        match done.try_recv() {
            Ok(outcome) => return Some(outcome),
            Err(std::sync::mpsc::TryRecvError::Empty) => core.yield_now().await,
            Err(std::sync::mpsc::TryRecvError::Disconnected) => return None,
        }
    }
}
