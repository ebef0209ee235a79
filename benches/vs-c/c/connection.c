/* One connection, made with blocking calls before the measured part. */
#include "versus.h"

static void await(struct connection *connection, enum rdma_cm_event_type what)
{
	struct rdma_cm_event *event;

	CHECK(rdma_get_cm_event(connection->channel, &event));
	if (event->event != what) {
		fprintf(stderr, "%s with status %d\n", rdma_event_str(event->event), event->status);
		exit(1);
	}
	if (what == RDMA_CM_EVENT_ESTABLISHED)
		memcpy(&connection->peer, event->param.conn.private_data, sizeof(connection->peer));
	CHECK(rdma_ack_cm_event(event));
}

void connection_open(struct connection *connection, const char *host, const char *port, int extended, int shared)
{
	struct sockaddr_in to = address(host, port);
	struct hello hello = { .with_qp = 2 };
	struct rdma_conn_param param = parameters(&hello);
	struct ibv_qp_init_attr_ex attr = {
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE,
	};

	connection->channel = rdma_create_event_channel();
	CHECK(!connection->channel);
	CHECK(rdma_create_id(connection->channel, &connection->id, NULL, RDMA_PS_TCP));
	CHECK(rdma_resolve_addr(connection->id, NULL, (struct sockaddr *)&to, RESOLVE_MS));
	await(connection, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(rdma_resolve_route(connection->id, RESOLVE_MS));
	await(connection, RDMA_CM_EVENT_ROUTE_RESOLVED);
	connection->pd = ibv_alloc_pd(connection->id->verbs);
	CHECK(!connection->pd);
	connection->completions = ibv_create_comp_channel(connection->id->verbs);
	CHECK(!connection->completions);
	set_nonblocking(connection->completions->fd);
	connection->cq = ibv_create_cq(connection->id->verbs, 2 * DEPTH, NULL, connection->completions, 0);
	CHECK(!connection->cq);
	connection->mr = ibv_reg_mr(connection->pd, connection->buffer, sizeof(connection->buffer), IBV_ACCESS_LOCAL_WRITE);
	CHECK(!connection->mr);
	attr.send_cq = attr.recv_cq = connection->cq;
	attr.pd = connection->pd;
	if (shared) {
		struct ibv_srq_init_attr srq = { .attr = { .max_wr = DEPTH, .max_sge = 1 } };

		attr.srq = connection->srq = ibv_create_srq(connection->pd, &srq);
		CHECK(!connection->srq);
	}
	if (extended)
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	CHECK(rdma_create_qp_ex(connection->id, &attr));
	if (extended) {
		connection->qp_ex = ibv_qp_to_qp_ex(connection->id->qp);
		CHECK(!connection->qp_ex);
	}
	CHECK(rdma_connect(connection->id, &param));
	await(connection, RDMA_CM_EVENT_ESTABLISHED);
	set_nonblocking(connection->channel->fd);
}

void connection_close(struct connection *connection)
{
	/* The server receives the disconnect. The local objects are freed at the program's end. */
	CHECK(rdma_disconnect(connection->id));
}
