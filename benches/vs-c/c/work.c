/* Posts work requests and polls their completions, AT_ONCE at a time: one by one, or in one call. Sleeps between the two until all have completed,
 * so that no poll is empty and the number of instructions does not depend on the device's speed. The pause is many
 * times the time that they take; it costs no instructions. */
#include "versus.h"

#include <time.h>

enum { AT_ONCE = 32, PAUSE_NS = 900000000 };

static void post_write(struct connection *connection, int number)
{
	struct ibv_sge sge = { (uintptr_t)connection->buffer, BYTES, connection->mr->lkey };
	struct ibv_send_wr wr, *bad;

	memset(&wr, 0, sizeof(wr));
	wr.wr_id = number;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.opcode = IBV_WR_RDMA_WRITE;
	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.rdma.remote_addr = connection->peer.addr;
	wr.wr.rdma.rkey = connection->peer.rkey;
	CHECK(ibv_post_send(connection->id->qp, &wr, &bad));
}

static void post_send(struct connection *connection, int number)
{
	struct ibv_sge sge = { (uintptr_t)connection->buffer, BYTES, connection->mr->lkey };
	struct ibv_send_wr wr, *bad;

	memset(&wr, 0, sizeof(wr));
	wr.wr_id = number;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.opcode = IBV_WR_SEND;
	wr.send_flags = IBV_SEND_SIGNALED;
	CHECK(ibv_post_send(connection->id->qp, &wr, &bad));
}

static void post_recv(struct connection *connection, int number)
{
	struct ibv_sge sge = { (uintptr_t)connection->buffer + BYTES, BYTES, connection->mr->lkey };
	struct ibv_recv_wr wr, *bad;

	memset(&wr, 0, sizeof(wr));
	wr.wr_id = number;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	CHECK(ibv_post_recv(connection->id->qp, &wr, &bad));
}

static void post_srq_recv(struct connection *connection, int number)
{
	struct ibv_sge sge = { (uintptr_t)connection->buffer + BYTES, BYTES, connection->mr->lkey };
	struct ibv_recv_wr wr, *bad;

	memset(&wr, 0, sizeof(wr));
	wr.wr_id = number;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	CHECK(ibv_post_srq_recv(connection->srq, &wr, &bad));
}

static void poll_one(struct connection *connection)
{
	struct ibv_wc wc;

	if (ibv_poll_cq(connection->cq, 1, &wc) != 1) {
		fprintf(stderr, "a poll in vain: the count would not be exact\n");
		exit(3);
	}
	CHECK(wc.status || wc.wr_id >= AT_ONCE);
}

static void post_write_extended(struct connection *connection, int number)
{
	struct ibv_qp_ex *qp = connection->qp_ex;

	ibv_wr_start(qp);
	qp->wr_id = number;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(qp, connection->peer.rkey, connection->peer.addr);
	ibv_wr_set_sge(qp, connection->mr->lkey, (uintptr_t)connection->buffer, BYTES);
	CHECK(ibv_wr_complete(qp));
}

static void post_send_extended(struct connection *connection, int number)
{
	struct ibv_qp_ex *qp = connection->qp_ex;

	ibv_wr_start(qp);
	qp->wr_id = number;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(qp);
	ibv_wr_set_sge(qp, connection->mr->lkey, (uintptr_t)connection->buffer, BYTES);
	CHECK(ibv_wr_complete(qp));
}

/* Posts AT_ONCE writes with one doorbell. */
static void post_list(struct connection *connection)
{
	struct ibv_sge sge = { (uintptr_t)connection->buffer, BYTES, connection->mr->lkey };
	struct ibv_send_wr list[AT_ONCE], *bad;

	for (int number = 0; number < AT_ONCE; number++) {
		struct ibv_send_wr *wr = &list[number];

		memset(wr, 0, sizeof(*wr));
		wr->wr_id = number;
		wr->next = number < AT_ONCE - 1 ? wr + 1 : NULL;
		wr->sg_list = &sge;
		wr->num_sge = 1;
		wr->opcode = IBV_WR_RDMA_WRITE;
		wr->send_flags = IBV_SEND_SIGNALED;
		wr->wr.rdma.remote_addr = connection->peer.addr;
		wr->wr.rdma.rkey = connection->peer.rkey;
	}
	CHECK(ibv_post_send(connection->id->qp, list, &bad));
}

static void post_list_extended(struct connection *connection)
{
	struct ibv_qp_ex *qp = connection->qp_ex;

	ibv_wr_start(qp);
	for (int number = 0; number < AT_ONCE; number++) {
		qp->wr_id = number;
		qp->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_rdma_write(qp, connection->peer.rkey, connection->peer.addr);
		ibv_wr_set_sge(qp, connection->mr->lkey, (uintptr_t)connection->buffer, BYTES);
	}
	CHECK(ibv_wr_complete(qp));
}

static void poll_all(struct connection *connection)
{
	struct ibv_wc wc[AT_ONCE];

	if (ibv_poll_cq(connection->cq, AT_ONCE, wc) != AT_ONCE) {
		fprintf(stderr, "a poll in vain: the count would not be exact\n");
		exit(3);
	}
	for (int i = 0; i < AT_ONCE; i++)
		CHECK(wc[i].status || wc[i].wr_id >= AT_ONCE);
}

static void pause_work(void)
{
	struct timespec pause = { .tv_nsec = PAUSE_NS };

	CHECK(nanosleep(&pause, NULL));
}

static void one_by_one(struct connection *connection, int sends)
{
	for (int number = 0; sends && number < AT_ONCE; number++)
		post_recv(connection, number);
	for (int number = 0; number < AT_ONCE; number++) {
		if (sends && connection->qp_ex)
			post_send_extended(connection, number);
		else if (sends)
			post_send(connection, number);
		else if (connection->qp_ex)
			post_write_extended(connection, number);
		else
			post_write(connection, number);
	}
	pause_work();
	for (int polls = sends ? 2 * AT_ONCE : AT_ONCE; polls; polls--)
		poll_one(connection);
}

static void shared_one_by_one(struct connection *connection)
{
	for (int number = 0; number < AT_ONCE; number++)
		post_srq_recv(connection, number);
	for (int number = 0; number < AT_ONCE; number++)
		post_send(connection, number);
	pause_work();
	for (int polls = 2 * AT_ONCE; polls; polls--)
		poll_one(connection);
}

static void in_one_call(struct connection *connection)
{
	if (connection->qp_ex)
		post_list_extended(connection);
	else
		post_list(connection);
	pause_work();
	poll_all(connection);
}

void work(const char *host, const char *port, struct work work, int batches)
{
	static struct connection connection;

	memset(&connection, 0, sizeof(connection));
	connection_open(&connection, host, port, work.extended, work.shared);
	for (int i = 0, end = parts(); i < end; i++) {
		if (i)
			callgrind_mark();
		for (int left = batches; left; left--) {
			if (work.shared)
				shared_one_by_one(&connection);
			else if (work.in_one_call)
				in_one_call(&connection);
			else
				one_by_one(&connection, work.sends);
		}
	}
	callgrind_mark();
	connection_close(&connection);
}
