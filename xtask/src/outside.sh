# Run in the bare Debian 13, in the workspace: builds a crate outside of the workspace that uses cmid-blocking on real devices,
# and runs it. There is no device, which it reports.
[ ! -e /usr/include/infiniband ] || { echo "there are headers of rdma-core" >&2; exit 1; }
workspace=$PWD
mkdir -p /tmp/outside/src
cd /tmp/outside
# The versions of the workspace; cargo leaves out what is not needed.
cp "$workspace/Cargo.lock" .
cat >Cargo.toml <<END
[package]
name = "outside"
version = "0.1.0"
edition = "2024"

[dependencies]
cmid-blocking = { path = "$workspace/io-blocking", features = ["verbs"] }
END
cat >src/main.rs <<'END'
use cmid_blocking::proto::datapath::Attaching;
use cmid_blocking::verbs::{Access, Caps, CreateError, Qp, Verbs, datapath::prelude::*};
use cmid_blocking::{Connection, Options};

fn attach(device: &mut Verbs, to: Attaching<'_>) -> Result<Qp, CreateError> {
    let (pd, cq) = (device.alloc_pd(to.id())?, device.create_cq(to.id(), 32)?);
    let memory = pd.register(vec![0; 64], Access::LOCAL_WRITE)?;
    let mut qp = device.create_qp(to, &pd, &cq, &cq, Caps::default())?;
    qp.post_recv(1, memory.sge(0..64))?;
    Ok(qp)
}

fn main() {
    let peer = ([10, 99, 0, 1], 7471).into();
    match Verbs::open() {
        Ok(device) => match Connection::connect(device, peer, &Options::default(), attach) {
            Ok((connection, _qp)) => println!("connected to {:?}", connection.peer_addr()),
            Err(error) => println!("not connected: {error}"),
        },
        Err(error) => println!("no device: {error}"),
    }
}
END
cargo build
built=$CARGO_TARGET_DIR/debug/outside
printed=$("$built")
echo "$printed"
case $printed in
"no device: "* | "not connected: "*) ;;
*) exit 1 ;;
esac
# It loads rdma-core's libraries itself.
ldd "$built" >/tmp/libraries
if grep -E "libibverbs|librdmacm" /tmp/libraries; then exit 1; fi
