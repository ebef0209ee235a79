/* Posts work requests and polls their completions, a batch at a time. Sleeps between the two until all have completed,
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

static void poll_one(struct connection *connection)
{
	struct ibv_wc wc;

	if (ibv_poll_cq(connection->cq, 1, &wc) != 1) {
		fprintf(stderr, "a poll in vain: the count would not be exact\n");
		exit(3);
	}
	CHECK(wc.status || wc.wr_id >= AT_ONCE);
}

static void batch(struct connection *connection, int sends)
{
	struct timespec pause = { .tv_nsec = PAUSE_NS };

	for (int number = 0; sends && number < AT_ONCE; number++)
		post_recv(connection, number);
	for (int number = 0; number < AT_ONCE; number++) {
		if (sends)
			post_send(connection, number);
		else
			post_write(connection, number);
	}
	CHECK(nanosleep(&pause, NULL));
	for (int polls = sends ? 2 * AT_ONCE : AT_ONCE; polls; polls--)
		poll_one(connection);
}

void work(const char *host, const char *port, int sends, int batches)
{
	static struct connection connection;

	connection_open(&connection, host, port);
	for (int i = 0, end = parts(); i < end; i++) {
		if (i)
			callgrind_mark();
		for (int left = batches; left; left--)
			batch(&connection, sends);
	}
	callgrind_mark();
	connection_close(&connection);
}
