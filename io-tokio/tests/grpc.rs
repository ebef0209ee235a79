//! gRPC on byte streams, of tonic on both sides: its health service.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::time::Duration;

use cmid_tokio::proto::messages::MessagesConfig;
use cmid_tokio::sim::{Rule, SimDevice};
use cmid_tokio::{ByteListener, Connection, Connector, Options};
use common::{LIMIT, World, attach, ends, server};
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint, Error, Server};
use tonic::{Code, Request, Status};
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

fn options() -> Options<'static> {
    Options { timeout: LIMIT, ..Options::default() }
}

/// A server that serves peers whose address it knows.
fn serve(world: &World) -> (HealthReporter, JoinHandle<Result<(), Error>>) {
    let incoming = ByteListener::new(world.listener(), MessagesConfig::default(), options());
    let of_peer = |request: Request<()>| {
        let peer = request.remote_addr().filter(|peer| peer.ip().to_string() == "10.0.0.1");
        peer.map(|_| request).ok_or(Status::permission_denied("not the client"))
    };
    let reporter = HealthReporter::new();
    let service = HealthServer::new(HealthService::from_health_reporter(reporter.clone()));
    let service = tonic::service::interceptor::InterceptedService::new(service, of_peer);
    (reporter, tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming)))
}

fn endpoint(world: &World) -> (Endpoint, Connector<SimDevice>) {
    let connector = Connector::new(world.client.device(), MessagesConfig::default(), options());
    (Endpoint::from_static("http://10.0.0.2:7471"), connector)
}

fn client(world: &World) -> HealthClient<Channel> {
    let (endpoint, connector) = endpoint(world);
    HealthClient::new(endpoint.connect_with_connector_lazy(connector))
}

fn whole() -> HealthCheckRequest {
    HealthCheckRequest { service: String::new() }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_slower_than_signs_of_life_goes_on_until_its_server_is_gone_and_the_next_call_connects_again()
{
    let world = World::paused();
    let (endpoint, connector) = endpoint(&world);
    assert!(ends(endpoint.connect_with_connector(connector)).await.is_err(), "no server");
    let (reporter, _serving) = serve(&world);
    let mut client = client(&world);
    let mut stream = ends(client.watch(whole())).await.unwrap().into_inner();
    assert_eq!(ends(stream.message()).await.unwrap().unwrap().status, ServingStatus::Serving as i32);
    for status in [ServingStatus::NotServing, ServingStatus::Serving] {
        tokio::time::sleep(Duration::from_secs(60)).await;
        reporter.set_service_status("", status).await;
        assert_eq!(ends(stream.message()).await.unwrap().unwrap().status, status as i32);
    }
    let cut = world.fabric.rule(Rule::cut().between(&world.client, &world.server));
    let gone = ends(stream.message()).await.unwrap_err();
    assert!([Code::Unavailable, Code::Unknown].contains(&gone.code()), "{gone}");
    assert_eq!(ends(client.check(whole())).await.unwrap_err().code(), Code::Unavailable);
    drop(cut);
    let answer = ends(client.check(whole())).await.unwrap().into_inner();
    assert_eq!(answer.status, ServingStatus::Serving as i32);
}

#[tokio::test(start_paused = true)]
async fn a_server_goes_on_after_a_peer_that_is_no_channel_and_ends_with_its_device() {
    let world = World::paused();
    let (_reporter, serving) = serve(&world);
    let wrong = Connection::connect(world.client.device(), server(), &options(), attach).await;
    ends(client(&world).check(whole())).await.unwrap();
    drop(wrong);
    world.server.remove_device();
    ends(serving).await.unwrap().unwrap();
}
