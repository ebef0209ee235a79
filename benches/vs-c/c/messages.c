/* A ping-pong of messages, each awaited in poll(2) on the completion channel and the event channel. */
#include "versus.h"

#include <poll.h>
#include <time.h>

enum { SEND, RECV };

static void post_recv(struct connection *connection)
{
	struct ibv_sge sge = { (uintptr_t)connection->buffer + BYTES, BYTES, connection->mr->lkey };
	struct ibv_recv_wr wr, *bad;

	memset(&wr, 0, sizeof(wr));
	wr.wr_id = RECV;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	CHECK(ibv_post_recv(connection->id->qp, &wr, &bad));
}

static void post_send(struct connection *connection)
{
	struct ibv_sge sge = { (uintptr_t)connection->buffer, BYTES, connection->mr->lkey };
	struct ibv_send_wr wr, *bad;

	memset(&wr, 0, sizeof(wr));
	wr.wr_id = SEND;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.opcode = IBV_WR_SEND;
	wr.send_flags = IBV_SEND_SIGNALED;
	CHECK(ibv_post_send(connection->id->qp, &wr, &bad));
}

/* Polls the available completions. Returns the number of finished pings. */
static int take(struct connection *connection)
{
	static int sent, received;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;
	int finished = 0;

	CHECK(ibv_get_cq_event(connection->completions, &cq, &context));
	ibv_ack_cq_events(cq, 1);
	CHECK(ibv_req_notify_cq(cq, 0));
	while (ibv_poll_cq(cq, 1, &wc) > 0) {
		CHECK(wc.status);
		if (wc.wr_id == RECV) {
			received++;
			post_recv(connection);
		} else {
			sent++;
		}
		/* The buffer is free, and the answer has arrived. */
		if (sent == received) {
			finished++;
			post_send(connection);
		}
	}
	return finished;
}

static void part(struct connection *connection, int count)
{
	int finished = 0;

	while (finished < count) {
		struct pollfd fds[] = {
			{ .fd = connection->completions->fd, .events = POLLIN },
			{ .fd = connection->channel->fd, .events = POLLIN },
		};

		CHECK(poll(fds, 2, -1) < 0 && errno != EINTR);
		if (fds[1].revents) {
			fprintf(stderr, "the connection has ended\n");
			exit(1);
		}
		if (fds[0].revents)
			finished += take(connection);
	}
}

void messages(const char *host, const char *port, int count)
{
	static struct connection connection;
	struct timespec begin, over;
	int end = parts();
	double span;

	connection_open(&connection, host, port, 0, 0);
	CHECK(ibv_req_notify_cq(connection.cq, 0));
	post_recv(&connection);
	post_send(&connection);
	CHECK(clock_gettime(CLOCK_MONOTONIC, &begin));
	for (int i = 0; i < end; i++) {
		if (i)
			callgrind_mark();
		part(&connection, count);
	}
	callgrind_mark();
	CHECK(clock_gettime(CLOCK_MONOTONIC, &over));
	span = (over.tv_sec - begin.tv_sec) + (over.tv_nsec - begin.tv_nsec) / 1e9;
	printf("%d iters in %.2f seconds = %.2f usec/iter\n", end * count, span, span * 1e6 / (end * count));
	connection_close(&connection);
}
