//! The proxy as a program: start it in front of a cluster, point a client at it, and type plans on standard input.

use std::{
    io::{BufRead, Write},
    net::SocketAddr,
    path::PathBuf,
};

use anyhow::{Context, Result};
use clap::{Args, Parser};
use fault_plan::Plan;
use fault_proxy::{FaultProxy, Upstream};
use tokio::sync::mpsc;

/// A proxy between a client and an API server, or any HTTP service, that injects the faults of a fault plan.
///
/// Each line on standard input replaces the plan, or is a command. `trace` prints what has passed. `unused` prints the rules
/// that were never applied. `release` releases what is held or stalled. `clear` clears the trace. The end of the input
/// changes nothing; an interrupt ends the proxy.
#[derive(Parser)]
#[command(
    after_help = "A plan:  after create deployments.apps */web #1 -> drop; frame MODIFIED pods.core -> delay 500ms\n\
                        The README of testing/fault-plan describes all rules and actions."
)]
struct Arguments {
    #[command(flatten)]
    upstream: Server,

    /// The initial plan.
    #[arg(long, default_value = "", hide_default_value = true)]
    plan: Plan,

    /// The address to listen on; it must be on loopback.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// A file to which to write a kubeconfig for the proxy.
    #[arg(long)]
    write_kubeconfig: Option<PathBuf>,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct Server {
    /// The kubeconfig of the cluster behind the proxy. All clients of the proxy act as its user.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,

    /// The address of an HTTP service behind the proxy.
    #[arg(long)]
    url: Option<String>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let upstream = match (&arguments.upstream.kubeconfig, &arguments.upstream.url) {
        (Some(kubeconfig), _) => Upstream::cluster(kubeconfig).await?,
        (None, Some(url)) => Upstream::service(url)?,
        (None, None) => anyhow::bail!("give --kubeconfig or --url"),
    };
    let proxy = FaultProxy::start_at(upstream, &arguments.plan, arguments.listen).await?;
    if let Some(path) = arguments.write_kubeconfig {
        std::fs::copy(proxy.kubeconfig(), &path).with_context(|| format!("cannot write {}", path.display()))?;
    }
    say(&format!("listening on {}", proxy.url()))?;
    proxy.on_signal(async |signal| drop(say(&format!("signal {} at {}", signal.name, signal.request))));

    let (sender, mut lines) = mpsc::channel(1);
    // In a thread, because a read of standard input cannot be cancelled.
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    let mut open = true;
    loop {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => return Ok(()),
            line = lines.recv(), if open => match line {
                Some(line) => obey(&proxy, line.trim())?,
                None => open = false,
            },
        }
    }
}

fn obey(proxy: &FaultProxy, line: &str) -> Result<()> {
    match line {
        "trace" => say(proxy.trace().to_string().trim_end()),
        "unused" => say(&proxy.unused().join("\n")),
        "release" => {
            proxy.release();
            Ok(())
        }
        "clear" => {
            proxy.clear();
            Ok(())
        }
        plan => match plan.parse::<Plan>() {
            Ok(plan) => {
                say(&format!("plan: {plan}"))?;
                proxy.set_plan(&plan);
                Ok(())
            }
            Err(error) => say(&error.to_string()),
        },
    }
}

fn say(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}
