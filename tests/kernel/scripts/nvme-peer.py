"""Blocks by Python's nvmeof, as a peer of cmid-nvme: ADDRESS NQN write|read BLOCK FILE [BYTES]."""

import sys

import nvmeof

address, nqn, what, block, path = sys.argv[1:6]
with nvmeof.Controller.connect(address, nqn, queue_depth=16) as controller:
    namespace = controller.namespace(1)
    if what == "write":
        with open(path, "rb") as file:
            data = file.read()
    else:
        data = bytes(int(sys.argv[6]))
    with controller.allocate(len(data)) as buffer:
        blocks = len(data) // 512
        if what == "write":
            buffer.write(data)
            namespace.write(buffer, slba=int(block), blocks=blocks)
            namespace.flush()
        else:
            namespace.read(buffer, slba=int(block), blocks=blocks)
            with open(path, "wb") as file:
                file.write(buffer.read())
